// The threads of a step in a program of C. They need the C library only.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if (defined(__unix__) || defined(__APPLE__)) && !defined(__wasi__)
#define FW_HAS_THREADS 1
#include <pthread.h>
#include <sched.h>
#else
#define FW_HAS_THREADS 0
#endif

namespace fw {

struct Threads;

// The threads that share a step; null for the caller alone.
typedef Threads* Team;

// One thread of a team.
struct Worker { int me, count; Team team; };

typedef void (*Part)(void* const* p, Worker worker);

enum { MOST_THREADS = 256 };

#if FW_HAS_THREADS

struct Threads {
    char *memory, *scratch;  // for all threads, from malloc and aligned
    Part part;               // what runs, and its buffers
    void* const* p;
    int count;               // of all threads, the caller included
    int arrived, phase;      // of the barrier
    int runs;                // so far; it is changed under the lock
    bool ends;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[MOST_THREADS];
    Worker workers[MOST_THREADS];
};

// How often a thread looks whether it may continue before it lets other threads run, and before it sleeps.
enum { LOOKS = 1 << 11, PATIENCE = 1 << 14 };

inline void pause_briefly(int looks) {
    if (looks >= LOOKS) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
    else __builtin_ia32_pause();
#elif defined(__aarch64__)
    else asm volatile("yield");
#endif
}

// Waits for all threads of the team.
inline void barrier(Worker worker) {
    const Team team = worker.team;
    if (!team) return;
    const int phase = __atomic_load_n(&team->phase, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == team->count) {
        __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->phase, phase ^ 1, __ATOMIC_RELEASE);
        return;
    }
    for (int looks = 0; __atomic_load_n(&team->phase, __ATOMIC_ACQUIRE) == phase; looks += looks < LOOKS)
        pause_briefly(looks);
}

// Waits for a run behind the first `runs`.
inline void wait_for_run(Team team, int runs) {
    for (int looks = 0; looks < PATIENCE; ++looks) {
        if (__atomic_load_n(&team->runs, __ATOMIC_ACQUIRE) != runs) return;
        pause_briefly(looks);
    }
    pthread_mutex_lock(&team->lock);
    while (team->runs == runs) pthread_cond_wait(&team->changed, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

inline void start_run(Team team) {
    pthread_mutex_lock(&team->lock);
    __atomic_store_n(&team->runs, int(unsigned(team->runs) + 1), __ATOMIC_RELEASE);
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
}

// Runs a part of a step in every thread of a team.
inline void run(Part part, void* const* p, Team team) {
    const Worker worker = {0, team ? team->count : 1, team};
    if (team) {
        team->part = part;
        team->p = p;
        start_run(team);
    }
    part(p, worker);
    barrier(worker);
}

inline void* work(void* argument) {
    const Worker worker = *(const Worker*)argument;
    const Team team = worker.team;
    for (unsigned runs = 0;; ++runs) {
        wait_for_run(team, int(runs));
        if (team->ends) return nullptr;
        team->part(team->p, worker);
        barrier(worker);
    }
}

// Ends the threads of a team.
inline void stop(Team team) {
    if (!team) return;
    team->ends = true;
    start_run(team);
    for (int n = 1; n < team->count; ++n) pthread_join(team->threads[n], nullptr);
    pthread_mutex_destroy(&team->lock);
    pthread_cond_destroy(&team->changed);
    free(team->memory);
    free(team);
}

// A team of several threads with scratch memory of `size` bytes; null if the system has none.
inline Team start(int count, size_t size) {
    const Team team = (Team)calloc(1, sizeof(Threads));
    char* const memory = (char*)malloc(size + 64);
    if (!team || !memory) return free(team), free(memory), nullptr;
    team->memory = memory;
    team->scratch = (char*)(((uintptr_t)memory + 63) / 64 * 64);
    pthread_mutex_init(&team->lock, nullptr);
    pthread_cond_init(&team->changed, nullptr);
    for (team->count = 1; team->count < count; ++team->count) {
        const int n = team->count;
        team->workers[n] = {n, count, team};
        if (pthread_create(&team->threads[n], nullptr, work, &team->workers[n])) return stop(team), nullptr;
    }
    return team;
}

#else

struct Threads { char* scratch; };

inline void barrier(Worker) {}
inline void run(Part part, void* const* p, Team team) { part(p, Worker{0, 1, team}); }
inline void stop(Team) {}
inline Team start(int, size_t) { return nullptr; }

#endif

}  // namespace fw
