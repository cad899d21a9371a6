// One product, shared out to threads by panels.

#include "linear.h"

#include <omp.h>

namespace {

template <typename T>
void product(const Matrix& matrix, const T* x, int64_t num_rows, int num_threads, T* out) {
  const int64_t num_panels = panels_of(matrix);
#pragma omp parallel num_threads(num_threads)
  {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    multiply(matrix, x, num_rows, num_panels * thread / threads,
             num_panels * (thread + 1) / threads, out);
  }
}

}  // namespace

#define PDSPAN_LINEAR(NAME, T)                                                                 \
  extern "C" int pdspan_columns_together_##NAME() { return Step<T, T>::INS; }                  \
  extern "C" void pdspan_product_##NAME(const Matrix* matrix, const void* x, int64_t num_rows, \
                                        int num_threads, void* out) {                          \
    product(*matrix, static_cast<const T*>(x), num_rows, num_threads, static_cast<T*>(out));   \
  }

PDSPAN_LINEAR(float32, float)
PDSPAN_LINEAR(bfloat16, Bfloat16)
