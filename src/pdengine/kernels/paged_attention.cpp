// Paged attention on a CPU: pages are read in place, through the page table.
//
// One layer's keys of token t of page p begin at ``keys + p * page_stride + t * token_stride``, those
// of its KV head h at ``+ h * head_dim``; its values ``value_offset`` elements further. Softmax is
// taken online, block by block; a row's scores never exist as a whole.

#include <omp.h>

#include <atomic>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "vectors.h"

namespace {

constexpr int SCORES = 16;      // keys of a decode row's inner loop
constexpr int WIDE = 2;         // vectors that a prefill tile's inner loops keep for each row
constexpr int MAX_DIM = 256;
constexpr int PADDED_DIM = MAX_DIM + 16;  // a multiple of 64 bytes, and no power of two
constexpr int MAX_GROUPS = 16;  // query heads that share a KV head
constexpr int BLOCK = 64;       // keys of a prefill tile's inner loop
constexpr int ROWS = 4;         // query rows that share each load of a key or a value

}  // namespace

// One layer of the cache, and the shape of the heads. Strides and offsets count elements.
struct Layer {
  const void* keys;
  int64_t page_stride;
  int64_t token_stride;
  int64_t value_offset;
  int32_t page_tokens;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  float scale;
};

// Row ``row`` of the batch, whose pages are in ``table``: KV heads [first_head, last_head), tokens
// [first, last) of its context. ``partial``: where the result goes until the row's parts are merged;
// -1: it is the only one.
struct Item {
  int32_t row;
  int32_t table;
  int32_t first_head;
  int32_t last_head;
  int32_t first;
  int32_t last;
  int32_t partial;
};

// Parts [first, last) of one row, all KV heads [first_head, last_head).
struct Merge {
  int32_t row;
  int32_t first_head;
  int32_t last_head;
  int32_t first;
  int32_t last;
};

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

template <typename T>
const T* token_at(const Layer& layer, const int32_t* table, int64_t token) {
  const int64_t page = table[token / layer.page_tokens];
  return static_cast<const T*>(layer.keys) + page * layer.page_stride +
         token % layer.page_tokens * layer.token_stride;
}

// The running softmax of the query heads of one KV head; one for each of an item's heads.
struct Running {
  float queries[MAX_GROUPS][MAX_DIM];
  float values[MAX_GROUPS][MAX_DIM];
  float highest[MAX_GROUPS];
  float total[MAX_GROUPS];
};

template <typename T>
void begin(const Layer& layer, const T* q, Running& running) {
  const int dim = layer.head_dim, groups = layer.num_heads / layer.num_kv_heads;
  for (int g = 0; g < groups; ++g) {
    for (int d = 0; d < dim; d += LANES)
      store(running.queries[g] + d, load(q + g * dim + d) * spread(layer.scale));
    std::memset(running.values[g], 0, dim * sizeof(float));
    running.highest[g] = -INFINITY;
    running.total[g] = 0;
  }
}

template <typename T>
inline void fetch(const T* values, int dim) {
  constexpr int LINE = 64 / sizeof(T);
  for (int d = 0; d < dim; d += LINE) __builtin_prefetch(values + d);
}

