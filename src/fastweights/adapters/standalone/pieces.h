/* A tokenizer of byte-pair encoding: pieces of words. */
#pragma once
#include "program.h"

enum { OTHER, LETTER, NUMBER, SPACE };

/* Two neighbours that become one token, those of the lowest rank first. Merges are sorted by their tokens. */
typedef struct {
    int32_t left, right, rank, result;
} merge;

/* Code points of one kind. Ranges are sorted. */
typedef struct {
    int32_t first, last, kind;
} range;

typedef struct {
    token* tokens;
    int32_t of_byte[256];
    const merge* merges;
    const range* ranges;
    int64_t count, merge_count, range_count;
} tokenizer;

/* Reads the token of every byte. */
static inline bool read_bytes(tokenizer* t) {
    int count = 0;
    for (int32_t n = 0; n < t->count; ++n) {
        if (t->tokens[n].size != 1) continue;
        t->of_byte[(unsigned char)*t->tokens[n].bytes] = n;
        ++count;
    }
    return count == 256;
}

/* Reads the tokenizer from the text of the weight file: three numbers, merges, ranges, tokens. The memory is not
   freed. */
static inline bool read_tokenizer(const char* text, size_t size, tokenizer* t) {
    int64_t counts[3];
    const char* const end = text + size;
    if (size < sizeof counts) return false;
    memcpy(counts, text, sizeof counts);
    for (int n = 0; n < 3; ++n)
        if (counts[n] < 0 || counts[n] > (int64_t)size) return false;
    t->count = counts[0];
    t->merge_count = counts[1];
    t->range_count = counts[2];
    const uint64_t bytes = (uint64_t)counts[1] * sizeof(merge) + (uint64_t)counts[2] * sizeof(range);
    if (bytes > size - sizeof counts) return false;
    t->merges = (const merge*)(text + sizeof counts);
    t->ranges = (const range*)(t->merges + counts[1]);
    const char* tokens = (const char*)(t->ranges + counts[2]);
    t->tokens = (token*)malloc(((size_t)t->count + 1) * sizeof *t->tokens);
    return t->tokens && read_tokens(&tokens, end, t->tokens, t->count) && read_bytes(t);
}

/* The kind of the first character of a text, and its size. The text is not empty, and is UTF-8. */
static inline int kind_at(const tokenizer* t, const char* text, size_t size, size_t* step) {
    int32_t c = 0;
    int64_t first = 0, last = t->range_count;
    *step = read_character(text, size, &c);
    while (first < last) {
        const int64_t middle = (first + last) / 2;
        if (t->ranges[middle].last < c) first = middle + 1;
        else last = middle;
    }
    return first < t->range_count && t->ranges[first].first <= c ? t->ranges[first].kind : OTHER;
}

/* The end of the characters of a kind from *last on; *last becomes the first byte of the last one. */
static inline size_t end_of_run(const tokenizer* t, int kind, const char* text, size_t size, size_t* last) {
    size_t at = *last, step;
    while (at < size && kind_at(t, text + at, size - at, &step) == kind) {
        *last = at;
        at += step;
    }
    return at;
}

/* The size of the first word of a text, which is not empty. A blank before a word belongs to it. */
static inline size_t word_size(const tokenizer* t, const char* text, size_t size) {
    static const char* const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    size_t last = 0, step;
    for (int n = 0; n < 7; ++n) {
        const size_t count = strlen(endings[n]);
        if (count <= size && !memcmp(text, endings[n], count)) return count;
    }
    int kind = kind_at(t, text, size, &step);
    if (*text == ' ' && size > 1) {
        const int next = kind_at(t, text + 1, size - 1, &step);
        if (next != SPACE) kind = next, last = 1;
    }
    const size_t end = end_of_run(t, kind, text, size, &last);
    /* Before another word, the last space stays with that word, or is a word. */
    return kind == SPACE && end < size && last ? last : end;
}

