// x W^T for any number of rows of x, each result the same whatever rows are beside it.
//
// W is packed: sixteen of its rows are a panel, and in a panel the values of one column stand
// together; where the processor multiplies pairs of bfloat16, those of two neighbouring columns.
// So a panel is read from end to end, and sums come out sixteen at a time without adding across.

#pragma once

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "vectors.h"

// ``values``: packed, of the activations' type, or of 8 bits where there are ``scales``. ``scales``
// (a factor for each row of W) and ``bias`` (or none) reach to the end of the last panel.
struct Matrix {
  const void* values;
  const float* scales;
  const void* bias;
  int64_t num_in;
  int64_t num_out;
};

namespace {

constexpr int PANEL = 16;
constexpr int VECS = PANEL / LANES;
constexpr int MOST_ROWS = 6;  // of x at once, as many as registers hold the sums of
#if defined(__AVX512F__)
constexpr int MOST_PANELS = 4;
#else
constexpr int MOST_PANELS = 1;
#endif
constexpr int AHEAD_BYTES = 1024;

inline int64_t panels_of(const Matrix& matrix) { return (matrix.num_out + PANEL - 1) / PANEL; }

// How one step of the inner loop multiplies: ``INS`` columns at once.
template <typename T, typename W>
struct Step {
  static constexpr int INS = 1;
  using Weights = Vec;
  using Input = Vec;
  static Weights weights(const W* p) { return load(p); }
  static Input input(const T* p) { return spread(get(p)); }
  static Vec add(Vec sum, Input input, Weights weights) { return sum + input * weights; }
};

#if defined(__AVX512BF16__)

inline __m512bh pairs_at(const Bfloat16* p) { return (__m512bh)_mm512_loadu_si512(p); }

// An integer of 8 bits is exact in bfloat16: the upper half of its float32.
inline __m512bh pairs_at(const int8_t* p) {
  const __m512i both = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i first = _mm512_srai_epi32(_mm512_slli_epi32(both, 16), 16);
  const __m512i second = _mm512_srai_epi32(both, 16);
  const __m512i first_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(first));
  const __m512i second_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(second));
  return (__m512bh)_mm512_or_si512(_mm512_srli_epi32(first_bits, 16), second_bits);
}

template <typename W>
struct Step<Bfloat16, W> {
  static constexpr int INS = 2;
  using Weights = __m512bh;
  using Input = __m512bh;
  static Weights weights(const W* p) { return pairs_at(p); }
  static Input input(const Bfloat16* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  static Vec add(Vec sum, Input input, Weights weights) {
    return _mm512_dpbf16_ps(sum, input, weights);
  }
};

#endif

template <typename T>
inline void store_some(T* out, Vec v, int64_t num) {
  if (num >= LANES) return store(out, v);
  T lanes[LANES];
  store(lanes, v);
  for (int64_t i = 0; i < num; ++i) out[i] = lanes[i];
}

// ROWS rows of x by panels [panel, panel + PANELS).
template <typename T, typename W, int ROWS, int PANELS>
inline void tile(const Matrix& matrix, const T* x, int64_t panel, T* out) {
  using S = Step<T, W>;
  constexpr int SUMS = PANELS * VECS;
  const int64_t num_in = matrix.num_in, panel_size = num_in * PANEL;
  const W* values = static_cast<const W*>(matrix.values) + panel * panel_size;
  Vec sums[ROWS][SUMS] = {};
  for (int64_t k = 0; k < num_in; k += S::INS) {
    typename S::Weights weights[SUMS];
    for (int s = 0; s < SUMS; ++s) {
      const W* p = values + s / VECS * panel_size + k * PANEL + s % VECS * LANES * S::INS;
      weights[s] = S::weights(p);
      __builtin_prefetch(p + AHEAD_BYTES / sizeof(W));
    }
    for (int r = 0; r < ROWS; ++r) {
      const typename S::Input input = S::input(x + r * num_in + k);
      for (int s = 0; s < SUMS; ++s) sums[r][s] = S::add(sums[r][s], input, weights[s]);
    }
  }
  const T* bias = static_cast<const T*>(matrix.bias);
  for (int s = 0; s < SUMS; ++s) {
    const int64_t first = panel * PANEL + s * LANES;
    const Vec scale = matrix.scales ? load(matrix.scales + first) : spread(1);
    const Vec added = bias ? load(bias + first) : Vec{};
    for (int r = 0; r < ROWS; ++r)
      store_some(out + r * matrix.num_out + first, sums[r][s] * scale + added,
                 matrix.num_out - first);
  }
}

template <typename T, typename W, int PANELS>
void tile_of(int rows, const Matrix& matrix, const T* x, int64_t panel, T* out) {
  switch (rows) {
    case 1: return tile<T, W, 1, PANELS>(matrix, x, panel, out);
    case 2: return tile<T, W, 2, PANELS>(matrix, x, panel, out);
    case 3: return tile<T, W, 3, PANELS>(matrix, x, panel, out);
    case 4: return tile<T, W, 4, PANELS>(matrix, x, panel, out);
    case 5: return tile<T, W, 5, PANELS>(matrix, x, panel, out);
    default: return tile<T, W, MOST_ROWS, PANELS>(matrix, x, panel, out);
  }
}

// All rows meet a few panels while these are in the cache; 8 rows are 4 and 4, not 6 and 2.
template <typename T, typename W, int PANELS>
void rows_by(const Matrix& matrix, const T* x, int64_t num_rows, int64_t panel, T* out) {
  const int64_t passes = (num_rows + MOST_ROWS - 1) / MOST_ROWS;
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t first = num_rows * pass / passes, last = num_rows * (pass + 1) / passes;
    tile_of<T, W, PANELS>(static_cast<int>(last - first), matrix, x + first * matrix.num_in, panel,
                          out + first * matrix.num_out);
  }
}

// Panels [first, last), PANELS at a time, and what is left fewer at a time.
template <typename T, typename W, int PANELS>
void panels_by(const Matrix& matrix, const T* x, int64_t num_rows, int64_t first, int64_t last,
               T* out) {
  for (; last - first >= PANELS; first += PANELS)
    rows_by<T, W, PANELS>(matrix, x, num_rows, first, out);
  if constexpr (PANELS > 1) panels_by<T, W, PANELS / 2>(matrix, x, num_rows, first, last, out);
}

// Panels [first, last) of the product: ``x`` is [num_rows, num_in], ``out`` [num_rows, num_out].
template <typename T>
void multiply(const Matrix& matrix, const T* x, int64_t num_rows, int64_t first, int64_t last,
              T* out) {
  if (matrix.scales)
    panels_by<T, int8_t, MOST_PANELS>(matrix, x, num_rows, first, last, out);
  else
    panels_by<T, T, MOST_PANELS>(matrix, x, num_rows, first, last, out);
}

}  // namespace
