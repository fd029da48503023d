// Vectors of N numbers, and the functions that a step may apply to them. A vector of one number is the number itself,
// so that the same code serves the remainder of a loop.
//
// Headers of C only. Those of C++ take longer to read than a small kernel takes to compile, and a compiler that comes as
// a Python package would first build its standard library of C++, for a minute.

// These passes of GCC take an eighth of its time, and find nothing in code that is written in blocks of vectors.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-pre", "no-code-hoisting", "no-tree-vrp")
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define FW_EXPORT extern "C" __declspec(dllexport)
#else
#define FW_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace fw {

template <class T, int N> struct Vector { typedef T type __attribute__((vector_size(sizeof(T) * N))); };
template <class T> struct Vector<T, 1> { using type = T; };

#if FASTWEIGHTS_DOUBLE
using real = double;
using integer = int64_t;
using natural = uint64_t;
#define FW_MATH(name) __builtin_##name
#else
using real = float;
using integer = int32_t;
using natural = uint32_t;
#define FW_MATH(name) __builtin_##name##f
#endif
template <int N> using vec = typename Vector<real, N>::type;
template <int N> using ints = typename Vector<integer, N>::type;
template <int N> using naturals = typename Vector<natural, N>::type;

constexpr real infinity = FW_MATH(inf)(), nan = FW_MATH(nan)("");

template <class V> constexpr int lanes = sizeof(V) / sizeof(real);

template <class T> inline void swap(T& a, T& b) {
    const T old = a;
    a = b;
    b = old;
}

template <int... I> struct Numbers {};
// 0, 1, ..., N - 1
template <int N, int... I> constexpr auto upto() {
    if constexpr (N == 0) return Numbers<I...>{};
    else return upto<N - 1, N - 1, I...>();
}

template <int N> inline vec<N> load(const real* p) {
    vec<N> x;
    memcpy(&x, p, sizeof x);
    return x;
}
template <int N> inline void store(real* p, vec<N> x) { memcpy(p, &x, sizeof x); }

// Asks the memory for N numbers that will soon be read or written. Any address will do, also outside of the tensor.
template <int N, int write = 0> inline void prefetch(const real* p) {
    for (int n = 0; n < N; n += 64 / sizeof(real)) __builtin_prefetch(p + n, write);
}

template <int N> inline vec<N> gather(const real* p, int64_t stride) {
    if constexpr (N == 1) return *p;
    else {
        vec<N> x;
        for (int n = 0; n < N; ++n) x[n] = p[n * stride];
        return x;
    }
}
template <int N> inline void scatter(real* p, int64_t stride, vec<N> x) {
    if constexpr (N == 1) *p = x;
    else for (int n = 0; n < N; ++n) p[n * stride] = x[n];
}
template <int N> inline vec<N> splat(real x) {
    if constexpr (N == 1) return x;
    else return x - vec<N>{};
}
template <int N> inline auto splat_mask(bool m) { return m ? splat<N>(1) != splat<N>(0) : splat<N>(0) != splat<N>(0); }

// A function that has no vector form, number by number.
template <class V, class F> inline V each(V x, F f) {
    if constexpr (lanes<V> == 1) return f(x);
    else {
        for (int n = 0; n < lanes<V>; ++n) x[n] = f(x[n]);
        return x;
    }
}
template <class V, class F> inline V each(V x, V y, F f) {
    if constexpr (lanes<V> == 1) return f(x, y);
    else {
        for (int n = 0; n < lanes<V>; ++n) x[n] = f(x[n], y[n]);
        return x;
    }
}

template <class V> inline V fill(real x) { return splat<lanes<V>>(x); }
// Of a NaN and a number, the NaN, as in PyTorch.
template <class V> inline V maximum(V a, V b) { return ((a > b) | (a != a)) ? a : b; }
template <class V> inline V minimum(V a, V b) { return ((a < b) | (a != a)) ? a : b; }
template <class V> inline V abs(V x) { return x <= fill<V>(0) ? 0 - x : x; }
template <class V> inline V sign(V x) {
    return x > fill<V>(0) ? fill<V>(1) : x < fill<V>(0) ? fill<V>(-1) : fill<V>(0);
}
template <class V> inline V sqrt(V x) { return each(x, [](real y) { return FW_MATH(sqrt)(y); }); }
template <class V> inline V reciprocal(V x) { return 1 / x; }
template <class V> inline V rsqrt(V x) { return 1 / sqrt(x); }

