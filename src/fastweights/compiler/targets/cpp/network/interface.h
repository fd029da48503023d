
/* All functions that return int return one of these: 0, or a positive code with a text in network_message. */
enum {
    NETWORK_OK = 0,
    NETWORK_BAD_INDEX = 1,
    NETWORK_NO_FILE = 2,
    NETWORK_NO_WEIGHTS = 3,
    NETWORK_OTHER_VERSION = 4,
    NETWORK_OTHER_WEIGHTS = 5,
    NETWORK_DAMAGED = 6,
    NETWORK_UNALIGNED = 7,
    NETWORK_NO_MEMORY = 8,
    NETWORK_BAD_THREADS = 9,
    NETWORK_NO_THREADS = 10,
};

/* The largest number of threads. */
#define NETWORK_MOST_THREADS 256

/* One network with its state. Networks may share weights. All fields are private. */
typedef struct {
    const char* weights;
    char* memory;
    void *owned, *own_memory, *team;
    size_t size;
} network;

#ifdef __cplusplus
extern "C" {
#endif

/* Maps a weight file into memory, where the system can, and resets the state. */
int network_open(network* n, const char* path);

/* Frees what network_open has allocated. */
void network_close(network* n);

/* The same without files: `weights` are the `size` bytes of a weight file, at a multiple of 64 bytes. `memory` has
   NETWORK_MEMORY bytes. The caller frees both. */
int network_init(network* n, const void* weights, size_t size, void* memory);

/* Sets the number of threads that share every later step. Results do not depend on it. The system must have POSIX
   threads, and the process must not fork with several threads. network_close ends the threads; after network_init,
   set the number to 1 instead. */
int network_threads(network* n, int count);

/* Sets the state to the one before the first time step. */
void network_reset(network* n);

/* One time step. After an error the state is unchanged. */
int network_step(network* n, const network_inputs* x, const network_outputs* y);

#ifdef NETWORK_CHUNK
/* NETWORK_CHUNK time steps at once, which reads each weight once. The state is that after as many single steps, and the
   outputs are those of the last one. */
int network_chunk(network* n, const network_chunk_inputs* x, const network_chunk_outputs* y);
#endif

#ifdef NETWORK_ENCODE_SOURCE
/* Reads a whole source: the first `length` tokens of `source`, at least one. The other tokens are padding, such as 0.
   The state is then the one before the first token of the target. */
int network_encode(network* n, const network_encode_inputs* x);
#endif

/* The state, NETWORK_STATE bytes. Copy them to save it, and copy them back to continue. */
void* network_state(network* n);

/* The text in the weight file, such as the tokens of a language model. */
const char* network_text(const network* n, size_t* size);

/* What a code means, as an English sentence without a full stop. */
const char* network_message(int error);

#ifdef __cplusplus
}
#endif
