// Attention of rows of one token, each over its whole context.

#pragma once

#include "pages.h"

// Row ``row`` of the batch, whose pages are in ``table``: tokens [first, last) of its context, perhaps
// none. ``partial``: where the result goes until the row's parts are merged; -1: it is the only one.
struct Item {
  int32_t row;
  int32_t table;
  int32_t first;
  int32_t last;
  int32_t partial;
};

// Parts [first, last) of one row.
struct Merge {
  int32_t row;
  int32_t first;
  int32_t last;
};

namespace {

constexpr int SCORES = 16;  // keys of the inner loop

// The running softmax of the query heads of one KV head; one for each of an item's heads.
struct Running {
  alignas(64) float values[MAX_GROUPS][MAX_DIM];
  float highest[MAX_GROUPS];
  float total[MAX_GROUPS];
};

struct WideRunning : Running {
  alignas(64) float queries[MAX_GROUPS][MAX_DIM];

  template <typename T>
  void take_query(int g, const T* query, int dim, float scale) {
    for (int d = 0; d < dim; d += LANES) store(queries[g] + d, load(query + d) * spread(scale));
  }

  void bring_in_order(int, int) {}
};

template <typename T, typename R>
void begin(const Layer& layer, const T* q, R& running) {
  const int dim = layer.head_dim, groups = layer.num_heads / layer.num_kv_heads;
  for (int g = 0; g < groups; ++g) {
    running.take_query(g, q + g * dim, dim, layer.scale);
    std::memset(running.values[g], 0, sizeof running.values[g]);
    running.highest[g] = -INFINITY;
    running.total[g] = 0;
  }
}

template <typename T>
inline void fetch(const T* values, int dim) {
  constexpr int LINE = 64 / sizeof(T);
  for (int d = 0; d < dim; d += LINE) __builtin_prefetch(values + d);
}

// Scores of ``num`` keys become weights; what values were weighted by before fades.
inline void weigh_keys(float* scores, int num, int g, int dim, Running& running) {
  for (int t = num; t < SCORES; ++t) scores[t] = -INFINITY;
  float highest = running.highest[g];
  for (int t = 0; t < num; ++t) highest = scores[t] > highest ? scores[t] : highest;
  const float faded = exponential(running.highest[g] - highest);
  Vec total = {};
  for (int t = 0; t < SCORES; t += LANES) {
    const Vec weights = exponential(load(scores + t) - spread(highest));
    store(scores + t, weights);
    total += weights;
  }
  running.total[g] = running.total[g] * faded + sum(total);
  running.highest[g] = highest;
  if (faded != 1.0f)
    for (int d = 0; d < dim; d += LANES)
      store(running.values[g] + d, load(running.values[g] + d) * spread(faded));
}

// ``num`` tokens, at most SCORES, that follow each other in a page; ``next``: where the tokens after
// them are, which no prefetcher of the processor can guess when it is another page. ``G``: how many
// query heads share the KV head, if the compiler is to know; else 0.
template <typename T, int G>
void attend(const Layer& layer, const T* keys, const T* next, int num, WideRunning& running) {
  constexpr int MOST = G ? G : MAX_GROUPS;
  const int dim = layer.head_dim, groups = G ? G : layer.num_heads / layer.num_kv_heads;
  float scores[MOST][SCORES];
  for (int t = 0; t < num; ++t) {
    const T* key = keys + t * layer.token_stride;
    fetch(next + t * layer.token_stride, dim);
    fetch(next + t * layer.token_stride + layer.value_offset, dim);
    Vec products[MOST] = {};
    for (int d = 0; d < dim; d += LANES) {
      const Vec k = load(key + d);
      for (int g = 0; g < groups; ++g) products[g] += k * load(running.queries[g] + d);
    }
    for (int g = 0; g < groups; ++g) scores[g][t] = sum(products[g]);
  }
  for (int g = 0; g < groups; ++g) weigh_keys(scores[g], num, g, dim, running);
  const T* values = keys + layer.value_offset;
  for (int d = 0; d < dim; d += LANES) {
    Vec sums[MOST];
    for (int g = 0; g < groups; ++g) sums[g] = load(running.values[g] + d);
    for (int t = 0; t < num; ++t) {
      const Vec v = load(values + t * layer.token_stride + d);
      for (int g = 0; g < groups; ++g) sums[g] += v * spread(scores[g][t]);
    }
    for (int g = 0; g < groups; ++g) store(running.values[g] + d, sums[g]);
  }
}

// How a type of the cache is computed with.
template <typename T>
struct RowMeans {
  using Running = WideRunning;
};

}  // namespace

