/* Reads observations, and prints actions. See README.md for the build line. */
#include "actions.h"

static const char usage[] =
    "usage: %s [OPTIONS] WEIGHTS < TIME_STEPS\n\n"
    "Reads one time step per line, and prints one action per line. A line has these numbers:\n"
    "1 at the first step of an episode and 0 at others, the reward of the last action, and the observation.\n\n"
    "  --temperature X  Temperature of sampling; 0 for the most probable action. (default: 1)\n"
    "  --seed N         Random seed of sampling. (default: 0)\n"
    "  --policy         Print the parameters of the policy instead of the action: logits, or means and then\n"
    "                   logarithms of standard deviations.\n"
    THREADS_USAGE;

static double temperature = 1, seed;
static bool shows_policy;
static const option options[] = {
    {"--temperature", &temperature, NULL},
    {"--seed", &seed, NULL},
    {"--policy", NULL, &shows_policy},
    THREADS_OPTION,
    {NULL, NULL, NULL}};

/* What the network reads in a time step. */
typedef struct {
    float observation[NETWORK_OBSERVATION], reward;
    action_number action[NETWORK_ACTION];
    bool first;
} time_step;

/* Reads a line. The last action stays as it is. */
static bool read_time_step(const char* line, time_step* x) {
    float first;
    if (!read_number(&line, &first) || (first != 0 && first != 1)) return false;
    x->first = first == 1;
    if (!read_number(&line, &x->reward)) return false;
    for (int n = 0; n < NETWORK_OBSERVATION; ++n)
        if (!read_number(&line, &x->observation[n])) return false;
    return !*line || *line == '\n';
}

static int step(network* n, const action_space* actions, uint64_t* random, time_step* x) {
    static float policy[NETWORK_POLICY], value[NETWORK_VALUE];
    const network_inputs inputs = {x->observation, &x->reward, x->action, &x->first};
    const network_outputs outputs = {policy, value};
    const int error = network_step(n, &inputs, &outputs);
    if (error) return fail("a step failed", network_message(error));
    choose(actions, policy, temperature, random, x->action);
    if (shows_policy) show_numbers(policy, NETWORK_POLICY);
    else show_action(actions, x->action);
    fflush(stdout);
    return 0;
}

static int run(network* n) {
    static char line[64 * (NETWORK_OBSERVATION + 3)];
    static time_step x;
    action_space actions;
    uint64_t random = (uint64_t)seed;
    size_t size;
    const char* const text = network_text(n, &size);
    if (!read_actions(text, size, &actions)) return fail("the weight file has no action space", "");
    for (long long count = 1; fgets(line, sizeof line, stdin); ++count) {
        char place[32];
        snprintf(place, sizeof place, "line %lld", count);
        if (!read_time_step(line, &x)) return fail("a line must have the numbers of one time step", place);
        if (step(n, &actions, &random, &x)) return INVALID;
    }
    return 0;
}

int main(int count, char** texts) {
    return program(count, texts, usage, options, run);
}
