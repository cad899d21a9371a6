// What a decoder does to a row between its matrix products. Computed in float32, rounded where
// transformers rounds.

#pragma once

#include "vectors.h"

namespace {

// weight * round(x / rms(x)), of one row; with ``delta``, x becomes x + delta first.
template <typename T>
void norm_row(T* x, const T* delta, const T* weight, float epsilon, int64_t dim, T* out) {
  Vec squares = {};
  for (int64_t d = 0; d < dim; d += LANES) {
    Vec value = load(x + d);
    if (delta) {
      value = rounded(value + load(delta + d), weight);
      store(x + d, value);
    }
    squares += value * value;
  }
  const Vec scale = spread(1 / std::sqrt(sum(squares) / dim + epsilon));
  for (int64_t d = 0; d < dim; d += LANES) {
    const Vec value = rounded(load(x + d) * scale, weight);
    store(out + d, load(weight + d) * value);
  }
}

// Heads [0, num_heads) of one row, in place; element i pairs with i + head_dim / 2. Each product is
// rounded as torch rounds it.
template <typename T>
void rotate_row(T* x, const T* cosine, const T* sine, int64_t num_heads, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  for (int64_t head = 0; head < num_heads; ++head) {
    T* first = x + head * head_dim;
    T* second = first + half;
    for (int64_t d = 0; d < half; d += LANES) {
      const Vec a = load(first + d), b = load(second + d);
      const Vec c = load(cosine + d), s = load(sine + d);
      store(first + d, rounded(a * c, x) - rounded(b * s, x));
      store(second + d, rounded(b * c, x) + rounded(a * s, x));
    }
  }
}

// silu(gate) * up, of ``num`` values; perhaps in place.
template <typename T>
void gate_values(const T* gate, const T* up, int64_t num, T* out) {
  for (int64_t d = 0; d < num; d += LANES) {
    const Vec value = load(gate + d);
    const Vec magnitude = larger(value, -value);
    const Vec fading = exponential(-magnitude);  // of the side that does not overflow
    const Vec share = select(value > Vec{}, spread(1.0f), fading) / (spread(1.0f) + fading);
    store(out + d, rounded(value * share, out) * load(up + d));
  }
}

}  // namespace
