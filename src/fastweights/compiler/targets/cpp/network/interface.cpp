
// The C interface. The declarations above describe the memory and the weight file.

namespace {

struct Header {
    char magic[8];
    uint64_t version, program, size, text, reserved[2], checksum;
};
static_assert(sizeof(Header) == 64, "The header has 64 bytes.");

constexpr uint64_t ALIGNMENT = 64;

// A hash of a word and its place: splitmix64.
uint64_t hash(uint64_t word, uint64_t place) {
    uint64_t x = word + place * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// The sum of the hashes of all 64-bit words, where the checksum itself counts as 0.
uint64_t checksum(const char* file, uint64_t size) {
    uint64_t sum = 0;
    for (uint64_t n = 0; n < size / 8; ++n) {
        uint64_t word;
        memcpy(&word, file + 8 * n, sizeof word);
        sum += hash(n == offsetof(Header, checksum) / 8 ? 0 : word, n + 1);
    }
    return sum;
}

// The scratch memory of a step.
void* scratch(const network* n) {
    return n->team ? ((fw::Team)n->team)->scratch : n->memory + NETWORK_STATE;
}

char* aligned(void* p) { return (char*)(((uintptr_t)p + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT); }

int check(const char* file, uint64_t size) {
    Header head;
    if (size < sizeof head) return NETWORK_NO_WEIGHTS;
    memcpy(&head, file, sizeof head);
    if (memcmp(head.magic, MAGIC, sizeof head.magic)) return NETWORK_NO_WEIGHTS;
    if (head.version != VERSION) return NETWORK_OTHER_VERSION;
    if (head.program != PROGRAM) return NETWORK_OTHER_WEIGHTS;
    if (head.size != size || size % ALIGNMENT || size < TEXT || head.text > size - TEXT) return NETWORK_DAMAGED;
    return head.checksum == checksum(file, size) ? NETWORK_OK : NETWORK_DAMAGED;
}

}  // namespace

extern "C" {

int network_init(network* n, const void* weights, size_t size, void* memory) {
    if ((uintptr_t)weights % ALIGNMENT) return NETWORK_UNALIGNED;
    const int error = check((const char*)weights, size);
    if (error) return error;
    n->weights = (const char*)weights;
    n->memory = aligned(memory);
    n->team = nullptr;
    network_reset(n);
    return NETWORK_OK;
}

int network_threads(network* n, int count) {
    static_assert(NETWORK_MOST_THREADS == fw::MOST_THREADS, "The header has the limit of the code.");
    if (count < 1 || count > NETWORK_MOST_THREADS) return NETWORK_BAD_THREADS;
    fw::stop((fw::Team)n->team);
    n->team = count > 1 ? fw::start(count, SHARED + (size_t)count * PRIVATE) : nullptr;
    return count == 1 || n->team ? NETWORK_OK : NETWORK_NO_THREADS;
}

void network_reset(network* n) {
    for (const Start& s : starts) {
        if (s.file) memcpy(n->memory + s.memory, n->weights + s.file, s.size);
        else memset(n->memory + s.memory, 0, s.size);
    }
}

void* network_state(network* n) { return n->memory; }

const char* network_text(const network* n, size_t* size) {
    Header head;
    memcpy(&head, n->weights, sizeof head);
    *size = (size_t)head.text;
    return n->weights + TEXT;
}

const char* network_message(int error) {
    switch (error) {
        case NETWORK_OK: return "no error";
        case NETWORK_BAD_INDEX: return "an input is outside of the vocabulary; the state is unchanged";
        case NETWORK_NO_FILE: return "the weight file cannot be read";
        case NETWORK_NO_WEIGHTS: return "the file has no weights of a compiled network";
        case NETWORK_OTHER_VERSION: return "the weight file has another version; compile the network again";
        case NETWORK_OTHER_WEIGHTS: return "the weights belong to another network; use the file that was written with this code";
        case NETWORK_DAMAGED: return "the weight file is damaged; copy it again";
        case NETWORK_UNALIGNED: return "the weights must start at a multiple of 64 bytes";
        case NETWORK_NO_MEMORY: return "there is not enough memory";
        case NETWORK_BAD_THREADS: return "the number of threads must be from 1 to 256";
        case NETWORK_NO_THREADS: return "the system cannot start the threads; use one thread";
        default: return "unknown error";
    }
}

}  // extern "C"

#ifndef NETWORK_WITHOUT_FILES

#include <stdio.h>
#if (defined(__unix__) || defined(__APPLE__)) && !defined(__wasi__)
#define NETWORK_MAPS 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define NETWORK_MAPS 0
#endif

namespace {

#if NETWORK_MAPS

int read_file(network* n, const char* path, size_t* size) {
    const int file = open(path, O_RDONLY | O_NONBLOCK);
    if (file < 0) return NETWORK_NO_FILE;
    struct stat facts;
    const bool is_file = !fstat(file, &facts) && S_ISREG(facts.st_mode);
    *size = is_file ? (size_t)facts.st_size : 0;
    void* const content = *size ? mmap(nullptr, *size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (content == MAP_FAILED) return is_file && !*size ? NETWORK_NO_WEIGHTS : NETWORK_NO_FILE;
    n->weights = (const char*)content;
    return NETWORK_OK;
}

void free_file(network* n) { munmap((void*)n->weights, n->size); }

#else

int read_file(network* n, const char* path, size_t* size) {
    FILE* const file = fopen(path, "rb");
    if (!file) return NETWORK_NO_FILE;
    const bool has_size = !fseek(file, 0, SEEK_END) && ftell(file) >= 0;
    *size = has_size ? (size_t)ftell(file) : 0;
    rewind(file);
    n->owned = has_size ? malloc(*size + ALIGNMENT) : nullptr;
    n->weights = n->owned ? aligned(n->owned) : nullptr;
    const bool is_read = n->owned && fread((char*)n->weights, 1, *size, file) == *size;
    fclose(file);
    if (is_read) return NETWORK_OK;
    free(n->owned);
    return n->owned || !has_size ? NETWORK_NO_FILE : NETWORK_NO_MEMORY;
}

void free_file(network* n) { free(n->owned); }

#endif

}  // namespace

extern "C" int network_open(network* n, const char* path) {
    memset(n, 0, sizeof *n);
    int error = read_file(n, path, &n->size);
    if (error) return error;
    n->own_memory = malloc(NETWORK_MEMORY);
    error = n->own_memory ? network_init(n, n->weights, n->size, n->own_memory) : NETWORK_NO_MEMORY;
    if (error) network_close(n);
    return error;
}

extern "C" void network_close(network* n) {
    fw::stop((fw::Team)n->team);
    free(n->own_memory);
    free_file(n);
    memset(n, 0, sizeof *n);
}

#endif
