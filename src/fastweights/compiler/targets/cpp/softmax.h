// The softmax over the rows of logits [rows, columns] that lie one behind the other, in float32 or bfloat16. Sums are
// in float32.

namespace fw {

struct bfloat16 { uint16_t bits; };

template <int N> inline vec<N> load_logits(const float* p) { return load<N>(p); }
template <int N> inline void store_logits(float* p, vec<N> x) { store<N>(p, x); }

template <int N> inline vec<N> load_logits(const bfloat16* p) {
    if constexpr (N == 1) return __builtin_bit_cast(float, uint32_t(p->bits) << 16);
    else {
        typename Vector<uint16_t, N>::type half;
        memcpy(&half, p, sizeof half);
        using wide = typename Vector<uint32_t, N>::type;
        return __builtin_bit_cast(vec<N>, __builtin_convertvector(half, wide) << 16);
    }
}
// Rounded to the nearest, and of two to the even one. A NaN stays one.
template <int N> inline void store_logits(bfloat16* p, vec<N> x) {
    if constexpr (N == 1) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, x);
        p->bits = x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    } else {
        using wide = typename Vector<uint32_t, N>::type;
        const wide bits = __builtin_bit_cast(wide, x);
        const wide rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        const auto half = __builtin_convertvector(x == x ? rounded : rounded - rounded + 0x7fc0,
                                                  typename Vector<uint16_t, N>::type);
        memcpy(p, &half, sizeof half);
    }
}

// log sum_c exp(x[r, c]) of the rows from `first` to before `end`.
template <class T> void log_sum_exp(const T* x, float* totals, int64_t columns, int64_t first, int64_t end) {
    constexpr int N = LANES;
    const int64_t whole = columns / N * N;
    for (int64_t r = first; r < end; ++r) {
        const T* row = x + r * columns;
        vec<N> high = splat<N>(-infinity);
        for (int64_t c = 0; c < whole; c += N) high = maximum(load_logits<N>(row + c), high);
        float most = highest(high);
        for (int64_t c = whole; c < columns; ++c) most = maximum(load_logits<1>(row + c), most);
        // exp(inf - inf) would be NaN.
        const float shift = most == infinity || most == -infinity ? 0 : most;
        vec<N> sums = splat<N>(0);
        for (int64_t c = 0; c < whole; c += N) sums += exp(vec<N>(load_logits<N>(row + c) - shift));
        float sum = total(sums);
        for (int64_t c = whole; c < columns; ++c) sum += exp(load_logits<1>(row + c) - shift);
        totals[r] = most == infinity ? infinity : shift + FW_MATH(log)(sum);
    }
}

// Replaces logits by d_total exp(x - total), plus d_chosen in the chosen column, for the columns from `first` to before
// `end`, and adds their sums over the rows to d_bias.
template <class T> void gradient(T* x, const float* totals, const float* d_totals, const float* d_chosen,
                                 const int64_t* chosen, float* d_bias, int64_t rows, int64_t columns, int64_t first,
                                 int64_t end) {
    constexpr int N = LANES;
    const int64_t whole = first + (end - first) / N * N;
    for (int64_t r = 0; r < rows; ++r) {
        T* row = x + r * columns;
        const float one = chosen[r] >= first && chosen[r] < end ? load_logits<1>(row + chosen[r]) : 0;
        for (int64_t c = first; c < whole; c += N) {
            const vec<N> d = exp(vec<N>(load_logits<N>(row + c) - totals[r])) * d_totals[r];
            store<N>(d_bias + c, load<N>(d_bias + c) + d);
            store_logits<N>(row + c, d);
        }
        for (int64_t c = whole; c < end; ++c) {
            const float d = exp(load_logits<1>(row + c) - totals[r]) * d_totals[r];
            d_bias[c] += d;
            store_logits<1>(row + c, d);
        }
        if (chosen[r] >= first && chosen[r] < end) {
            d_bias[chosen[r]] += d_chosen[r];
            // From the unrounded number: near a probability of 1 the sum is small.
            store_logits<1>(row + chosen[r], exp(one - totals[r]) * d_totals[r] + d_chosen[r]);
        }
    }
}

}  // namespace fw

#define FW_SOFTMAX(suffix, T)                                                                                          \
    FW_EXPORT void log_sum_exp_##suffix(const T* x, float* totals, int64_t columns, int64_t first, int64_t end) {      \
        fw::log_sum_exp(x, totals, columns, first, end);                                                               \
    }                                                                                                                  \
    FW_EXPORT void gradient_##suffix(T* x, const float* totals, const float* d_totals, const float* d_chosen,          \
                                     const int64_t* chosen, float* d_bias, int64_t rows, int64_t columns,              \
                                     int64_t first, int64_t end) {                                                     \
        fw::gradient(x, totals, d_totals, d_chosen, chosen, d_bias, rows, columns, first, end);                        \
    }
FW_SOFTMAX(float32, float)
FW_SOFTMAX(bfloat16, fw::bfloat16)
