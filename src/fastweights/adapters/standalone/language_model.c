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

static double max_new_tokens = 500, temperature = 0.8, seed;
static bool shows_logits;
static const option options[] = {
    {"--max-new-tokens", &max_new_tokens, NULL},
    {"--temperature", &temperature, NULL},
    {"--seed", &seed, NULL},
    {"--logits", NULL, &shows_logits},
    {NULL, NULL, NULL}};

/* Reads one token. */
static int step(network* n, int64_t read, float* logits) {
    const network_inputs x = {&read};
    const network_outputs y = {logits};
    const int error = network_step(n, &x, &y);
    if (error) return fail("a step failed", network_message(error));
    if (shows_logits) show_numbers(logits, TOKENS);
    return 0;
}

#ifdef NETWORK_CHUNK

/* Reads all tokens in chunks but the last ones, and returns how many it has read; -1 after an error. */
static int64_t read_chunks(network* n, const int64_t* read, int64_t count) {
    static float logits[NETWORK_CHUNK][TOKENS];
    int64_t at = 0;
    for (; at + NETWORK_CHUNK < count; at += NETWORK_CHUNK) {
        const network_chunk_inputs x = {read + at};
        const network_chunk_outputs y = {logits[0]};
        const int error = network_chunk(n, &x, &y);
        if (error) return fail("a chunk failed", network_message(error)), -1;
        for (int i = 0; shows_logits && i < NETWORK_CHUNK; ++i) show_numbers(logits[i], TOKENS);
    }
    return at;
}

#else

static int64_t read_chunks(network* n, const int64_t* read, int64_t count) {
    (void)n, (void)read, (void)count;
    return 0;
}

#endif

/* The tokens of a text, at most `size`. The result is their number; -1 if the text has another character. */
static int64_t tokens_of(const token* tokens, const char* text, size_t size, int64_t* read) {
    int64_t count = 0;
    for (size_t at = 0; at < size; ++count) {
        read[count] = token_at(tokens, TOKENS, text + at, size - at);
        char place[32];
        snprintf(place, sizeof place, "byte %zu", at);
        if (read[count] < 0) return fail("the text has a character that the network does not have", place), -1;
        at += tokens[read[count]].size;
    }
    return count;
}

/* Reads tokens; `logits` are those of the token after them. */
static int read_all(network* n, const int64_t* read, int64_t count, float* logits) {
    int64_t at = read_chunks(n, read, count);
    if (at < 0) return INVALID;
    for (; at < count; ++at)
        if (step(n, read[at], logits)) return INVALID;
    return 0;
}

/* Reads a text; `logits` are those of the token after it. */
static int read_text(network* n, const token* tokens, const char* text, size_t size, float* logits) {
    int64_t* const read = (int64_t*)malloc((size + 1) * sizeof *read);
    if (!read) return fail("there is not enough memory for the text", "");
    const int64_t count = tokens_of(tokens, text, size, read);
    const bool failed = count < 0 || read_all(n, read, count, logits);
    free(read);
    if (failed) return INVALID;
    if (!shows_logits) fwrite(text, 1, size, stdout);
    return size ? 0 : fail("the text must have at least one character", "");
}

static int write_text(network* n, const token* tokens, float* logits) {
    uint64_t random = (uint64_t)seed;
    for (long long count = 0; count < (long long)max_new_tokens; ++count) {
        const int64_t next = sample(logits, TOKENS, temperature, &random);
        if (!shows_logits) {
            fwrite(tokens[next].bytes, 1, tokens[next].size, stdout);
            fflush(stdout);
        }
        if (step(n, next, logits)) return INVALID;
    }
    if (!shows_logits) putchar('\n');
    return 0;
}

static int run(network* n) {
    static token tokens[TOKENS];
    static float logits[TOKENS];
    size_t size;
    const char* names = network_text(n, &size);
    if (!read_tokens(&names, names + size, tokens, TOKENS)) return fail("the weight file has no tokens", "");
    char* const text = read_input(&size);
    if (!text) return fail("there is not enough memory for the text", "");
    const bool failed = read_text(n, tokens, text, size, logits) || write_text(n, tokens, logits);
    free(text);
    return failed ? INVALID : 0;
}

int main(int count, char** texts) {
    return program(count, texts, usage, options, run);
}