// ``num`` tokens, at most SCORES, that follow each other in a page; ``next``: where the tokens after
// them are, which no prefetcher of the processor can guess when it is another page. ``G``: how many
// query heads share the KV head, if the compiler is to know; else 0.
template <typename T, int G>
void attend(const Layer& layer, const T* keys, const T* next, int num, Running& running) {
  constexpr int MOST = G ? G : MAX_GROUPS;
  const int dim = layer.head_dim, groups = G ? G : layer.num_heads / layer.num_kv_heads;
  float scores[MOST][SCORES];
  for (int t = 0; t < num; ++t) {
    const T* key = keys + t * layer.token_stride;
    fetch(next + t * layer.token_stride, dim);
    Vec products[MOST] = {};
    for (int d = 0; d < dim; d += LANES) {
      const Vec k = load(key + d);
      for (int g = 0; g < groups; ++g) products[g] += k * load(running.queries[g] + d);
    }
    for (int g = 0; g < groups; ++g) scores[g][t] = sum(products[g]);
  }
  for (int g = 0; g < groups; ++g) {
    for (int t = num; t < SCORES; ++t) scores[g][t] = -INFINITY;
    float highest = running.highest[g];
    for (int t = 0; t < num; ++t) highest = scores[g][t] > highest ? scores[g][t] : highest;
    const float faded = exponential(running.highest[g] - highest);
    Vec total = {};
    for (int t = 0; t < SCORES; t += LANES) {
      const Vec weights = exponential(load(scores[g] + t) - spread(highest));
      store(scores[g] + t, weights);
      total += weights;
    }
    running.total[g] = running.total[g] * faded + sum(total);
    running.highest[g] = highest;
    if (faded != 1.0f)
      for (int d = 0; d < dim; d += LANES)
        store(running.values[g] + d, load(running.values[g] + d) * spread(faded));
  }
  const T* values = keys + layer.value_offset;
  for (int t = 0; t < num; ++t) fetch(next + layer.value_offset + t * layer.token_stride, dim);
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

// A part's result for one query head: its highest score, the sum of weights, the weighted values.
inline float* part_of(float* partials, const Layer& layer, int64_t part, int head) {
  return partials + (part * layer.num_heads + head) * (layer.head_dim + 2);
}

template <typename T>
auto attend_for(int groups) {
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
              const Item& item, Running* running, float* partials, T* out) {
  const int dim = layer.head_dim, groups = layer.num_heads / layer.num_kv_heads;
  const int64_t row = static_cast<int64_t>(item.row) * layer.num_heads * dim;
  const int32_t* table = tables + item.table * table_stride;
  const auto attend = attend_for<T>(groups);
  for (int head = item.first_head; head < item.last_head; ++head)
    begin(layer, q + row + head * groups * dim, running[head]);
  for (int64_t token = item.first; token < item.last;) {
    int64_t num = layer.page_tokens - token % layer.page_tokens;
    if (num > item.last - token) num = item.last - token;
    if (num > SCORES) num = SCORES;
    const T* keys = token_at<T>(layer, table, token);
    token += num;
    const T* next = token < item.last ? token_at<T>(layer, table, token) : keys;
    for (int head = item.first_head; head < item.last_head; ++head)
      attend(layer, keys + head * dim, next + head * dim, static_cast<int>(num), running[head]);
  }
  for (int head = item.first_head; head < item.last_head; ++head)
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

template <typename T>
void merge(const Layer& layer, const Merge& row, float* partials, T* out) {
  const int dim = layer.head_dim, groups = layer.num_heads / layer.num_kv_heads;
  for (int head = row.first_head * groups; head < row.last_head * groups; ++head) {
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
}

template <typename T>
void decode(const Layer& layer, const T* q, const int32_t* tables, int64_t table_stride,
            const Item* items, int num_items, const Merge* merges, int num_merges,
            float* partials, bool takes_turns, int num_threads, T* out) {
  std::atomic<int> next{0};
#pragma omp parallel num_threads(num_threads)
  {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    Running* running = new Running[layer.num_kv_heads];
    if (takes_turns) {
      for (int i = next++; i < num_items; i = next++)
        run_item(layer, q, tables, table_stride, items[i], running, partials, out);
    } else {
      const int begin = static_cast<int64_t>(num_items) * thread / threads;
      const int end = static_cast<int64_t>(num_items) * (thread + 1) / threads;
      for (int i = begin; i < end; ++i)
        run_item(layer, q, tables, table_stride, items[i], running, partials, out);
    }
    delete[] running;
    if (num_merges) {
#pragma omp barrier
      for (int i = thread; i < num_merges; i += threads) merge(layer, merges[i], partials, out);
    }
  }
}

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
  if (highest == -INFINITY) {  // this row has seen no key yet
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

template <typename T>
struct Means {
  using Block = WideBlock;
  using State = WideState;
};

#if defined(__AVX512BF16__)

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
struct Means<Bfloat16> {
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

#endif

template <typename T>
void run_tile(const Layer& layer, const T* q, const int32_t* table, const Tile& tile, int window,
              typename Means<T>::Block& block, typename Means<T>::State* states, T* out) {
  const int dim = layer.head_dim, groups = layer.num_heads / layer.num_kv_heads;
  const int rows = (tile.num_rows + ROWS - 1) / ROWS * ROWS;
  for (int g = 0; g < groups; ++g) {
    typename Means<T>::State& state = states[g];
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

template <typename T>
void prefill(const Layer& layer, const T* q, const int32_t* tables, int64_t table_stride,
             const Tile* tiles, int num_tiles, int window, int num_threads, T* out) {
  const int groups = layer.num_heads / layer.num_kv_heads;
  std::atomic<int> next{0};
#pragma omp parallel num_threads(num_threads)
  {
    auto* block = new typename Means<T>::Block();
    auto* states = new typename Means<T>::State[groups]();
    for (int i = next++; i < num_tiles; i = next++)
      run_tile(layer, q, tables + tiles[i].table * table_stride, tiles[i], window, *block, states,
               out);
    delete[] states;
    delete block;
  }
}

}  // namespace

extern "C" {

int pdspan_tile_rows() { return TILE_ROWS; }

void pdspan_decode_float32(const Layer* layer, const void* q, const int32_t* tables,
                           int64_t table_stride, const Item* items, int num_items,
                           const Merge* merges, int num_merges, float* partials, int takes_turns,
                           int num_threads, void* out) {
  decode(*layer, static_cast<const float*>(q), tables, table_stride, items, num_items, merges,
         num_merges, partials, takes_turns, num_threads, static_cast<float*>(out));
}

void pdspan_decode_bfloat16(const Layer* layer, const void* q, const int32_t* tables,
                            int64_t table_stride, const Item* items, int num_items,
                            const Merge* merges, int num_merges, float* partials, int takes_turns,
                            int num_threads, void* out) {
  decode(*layer, static_cast<const Bfloat16*>(q), tables, table_stride, items, num_items, merges,
         num_merges, partials, takes_turns, num_threads, static_cast<Bfloat16*>(out));
}

void pdspan_prefill_float32(const Layer* layer, const void* q, const int32_t* tables,
                            int64_t table_stride, const Tile* tiles, int num_tiles, int window,
                            int num_threads, void* out) {
  prefill(*layer, static_cast<const float*>(q), tables, table_stride, tiles, num_tiles, window,
          num_threads, static_cast<float*>(out));
}

void pdspan_prefill_bfloat16(const Layer* layer, const void* q, const int32_t* tables,
                             int64_t table_stride, const Tile* tiles, int num_tiles, int window,
                             int num_threads, void* out) {
  prefill(*layer, static_cast<const Bfloat16*>(q), tables, table_stride, tiles, num_tiles, window,
          num_threads, static_cast<Bfloat16*>(out));
}

}  // extern "C"
