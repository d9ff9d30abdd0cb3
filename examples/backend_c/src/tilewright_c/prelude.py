"""The C text before every kernel: the conversions between number formats that C does not have, or leaves undefined."""

from __future__ import annotations

HEADERS = """
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
"""

CONVERSIONS = r"""
/* A number in a format of 16 bits, rounded once: to nearest, ties to even, or towards zero. */
static inline uint16_t narrow(double x, int fraction, int bias, int toward_zero) {
  uint64_t all, magnitude, significand, code;
  memcpy(&all, &x, 8);
  magnitude = all & INT64_MAX;
  uint16_t sign = all >> 48 & 0x8000, infinity = 0x7fff >> fraction << fraction;
  if (magnitude > 0x7ff0000000000000) return sign | infinity | 1 << (fraction - 1); /* NaN */
  if (magnitude == 0x7ff0000000000000) return sign | infinity;
  int exponent = (int)(magnitude >> 52) - 1023, least = 1 - bias;
  int drop = 52 - fraction + (exponent < least ? least - exponent : 0); /* bits that do not fit; subnormal numbers have less room */
  if (drop > 54) return sign;
  significand = (magnitude & 0xfffffffffffff) | 1ULL << 52;
  code = significand >> drop;
  uint64_t rest = significand - (code << drop), middle = 1ULL << (drop - 1);
  if (!toward_zero && (rest > middle || (rest == middle && (code & 1)))) code++;
  if (exponent >= least) code += (uint64_t)(exponent - least) << fraction; /* a carry out of the fraction is one into the exponent */
  if (code >= infinity) return sign | (toward_zero ? infinity - 1 : infinity);
  return sign | (uint16_t)code;
}
static inline uint16_t to_f16(double x) { return narrow(x, 10, 15, 0); }
static inline uint16_t to_bf16(double x) { return narrow(x, 7, 127, 0); }
static inline uint16_t to_f16_toward_zero(double x) { return narrow(x, 10, 15, 1); }
static inline uint16_t to_bf16_toward_zero(double x) { return narrow(x, 7, 127, 1); }
static inline float to_f32_toward_zero(double x) {
  float near = (float)x;
  return fabs((double)near) > fabs(x) ? nextafterf(near, 0) : near;
}

static inline float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static inline float from_bf16(uint16_t bits) { return from_bits((uint32_t)bits << 16); }
static inline float from_f16(uint16_t bits) {
  uint32_t magnitude = (bits & 0x7fffu) << 13;
  float x = from_bits(magnitude) * 0x1p112f; /* from the exponent's bias of 15 to that of 127 */
  if (x >= 65536) x = from_bits(magnitude | 0x7f800000); /* infinity and NaN */
  return bits & 0x8000 ? -x : x;
}

/* Integers of 64 bits as 53 of them, the last one odd where more were set: a further rounding is then the only one. */
static inline double odd_i64(int64_t x) {
  return x > -(1LL << 53) && x < 1LL << 53 ? (double)x : (double)(x >> 11 | ((x & 2047) != 0)) * 2048;
}
static inline double odd_u64(uint64_t x) { return x < 1ULL << 53 ? (double)x : (double)(x >> 11 | ((x & 2047) != 0)) * 2048; }

/* a * b + c of numbers of 16 bits: the product is exact, and the sum is made odd in its last bit where it is not. */
static inline double odd_fma(double a, double b, double c) {
  double product = a * b, sum = product + c, part = sum - product, error = (product - (sum - part)) + (c - part);
  if (error == 0 || !isfinite(sum) || !isfinite(error)) return sum;
  int64_t bits;
  memcpy(&bits, &sum, 8);
  if (!(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
  memcpy(&sum, &bits, 8);
  return sum;
}

/* Floats as integers: truncated; what is out of range, which Tile IR leaves undefined, is the nearest integer, and NaN is 0. */
#define TRUNCATE(name, type, low, high) \
  static inline type name(double x) { return x != x ? 0 : x <= (double)low ? low : x >= (double)high ? high : (type)x; }
TRUNCATE(truncate_i8, int8_t, INT8_MIN, INT8_MAX)
TRUNCATE(truncate_i16, int16_t, INT16_MIN, INT16_MAX)
TRUNCATE(truncate_i32, int32_t, INT32_MIN, INT32_MAX)
TRUNCATE(truncate_i64, int64_t, INT64_MIN, INT64_MAX)
TRUNCATE(truncate_u8, uint8_t, 0, UINT8_MAX)
TRUNCATE(truncate_u16, uint16_t, 0, UINT16_MAX)
TRUNCATE(truncate_u32, uint32_t, 0, UINT32_MAX)
TRUNCATE(truncate_u64, uint64_t, 0, UINT64_MAX)
"""
