/* A tokenizer of words: those between white space, and one token for the end of a line. */
#pragma once
#include "program.h"

typedef struct {
    token* tokens;
    const int32_t* order; /* the tokens in the order of their bytes */
    int64_t count, end_of_line, unknown; /* -1 if there is no such token */
} tokenizer;

/* Reads the tokenizer from the text of the weight file: three numbers, the order, the tokens. The memory is not freed. */
static inline bool read_tokenizer(const char* text, size_t size, tokenizer* t) {
    int64_t facts[3];
    const char* const end = text + size;
    if (size < sizeof facts) return false;
    memcpy(facts, text, sizeof facts);
    const int64_t count = t->count = facts[0], most = (int64_t)((size - sizeof facts) / sizeof *t->order);
    t->end_of_line = facts[1];
    t->unknown = facts[2];
    if (count < 1 || count > most || t->end_of_line >= count || t->unknown >= count) return false;
    t->order = (const int32_t*)(text + sizeof facts);
    for (int64_t n = 0; n < count; ++n)
        if (t->order[n] < 0 || t->order[n] >= count) return false;
    text += sizeof facts + (size_t)count * sizeof *t->order;
    t->tokens = (token*)malloc((size_t)count * sizeof *t->tokens);
    return t->tokens && read_tokens(&text, end, t->tokens, count);
}

/* White space as in `str.split` of Python. */
static inline bool is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The size of the word at the beginning of a text in UTF-8; 0 if there is white space. */
static inline size_t word_size(const char* text, size_t size) {
    size_t at = 0, step;
    for (int32_t c; at < size; at += step) {
        step = read_character(text + at, size - at, &c);
        if (is_space(c)) break;
    }
    return at;
}

/* Less than 0, 0 or more than 0 as the token comes before a word, is the word, or comes behind it. */
static inline int compare(const token* one, const char* word, size_t size) {
    const int order = memcmp(one->bytes, word, one->size < size ? one->size : size);
    return order ? order : (one->size > size) - (one->size < size);
}

/* The number of a word, or the token for unknown words. */
static inline int64_t number_of(const tokenizer* t, const char* word, size_t size) {
    int64_t first = 0, last = t->count;
    while (first < last) {
        const int64_t middle = (first + last) / 2;
        const int order = compare(&t->tokens[t->order[middle]], word, size);
        if (!order) return t->order[middle];
        if (order < 0) first = middle + 1;
        else last = middle;
    }
    return t->unknown;
}

/* The tokens of a text. `tokens` has room for `size`. The result is their number; -1 if there is a problem. */
static inline int64_t encode(const tokenizer* t, const char* text, size_t size, int64_t* tokens, problem* p) {
    const size_t valid = utf8_size(text, size);
    if (valid < size) return no_tokens(p, "the text must be UTF-8", valid);
    int64_t count = 0;
    int32_t c;
    for (size_t at = 0, step; at < size; at += step) {
        const size_t word = word_size(text + at, size - at);
        step = word ? word : read_character(text + at, size - at, &c);
        if (!word && c != '\n') continue;
        tokens[count] = word ? number_of(t, text + at, word) : t->end_of_line;
        if (tokens[count++] < 0) return no_tokens(p, "the text has a word that the network does not have", at);
    }
    return count;
}

/* Prints a token behind another one, with a blank between words. */
static inline void show_token(const tokenizer* t, int64_t last, int64_t next) {
    if (next == t->end_of_line) {
        putchar('\n');
        return;
    }
    if (last != t->end_of_line) putchar(' ');
    fwrite(t->tokens[next].bytes, 1, t->tokens[next].size, stdout);
}
