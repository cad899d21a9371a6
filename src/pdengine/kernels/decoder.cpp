// All layers of a step in one call: threads meet at barriers instead of being called again for each
// product, and every intermediate result lies where it lay for the layer before.

#include <omp.h>

#include <vector>

#include "elementwise.h"
#include "linear.h"
#include "paged_attention.h"

// ``query_norm`` and ``key_norm``: of each head, or none. ``plan``: which one is for its window.
struct DecoderLayer {
  const void* input_norm;
  const void* query_norm;
  const void* key_norm;
  const void* mlp_norm;
  Matrix qkv;
  Matrix output;
  Matrix gate_up;
  Matrix down;
  int32_t plan;
};

// ``layer_stride``: from a page's keys of one layer to those of the next, in elements.
struct Decoder {
  const DecoderLayer* layers;
  const void* final_norm;
  int64_t layer_stride;
  int32_t num_layers;
  float epsilon;
};

// ``x``: [num_rows, hidden], changed; ``normed``: the result, normalised for the head. ``cosine``
// and ``sine``: [num_rows, head_dim / 2]. ``key_rows``: where each row's keys go in layer 0, counted
// in tokens. The rest is scratch: ``qkv``, ``gate_up`` [num_rows, that many outputs], ``queries``,
// ``attended`` [num_rows, num_heads * head_dim], ``delta`` as x, ``inner`` [num_rows, intermediate].
struct DecoderStep {
  void* x;
  void* normed;
  void* qkv;
  void* queries;
  void* attended;
  void* delta;
  void* gate_up;
  void* inner;
  const void* cosine;
  const void* sine;
  const int64_t* key_rows;
  const int32_t* tables;
  const Plan* plans;
  int64_t table_stride;
  int64_t num_rows;
  int32_t num_threads;
};

namespace {

inline int64_t share(int64_t num, int thread, int threads) { return num * thread / threads; }

// What one thread of the team does. Where it calls ``meet``, all others do.
template <typename T>
class Worker {
 public:
  Worker(const Decoder& decoder, const Layer& cache, const DecoderStep& step, Turns* turns)
      : decoder_(decoder),
        cache_(cache),
        step_(step),
        turns_(turns),
        thread_(omp_get_thread_num()),
        threads_(omp_get_num_threads()),
        room_(cache, step.plans[0]),
        hidden_(decoder.layers[0].qkv.num_in),
        query_size_(static_cast<int64_t>(cache.num_heads) * cache.head_dim),
        first_row_(share(step.num_rows, thread_, threads_)),
        last_row_(share(step.num_rows, thread_ + 1, threads_)) {}

  void run() {
    norm(nullptr, decoder_.layers[0].input_norm);
    for (int index = 0; index < decoder_.num_layers; ++index) {
      const DecoderLayer& layer = decoder_.layers[index];
      product(layer.qkv, step_.normed, step_.qkv);
      place(layer, index);
      attend(layer, index);
      product(layer.output, step_.attended, step_.delta);
      norm(step_.delta, layer.mlp_norm);
      gate(layer.gate_up);
      product(layer.down, step_.inner, step_.delta);
      const bool is_last = index + 1 == decoder_.num_layers;
      norm(step_.delta, is_last ? decoder_.final_norm : decoder_.layers[index + 1].input_norm);
    }
  }

 private:
  static void meet() {
#pragma omp barrier
  }

  static T* at(void* p, int64_t offset = 0) { return static_cast<T*>(p) + offset; }

  static const T* at(const void* p, int64_t offset = 0) {
    return static_cast<const T*>(p) + offset;
  }

  void product(const Matrix& matrix, const void* x, void* out) {
    const int64_t num = panels_of(matrix);
    multiply(matrix, at(x), step_.num_rows, share(num, thread_, threads_),
             share(num, thread_ + 1, threads_), at(out));
    meet();
  }

