// The functions of the network that the page calls. All arrays are in the memory of the WebAssembly module.
#include <stdlib.h>

#include "network.h"

#define EXPORT(name) extern "C" __attribute__((export_name(#name)))

static network one;
static float logits[NETWORK_LOGITS];
static char memory[NETWORK_MEMORY];

// Memory for the weight file.
EXPORT(allocate) void* allocate(size_t size) { return aligned_alloc(64, (size + 63) / 64 * 64); }

// A code of network.h.
EXPORT(open_weights) int open_weights(const void* weights, size_t size) {
    return network_init(&one, weights, size, memory);
}

EXPORT(step) int step(int token) {
    const int64_t number = token;
    const network_inputs x = {&number};
    const network_outputs y = {logits};
    return network_step(&one, &x, &y);
}

EXPORT(logits_at) const float* logits_at() { return logits; }

EXPORT(state_at) const void* state_at() { return network_state(&one); }

EXPORT(state_size) size_t state_size() { return NETWORK_STATE; }

EXPORT(text_at) const char* text_at() {
    size_t size;
    return network_text(&one, &size);
}

EXPORT(text_size) size_t text_size() {
    size_t size;
    network_text(&one, &size);
    return size;
}
