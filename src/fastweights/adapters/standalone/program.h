/* Parts that the programs share: arguments, tokens, random choices. */
#pragma once
#include "network.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exit status after invalid arguments or input. */
enum { INVALID = 2 };

static inline int fail(const char* what, const char* why) {
    fprintf(stderr, "error: %s%s%s.\n", what, *why ? ": " : "", why);
    return INVALID;
}

static inline bool number(const char* text, double least, double most, double* x) {
    char* end;
    errno = 0;
    *x = strtod(text, &end);
    return end != text && !*end && !errno && *x >= least && *x <= most;
}

/* An option of the command line: a switch that is set, or else a number of at least 0. The last one has no name. */
typedef struct {
    const char* name;
    double* value;
    bool* is_set;
} option;

/* Reads the command line: options, and the weight file. The result is NULL, or what is wrong. */
static inline const char* read_options(int count, char** texts, const option* options, const char** weights) {
    for (int n = 1; n < count; ++n) {
        const char* const text = texts[n];
        const option* o = options;
        while (o->name && strcmp(o->name, text)) ++o;
        if (o->is_set) {
            *o->is_set = true;
        } else if (o->value) {
            if (++n == count || !number(texts[n], 0, 1e15, o->value)) return text;
        } else if (text[0] == '-') {
            return text;
        } else {
            if (*weights) return "there must be one weight file";
            *weights = text;
        }
    }
    return *weights ? NULL : "there must be a weight file";
}

/* Opens the network that the command line names, and runs it. */
static inline int program(int count, char** texts, const char* usage, const option* options, int (*run)(network*)) {
    const char* weights = NULL;
    const char* const wrong = read_options(count, texts, options, &weights);
    if (wrong) {
        fprintf(stderr, usage, texts[0]);
        return fail("invalid arguments", wrong);
    }
    network n;
    const int error = network_open(&n, weights);
    if (error) return fail(weights, network_message(error));
    const int failed = run(&n);
    network_close(&n);
    return failed;
}

/* Reads one number, and what separates it from the next on its line. */
static inline bool read_number(const char** text, float* x) {
    char* end;
    *x = strtof(*text, &end);
    if (end == *text || !isfinite(*x)) return false;
    *text = end + strspn(end, " \t\r,");
    return true;
}

/* A token as text: `size` bytes of UTF-8. */
typedef struct {
    const char* bytes;
    size_t size;
} token;

/* Reads `count` tokens or names at *text: each is a byte with its size, then its text. */
static inline bool read_tokens(const char** text, const char* end, token* tokens, int64_t count) {
    for (int64_t n = 0; n < count; ++n) {
        if (*text == end) return false;
        tokens[n].size = (unsigned char)*(*text)++;
        if (tokens[n].size > (size_t)(end - *text)) return false;
        tokens[n].bytes = *text;
        *text += tokens[n].size;
    }
    return true;
}

/* The number of the token at the beginning of a text; -1 if there is none. */
static inline int64_t token_at(const token* tokens, int64_t count, const char* text, size_t size) {
    for (int64_t n = 0; n < count; ++n)
        if (tokens[n].size && tokens[n].size <= size && !memcmp(tokens[n].bytes, text, tokens[n].size)) return n;
    return -1;
}

/* The whole standard input, with a zero behind it; NULL without memory. */
static inline char* read_input(size_t* size) {
    size_t room = 1 << 16, count;
    char* text = (char*)malloc(room);
    *size = 0;
    while (text && (count = fread(text + *size, 1, room - 1 - *size, stdin)) > 0) {
        *size += count;
        if (*size < room - 1) continue;
        char* const larger = (char*)realloc(text, room *= 2);
        if (!larger) free(text);
        text = larger;
    }
    if (text) text[*size] = 0;
    return text;
}

/* A random number in [0, 1): splitmix64. */
static inline double uniform(uint64_t* random) {
    uint64_t x = *random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

static inline int64_t most_probable(const float* logits, int64_t count) {
    int64_t best = 0;
    for (int64_t n = 1; n < count; ++n)
        if (logits[n] > logits[best]) best = n;
    return best;
}

/* A number with the probability exp(logit / temperature) / sum. */
static inline int64_t sample(const float* logits, int64_t count, double temperature, uint64_t* random) {
    const int64_t best = most_probable(logits, count);
    if (temperature == 0) return best;
    double sum = 0;
    for (int64_t n = 0; n < count; ++n) sum += exp((logits[n] - logits[best]) / temperature);
    double rest = uniform(random) * sum;
    for (int64_t n = 0; n < count; ++n) {
        rest -= exp((logits[n] - logits[best]) / temperature);
        if (rest < 0) return n;
    }
    return best;
}

static inline void show_numbers(const float* x, int64_t count) {
    for (int64_t n = 0; n < count; ++n) printf("%.9g%c", x[n], n + 1 < count ? ' ' : '\n');
}
