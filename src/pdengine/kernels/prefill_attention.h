// Attention of slices of several tokens: tiles of query rows meet blocks of keys.

#pragma once

#include "pages.h"

// Query rows [first_row, first_row + num_rows) of the batch, at positions from ``position`` on of the
// context whose pages are in ``table``.
struct Tile {
  int32_t table;
  int32_t kv_head;
  int32_t first_row;
  int32_t num_rows;
  int32_t position;
};

namespace {

constexpr int WIDE = 2;  // vectors that the inner loops keep for each row
constexpr int PADDED_DIM = MAX_DIM + 16;  // a multiple of 64 bytes, and no power of two
constexpr int BLOCK = 64;  // keys of the inner loop
constexpr int ROWS = 4;    // query rows that share each load of a key or a value

// A block of keys, transposed, and of values, of one KV head; one for each thread.
struct WideBlock {
  alignas(64) float keys[MAX_DIM][BLOCK];
  alignas(64) float values[BLOCK][PADDED_DIM];
};

template <typename T>
void read_block(const Layer& layer, const int32_t* table, int kv_head, int64_t first, int num,
                WideBlock& block) {
  for (int t = 0; t < BLOCK; ++t) {
    if (t >= num) {  // masked; but a weight of 0 times what was here may be no number
      for (int d = 0; d < layer.head_dim; ++d) block.keys[d][t] = block.values[t][d] = 0;
      continue;
    }
    const T* key = token_at<T>(layer, table, first + t) + kv_head * layer.head_dim;
    for (int d = 0; d < layer.head_dim; d += LANES) {
      float lanes[LANES];
      store(lanes, load(key + d));
      for (int i = 0; i < LANES; ++i) block.keys[d + i][t] = lanes[i];
      store(block.values[t] + d, load(key + layer.value_offset + d));
    }
  }
}

constexpr int TILE_ROWS = 64;

// The rows of one tile and query head.
struct TileState {
  alignas(64) float values[TILE_ROWS][PADDED_DIM];
  alignas(64) float scores[ROWS][BLOCK];
  float highest[TILE_ROWS];
  float total[TILE_ROWS];
};

struct WideState : TileState {
  alignas(64) float queries[TILE_ROWS][MAX_DIM];

  template <typename T>
  void take_query(int row, const T* query, int dim, float scale) {
    for (int d = 0; d < dim; d += LANES)
      store(queries[row] + d, load(query + d) * spread(scale));
  }
};

// Scores of row ``row``, in place ``r``, become weights; what its values were weighted by before
// fades. Only keys [low, high) are seen.
inline void weigh(int dim, int low, int high, int row, int r, TileState& state) {
  float* scores = state.scores[r];
  for (int k = 0; k < low; ++k) scores[k] = -INFINITY;
  for (int k = high; k < BLOCK; ++k) scores[k] = -INFINITY;
  Vec most = load(scores);
  for (int k = LANES; k < BLOCK; k += LANES) most = larger(most, load(scores + k));
  float lanes[LANES], highest = state.highest[row];
  store(lanes, most);
  for (int i = 0; i < LANES; ++i) highest = lanes[i] > highest ? lanes[i] : highest;
  if (low >= high) {  // this row sees none of them
    std::memset(scores, 0, BLOCK * sizeof(float));
    return;
  }
  const float faded = exponential(state.highest[row] - highest);
  Vec sums = {};
  for (int k = 0; k < BLOCK; k += LANES) {
    const Vec weights = exponential(load(scores + k) - spread(highest));
    store(scores + k, weights);
    sums += weights;
  }
  state.total[row] = state.total[row] * faded + sum(sums);
  state.highest[row] = highest;
  if (faded != 1.0f)
    for (int d = 0; d < dim; d += LANES) {
      float* values = state.values[row] + d;
      store(values, load(values) * spread(faded));
    }
}

// Rows [row, row + ROWS) over one block; of row r only keys [low[r], high[r]) are seen.
inline void step_rows(const Layer& layer, const WideBlock& block, const int* low, const int* high,
                      int row, WideState& state) {
  const int dim = layer.head_dim;
  for (int k = 0; k < BLOCK; k += WIDE * LANES) {
    Vec sums[ROWS][WIDE] = {};
    for (int d = 0; d < dim; ++d) {
      Vec keys[WIDE];
      for (int w = 0; w < WIDE; ++w) keys[w] = load(block.keys[d] + k + w * LANES);
      for (int r = 0; r < ROWS; ++r) {
        const Vec query = spread(state.queries[row + r][d]);
        for (int w = 0; w < WIDE; ++w) sums[r][w] += keys[w] * query;
      }
    }
    for (int r = 0; r < ROWS; ++r)
      for (int w = 0; w < WIDE; ++w) store(state.scores[r] + k + w * LANES, sums[r][w]);
  }
  for (int r = 0; r < ROWS; ++r) weigh(dim, low[r], high[r], row + r, r, state);
  for (int d = 0; d < dim; d += WIDE * LANES) {  // past the last dimension lie zeros
    Vec sums[ROWS][WIDE];
    for (int r = 0; r < ROWS; ++r)
      for (int w = 0; w < WIDE; ++w) sums[r][w] = load(state.values[row + r] + d + w * LANES);
    for (int k = 0; k < BLOCK; ++k) {
      Vec values[WIDE];
      for (int w = 0; w < WIDE; ++w) values[w] = load(block.values[k] + d + w * LANES);
      for (int r = 0; r < ROWS; ++r) {
        const Vec weight = spread(state.scores[r][k]);
        for (int w = 0; w < WIDE; ++w) sums[r][w] += values[w] * weight;
      }
    }
    for (int r = 0; r < ROWS; ++r)
      for (int w = 0; w < WIDE; ++w) store(state.values[row + r] + d + w * LANES, sums[r][w]);
  }
}

// How a type of the cache is computed with.
template <typename T>
struct TileMeans {
  using Block = WideBlock;
  using State = WideState;
};

}  // namespace