// As in PyTorch: the remainder has the sign of the divisor, and a quotient is rounded only once.
template <class V> inline V remainder(V x, V y) {
    return each(x, y, [](real a, real b) {
        const real rest = FW_MATH(fmod)(a, b);
        return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
    });
}
template <class V> inline V floor_divide(V x, V y) {
    return each(x, y, [](real a, real b) {
        if (b == 0) return a / b;
        const real rest = FW_MATH(fmod)(a, b), quotient = (a - rest) / b - (rest != 0 && (b < 0) != (rest < 0));
        if (quotient == 0) return FW_MATH(copysign)(real(0), a / b);
        const real whole = FW_MATH(floor)(quotient);
        return quotient - whole > real(0.5) ? whole + 1 : whole;
    });
}

// e^x = 2^n e^r with |r| <= log(2) / 2 and e^r by its series. Exact to about an ulp; NaN stays NaN.
template <class V> inline V exp(V x) {
    constexpr bool wide = sizeof(real) == 8;
    constexpr real magic = wide ? real(6755399441055744.0) : real(12582912.0);
    constexpr real high = wide ? real(0.693147180369123816490) : real(0.693359375);
    constexpr real low = wide ? real(1.90821492927058770002e-10) : real(-2.12194440e-4);
    using I = ints<lanes<V>>;
    using U = naturals<lanes<V>>;
    x = x > fill<V>(wide ? 710 : 89) ? fill<V>(wide ? 710 : 89) : x;
    x = x < fill<V>(wide ? -746 : -104) ? fill<V>(wide ? -746 : -104) : x;
    const V shifted = x * real(1.4426950408889634) + magic;
    const V n = shifted - magic;
    const V r = (x - n * high) - n * low;
    V p = fill<V>(wide ? real(1.0 / 6227020800.0) : real(1.0 / 5040.0));
    if constexpr (wide) {
        constexpr real terms[] = {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
                                  1.0 / 5040.0};
        for (const real c : terms) p = p * r + c;
    }
    constexpr real last[] = {real(1.0 / 720.0), real(1.0 / 120.0), real(1.0 / 24.0), real(1.0 / 6.0), real(0.5),
                             real(1), real(1)};
    for (const real c : last) p = p * r + c;
    // 2^n in two factors, since n may leave the range of an exponent. For a NaN the exponents are any numbers, so that
    // their shift is without sign.
    constexpr int bits = wide ? 52 : 23, bias = wide ? 1023 : 127;
    const I whole = __builtin_bit_cast(I, shifted) - __builtin_bit_cast(I, fill<V>(magic));
    const I half = whole >> 1;
    const U first = __builtin_bit_cast(U, half + bias), second = __builtin_bit_cast(U, whole - half + bias);
    return p * __builtin_bit_cast(V, first << bits) * __builtin_bit_cast(V, second << bits);
}
template <class V> inline V sigmoid(V x) { return 1 / (1 + exp(V(-x))); }

// Near 0 a rational or polynomial approximation (Cephes), where 1 - 2 / (e^2x + 1) would cancel.
template <class V> inline V tanh(V x) {
    const V z = x * x;
    V small;
    if constexpr (sizeof(real) == 8) {
        const V p = (real(-9.64399179425052238628E-1) * z - real(9.92877231001918586564E1)) * z
                    - real(1.61468768441708447952E3);
        const V q = ((z + real(1.12811678491632931402E2)) * z + real(2.23548839060100448583E3)) * z
                    + real(4.84406305325125486048E3);
        small = x + x * z * (p / q);
    } else {
        const V p = (((real(-5.70498872745E-3) * z + real(2.06390887954E-2)) * z - real(5.37397155531E-2)) * z
                     + real(1.33314422036E-1)) * z - real(3.33332819422E-1);
        small = x + x * z * p;
    }
    const V large = 1 - 2 / (exp(V(2 * x)) + 1);
    return z < fill<V>(real(0.390625)) ? small : large;
}