  void norm(const void* delta, const void* weight) {
    for (int64_t row = first_row_; row < last_row_; ++row) {
      const int64_t first = row * hidden_;
      norm_row(at(step_.x, first), delta ? at(delta, first) : nullptr, at(weight), decoder_.epsilon,
               hidden_, at(step_.normed, first));
    }
    meet();
  }

  // Queries and keys are rotated; keys and values go to their pages.
  void place(const DecoderLayer& layer, int index) {
    const int dim = cache_.head_dim, num_heads = cache_.num_heads + cache_.num_kv_heads;
    const int64_t kv_size = cache_.token_stride, width = query_size_ + 2 * kv_size;
    for (int64_t row = first_row_; row < last_row_; ++row) {
      T* queries = at(step_.qkv, row * width);
      if (layer.query_norm)
        for (int head = 0; head < num_heads; ++head) {
          T* values = queries + head * dim;
          const void* weight = head < cache_.num_heads ? layer.query_norm : layer.key_norm;
          norm_row<T>(values, nullptr, at(weight), decoder_.epsilon, dim, values);
        }
      const int64_t angle = row * dim / 2;
      rotate_row(queries, at(step_.cosine, angle), at(step_.sine, angle), num_heads, dim);
      std::memcpy(at(step_.queries, row * query_size_), queries, query_size_ * sizeof(T));
      T* keys = at(const_cast<void*>(cache_.keys), index * decoder_.layer_stride);
      keys += step_.key_rows[row] * cache_.token_stride;
      std::memcpy(keys, queries + query_size_, kv_size * sizeof(T));
      std::memcpy(keys + cache_.value_offset, queries + query_size_ + kv_size, kv_size * sizeof(T));
    }
    meet();
  }

  void attend(const DecoderLayer& layer, int index) {
    Layer cache = cache_;
    cache.keys = at(cache_.keys, index * decoder_.layer_stride);
    attend_share(cache, at(static_cast<const void*>(step_.queries)), step_.tables,
                 step_.table_stride, step_.plans[layer.plan], thread_, threads_, turns_[index],
                 room_, at(step_.attended));
    meet();
  }

  // Each thread gates what it has computed itself.
  void gate(const Matrix& gate_up) {
    const int64_t inner = gate_up.num_out / 2, num = inner / PANEL;
    const int64_t first = share(num, thread_, threads_), last = share(num, thread_ + 1, threads_);
    const T* x = at(static_cast<const void*>(step_.normed));
    multiply(gate_up, x, step_.num_rows, first, last, at(step_.gate_up));
    multiply(gate_up, x, step_.num_rows, num + first, num + last, at(step_.gate_up));
    for (int64_t row = 0; row < step_.num_rows; ++row) {
      const T* gates = at(step_.gate_up, row * 2 * inner + first * PANEL);
      gate_values(gates, gates + inner, (last - first) * PANEL,
                  at(step_.inner, row * inner + first * PANEL));
    }
    meet();
  }

  const Decoder& decoder_;
  const Layer& cache_;
  const DecoderStep& step_;
  Turns* turns_;
  const int thread_, threads_;
  Room<T> room_;
  const int64_t hidden_, query_size_, first_row_, last_row_;
};

template <typename T>
void decode_layers(const Decoder& decoder, const Layer& cache, const DecoderStep& step) {
  std::vector<Turns> turns(decoder.num_layers);
#pragma omp parallel num_threads(step.num_threads)
  Worker<T>(decoder, cache, step, turns.data()).run();
}

}  // namespace

#define PDSPAN_DECODER(NAME, T)                                                          \
  extern "C" void pdspan_layers_##NAME(const Decoder* decoder, const Layer* cache,       \
                                       const DecoderStep* step) {                        \
    decode_layers<T>(*decoder, *cache, *step);                                           \
  }

PDSPAN_DECODER(float32, float)
PDSPAN_DECODER(bfloat16, Bfloat16)
