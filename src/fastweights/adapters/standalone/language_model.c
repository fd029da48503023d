/* Continues a text, token by token. See README.md for the build line. */
#include "tokenizer.h"

#define TOKENS NETWORK_LOGITS

static const char usage[] =
    "usage: %s [OPTIONS] WEIGHTS < TEXT\n\n"
    "Continues a text from the standard input.\n\n"
    "  --max-new-tokens N  Number of new tokens. (default: 500)\n"
    "  --temperature X     Temperature of sampling; 0 for the most probable token. (default: 0.8)\n"
    "  --seed N            Random seed of sampling. (default: 0)\n"
    "  --logits            Print the logits behind the text and behind every new token instead of the text.\n"
    THREADS_USAGE;

static double max_new_tokens = 500, temperature = 0.8, seed;
static bool shows_logits;
static const option options[] = {
    {"--max-new-tokens", &max_new_tokens, NULL},
    {"--temperature", &temperature, NULL},
    {"--seed", &seed, NULL},
    {"--logits", NULL, &shows_logits},
    THREADS_OPTION,
    {NULL, NULL, NULL}};

/* Reads one token. */
static int step(network* n, int64_t read, float* logits) {
    const network_inputs x = {&read};
    const network_outputs y = {logits};
    const int error = network_step(n, &x, &y);
    return error ? fail("a step failed", network_message(error)) : 0;
}

#ifdef NETWORK_CHUNK

/* Reads whole chunks of tokens. The result is the number of tokens that it has read; -1 after an error. */
static int64_t read_chunks(network* n, const int64_t* read, int64_t count, float* logits) {
    int64_t at = 0;
    for (; at + NETWORK_CHUNK <= count; at += NETWORK_CHUNK) {
        const network_chunk_inputs x = {read + at};
        const network_chunk_outputs y = {logits};
        const int error = network_chunk(n, &x, &y);
        if (error) return fail("a chunk failed", network_message(error)), -1;
    }
    return at;
}

#else

static int64_t read_chunks(network* n, const int64_t* read, int64_t count, float* logits) {
    (void)n, (void)read, (void)count, (void)logits;
    return 0;
}

#endif

/* Reads tokens. `logits` are those of the token behind them. */
static int read_all(network* n, const int64_t* read, int64_t count, float* logits) {
    int64_t at = read_chunks(n, read, count, logits);
    if (at < 0) return INVALID;
    for (; at < count; ++at)
        if (step(n, read[at], logits)) return INVALID;
    return 0;
}

/* Reads a text. `logits` are those of the token behind it, and `last` is its last token. */
static int read_text(network* n, const tokenizer* t, const char* text, size_t size, float* logits, int64_t* last) {
    problem p;
    int64_t* const tokens = (int64_t*)malloc((size + 1) * sizeof *tokens);
    if (!tokens) return fail("there is not enough memory for the text", "");
    const int64_t count = encode(t, text, size, tokens, &p);
    const bool failed = count > 0 && read_all(n, tokens, count, logits);
    *last = count > 0 ? tokens[count - 1] : -1;
    free(tokens);
    if (count < 0) return fail_at(&p);
    if (!count) return fail("the text must have at least one token", "");
    return failed ? INVALID : 0;
}

/* Prints new tokens behind the last token of the text. */
static int write_text(network* n, const tokenizer* t, float* logits, int64_t last) {
    uint64_t random = (uint64_t)seed;
    if (shows_logits) show_numbers(logits, TOKENS);
    for (long long count = 0; count < (long long)max_new_tokens; ++count) {
        const int64_t next = sample(logits, TOKENS, temperature, &random);
        if (!shows_logits) show_token(t, last, next);
        fflush(stdout);
        last = next;
        if (step(n, next, logits)) return INVALID;
        if (shows_logits) show_numbers(logits, TOKENS);
    }
    if (!shows_logits) putchar('\n');
    return 0;
}

static int continue_text(network* n, const tokenizer* t, const char* text, size_t size) {
    static float logits[TOKENS];
    int64_t last;
    if (read_text(n, t, text, size, logits, &last)) return INVALID;
    if (!shows_logits) fwrite(text, 1, size, stdout);
    return write_text(n, t, logits, last);
}

static int run(network* n) {
    static tokenizer t;
    size_t size;
    const char* const facts = network_text(n, &size);
    if (!read_tokenizer(facts, size, &t) || t.count != TOKENS) return fail("the weight file has no tokens", "");
    char* const text = read_input(&size);
    if (!text) return fail("there is not enough memory for the text", "");
    const int error = continue_text(n, &t, text, normalise(text, size));
    free(text);
    return error;
}

int main(int count, char** texts) {
    return program(count, texts, usage, options, run);
}
