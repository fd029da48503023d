"""C++ for CPUs: `plan` schedules the ways over time, `emit` writes them, `build` compiles and keeps them."""
