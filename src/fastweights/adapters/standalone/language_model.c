/* Continues a text, character by character. See README.md for the build line. */
#include "network.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A token as text: `size` bytes of UTF-8. */
typedef struct {
    const char* bytes;
    size_t size;
} token;

static int fail(const char* what, const char* why) {
    fprintf(stderr, "error: %s%s%s.\n", what, *why ? ": " : "", why);
    return 1;
}

static bool number(const char* text, double least, double most, double* x) {
    char* end;
    errno = 0;
    *x = strtod(text, &end);
    return end != text && !*end && !errno && *x >= least && *x <= most;
}

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

/* The tokens of the network: each is a byte with its size, then its text. */
static bool read_tokens(const network* n, token* tokens) {
    size_t size, count = 0;
    const char* p = network_text(n, &size);
    const char* const end = p + size;
    for (; p < end && count < TOKENS; ++count) {
        tokens[count].size = (unsigned char)*p++;
        if (tokens[count].size > (size_t)(end - p)) return false;
        tokens[count].bytes = p;
        p += tokens[count].size;
    }
    return p == end && count == TOKENS;
}

/* The number of the token at the beginning of a text; -1 if there is none. */
static int64_t token_at(const token* tokens, const char* text, size_t size) {
    for (int64_t n = 0; n < TOKENS; ++n)
        if (tokens[n].size <= size && !memcmp(tokens[n].bytes, text, tokens[n].size)) return n;
    return -1;
}

/* The whole standard input; NULL without memory. */
static char* read_input(size_t* size) {
    size_t room = 1 << 16, count;
    char* text = (char*)malloc(room);
    *size = 0;
    while (text && (count = fread(text + *size, 1, room - *size, stdin)) > 0) {
        *size += count;
        if (*size < room) continue;
        char* const larger = (char*)realloc(text, room *= 2);
        if (!larger) free(text);
        text = larger;
    }
    return text;
}

/* A random number in [0, 1): splitmix64. */
static double uniform(uint64_t* random) {
    uint64_t x = *random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

static int64_t most_probable(const float* logits) {
    int64_t best = 0;
    for (int64_t n = 1; n < TOKENS; ++n)
        if (logits[n] > logits[best]) best = n;
    return best;
}

/* A token with the probability exp(logit / temperature) / sum. */
static int64_t sample(const float* logits, double temperature, uint64_t* random) {
    const int64_t best = most_probable(logits);
    if (temperature == 0) return best;
    double sum = 0;
    for (int64_t n = 0; n < TOKENS; ++n) sum += exp((logits[n] - logits[best]) / temperature);
    double rest = uniform(random) * sum;
    for (int64_t n = 0; n < TOKENS; ++n) {
        rest -= exp((logits[n] - logits[best]) / temperature);
        if (rest < 0) return n;
    }
    return best;
}

static void show_logits(const float* logits) {
    for (int64_t n = 0; n < TOKENS; ++n) printf("%.9g%c", logits[n], n + 1 < TOKENS ? ' ' : '\n');
}

/* Reads one token. */
static int step(network* n, const options* o, int64_t read, float* logits) {
    const network_inputs x = {&read};
    const network_outputs y = {logits};
    const int error = network_step(n, &x, &y);
    if (error) return fail("a step failed", network_message(error));
    if (o->logits) show_logits(logits);
    return 0;
}

/* Reads a text; `logits` are those of the token after it. */
static int read_text(network* n, const options* o, const token* tokens, const char* text, size_t size, float* logits) {
    size_t at = 0;
    while (at < size) {
        const int64_t read = token_at(tokens, text + at, size - at);
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
        const int64_t next = sample(logits, o->temperature, &random);
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
    if (!read_tokens(n, tokens)) return fail("the weight file has no tokens", "");
    size_t size;
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
