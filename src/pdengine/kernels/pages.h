// One layer's keys and values, read in place through a page table.
//
// Keys of token t of page p begin at ``keys + p * page_stride + t * token_stride``, those of KV head h
// at ``+ h * head_dim``; values ``value_offset`` elements further.

#pragma once

#include "vectors.h"

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

namespace {

constexpr int MAX_DIM = 256;
constexpr int MAX_GROUPS = 16;  // query heads that share a KV head

template <typename T>
const T* token_at(const Layer& layer, const int32_t* table, int64_t token) {
  const int64_t page = table[token / layer.page_tokens];
  return static_cast<const T*>(layer.keys) + page * layer.page_stride +
         token % layer.page_tokens * layer.token_stride;
}

}  // namespace
