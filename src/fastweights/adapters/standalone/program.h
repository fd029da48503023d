/* Parts that the programs share: arguments, texts, random choices. */
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

/* The option of all programs. */
static double threads = 1;
#define THREADS_OPTION {"--threads", &threads, NULL}
#define THREADS_USAGE "  --threads N  Number of threads. (default: 1)\n"

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
    for (int n = 1; n < count; ++n)
        if (!strcmp(texts[n], "--help")) return printf(usage, texts[0]), 0;
    const char* weights = NULL;
    const char* const wrong = read_options(count, texts, options, &weights);
    if (wrong) {
        fprintf(stderr, usage, texts[0]);
        return fail("invalid arguments", wrong);
    }
    network n;
    int error = network_open(&n, weights);
    if (error) return fail(weights, network_message(error));
    error = network_threads(&n, (int)fmin(threads, NETWORK_MOST_THREADS + 1));
    const int failed = error ? fail("--threads", network_message(error)) : run(&n);
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

/* A token or a name as text: `size` bytes of UTF-8. */
typedef struct {
    const char* bytes;
    size_t size;
} token;

/* Reads a size at *text: 7 bits per byte, lowest first; 128 is added to all bytes but the last. */
static inline bool read_size(const char** text, const char* end, size_t* size) {
    *size = 0;
    for (int shift = 0; *text < end && shift < 32; shift += 7) {
        const unsigned char byte = (unsigned char)*(*text)++;
        *size |= (size_t)(byte & 127) << shift;
        if (byte < 128) return *size <= (size_t)(end - *text);
    }
    return false;
}

/* Reads `count` tokens or names at *text: each is a size, then its text. */
static inline bool read_tokens(const char** text, const char* end, token* tokens, int64_t count) {
    for (int64_t n = 0; n < count; ++n) {
        if (!read_size(text, end, &tokens[n].size)) return false;
        tokens[n].bytes = *text;
        *text += tokens[n].size;
    }
    return true;
}

/* Reads a character of UTF-8. The result is its size; 0 if the text is no UTF-8. */
static inline size_t read_character(const char* text, size_t size, int32_t* c) {
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char* const p = (const unsigned char*)text;
    const size_t count = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
    if (!count || count > size) return 0;
    *c = count == 1 ? *p : *p & (0x7f >> count);
    for (size_t n = 1; n < count; ++n) {
        if (p[n] >> 6 != 2) return 0;
        *c = *c << 6 | (p[n] & 0x3f);
    }
    const bool is_surrogate = *c >= 0xd800 && *c < 0xe000;
    return *c < least[count] || *c > 0x10ffff || is_surrogate ? 0 : count;
}

/* The number of bytes before the first one that is no UTF-8. */
static inline size_t utf8_size(const char* text, size_t size) {
    size_t at = 0, step = 1;
    for (int32_t c; at < size && step; at += step) step = read_character(text + at, size - at, &c);
    return at;
}

/* Why a text has no tokens, and the byte with the reason. */
typedef struct {
    const char* what;
    size_t at;
} problem;

/* The result of functions that find tokens, where there are none. */
static inline int64_t no_tokens(problem* p, const char* what, size_t at) {
    p->what = what;
    p->at = at;
    return -1;
}

static inline int fail_at(const problem* p) {
    char place[32];
    snprintf(place, sizeof place, "byte %zu", p->at);
    return fail(p->what, place);
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

/* Removes a byte order mark, and replaces all line ends by "\n". The result is the new size. */
static inline size_t normalise(char* text, size_t size) {
    size_t from = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0, to = 0;
    for (; from < size; ++from) {
        if (text[from] == '\r' && from + 1 < size && text[from + 1] == '\n') continue;
        text[to++] = text[from] == '\r' ? '\n' : text[from];
    }
    text[to] = 0;
    return to;
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