#include "prefill_pairs.h"

namespace {

template <typename T>
void run_tile(const Layer& layer, const T* q, const int32_t* table, const Tile& tile, int window,
              typename TileMeans<T>::Block& block, typename TileMeans<T>::State* states, T* out) {
  const int dim = layer.head_dim, groups = layer.num_heads / layer.num_kv_heads;
  const int rows = (tile.num_rows + ROWS - 1) / ROWS * ROWS;
  for (int g = 0; g < groups; ++g) {
    typename TileMeans<T>::State& state = states[g];
    for (int r = 0; r < rows; ++r) {
      state.highest[r] = -INFINITY;
      state.total[r] = 0;
      std::memset(state.values[r], 0, dim * sizeof(float));
      const int64_t row = tile.first_row + (r < tile.num_rows ? r : tile.num_rows - 1);
      const T* query = q + (row * layer.num_heads + tile.kv_head * groups + g) * dim;
      state.take_query(r, query, dim, layer.scale);
    }
  }
  const int64_t end = static_cast<int64_t>(tile.position) + tile.num_rows;
  int64_t first = window && tile.position >= window ? tile.position - window + 1 : 0;
  first = first / BLOCK * BLOCK;  // whatever the chunk, a row meets the same blocks
  for (; first < end; first += BLOCK) {
    const int num = end - first < BLOCK ? static_cast<int>(end - first) : BLOCK;
    read_block<T>(layer, table, tile.kv_head, first, num, block);
    for (int row = 0; row < rows; row += ROWS) {
      int low[ROWS], high[ROWS];
      bool sees = false;
      for (int r = 0; r < ROWS; ++r) {
        const int64_t position = tile.position + row + r;
        int64_t h = position + 1 - first, l = window ? position - window + 1 - first : 0;
        high[r] = h < 0 ? 0 : h > num ? num : static_cast<int>(h);
        low[r] = l < 0 ? 0 : l > high[r] ? high[r] : static_cast<int>(l);
        sees |= low[r] < high[r];
      }
      if (sees)
        for (int g = 0; g < groups; ++g) step_rows(layer, block, low, high, row, states[g]);
    }
  }
  for (int g = 0; g < groups; ++g)
    for (int r = 0; r < tile.num_rows; ++r) {
      const int64_t row = tile.first_row + r;
      T* result = out + (row * layer.num_heads + tile.kv_head * groups + g) * dim;
      for (int d = 0; d < dim; d += LANES)
        store(result + d, load(states[g].values[r] + d) * spread(1 / states[g].total[r]));
    }
}

}  // namespace