#include "decode_pairs.h"

namespace {

// A part's result for one query head: its highest score, the sum of weights, the weighted values.
inline float* part_of(float* partials, const Layer& layer, int64_t part, int head) {
  return partials + (part * layer.num_heads + head) * (layer.head_dim + 2);
}

template <typename T>
using Attend = void (*)(const Layer&, const T*, const T*, int, typename RowMeans<T>::Running&);

template <typename T>
Attend<T> attend_for(int groups) {
  switch (groups) {
    case 1: return attend<T, 1>;
    case 2: return attend<T, 2>;
    case 3: return attend<T, 3>;
    case 4: return attend<T, 4>;
    case 5: return attend<T, 5>;
    case 6: return attend<T, 6>;
    case 7: return attend<T, 7>;
    case 8: return attend<T, 8>;
    default: return attend<T, 0>;
  }
}

// Page by page, and in it head by head: a token's keys of all heads are neighbours in memory.
template <typename T>
void run_item(const Layer& layer, const T* q, const int32_t* tables, int64_t table_stride,
              const Item& item, typename RowMeans<T>::Running* running, float* partials, T* out) {
  if (item.first == item.last) return;
  const int dim = layer.head_dim, groups = layer.num_heads / layer.num_kv_heads;
  const int64_t row = static_cast<int64_t>(item.row) * layer.num_heads * dim;
  const int32_t* table = tables + item.table * table_stride;
  const Attend<T> attend = attend_for<T>(groups);
  for (int head = 0; head < layer.num_kv_heads; ++head)
    begin(layer, q + row + head * groups * dim, running[head]);
  for (int64_t token = item.first; token < item.last;) {
    int64_t num = layer.page_tokens - token % layer.page_tokens;
    if (num > item.last - token) num = item.last - token;
    if (num > SCORES) num = SCORES;
    const T* keys = token_at<T>(layer, table, token);
    token += num;
    const T* next = token < item.last ? token_at<T>(layer, table, token) : keys;
    for (int head = 0; head < layer.num_kv_heads; ++head)
      attend(layer, keys + head * dim, next + head * dim, static_cast<int>(num), running[head]);
  }
  for (int head = 0; head < layer.num_kv_heads; ++head) {
    running[head].bring_in_order(groups, dim);
    for (int g = 0; g < groups; ++g) {
      const Running& of = running[head];
      if (item.partial >= 0) {
        float* part = part_of(partials, layer, item.partial, head * groups + g);
        part[0] = of.highest[g];
        part[1] = of.total[g];
        std::memcpy(part + 2, of.values[g], dim * sizeof(float));
        continue;
      }
      T* result = out + row + (head * groups + g) * dim;
      for (int d = 0; d < dim; d += LANES)
        store(result + d, load(of.values[g] + d) * spread(1 / of.total[g]));
    }
  }
}

template <typename T>
void merge(const Layer& layer, const Merge& row, int head, float* partials, T* out) {
  const int dim = layer.head_dim;
  float highest = -INFINITY, total = 0;
  for (int64_t part = row.first; part < row.last; ++part) {
    const float score = part_of(partials, layer, part, head)[0];
    highest = score > highest ? score : highest;
  }
  Vec sums[MAX_DIM / LANES] = {};
  for (int64_t part = row.first; part < row.last; ++part) {
    const float* values = part_of(partials, layer, part, head);
    const float weight = exponential(values[0] - highest);
    total += weight * values[1];
    for (int d = 0; d < dim; d += LANES)
      sums[d / LANES] += load(values + 2 + d) * spread(weight);
  }
  T* result = out + (static_cast<int64_t>(row.row) * layer.num_heads + head) * dim;
  for (int d = 0; d < dim; d += LANES) store(result + d, sums[d / LANES] * spread(1 / total));
}

}  // namespace
