// Prefill attention where the processor multiplies pairs of bfloat16; a part of prefill_attention.h.

#pragma once

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace {

// bfloat16 as it is, in pairs: one instruction multiplies 16 pairs of each and adds up both products.
constexpr int PAIRS_WIDE = 4;  // vectors that its inner loops keep for each row

struct PairBlock {
  alignas(64) uint32_t keys[MAX_DIM / 2][BLOCK];    // two dimensions of a key
  alignas(64) uint32_t values[BLOCK / 2][MAX_DIM];  // one dimension of two values
};

struct PairState : TileState {
  alignas(64) uint32_t queries[TILE_ROWS][MAX_DIM / 2];
  alignas(64) uint32_t weights[ROWS][BLOCK / 2];

  void take_query(int row, const Bfloat16* query, int dim, float) {
    std::memcpy(queries[row], query, dim * sizeof(Bfloat16));
  }
};

template <>
struct TileMeans<Bfloat16> {
  using Block = PairBlock;
  using State = PairState;
};

inline __m512bh pairs(const uint32_t* p) { return (__m512bh)_mm512_load_si512(p); }

inline __m512bh pair_everywhere(uint32_t pair) { return (__m512bh)_mm512_set1_epi32(pair); }

template <typename T>
void read_block(const Layer& layer, const int32_t* table, int kv_head, int64_t first, int num,
                PairBlock& block) {
  const int dim = layer.head_dim;
  for (int t = 0; t < BLOCK; ++t)
    if (t < num) {
      const T* key = token_at<T>(layer, table, first + t) + kv_head * dim;
      for (int d = 0; d < dim; d += 2) std::memcpy(&block.keys[d / 2][t], key + d, 4);
    } else {
      for (int d = 0; d < dim; d += 2) block.keys[d / 2][t] = 0;
    }
  for (int t = 0; t < BLOCK; t += 2)
    for (int d = 0; d < dim; d += LANES) {
      Words both = {};
      for (int i = 0; i < 2; ++i) {
        if (t + i >= num) continue;  // masked; but a weight of 0 times no number is no number
        const T* value = token_at<T>(layer, table, first + t + i) + kv_head * dim;
        Halves halves;
        std::memcpy(&halves, value + layer.value_offset + d, sizeof halves);
        both |= __builtin_convertvector(halves, Words) << (16 * i);
      }
      std::memcpy(&block.values[t / 2][d], &both, sizeof both);
    }
}

inline void step_rows(const Layer& layer, const PairBlock& block, const int* low, const int* high,
                      int row, PairState& state) {
  static_assert(BLOCK == PAIRS_WIDE * LANES, "all keys of a block at once");
  const int dim = layer.head_dim;
  __m512 sums[ROWS][PAIRS_WIDE] = {};
  for (int d = 0; d < dim / 2; ++d) {
    __m512bh keys[PAIRS_WIDE];
    for (int w = 0; w < PAIRS_WIDE; ++w) keys[w] = pairs(block.keys[d] + w * LANES);
    for (int r = 0; r < ROWS; ++r) {
      const __m512bh query = pair_everywhere(state.queries[row + r][d]);
      for (int w = 0; w < PAIRS_WIDE; ++w) sums[r][w] = _mm512_dpbf16_ps(sums[r][w], keys[w], query);
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    for (int w = 0; w < PAIRS_WIDE; ++w)
      _mm512_store_ps(state.scores[r] + w * LANES,
                      _mm512_mul_ps(sums[r][w], _mm512_set1_ps(layer.scale)));
    weigh(dim, low[r], high[r], row + r, r, state);
    for (int k = 0; k < BLOCK; k += LANES) {
      const __m256bh narrow = _mm512_cvtneps_pbh(_mm512_load_ps(state.scores[r] + k));
      std::memcpy(state.weights[r] + k / 2, &narrow, sizeof narrow);
    }
  }
  for (int d = 0; d < dim; d += PAIRS_WIDE * LANES) {  // past the last dimension nobody reads
    for (int r = 0; r < ROWS; ++r)
      for (int w = 0; w < PAIRS_WIDE; ++w)
        sums[r][w] = _mm512_load_ps(state.values[row + r] + d + w * LANES);
    for (int k = 0; k < BLOCK / 2; ++k) {
      __m512bh values[PAIRS_WIDE];
      for (int w = 0; w < PAIRS_WIDE; ++w) values[w] = pairs(block.values[k] + d + w * LANES);
      for (int r = 0; r < ROWS; ++r) {
        const __m512bh weight = pair_everywhere(state.weights[r][k]);
        for (int w = 0; w < PAIRS_WIDE; ++w)
          sums[r][w] = _mm512_dpbf16_ps(sums[r][w], values[w], weight);
      }
    }
    for (int r = 0; r < ROWS; ++r)
      for (int w = 0; w < PAIRS_WIDE; ++w)
        _mm512_store_ps(state.values[row + r] + d + w * LANES, sums[r][w]);
  }
}

}  // namespace

#endif
