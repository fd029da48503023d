/* Translates sentences. See README.md for the build line. */
#include "tokenizer.h"

#define SOURCE NETWORK_ENCODE_SOURCE

/* The first token of every translation, and the one that ends it, behind the pieces of words. */
enum { BEGIN = NETWORK_LOGITS - 2, END = NETWORK_LOGITS - 1 };

static const char usage[] =
    "usage: %s [OPTIONS] WEIGHTS < SENTENCES\n\n"
    "Translates the sentences from the standard input, one per line, in UTF-8. Every token of a translation\n"
    "is the most probable one. Blank lines stay blank.\n\n"
    "  --logits     Print the logits of every token instead of the translation.\n"
    THREADS_USAGE;

static bool shows_logits;
static const option options[] = {{"--logits", NULL, &shows_logits}, THREADS_OPTION, {NULL, NULL, NULL}};

/* A sentence of the input: its text without white space at the ends, and its tokens. */
typedef struct {
    char* text;
    size_t size;
    int64_t tokens[SOURCE], length;
} sentence;

/* Removes white space at the ends, and replaces line ends inside by blanks. */
static void strip(const tokenizer* t, sentence* s) {
    size_t end = 0, step;
    if (s->size >= 3 && !memcmp(s->text, "\xef\xbb\xbf", 3)) s->text += 3, s->size -= 3; /* a byte order mark */
    while (s->size && kind_at(t, s->text, s->size, &step) == SPACE) s->text += step, s->size -= step;
    for (size_t at = 0; at < s->size; at += step)
        if (kind_at(t, s->text + at, s->size - at, &step) != SPACE) end = at + step;
    s->size = end;
    for (size_t at = 0; at < end; ++at)
        if (s->text[at] == '\r') s->text[at] = ' ';
}

/* Finds the tokens of the text. */
static int tokenize(const tokenizer* t, sentence* s, const char* place) {
    problem p;
    int64_t* const tokens = (int64_t*)malloc((s->size + 1) * sizeof *tokens);
    if (!tokens) return fail("there is not enough memory for the sentence", place);
    s->length = encode(t, s->text, s->size, tokens, &p);
    if (s->length >= 0 && s->length <= SOURCE) memcpy(s->tokens, tokens, (size_t)s->length * sizeof *tokens);
    free(tokens);
    if (s->length < 0) return fail(p.what, place);
    return s->length <= SOURCE ? 0 : fail("the sentence has more tokens than the network reads", place);
}

static int read_source(network* n, const sentence* s) {
    const network_encode_inputs x = {s->tokens, &s->length};
    const int error = network_encode(n, &x);
    return error ? fail("the source cannot be read", network_message(error)) : 0;
}

/* Prints a token of the translation, with blanks in place of line ends. */
static void show(const token* piece) {
    for (size_t n = 0; n < piece->size; ++n) {
        const char byte = piece->bytes[n];
        putchar(byte == '\n' || byte == '\r' ? ' ' : byte);
    }
}

/* Prints the translation of the source that the network has read, of at most `most` tokens. */
static int translate(network* n, const tokenizer* t, int64_t most) {
    static float logits[NETWORK_LOGITS];
    int64_t last = BEGIN;
    for (int64_t count = 0; count < most; ++count) {
        const network_inputs x = {&last};
        const network_outputs y = {logits};
        const int error = network_step(n, &x, &y);
        if (error) return fail("a step failed", network_message(error));
        if (shows_logits) show_numbers(logits, NETWORK_LOGITS);
        last = most_probable(logits, NETWORK_LOGITS);
        if (last == END) return 0;
        if (last < t->count && !shows_logits) show(&t->tokens[last]);
    }
    return 0;
}

static int translate_line(network* n, const tokenizer* t, char* line, size_t size, const char* place) {
    static sentence s;
    s.text = line;
    s.size = size;
    if (utf8_size(line, size) < size) return fail("the text must be UTF-8", place);
    strip(t, &s);
    memset(s.tokens, 0, sizeof s.tokens);
    if (tokenize(t, &s, place)) return INVALID;
    if (s.length && (read_source(n, &s) || translate(n, t, 2 * s.length + 10))) return INVALID;
    if (!shows_logits) putchar('\n');
    fflush(stdout);
    return 0;
}

static int translate_all(network* n, const tokenizer* t, char* text, size_t size) {
    size_t at = 0;
    for (long long count = 1; at < size; ++count) {
        char place[32];
        char* const end = (char*)memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - text) - at : size - at;
        snprintf(place, sizeof place, "line %lld", count);
        if (translate_line(n, t, text + at, length, place)) return INVALID;
        at += length + 1;
    }
    return 0;
}

static int run(network* n) {
    static tokenizer t;
    size_t size;
    const char* const facts = network_text(n, &size);
    if (!read_tokenizer(facts, size, &t) || t.count != BEGIN) return fail("the weight file has no tokens", "");
    char* const text = read_input(&size);
    if (!text) return fail("there is not enough memory for the text", "");
    const int error = translate_all(n, &t, text, size);
    free(text);
    return error;
}

int main(int count, char** texts) {
    return program(count, texts, usage, options, run);
}
