"""C++ for CPUs: `plan` schedules the passes, `emit` prints their code, and `build` compiles and caches it."""
