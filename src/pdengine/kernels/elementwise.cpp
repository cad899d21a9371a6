// What a decoder does between its matrix products, each in one pass over memory: normalising, adding
// the residual, rotating queries and keys, gating. Computed in float32, rounded where transformers
// rounds. Rows are shared out to threads only when there are many.

#include <omp.h>

#include "vectors.h"

namespace {

constexpr int64_t SHARED_ELEMENTS = 1 << 15;  // below it a team of threads costs more than it brings

inline int team(int64_t elements, int num_threads) {
  return elements < SHARED_ELEMENTS ? 1 : num_threads;
}

// Rounded as an element of T, and back.
inline Vec rounded(Vec v, const float*) { return v; }

inline Vec rounded(Vec v, const Bfloat16*) {
  Bfloat16 lanes[LANES];
  store(lanes, v);
  return load(lanes);
}

// weight * round(x / rms(x)); with ``delta``, x becomes x + delta first.
template <typename T>
void rms_norm(T* x, const T* delta, const T* weight, float epsilon, int64_t num_rows, int64_t dim,
              int num_threads, T* out) {
#pragma omp parallel for schedule(static) num_threads(team(num_rows* dim, num_threads))
  for (int64_t row = 0; row < num_rows; ++row) {
    T* values = x + row * dim;
    Vec squares = {};
    for (int64_t d = 0; d < dim; d += LANES) {
      Vec value = load(values + d);
      if (delta) {
        value = rounded(value + load(delta + row * dim + d), weight);
        store(values + d, value);
      }
      squares += value * value;
    }
    const Vec scale = spread(1 / std::sqrt(sum(squares) / dim + epsilon));
    for (int64_t d = 0; d < dim; d += LANES) {
      const Vec value = rounded(load(values + d) * scale, weight);
      store(out + row * dim + d, load(weight + d) * value);
    }
  }
}

// Heads [0, num_heads) of each row, in place; element i pairs with i + head_dim / 2. Each product is
// rounded as torch rounds it.
template <typename T>
void rotate(T* x, int64_t row_stride, const T* cosine, const T* sine, int64_t num_rows,
            int64_t num_heads, int64_t head_dim, int num_threads) {
  const int64_t half = head_dim / 2;
#pragma omp parallel for schedule(static) num_threads(team(num_rows* num_heads* head_dim, num_threads))
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t head = 0; head < num_heads; ++head) {
      T* first = x + row * row_stride + head * head_dim;
      T* second = first + half;
      for (int64_t d = 0; d < half; d += LANES) {
        const Vec a = load(first + d), b = load(second + d);
        const Vec c = load(cosine + row * half + d), s = load(sine + row * half + d);
        store(first + d, rounded(a * c, x) - rounded(b * s, x));
        store(second + d, rounded(b * c, x) + rounded(a * s, x));
      }
    }
}

// silu(gate) * up; a row of ``gate_up`` holds both, one after the other.
template <typename T>
void gated(const T* gate_up, int64_t num_rows, int64_t dim, int num_threads, T* out) {
#pragma omp parallel for schedule(static) num_threads(team(num_rows* dim, num_threads))
  for (int64_t row = 0; row < num_rows; ++row) {
    const T* gate = gate_up + row * 2 * dim;
    for (int64_t d = 0; d < dim; d += LANES) {
      const Vec value = load(gate + d);
      const Vec magnitude = larger(value, -value);
      const Vec fading = exponential(-magnitude);  // of the side that does not overflow
      const Vec share = select(value > Vec{}, spread(1.0f), fading) / (spread(1.0f) + fading);
      store(out + row * dim + d, rounded(value * share, out) * load(gate + dim + d));
    }
  }
}

}  // namespace

#define PDSPAN_ELEMENTWISE(NAME, T)                                                              \
  extern "C" void pdspan_rms_norm_##NAME(void* x, const void* delta, const void* weight,         \
                                         float epsilon, int64_t num_rows, int64_t dim,           \
                                         int num_threads, void* out) {                           \
    rms_norm(static_cast<T*>(x), static_cast<const T*>(delta), static_cast<const T*>(weight),    \
             epsilon, num_rows, dim, num_threads, static_cast<T*>(out));                         \
  }                                                                                              \
  extern "C" void pdspan_rotate_##NAME(void* x, int64_t row_stride, const void* cosine,          \
                                       const void* sine, int64_t num_rows, int64_t num_heads,    \
                                       int64_t head_dim, int num_threads) {                      \
    rotate(static_cast<T*>(x), row_stride, static_cast<const T*>(cosine),                        \
           static_cast<const T*>(sine), num_rows, num_heads, head_dim, num_threads);             \
  }                                                                                              \
  extern "C" void pdspan_gated_##NAME(const void* gate_up, int64_t num_rows, int64_t dim,        \
                                      int num_threads, void* out) {                              \
    gated(static_cast<const T*>(gate_up), num_rows, dim, num_threads, static_cast<T*>(out));     \
  }

PDSPAN_ELEMENTWISE(float32, float)
PDSPAN_ELEMENTWISE(bfloat16, Bfloat16)
