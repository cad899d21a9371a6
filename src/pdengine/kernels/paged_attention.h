// Paged attention on a CPU. Softmax is taken online, block by block; a row's scores never exist as a
// whole.

#pragma once

#include <atomic>
#include <memory>

#include "decode_attention.h"
#include "prefill_attention.h"

// A step's work in layers of one window: rows of one token as items, longer slices in tiles.
// ``takes_turns``: who is free takes the next item; else each thread has an equal share, in order.
struct Plan {
  const Item* items;
  const Merge* merges;
  const Tile* tiles;
  float* partials;
  int32_t num_items;
  int32_t num_merges;
  int32_t num_tiles;
  int32_t window;  // 0: none
  int32_t takes_turns;
};

namespace {

// What threads take turns at.
struct Turns {
  std::atomic<int> item{0};
  std::atomic<int> tile{0};
};

// Scratch memory of one thread, for all layers.
template <typename T>
struct Room {
  std::unique_ptr<typename RowMeans<T>::Running[]> running;
  std::unique_ptr<typename TileMeans<T>::Block> block;
  std::unique_ptr<typename TileMeans<T>::State[]> states;

  Room(const Layer& layer, const Plan& plan) {
    if (plan.num_items) running.reset(new typename RowMeans<T>::Running[layer.num_kv_heads]);
    if (plan.num_tiles) {
      block.reset(new typename TileMeans<T>::Block());
      states.reset(new typename TileMeans<T>::State[layer.num_heads / layer.num_kv_heads]());
    }
  }
};

// One thread's share of a layer; every thread of the team has to call it. When it returns to all of
// them, after a barrier of theirs, ``out`` is complete.
template <typename T>
void attend_share(const Layer& layer, const T* q, const int32_t* tables, int64_t table_stride,
                  const Plan& plan, int thread, int threads, Turns& turns, Room<T>& room, T* out) {
  const auto run = [&](int i) {
    run_item(layer, q, tables, table_stride, plan.items[i], room.running.get(), plan.partials, out);
  };
  if (plan.takes_turns) {
    for (int i = turns.item++; i < plan.num_items; i = turns.item++) run(i);
  } else {
    const int last = static_cast<int64_t>(plan.num_items) * (thread + 1) / threads;
    for (int i = static_cast<int64_t>(plan.num_items) * thread / threads; i < last; ++i) run(i);
  }
  for (int i = turns.tile++; i < plan.num_tiles; i = turns.tile++)
    run_tile(layer, q, tables + plan.tiles[i].table * table_stride, plan.tiles[i], plan.window,
             *room.block, room.states.get(), out);
  if (plan.num_merges) {
#pragma omp barrier
    const int64_t num = static_cast<int64_t>(plan.num_merges) * layer.num_heads;
    for (int64_t i = thread; i < num; i += threads)
      merge(layer, plan.merges[i / layer.num_heads], static_cast<int>(i % layer.num_heads),
            plan.partials, out);
  }
}

}  // namespace
