// Decode attention where the processor multiplies pairs of bfloat16; a part of decode_attention.h.

#pragma once

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace {

// bfloat16 as it is: of queries and keys, pairs of dimensions are multiplied; of weights and values,
// pairs of tokens. Two neighbouring tokens' values are interleaved where they are read, which leaves
// the sums of 32 dimensions in another order until ``bring_in_order``.
constexpr int PAIR_DIMS = 2 * LANES;

struct PairRunning : Running {
  alignas(64) Bfloat16 queries[MAX_GROUPS][MAX_DIM];
  alignas(64) uint32_t weights[MAX_GROUPS][SCORES / 2];  // of two tokens each

  void take_query(int g, const Bfloat16* query, int dim, float) {
    std::memset(queries[g], 0, sizeof queries[g]);
    std::memcpy(queries[g], query, dim * sizeof(Bfloat16));
  }

  void bring_in_order(int groups, int dim) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i last =
        _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    for (int g = 0; g < groups; ++g)
      for (int d = 0; d < dim; d += PAIR_DIMS) {
        const __m512 low = _mm512_load_ps(values[g] + d);
        const __m512 high = _mm512_load_ps(values[g] + d + LANES);
        _mm512_store_ps(values[g] + d, _mm512_permutex2var_ps(low, first, high));
        _mm512_store_ps(values[g] + d + LANES, _mm512_permutex2var_ps(low, last, high));
      }
  }
};

template <>
struct RowMeans<Bfloat16> {
  using Running = PairRunning;
};

// Dimensions [d, d + PAIR_DIMS) of a token, zeros past the last: a head has a multiple of 16.
inline __m512i dims_at(const Bfloat16* p, int d, int dim) {
  const __mmask32 mask = dim - d >= PAIR_DIMS ? ~__mmask32{0} : (__mmask32{1} << LANES) - 1;
  return _mm512_maskz_loadu_epi16(mask, p + d);
}

inline __m256 half(__m512 v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

// The sums of four vectors, in a third of the steps of one after the other.
inline void sum_four(const __m512* v, float* sums) {
  const __m256 first = _mm256_hadd_ps(half(v[0]), half(v[1]));
  const __m256 all = _mm256_hadd_ps(first, _mm256_hadd_ps(half(v[2]), half(v[3])));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

// Query heads [first, first + N): so many that their sums stay in registers.
template <int N>
inline void score_keys(const Layer& layer, const Bfloat16* keys, int num, int first,
                       const PairRunning& running, float (*scores)[SCORES]) {
  constexpr int TOKENS = 4;
  const int dim = layer.head_dim;
  for (int t = 0; t < num; t += TOKENS) {
    const Bfloat16* at[TOKENS];  // past the last token the last again: what follows is nobody's
    for (int i = 0; i < TOKENS; ++i)
      at[i] = keys + (t + i < num ? t + i : num - 1) * layer.token_stride;
    __m512 products[N][TOKENS] = {};
    for (int d = 0; d < dim; d += PAIR_DIMS) {
      __m512bh pairs[TOKENS];
      for (int i = 0; i < TOKENS; ++i) pairs[i] = (__m512bh)dims_at(at[i], d, dim);
      for (int n = 0; n < N; ++n) {
        const __m512bh query = (__m512bh)_mm512_load_si512(running.queries[first + n] + d);
        for (int i = 0; i < TOKENS; ++i)
          products[n][i] = _mm512_dpbf16_ps(products[n][i], pairs[i], query);
      }
    }
    for (int n = 0; n < N; ++n) sum_four(products[n], scores[first + n] + t);
  }
}

template <int N>
inline void add_values(const Layer& layer, const Bfloat16* values, int num, int first,
                       PairRunning& running) {
  const int dim = layer.head_dim;
  for (int d = 0; d < dim; d += PAIR_DIMS) {
    __m512 low[N], high[N];
    for (int n = 0; n < N; ++n) {
      low[n] = _mm512_load_ps(running.values[first + n] + d);
      high[n] = _mm512_load_ps(running.values[first + n] + d + LANES);
    }
    for (int t = 0; t < num; t += 2) {
      const Bfloat16* even = values + t * layer.token_stride;
      const Bfloat16* odd = t + 1 < num ? even + layer.token_stride : even;  // its weight is 0
      const __m512i a = dims_at(even, d, dim), b = dims_at(odd, d, dim);
      const __m512bh lows = (__m512bh)_mm512_unpacklo_epi16(a, b);
      const __m512bh highs = (__m512bh)_mm512_unpackhi_epi16(a, b);
      for (int n = 0; n < N; ++n) {
        const __m512bh weight = (__m512bh)_mm512_set1_epi32(running.weights[first + n][t / 2]);
        low[n] = _mm512_dpbf16_ps(low[n], lows, weight);
        high[n] = _mm512_dpbf16_ps(high[n], highs, weight);
      }
    }
    for (int n = 0; n < N; ++n) {
      _mm512_store_ps(running.values[first + n] + d, low[n]);
      _mm512_store_ps(running.values[first + n] + d + LANES, high[n]);
    }
  }
}

template <typename T, int G>
void attend(const Layer& layer, const Bfloat16* keys, const Bfloat16* next, int num,
            PairRunning& running) {
  constexpr int TOGETHER = !G ? 1 : G <= 4 ? G : G % 4 == 0 ? 4 : G % 3 == 0 ? 3 : 1;
  const int dim = layer.head_dim, groups = G ? G : layer.num_heads / layer.num_kv_heads;
  const int padded = (dim + PAIR_DIMS - 1) / PAIR_DIMS * PAIR_DIMS;
  float scores[MAX_GROUPS][SCORES];
  for (int t = 0; t < num; ++t) {
    fetch(next + t * layer.token_stride, dim);
    fetch(next + t * layer.token_stride + layer.value_offset, dim);
  }
  for (int g = 0; g < groups; g += TOGETHER)
    score_keys<TOGETHER>(layer, keys, num, g, running, scores);
  for (int g = 0; g < groups; ++g) {
    for (int t = 0; t < num; ++t) scores[g][t] *= layer.scale;
    weigh_keys(scores[g], num, g, padded, running);
    const __m256bh weights = _mm512_cvtneps_pbh(_mm512_loadu_ps(scores[g]));
    std::memcpy(running.weights[g], &weights, sizeof weights);
  }
  for (int g = 0; g < groups; g += TOGETHER)
    add_values<TOGETHER>(layer, keys + layer.value_offset, num, g, running);
}

}  // namespace

#endif
