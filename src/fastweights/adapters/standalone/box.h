/* Actions that are vectors of real numbers. */
#pragma once
#include "program.h"

#include <float.h>

typedef float action_number;

/* The bounds of every number in the units of the environment. Infinite bounds stand for none. */
typedef struct {
    double low[NETWORK_ACTION], high[NETWORK_ACTION];
} action_space;

static inline bool read_actions(const char* text, size_t size, action_space* actions) {
    if (size != sizeof *actions) return false;
    memcpy(actions, text, size);
    return true;
}

/* A number of the normal distribution. */
static inline double normal(uint64_t* random) {
    const double radius = sqrt(-2 * log(1 - uniform(random)));
    return radius * cos(6.283185307179586 * uniform(random));
}

/* Draws every number from the normal distribution whose density is that of the policy to the power 1 / temperature.
   The policy has the means, and then the logarithms of the standard deviations. */
static inline void choose(const action_space* actions, const float* policy, double temperature, uint64_t* random,
                          action_number* action) {
    (void)actions;
    for (int n = 0; n < NETWORK_ACTION; ++n) {
        const double deviation = sqrt(temperature) * exp(policy[NETWORK_ACTION + n]);
        action[n] = (float)(policy[n] + (temperature > 0 ? deviation * normal(random) : 0));
    }
}

/* Prints an action within its bounds: -1 and 1 of the network stand for a lower and an upper bound. */
static inline void show_action(const action_space* actions, const action_number* action) {
    for (int n = 0; n < NETWORK_ACTION; ++n) {
        const double low = actions->low[n], high = actions->high[n];
        const double x = fabs(high - low) <= FLT_MAX ? low + (action[n] + 1.0) / 2 * (high - low) : action[n];
        printf("%.9g%c", x < low ? low : x > high ? high : x, n + 1 < NETWORK_ACTION ? ' ' : '\n');
    }
}