// All lanes as one number, by halves: a loop over lanes would branch on every maximum.
template <class V, class F> inline real across(V x, F combine) {
    if constexpr (lanes<V> == 1) return x;
    else {
        vec<lanes<V> / 2> a, b;
        memcpy(&a, &x, sizeof a);
        memcpy(&b, reinterpret_cast<const char*>(&x) + sizeof a, sizeof b);
        return across(decltype(a)(combine(a, b)), combine);
    }
}
template <class V> inline real total(V x) { return across(x, [](auto a, auto b) { return a + b; }); }
template <class V> inline real highest(V x) { return across(x, [](auto a, auto b) { return maximum(a, b); }); }
template <class V> inline real lowest(V x) { return across(x, [](auto a, auto b) { return minimum(a, b); }); }

// The sums of R vectors, as one vector of R numbers: halves are added pairwise, so that R sums cost as much as a few.
template <int G, class V, int... I> inline V merge(V x, V y, Numbers<I...>) {
    constexpr int N = lanes<V>, part = N / G, half = part / 2;
    // Lane I of the result: group I / half of x (then of y), its lower or upper half.
    return __builtin_shufflevector(x, y, int((I / half) < G ? (I / half) * part + I % half
                                                           : N + (I / half - G) * part + I % half)...)
           + __builtin_shufflevector(x, y, int((I / half) < G ? (I / half) * part + half + I % half
                                                             : N + (I / half - G) * part + half + I % half)...);
}
// The sums of the G groups of lanes of a vector.
template <int G, class V, int... I> inline auto halves(V x, Numbers<I...>) {
    constexpr int part = lanes<V> / G, half = part / 2;
    return __builtin_shufflevector(x, x, int(I / half * part + I % half)...)
           + __builtin_shufflevector(x, x, int(I / half * part + half + I % half)...);
}
template <int G, class V> inline vec<G> groups(V x) {
    if constexpr (lanes<V> == G) return x;
    else if constexpr (G == 1) return total(x);
    else return groups<G>(halves<G>(x, upto<lanes<V> / 2>()));
}
template <int R, int G = 1, class V> inline vec<R * G> totals(V* x) {
    if constexpr (R == 1) return groups<G>(x[0]);
    else {
        for (int r = 0; r < R / 2; ++r) x[r] = merge<G>(x[2 * r], x[2 * r + 1], upto<lanes<V>>());
        return totals<R / 2, 2 * G>(x);
    }
}

template <class V, int... I> inline V interleave(V x, V y, bool upper, Numbers<I...>) {
    constexpr int N = lanes<V>;
    return upper ? __builtin_shufflevector(x, y, int(I % 2 * N + N / 2 + I / 2)...)
                 : __builtin_shufflevector(x, y, int(I % 2 * N + I / 2)...);
}
// N rows of N numbers, which are C apart, as rows that are R apart: a perfect shuffle of all numbers, log2 N times.
template <int N> inline void transpose_tile(real* to, int R, const real* from, int C) {
    vec<N> x[N], y[N];
    for (int r = 0; r < N; ++r) x[r] = load<N>(from + r * C);
    for (int stage = 1; stage < N; stage *= 2) {
        for (int r = 0; r < N; ++r) y[r] = interleave(x[r / 2], x[r / 2 + N / 2], r % 2, upto<N>());
        memcpy(x, y, sizeof x);
    }
    for (int r = 0; r < N; ++r) store<N>(to + r * R, x[r]);
}
// R rows of C numbers as C rows of R.
template <int R, int C> inline void transpose(real* __restrict__ to, const real* __restrict__ from) {
    constexpr int N = 8, rows = R / N * N, columns = C / N * N;
    for (int r = 0; r < rows; r += N)
        for (int c = 0; c < columns; c += N) transpose_tile<N>(to + c * R + r, R, from + r * C + c, C);
    for (int r = 0; r < R; ++r)
        for (int c = r < rows ? columns : 0; c < C; ++c) to[c * R + r] = from[r * C + c];
}

// Memory that begins at a line of the cache. Windows has no aligned_alloc.
struct Arena {
    explicit Arena(int64_t count)
        : memory(malloc(count * sizeof(real) + 128)), start((real*)(((uintptr_t)memory + 63) / 64 * 64)) {}
    ~Arena() { free(memory); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    void* memory;
    real* start;
};

}  // namespace fw
