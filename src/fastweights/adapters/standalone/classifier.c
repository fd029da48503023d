/* Reads a sequence, and prints its most probable class. See README.md for the build line. */
#include "program.h"

static const char usage[] =
    "usage: %s [--logits] WEIGHTS < SEQUENCE\n\n"
    "Prints the most probable class of a sequence from the standard input and its probability.\n"
    "The sequence is a text, or one line of numbers per time step, as in training.\n\n"
    "  --logits  Print the logits of all classes instead.\n";

static bool shows_logits;
static const option options[] = {{"--logits", NULL, &shows_logits}, {NULL, NULL, NULL}};

/* What the weight file has besides weights: the classes, the largest number of time steps, and the tokens of a text. */
typedef struct {
    token classes[NETWORK_LOGITS];
    int64_t max_length;
    const char *tokens, *end;
} facts;

static bool read_facts(const network* n, facts* f) {
    size_t size;
    const char* text = network_text(n, &size);
    f->end = text + size;
    if (size < sizeof f->max_length) return false;
    memcpy(&f->max_length, text, sizeof f->max_length);
    f->tokens = text + sizeof f->max_length;
    return read_tokens(&f->tokens, f->end, f->classes, NETWORK_LOGITS);
}

#ifdef NETWORK_TOKEN

/* Reads the next token of a text. The result is its size; 0 if the text has another character. */
static size_t read_step(const facts* f, const char* text, size_t size, network_inputs* x) {
    static int64_t number;
    const char* p = f->tokens;
    token one;
    x->token = &number;
    for (number = 0; read_tokens(&p, f->end, &one, 1); ++number)
        if (token_at(&one, 1, text, size) == 0) return one.size;
    return 0;
}

#else

/* Reads the next line of numbers. The result is its size; 0 if it has other numbers. */
static size_t read_step(const facts* f, const char* text, size_t size, network_inputs* x) {
    static float numbers[NETWORK_FEATURES];
    const char* p = text;
    (void)f;
    (void)size;
    for (int n = 0; n < NETWORK_FEATURES; ++n) {
        if (*p == '\n' || !read_number(&p, &numbers[n])) return 0;
    }
    x->features = numbers;
    if (*p && *p != '\n') return 0;
    return (size_t)(p - text) + (*p == '\n');
}

#endif

static int read_sequence(network* n, const facts* f, const char* text, size_t size, float* logits) {
    size_t at = 0;
    for (int64_t length = 0; at < size && length < f->max_length; ++length) {
        network_inputs x = {NULL};
        const network_outputs y = {logits};
        const size_t step = read_step(f, text + at, size - at, &x);
        char place[32];
        snprintf(place, sizeof place, "byte %zu", at);
        if (!step) return fail("the sequence has a time step that the network cannot read", place);
        const int error = network_step(n, &x, &y);
        if (error) return fail("a step failed", network_message(error));
        at += step;
    }
    return size ? 0 : fail("the sequence must have at least one time step", "");
}

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
    const int error = read_sequence(n, &f, text, size, logits);
    free(text);
    if (error) return error;
    if (shows_logits) show_numbers(logits, NETWORK_LOGITS);
    else show_class(&f, logits);
    return 0;
}

int main(int count, char** texts) {
    return program(count, texts, usage, options, run);
}
