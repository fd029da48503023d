/* Reads labelled images of new classes, and classifies other images. See README.md for the build line. */
#include "program.h"

#define CLASSES NETWORK_LOGITS
#define UNKNOWN -1

static const char usage[] =
    "usage: %s [OPTIONS] WEIGHTS < EPISODE\n\n"
    "Reads one image per line: a label and the pixels, separated by blanks. The pixels are whole numbers\n"
    "from 0 to 255, row by row, and all rows of a channel before those of the next channel.\n"
    "An example has the number of its class as its label, from 0. An image to classify has a question mark.\n"
    "Prints the most probable class and its probability for every image to classify, which has no influence\n"
    "on later images.\n\n"
    "  --logits     Print the logits of all classes instead.\n"
    THREADS_USAGE;

static bool shows_logits;
static const option options[] = {{"--logits", NULL, &shows_logits}, THREADS_OPTION, {NULL, NULL, NULL}};

/* Facts of the task from the weight file: the code for no label, and whether a label comes with the next image. */
typedef struct {
    int64_t no_label, is_delayed;
} facts;

/* One line of the input. The label of an image to classify is UNKNOWN. */
typedef struct {
    int64_t label;
    uint8_t pixels[NETWORK_IMAGE];
} image;

/* The examples so far: the classes that occurred, and the label of the last example. */
typedef struct {
    bool occurred[CLASSES];
    int64_t last_label;
} examples;

static bool read_facts(const network* n, facts* f) {
    size_t size;
    const char* const text = network_text(n, &size);
    if (size != sizeof *f) return false;
    memcpy(f, text, size);
    return true;
}

/* Reads a whole number from 0 to `most`. */
static bool read_whole(const char** text, int64_t most, int64_t* x) {
    float number;
    if (!read_number(text, &number) || number < 0 || number > (float)most) return false;
    *x = (int64_t)number;
    return (float)*x == number;
}

static bool read_image(const char* line, image* x) {
    const char* text = line + strspn(line, " \t");
    x->label = UNKNOWN;
    if (*text == '?') text += 1 + strspn(text + 1, " \t,");
    else if (!read_whole(&text, CLASSES - 1, &x->label)) return false;
    for (int n = 0; n < NETWORK_IMAGE; ++n) {
        int64_t pixel;
        if (!read_whole(&text, 255, &pixel)) return false;
        x->pixels[n] = (uint8_t)pixel;
    }
    return !*text || *text == '\n';
}

static int step(network* n, const image* x, int64_t code, float* logits) {
    const network_inputs inputs = {x->pixels, &code};
    const network_outputs outputs = {logits};
    const int error = network_step(n, &inputs, &outputs);
    return error ? fail("a step failed", network_message(error)) : 0;
}

/* Prints the most probable of the classes that occurred. */
static void show_class(const examples* e, const float* logits) {
    float possible[CLASSES];
    double sum = 0;
    for (int n = 0; n < CLASSES; ++n) possible[n] = e->occurred[n] ? logits[n] : -INFINITY;
    const int64_t best = most_probable(possible, CLASSES);
    for (int n = 0; n < CLASSES; ++n) sum += exp((double)possible[n] - possible[best]);
    printf("%lld, %.0f %%\n", (long long)best, 100 / sum);
}

/* Classifies an image, and restores the state. */
static int classify(network* n, const facts* f, const examples* e, const image* x) {
    static char state[NETWORK_STATE];
    static float logits[CLASSES];
    memcpy(state, network_state(n), sizeof state);
    if (step(n, x, f->is_delayed ? e->last_label : f->no_label, logits)) return INVALID;
    memcpy(network_state(n), state, sizeof state);
    if (shows_logits) show_numbers(logits, CLASSES);
    else show_class(e, logits);
    fflush(stdout);
    return 0;
}

/* Reads an example. */
static int learn(network* n, const facts* f, examples* e, const image* x) {
    static float logits[CLASSES];
    const int error = step(n, x, f->is_delayed ? e->last_label : x->label, logits);
    e->last_label = x->label;
    e->occurred[x->label] = true;
    return error;
}

static int run(network* n) {
    static char line[16 * (NETWORK_IMAGE + 2)];
    static image x;
    facts f;
    if (!read_facts(n, &f)) return fail("the weight file has no facts of a few-shot task", "");
    examples e = {{false}, f.no_label};
    bool has_example = false;
    for (long long count = 1; fgets(line, sizeof line, stdin); ++count) {
        char place[32];
        snprintf(place, sizeof place, "line %lld", count);
        if (!read_image(line, &x)) return fail("a line must have a label and the pixels of one image", place);
        if (x.label == UNKNOWN && !has_example) return fail("an example must come before the images to classify", place);
        has_example = true;
        if (x.label == UNKNOWN ? classify(n, &f, &e, &x) : learn(n, &f, &e, &x)) return INVALID;
    }
    return has_example ? 0 : fail("the episode must have at least one image", "");
}

int main(int count, char** texts) {
    return program(count, texts, usage, options, run);
}
