/* A tokenizer of characters or bytes: each of them is a token. */
#pragma once
#include "program.h"

typedef struct {
    token* tokens;
    int64_t count;
} tokenizer;

/* Reads the tokenizer from the text of the weight file: the tokens. The memory is not freed. */
static inline bool read_tokenizer(const char* text, size_t size, tokenizer* t) {
    const char* const end = text + size;
    t->tokens = (token*)malloc((size + 1) * sizeof *t->tokens);
    for (t->count = 0; t->tokens && text < end; ++t->count)
        if (!read_tokens(&text, end, &t->tokens[t->count], 1)) return false;
    return t->count;
}

/* The number of the token at the beginning of a text; -1 if there is none. */
static inline int64_t token_at(const tokenizer* t, const char* text, size_t size) {
    for (int64_t n = 0; n < t->count; ++n) {
        const token* const one = &t->tokens[n];
        if (one->size && one->size <= size && !memcmp(one->bytes, text, one->size)) return n;
    }
    return -1;
}

/* The tokens of a text. `tokens` has room for `size`. The result is their number; -1 if there is a problem. */
static inline int64_t encode(const tokenizer* t, const char* text, size_t size, int64_t* tokens, problem* p) {
    int64_t count = 0;
    for (size_t at = 0; at < size; ++count) {
        tokens[count] = token_at(t, text + at, size - at);
        if (tokens[count] < 0) return no_tokens(p, "the text has a character that the network does not have", at);
        at += t->tokens[tokens[count]].size;
    }
    return count;
}

/* Prints a token behind another one. */
static inline void show_token(const tokenizer* t, int64_t last, int64_t next) {
    (void)last;
    fwrite(t->tokens[next].bytes, 1, t->tokens[next].size, stdout);
}
