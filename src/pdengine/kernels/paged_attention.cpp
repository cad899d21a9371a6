// One layer's attention, shared out to threads.

#include "paged_attention.h"

#include <omp.h>

namespace {

template <typename T>
void attend_layer(const Layer& layer, const T* q, const int32_t* tables, int64_t table_stride,
                  const Plan& plan, int num_threads, T* out) {
  Turns turns;
#pragma omp parallel num_threads(num_threads)
  {
    Room<T> room(layer, plan);
    attend_share(layer, q, tables, table_stride, plan, omp_get_thread_num(), omp_get_num_threads(),
                 turns, room, out);
  }
}

}  // namespace

extern "C" int pdspan_tile_rows() { return TILE_ROWS; }

#define PDSPAN_ATTENTION(NAME, T)                                                                \
  extern "C" void pdspan_attend_##NAME(const Layer* layer, const void* q, const int32_t* tables, \
                                       int64_t table_stride, const Plan* plan, int num_threads,  \
                                       void* out) {                                              \
    attend_layer(*layer, static_cast<const T*>(q), tables, table_stride, *plan, num_threads,     \
                 static_cast<T*>(out));                                                          \
  }

PDSPAN_ATTENTION(float32, float)
PDSPAN_ATTENTION(bfloat16, Bfloat16)
