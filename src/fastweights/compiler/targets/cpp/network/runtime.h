// The operations of a network step. A team of threads runs a step: every function computes the part of one thread.

namespace fw {

// Numbers in a vector of a matrix product: as many as the CPU has, also where other loops are written for fewer.
#if defined(__AVX512F__) && FW_WIDTH < 64
#define FW_BYTES 64
#elif defined(__AVX2__) && FW_WIDTH < 32
#define FW_BYTES 32
#else
#define FW_BYTES FW_WIDTH
#endif
constexpr int width = FW_BYTES / sizeof(real);

struct Span { int64_t first, last; };

// The part of `count` elements that a thread computes, in multiples of `unit`. Every element is computed by the same
// instructions in every part.
inline Span part_of(int64_t count, int64_t unit, Worker worker) {
    const int64_t units = (count + unit - 1) / unit;
    const int64_t first = units * worker.me / worker.count * unit, last = units * (worker.me + 1) / worker.count * unit;
    return {first, last < count ? last : count};
}

// Memory ahead of the current row that is asked for early, in bytes: the prefetchers of a CPU stop at a page.
constexpr int64_t ahead = 2048;

struct bfloat16 { uint16_t bits; };

inline real number(real w) { return w; }
inline real number(int8_t w) { return w; }
inline real number(bfloat16 w) {
    const uint32_t bits = uint32_t(w.bits) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Whether one instruction of the CPU widens the integers of a vector. GCC takes several, and three times as long.
#if (FW_BYTES == 32 && defined(__AVX2__)) || (FW_BYTES == 64 && defined(__AVX512F__))
#define FW_WIDENS 1
#endif

// Numbers of a row of a weight.
inline vec<width> numbers(const real* w) { return load<width>(w); }
inline vec<width> numbers(const int8_t* w) {
    typedef int8_t narrow __attribute__((vector_size(width), aligned(1), may_alias));
    ints<width> x;
#ifdef FW_WIDENS
    asm("vpmovsxbd %1, %0" : "=v"(x) : "m"(*(const narrow*)w));
#else
    // Twice as wide in each step: GCC would convert bytes to integers one by one.
    typedef int16_t middle __attribute__((vector_size(2 * width)));
    x = __builtin_convertvector(__builtin_convertvector(*(const narrow*)w, middle), ints<width>);
#endif
    return __builtin_convertvector(x, vec<width>);
}
inline vec<width> numbers(const bfloat16* w) {
    typedef uint16_t narrow __attribute__((vector_size(2 * width), aligned(2), may_alias));
    typedef uint32_t wide __attribute__((vector_size(4 * width)));
    wide bits;
#ifdef FW_WIDENS
    asm("vpmovzxwd %1, %0" : "=v"(bits) : "m"(*(const narrow*)w));
#else
    bits = __builtin_convertvector(*(const narrow*)w, wide);
#endif
    bits <<= 16;
    vec<width> y;
    memcpy(&y, &bits, sizeof bits);
    return y;
}

// R rows of W times M rows of x.
template <int R, int M, class T>
inline void product(real* y, int64_t y_step, const real* x, int64_t x_step, const T* w, int64_t w_step, int64_t K,
                    const real* bias, const real* scale) {
    vec<width> sum[M][R] = {};
    int64_t k = 0;
    for (; k + width <= K; k += width) {
        vec<width> left[M];
        for (int m = 0; m < M; ++m) left[m] = load<width>(x + m * x_step + k);
        for (int r = 0; r < R; ++r) {
            const T* const p = w + r * w_step + k;
            __builtin_prefetch((const char*)p + ahead);
            const vec<width> right = numbers(p);
            for (int m = 0; m < M; ++m) sum[m][r] += left[m] * right;
        }
    }
    for (int m = 0; m < M; ++m) {
        real rest[R] = {};
        for (int64_t j = k; j < K; ++j)
            for (int r = 0; r < R; ++r) rest[r] += x[m * x_step + j] * number(w[r * w_step + j]);
        vec<R> all = totals<R>(sum[m]) + load<R>(rest);
        if (scale) all *= load<R>(scale);
        store<R>(y + m * y_step, bias ? vec<R>(all + load<R>(bias)) : all);
    }
}

template <int R, class T>
inline int64_t products(int64_t n, int64_t last, real* y, int64_t y_step, const real* x, int64_t x_step, const T* w,
                        int64_t w_step, int64_t M, int64_t K, const real* bias, const real* scale) {
    for (; n + R <= last; n += R) {
        const T* const rows = w + n * w_step;
        const real* const b = bias ? bias + n : nullptr;
        const real* const s = scale ? scale + n : nullptr;
        int64_t m = 0;
        for (; m + 4 <= M; m += 4) product<R, 4>(y + m * y_step + n, y_step, x + m * x_step, x_step, rows, w_step, K, b, s);
        for (; m + 2 <= M; m += 2) product<R, 2>(y + m * y_step + n, y_step, x + m * x_step, x_step, rows, w_step, K, b, s);
        for (; m < M; ++m) product<R, 1>(y + m * y_step + n, y_step, x + m * x_step, x_step, rows, w_step, K, b, s);
    }
    return n;
}

// y[m, n] = scale[n] sum_k x[m, k] w[n, k] + bias[n] for the rows of a part.
template <class T>
inline void linear(Span part, real* y, int64_t N, const real* x, int64_t x_step, const T* w, int64_t w_step, int64_t M,
                   int64_t K, const real* bias, const real* scale) {
    int64_t n = products<4>(part.first, part.last, y, N, x, x_step, w, w_step, M, K, bias, scale);
    products<1>(n, part.last, y, N, x, x_step, w, w_step, M, K, bias, scale);
}

// The same for a matrix that is stored by columns: w[k * w_step + n].
inline void linear_by_columns(Span part, real* __restrict__ y, int64_t N, const real* __restrict__ x, int64_t x_step,
                              const real* __restrict__ w, int64_t w_step, int64_t M, int64_t K, const real* bias,
                              const real*) {
    for (int64_t m = 0; m < M; ++m) {
        real* const to = y + m * N;
        for (int64_t n = part.first; n < part.last; ++n) to[n] = bias ? bias[n] : 0;
        for (int64_t k = 0; k < K; ++k) {
            const real factor = x[m * x_step + k];
            for (int64_t n = part.first; n < part.last; ++n) to[n] += factor * w[k * w_step + n];
        }
    }
}

// Whether every index is one of a row.
template <class I> inline bool are_rows(const I* index, int64_t count, int64_t rows) {
    bool fit = true;
    for (int64_t i = 0; i < count; ++i) fit &= index[i] >= 0 && index[i] < rows;
    return fit;
}

// Rows of a table.
template <class I, class T>
inline void gather_rows(real* y, const T* table, int64_t step, int64_t columns, const I* index, int64_t count,
                        const real* scale) {
    for (int64_t i = 0; i < count; ++i)
        for (int64_t n = 0; n < columns; ++n)
            y[i * columns + n] = number(table[index[i] * step + n]) * (scale ? scale[index[i]] : 1);
}

template <class To, class From> inline void convert(To* to, const From* from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = To(from[i]);
}

}  // namespace fw
