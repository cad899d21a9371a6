// Vectors of floats as wide as one of the processor's registers, and what the kernels do with them.
// Weights and pages hold float32 or bfloat16; everything is computed in float32.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vec __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint32_t Words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t Halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

typedef int8_t Bytes __attribute__((vector_size(LANES * sizeof(int8_t))));

struct Bfloat16 {
  uint16_t bits;
};

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline Vec load(const Bfloat16* p) {
  Halves halves;
  std::memcpy(&halves, p, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  return reinterpret_cast<Vec>(words);
}

inline Vec load(const int8_t* p) {
  Bytes bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Vec);
}

inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }

inline void store(Bfloat16* p, Vec v) {  // round to nearest, ties to even, as torch does
  Words words = reinterpret_cast<Words>(v);
  const Words is_nan = (words & 0x7fffffffu) > 0x7f800000u;  // all ones where true
  words += 0x7fffu + ((words >> 16) & 1u);
  words = (words & ~is_nan) | (is_nan & 0x7fc00000u);
  const Halves halves = __builtin_convertvector(words >> 16, Halves);
  std::memcpy(p, &halves, sizeof halves);
}

inline float get(const float* p) { return *p; }

inline float get(const Bfloat16* p) {
  const uint32_t word = static_cast<uint32_t>(p->bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

inline Vec spread(float x) { return x - Vec{}; }

// Rounded as an element of T, and back.
inline Vec rounded(Vec v, const float*) { return v; }

inline Vec rounded(Vec v, const Bfloat16*) {
  Bfloat16 lanes[LANES];
  store(lanes, v);
  return load(lanes);
}

// The lanes of ``v``, each where its number with one bit turned says.
template <int BIT>
inline Vec crossed(Vec v) {
#if defined(__clang__)
  Vec result;
  for (int i = 0; i < LANES; ++i) result[i] = v[i ^ BIT];
  return result;
#else
  Ints places = {};
  for (int i = 0; i < LANES; ++i) places[i] = i ^ BIT;
  return __builtin_shuffle(v, places);
#endif
}

inline float sum(Vec v) {
  if (LANES > 8) v += crossed<LANES / 2>(v);
  if (LANES > 4) v += crossed<4>(v);
  v += crossed<2>(v);
  v += crossed<1>(v);
  return v[0];
}

inline Vec select(Ints mask, Vec a, Vec b) {
  return reinterpret_cast<Vec>((mask & reinterpret_cast<Ints>(a)) |
                               (~mask & reinterpret_cast<Ints>(b)));
}

inline Vec larger(Vec a, Vec b) { return select(a > b, a, b); }

// e^x for x <= 0, relative error below 2e-7: 2^n times a polynomial of the rest, |rest| <= ln(2)/2.
// Below -87 it is 0: what is masked is -inf. No number stays no number: who samples must see it.
inline Vec exponential(Vec given) {
  Vec x = given;
  const Ints is_tiny = x < spread(-87.0f);
  x = larger(x, spread(-87.0f));
  const Vec scaled = x * spread(1.44269504088896341f);
  const Ints n = __builtin_convertvector(scaled - spread(0.5f), Ints);
  const Vec whole = __builtin_convertvector(n, Vec);
  const Vec r = (x - whole * spread(0.693359375f)) - whole * spread(-2.12194440e-4f);
  Vec y = spread(1.9875691500e-4f);
  y = y * r + spread(1.3981999507e-3f);
  y = y * r + spread(8.3334519073e-3f);
  y = y * r + spread(4.1665795894e-2f);
  y = y * r + spread(1.6666665459e-1f);
  y = y * r + spread(5.0000001201e-1f);
  y = y * r * r + r + spread(1.0f);
  const Vec power = reinterpret_cast<Vec>((n + 127) << 23);
  return select(given == given, select(is_tiny, Vec{}, y * power), given);
}

inline float exponential(float x) { return exponential(spread(x))[0]; }

}  // namespace
