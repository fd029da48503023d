// The threads of a step in a library for Python: those of OpenMP, which PyTorch uses too.

#ifdef _OPENMP
#include <omp.h>
#endif

namespace fw {

// The number of threads.
typedef int Team;

// One thread of a team.
struct Worker { int me, count; };

typedef void (*Part)(void* const* p, Worker worker);

// Runs a part of a step in every thread of a team.
inline void run(Part part, void* const* p, Team team) {
#ifdef _OPENMP
    #pragma omp parallel num_threads(team) if (team > 1)
    part(p, Worker{omp_get_thread_num(), omp_get_num_threads()});
#else
    (void)team;
    part(p, Worker{0, 1});
#endif
}

// Waits for all threads of the team.
inline void barrier(Worker) {
#ifdef _OPENMP
    #pragma omp barrier
#endif
}

}  // namespace fw
