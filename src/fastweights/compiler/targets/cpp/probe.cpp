// What kernels need of a compiler, in a few lines: vectors, functions of templates, memory and a loop for threads.
using fw::real;

static void step(real* __restrict__ to, const real* __restrict__ from) {
    using V = fw::vec<4>;
    const V x = fw::tanh(fw::load<4>(from)) * fw::fill<V>(2) + fw::sigmoid(fw::load<4>(from + 4));
    fw::store<4>(to, fw::maximum(x, fw::exp(V(-x))));
    to[4] = fw::total(x) + (from[0] > 0 ? fw::infinity : fw::nan);
    fw::transpose<4, 4>(to + 8, from);
}

FW_EXPORT void probe(real* to, const real* from, int64_t heads, int threads) {
    (void)threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        fw::Arena arena(64);
#pragma omp for schedule(static)
        for (int64_t m = 0; m < heads; ++m) {
            memset(arena.start, 0, sizeof(real) * 64);
            step(arena.start, from + m * 16);
            memcpy(to + m * 32, arena.start, sizeof(real) * 32);
        }
    }
}
