/* Reads a sequence, and prints its most probable class. See README.md for the build line. */
#include "program.h"
#ifdef NETWORK_TOKEN
#include "tokenizer.h"
#endif

static const char usage[] =
    "usage: %s [OPTIONS] WEIGHTS < SEQUENCE\n\n"
    "Prints the most probable class of a sequence from the standard input and its probability.\n"
    "The sequence is a text, or one line of numbers per time step, as in training.\n\n"
    "  --logits     Print the logits of all classes instead.\n"
    THREADS_USAGE;

static bool shows_logits;
static const option options[] = {{"--logits", NULL, &shows_logits}, THREADS_OPTION, {NULL, NULL, NULL}};

/* What the weight file has besides weights: the largest number of time steps, the tokenizer of texts, the classes. */
typedef struct {
    int64_t max_length;
    token classes[NETWORK_LOGITS];
#ifdef NETWORK_TOKEN
    tokenizer t;
#endif
} facts;

static bool read_facts(const network* n, facts* f) {
    int64_t sizes[2];
    size_t size;
    const char* text = network_text(n, &size);
    const char* const end = text + size;
    if (size < sizeof sizes) return false;
    memcpy(sizes, text, sizeof sizes);
    text += sizeof sizes;
    if (sizes[1] < 0 || sizes[1] > end - text) return false;
#ifdef NETWORK_TOKEN
    if (!read_tokenizer(text, (size_t)sizes[1], &f->t)) return false;
#endif
    f->max_length = sizes[0];
    text += sizes[1];
    return read_tokens(&text, end, f->classes, NETWORK_LOGITS);
}

static int step(network* n, const network_inputs* x, float* logits) {
    const network_outputs y = {logits};
    const int error = network_step(n, x, &y);
    return error ? fail("a step failed", network_message(error)) : 0;
}

#ifdef NETWORK_TOKEN

static int read_tokens_of(network* n, const facts* f, const int64_t* tokens, int64_t count, float* logits) {
    for (int64_t at = 0; at < count && at < f->max_length; ++at) {
        const network_inputs x = {tokens + at};
        if (step(n, &x, logits)) return INVALID;
    }
    return 0;
}

static int read_sequence(network* n, const facts* f, const char* text, size_t size, float* logits) {
    problem p;
    int64_t* const tokens = (int64_t*)malloc((size + 1) * sizeof *tokens);
    if (!tokens) return fail("there is not enough memory for the sequence", "");
    const int64_t count = encode(&f->t, text, size, tokens, &p);
    const int error = read_tokens_of(n, f, tokens, count, logits);
    free(tokens);
    if (count < 0) return fail_at(&p);
    return count ? error : fail("the sequence must have at least one time step", "");
}

#else

/* Reads a line of numbers. The result is its size; 0 if it has other numbers. */
static size_t read_line(const char* line, float* features) {
    const char* p = line;
    for (int n = 0; n < NETWORK_FEATURES; ++n) {
        if (*p == '\n' || !read_number(&p, &features[n])) return 0;
    }
    if (*p && *p != '\n') return 0;
    return (size_t)(p - line) + (*p == '\n');
}

static int read_sequence(network* n, const facts* f, const char* text, size_t size, float* logits) {
    static float features[NETWORK_FEATURES];
    const network_inputs x = {features};
    problem p = {"the sequence has a line that the network cannot read", 0};
    size_t line;
    for (int64_t length = 0; p.at < size && length < f->max_length; ++length, p.at += line) {
        line = read_line(text + p.at, features);
        if (!line) return fail_at(&p);
        if (step(n, &x, logits)) return INVALID;
    }
    return size ? 0 : fail("the sequence must have at least one time step", "");
}

#endif

static void show_class(const facts* f, const float* logits) {
    const int64_t best = most_probable(logits, NETWORK_LOGITS);
    double sum = 0;
    for (int64_t n = 0; n < NETWORK_LOGITS; ++n) sum += exp((double)logits[n] - logits[best]);
    printf("%.*s, %.0f %%\n", (int)f->classes[best].size, f->classes[best].bytes, 100 / sum);
}

static int run(network* n) {
    static facts f;
    static float logits[NETWORK_LOGITS];
    if (!read_facts(n, &f)) return fail("the weight file has no classes", "");
    size_t size;
    char* const text = read_input(&size);
    if (!text) return fail("there is not enough memory for the sequence", "");
    const int error = read_sequence(n, &f, text, normalise(text, size), logits);
    free(text);
    if (error) return error;
    if (shows_logits) show_numbers(logits, NETWORK_LOGITS);
    else show_class(&f, logits);
    return 0;
}

int main(int count, char** texts) {
    return program(count, texts, usage, options, run);
}