/* The merge of two neighbours; NULL if there is none. */
static inline const merge* merge_of(const tokenizer* t, int32_t left, int32_t right) {
    int64_t first = 0, last = t->merge_count;
    while (first < last) {
        const int64_t middle = (first + last) / 2;
        const merge* const m = &t->merges[middle];
        if (m->left < left || (m->left == left && m->right < right)) first = middle + 1;
        else last = middle;
    }
    const merge* const m = &t->merges[first];
    return first < t->merge_count && m->left == left && m->right == right ? m : NULL;
}

/* Whether the first merge comes before the second one. */
static inline bool is_before(const merge* one, const merge* other) {
    return one && (!other || one->rank < other->rank);
}

/* Applies a merge to a word from left to right, until a new pair comes before it. merges[n] is that of the tokens n and
   n + 1. The result is the number of tokens that are left. */
static inline int64_t apply(const tokenizer* t, const merge* best, int64_t* tokens, int64_t count,
                            const merge** merges) {
    int64_t to = 0;
    bool stops = false;
    for (int64_t from = 0; from < count; ++from, ++to) {
        tokens[to] = tokens[from];
        merges[to] = merges[from];
        if (stops || merges[from] != best) continue;
        ++from;
        tokens[to] = best->result;
        merges[to] = from + 1 < count ? merge_of(t, best->result, (int32_t)tokens[from + 1]) : NULL;
        if (to) merges[to - 1] = merge_of(t, (int32_t)tokens[to - 1], best->result);
        stops = is_before(merges[to], best) || (to && is_before(merges[to - 1], best));
    }
    return to;
}

/* Merges the tokens of a word. `merges` has room for as many. The result is their number. */
static inline int64_t merge_word(const tokenizer* t, int64_t* tokens, int64_t count, const merge** merges) {
    for (int64_t n = 0; n < count; ++n)
        merges[n] = n + 1 < count ? merge_of(t, (int32_t)tokens[n], (int32_t)tokens[n + 1]) : NULL;
    for (;;) {
        const merge* best = NULL;
        for (int64_t n = 0; n < count; ++n)
            if (is_before(merges[n], best)) best = merges[n];
        if (!best) return count;
        count = apply(t, best, tokens, count, merges);
    }
}

/* The tokens of a line in UTF-8. `merges` has room for `size`. The result is their number. */
static inline int64_t encode_line(const tokenizer* t, const char* line, size_t size, int64_t* tokens,
                                  const merge** merges) {
    int64_t count = 0;
    for (size_t at = 0; at < size;) {
        const size_t word = word_size(t, line + at, size - at);
        for (size_t n = 0; n < word; ++n) tokens[count + (int64_t)n] = t->of_byte[(unsigned char)line[at + n]];
        count += merge_word(t, tokens + count, (int64_t)word, merges);
        at += word;
    }
    return count;
}

/* The tokens of a text. `tokens` has room for `size`. The result is their number; -1 if there is a problem. */
static inline int64_t encode(const tokenizer* t, const char* text, size_t size, int64_t* tokens, problem* p) {
    const size_t valid = utf8_size(text, size);
    if (valid < size) return no_tokens(p, "the text must be UTF-8", valid);
    const merge** const merges = (const merge**)malloc((size + 1) * sizeof *merges);
    if (!merges) return no_tokens(p, "there is not enough memory for the text", 0);
    int64_t count = 0;
    for (size_t at = 0, line; at < size; at += line) {
        const char* const end = (const char*)memchr(text + at, '\n', size - at);
        line = end ? (size_t)(end + 1 - text) - at : size - at;
        count += encode_line(t, text + at, line, tokens + count, merges);
    }
    free(merges);
    return count;
}

/* Prints a token behind another one. */
static inline void show_token(const tokenizer* t, int64_t last, int64_t next) {
    (void)last;
    fwrite(t->tokens[next].bytes, 1, t->tokens[next].size, stdout);
}
