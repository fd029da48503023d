/* Actions that are one choice, or several choices at once. */
#pragma once
#include "program.h"

typedef int64_t action_number;

/* The number of values of every choice. */
typedef struct {
    int64_t sizes[NETWORK_ACTION];
} action_space;

static inline bool read_actions(const char* text, size_t size, action_space* actions) {
    int64_t sum = 0;
    if (size != sizeof *actions) return false;
    memcpy(actions, text, size);
    for (int n = 0; n < NETWORK_ACTION; sum += actions->sizes[n++])
        if (actions->sizes[n] < 1 || actions->sizes[n] > NETWORK_POLICY) return false;
    return sum == NETWORK_POLICY;
}

/* Draws every choice from the logits of its values. */
static inline void choose(const action_space* actions, const float* logits, double temperature, uint64_t* random,
                          action_number* action) {
    for (int n = 0; n < NETWORK_ACTION; logits += actions->sizes[n++])
        action[n] = sample(logits, actions->sizes[n], temperature, random);
}

static inline void show_action(const action_space* actions, const action_number* action) {
    (void)actions;
    for (int n = 0; n < NETWORK_ACTION; ++n) printf("%lld%c", (long long)action[n], n + 1 < NETWORK_ACTION ? ' ' : '\n');
}
