// Norms, rotation and gating of a batch. Rows are shared out to threads only when there are many.

#include "elementwise.h"

#include <omp.h>

namespace {

constexpr int64_t SHARED_ELEMENTS = 1 << 15;  // below it a team of threads costs more than it brings

inline int team(int64_t elements, int num_threads) {
  return elements < SHARED_ELEMENTS ? 1 : num_threads;
}

template <typename T>
void rms_norm(T* x, const T* delta, const T* weight, float epsilon, int64_t num_rows, int64_t dim,
              int num_threads, T* out) {
#pragma omp parallel for schedule(static) num_threads(team(num_rows* dim, num_threads))
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t at = row * dim;
    norm_row(x + at, delta ? delta + at : nullptr, weight, epsilon, dim, out + at);
  }
}

template <typename T>
void rotate(T* x, int64_t row_stride, const T* cosine, const T* sine, int64_t num_rows,
            int64_t num_heads, int64_t head_dim, int num_threads) {
  const int64_t half = head_dim / 2;
#pragma omp parallel for schedule(static) num_threads(team(num_rows* num_heads* head_dim, num_threads))
  for (int64_t row = 0; row < num_rows; ++row)
    rotate_row(x + row * row_stride, cosine + row * half, sine + row * half, num_heads, head_dim);
}

// A row of ``gate_up`` holds both, one after the other.
template <typename T>
void gated(const T* gate_up, int64_t num_rows, int64_t dim, int num_threads, T* out) {
#pragma omp parallel for schedule(static) num_threads(team(num_rows* dim, num_threads))
  for (int64_t row = 0; row < num_rows; ++row) {
    const T* gate = gate_up + row * 2 * dim;
    gate_values(gate, gate + dim, dim, out + row * dim);
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
