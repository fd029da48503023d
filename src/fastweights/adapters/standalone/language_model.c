/* Continues a text, character by character. See README.md for the build line. */
#include "program.h"

#define TOKENS NETWORK_LOGITS

static const char usage[] =
    "usage: %s [OPTIONS] WEIGHTS < TEXT\n\n"
    "Continues a text from the standard input.\n\n"
    "  --max-new-tokens N  Number of new characters. (default: 500)\n"
    "  --temperature X     Temperature of sampling; 0 for the most probable character. (default: 0.8)\n"
    "  --seed N            Random seed of sampling. (default: 0)\n"
    "  --logits            Print the logits after every character instead of the text.\n";

typedef struct {
    const char* weights;
    long long max_new_tokens, seed;
    double temperature;
    bool logits;
} options;

/* Reads the command line. The result is NULL, or what is wrong. */
static const char* read_options(int count, char** texts, options* o) {
    double x;
    for (int n = 1; n < count; ++n) {
        const char* const name = texts[n];
        if (!strcmp(name, "--logits")) {
            o->logits = true;
        } else if (name[0] != '-') {
            if (o->weights) return "there must be one weight file";
            o->weights = name;
        } else if (++n == count) {
            return name;
        } else if (!strcmp(name, "--max-new-tokens") && number(texts[n], 0, 1e15, &x)) {
            o->max_new_tokens = (long long)x;
        } else if (!strcmp(name, "--seed") && number(texts[n], 0, 1e15, &x)) {
            o->seed = (long long)x;
        } else if (!strcmp(name, "--temperature") && number(texts[n], 0, 1e15, &x)) {
            o->temperature = x;
        } else {
            return name;
        }
    }
    return o->weights ? NULL : "there must be a weight file";
}

/* Reads one token. */
static int step(network* n, const options* o, int64_t read, float* logits) {
    const network_inputs x = {&read};
    const network_outputs y = {logits};
    const int error = network_step(n, &x, &y);
    if (error) return fail("a step failed", network_message(error));
    if (o->logits) show_numbers(logits, TOKENS);
    return 0;
}

/* Reads a text; `logits` are those of the token after it. */
static int read_text(network* n, const options* o, const token* tokens, const char* text, size_t size, float* logits) {
    size_t at = 0;
    while (at < size) {
        const int64_t read = token_at(tokens, TOKENS, text + at, size - at);
        char place[32];
        snprintf(place, sizeof place, "byte %zu", at);
        if (read < 0) return fail("the text has a character that the network does not have", place);
        if (step(n, o, read, logits)) return 1;
        at += tokens[read].size;
    }
    if (!o->logits) fwrite(text, 1, size, stdout);
    return size ? 0 : fail("the text must have at least one character", "");
}

static int write_text(network* n, const options* o, const token* tokens, float* logits) {
    uint64_t random = (uint64_t)o->seed;
    for (long long count = 0; count < o->max_new_tokens; ++count) {
        const int64_t next = sample(logits, TOKENS, o->temperature, &random);
        if (!o->logits) {
            fwrite(tokens[next].bytes, 1, tokens[next].size, stdout);
            fflush(stdout);
        }
        if (step(n, o, next, logits)) return 1;
    }
    if (!o->logits) putchar('\n');
    return 0;
}

static int run(network* n, const options* o) {
    static token tokens[TOKENS];
    static float logits[TOKENS];
    size_t size;
    const char* names = network_text(n, &size);
    if (!read_tokens(&names, names + size, tokens, TOKENS)) return fail("the weight file has no tokens", "");
    char* const text = read_input(&size);
    if (!text) return fail("there is not enough memory for the text", "");
    const int error = read_text(n, o, tokens, text, size, logits) || write_text(n, o, tokens, logits);
    free(text);
    return error;
}

int main(int count, char** texts) {
    options o = {NULL, 500, 0, 0.8, false};
    const char* const wrong = read_options(count, texts, &o);
    if (wrong) {
        fprintf(stderr, usage, texts[0]);
        return fail("invalid arguments", wrong);
    }
    network n;
    const int error = network_open(&n, o.weights);
    if (error) return fail(o.weights, network_message(error));
    const int failed = run(&n, &o);
    network_close(&n);
    return failed;
}
