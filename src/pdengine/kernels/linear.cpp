// x W^T for few rows of x: every weight is read once, and meets all rows while it is in a register.
// For many rows a library's matrix product is the better one.

#include <omp.h>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <vector>

#include "vectors.h"

namespace {

constexpr int OUTS = 4;      // rows of W that are shared out together
constexpr int MOST_INS = 6;  // rows of x in the inner loop
#if defined(__AVX512F__)
constexpr int NARROW = 4;    // rows of W in the inner loop with many of x: as registers allow
#else
constexpr int NARROW = 2;
#endif

// One block: INS rows of x by N rows of W, whose first is row ``first`` of the sums. ``num_in`` is a
// multiple of LANES. Weights of 8 bits are scaled by the caller.
template <int INS, int N, typename T>
inline void block(const float* x, const T* weight, int64_t num_in, int first,
                  float (*out)[OUTS]) {
  Vec sums[INS][N] = {};
  weight += first * num_in;
  for (int64_t k = 0; k < num_in; k += LANES) {
    Vec weights[N];
    for (int o = 0; o < N; ++o) weights[o] = load(weight + o * num_in + k);
    for (int i = 0; i < INS; ++i) {
      const Vec value = load(x + i * num_in + k);
      for (int o = 0; o < N; ++o) sums[i][o] += value * weights[o];
    }
  }
  for (int i = 0; i < INS; ++i)
    for (int o = 0; o < N; ++o) out[i][first + o] = sum(sums[i][o]);
}

#if defined(__AVX512BF16__)

constexpr int PAIR_LANES = 2 * LANES;

inline __m512bh pairs(const Bfloat16* p) { return (__m512bh)_mm512_loadu_si512(p); }

inline __m256 half(__m512 v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

// The sums of four vectors, in a third of the steps of one after the other.
inline void sum_four(const __m512* v, float* sums) {
  const __m256 first = _mm256_hadd_ps(half(v[0]), half(v[1]));
  const __m256 all = _mm256_hadd_ps(first, _mm256_hadd_ps(half(v[2]), half(v[3])));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

// The same where both are bfloat16 and ``num_in`` is a multiple of PAIR_LANES: one instruction
// multiplies pairs of neighbours and adds up both products, in float32.
template <int INS, int N>
inline void block(const Bfloat16* x, const Bfloat16* weight, int64_t num_in, int first,
                  float (*out)[OUTS]) {
  __m512 sums[INS][N] = {};
  weight += first * num_in;
  for (int64_t k = 0; k < num_in; k += PAIR_LANES) {
    __m512bh weights[N];
    for (int o = 0; o < N; ++o) {
      weights[o] = pairs(weight + o * num_in + k);
      _mm_prefetch(weight + (o + OUTS) * num_in + k, _MM_HINT_T0);  // of the next block
    }
    for (int i = 0; i < INS; ++i) {
      const __m512bh values = pairs(x + i * num_in + k);
      for (int o = 0; o < N; ++o) sums[i][o] = _mm512_dpbf16_ps(sums[i][o], values, weights[o]);
    }
  }
  static_assert(N == 4, "as many as are summed up together");
  for (int i = 0; i < INS; ++i) sum_four(sums[i], out[i] + first);
}

#endif

template <int INS, typename X, typename T>
inline void narrow_blocks(const X* x, const T* weight, int64_t num_in, float (*out)[OUTS]) {
  for (int first = 0; first < OUTS; first += NARROW)
    block<INS, NARROW>(x, weight, num_in, first, out);
}

template <typename X, typename T>
void blocks_of(int ins, const X* x, const T* weight, int64_t num_in, float (*out)[OUTS]) {
  switch (ins) {
    case 1: return block<1, OUTS>(x, weight, num_in, 0, out);
    case 2: return block<2, OUTS>(x, weight, num_in, 0, out);
    case 3: return block<3, OUTS>(x, weight, num_in, 0, out);
    case 4: return block<4, OUTS>(x, weight, num_in, 0, out);
    case 5: return narrow_blocks<5>(x, weight, num_in, out);
    default: return narrow_blocks<MOST_INS>(x, weight, num_in, out);
  }
}

inline float get(float value) { return value; }

inline float get(Bfloat16 value) {
  const uint32_t word = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &word, sizeof result);
  return result;
}

inline void put(float* p, float value) { *p = value; }

inline void put(Bfloat16* p, float value) {
  Bfloat16 lanes[LANES];
  store(lanes, spread(value));
  *p = lanes[0];
}

// ``x`` is [num_rows, num_in]: float32 whatever the weights are, or bfloat16 as they; ``num_out`` a
// multiple of OUTS. ``scales``: a factor for each row of W, or none.
template <typename X, typename W, typename T>
void linear(const X* x, const W* weight, const float* scales, const T* bias, int64_t num_rows,
            int64_t num_in, int64_t num_out, int num_threads, T* out) {
  if (!num_rows) return;
  const int64_t num_blocks = num_out / OUTS;
  const int64_t passes = (num_rows + MOST_INS - 1) / MOST_INS;
  const int64_t ins_each = (num_rows + passes - 1) / passes;  // 8 rows are 4 and 4, not 6 and 2
#pragma omp parallel for schedule(static) num_threads(num_threads)
  for (int64_t b = 0; b < num_blocks; ++b) {
    const int64_t first = b * OUTS;
    for (int64_t row = 0; row < num_rows; row += ins_each) {
      float sums[MOST_INS][OUTS];
      const int ins = static_cast<int>(num_rows - row < ins_each ? num_rows - row : ins_each);
      blocks_of(ins, x + row * num_in, weight + first * num_in, num_in, sums);
      for (int i = 0; i < ins; ++i)
        for (int o = 0; o < OUTS; ++o) {
          const float factor = scales ? scales[first + o] : 1;
          const float added = bias ? get(bias[first + o]) : 0;
          put(out + (row + i) * num_out + first + o, sums[i][o] * factor + added);
        }
    }
  }
}

void linear_bfloat16(const Bfloat16* x, const Bfloat16* weight, const Bfloat16* bias,
                     int64_t num_rows, int64_t num_in, int64_t num_out, int num_threads,
                     Bfloat16* out) {
#if defined(__AVX512BF16__)
  if (num_in % PAIR_LANES == 0) {
    linear(x, weight, nullptr, bias, num_rows, num_in, num_out, num_threads, out);
    return;
  }
#endif
  std::vector<float> wide(num_rows * num_in);
  for (size_t i = 0; i < wide.size(); i += LANES) store(wide.data() + i, load(x + i));
  linear(wide.data(), weight, nullptr, bias, num_rows, num_in, num_out, num_threads, out);
}

}  // namespace

extern "C" {

void pdspan_linear_float32(const float* x, const void* weight, const void* bias, int64_t num_rows,
                           int64_t num_in, int64_t num_out, int num_threads, void* out) {
  linear(x, static_cast<const float*>(weight), nullptr, static_cast<const float*>(bias), num_rows,
         num_in, num_out, num_threads, static_cast<float*>(out));
}

void pdspan_linear_bfloat16(const void* x, const void* weight, const void* bias, int64_t num_rows,
                            int64_t num_in, int64_t num_out, int num_threads, void* out) {
  linear_bfloat16(static_cast<const Bfloat16*>(x), static_cast<const Bfloat16*>(weight),
                  static_cast<const Bfloat16*>(bias), num_rows, num_in, num_out, num_threads,
                  static_cast<Bfloat16*>(out));
}

void pdspan_linear_int8_float32(const float* x, const int8_t* weight, const float* scales,
                                const void* bias, int64_t num_rows, int64_t num_in,
                                int64_t num_out, int num_threads, void* out) {
  linear(x, weight, scales, static_cast<const float*>(bias), num_rows, num_in, num_out,
         num_threads, static_cast<float*>(out));
}

void pdspan_linear_int8_bfloat16(const float* x, const int8_t* weight, const float* scales,
                                 const void* bias, int64_t num_rows, int64_t num_in,
                                 int64_t num_out, int num_threads, void* out) {
  linear(x, weight, scales, static_cast<const Bfloat16*>(bias), num_rows, num_in, num_out,
         num_threads, static_cast<Bfloat16*>(out));
}

}  // extern "C"
