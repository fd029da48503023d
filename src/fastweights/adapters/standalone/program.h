/* Parts that the programs share: arguments, tokens, random choices. */
#pragma once
#include "network.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int fail(const char* what, const char* why) {
    fprintf(stderr, "error: %s%s%s.\n", what, *why ? ": " : "", why);
    return 1;
}

static inline bool number(const char* text, double least, double most, double* x) {
    char* end;
    errno = 0;
    *x = strtod(text, &end);
    return end != text && !*end && !errno && *x >= least && *x <= most;
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
