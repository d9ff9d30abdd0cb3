"""C prelude of every kernel: number conversions that C lacks or leaves undefined."""

from __future__ import annotations

HEADERS = """
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
"""

CONVERSIONS = r"""
static inline float to_f32_toward_zero(double x) {
  float near = (float)x;
  return fabs((double)near) > fabs(x) ? nextafterf(near, 0) : near;
}

/* Floats as integers: truncated; what is out of range, which Tile IR leaves undefined, is the
   nearest integer, and NaN is 0. */
#define TRUNCATE(name, type, low, high) \
  static inline type name(double x) { \
    return x != x ? 0 : x <= (double)low ? low : x >= (double)high ? high : (type)x; \
  }
TRUNCATE(truncate_i8, int8_t, INT8_MIN, INT8_MAX)
TRUNCATE(truncate_i16, int16_t, INT16_MIN, INT16_MAX)
TRUNCATE(truncate_i32, int32_t, INT32_MIN, INT32_MAX)
TRUNCATE(truncate_i64, int64_t, INT64_MIN, INT64_MAX)
TRUNCATE(truncate_u8, uint8_t, 0, UINT8_MAX)
TRUNCATE(truncate_u16, uint16_t, 0, UINT16_MAX)
TRUNCATE(truncate_u32, uint32_t, 0, UINT32_MAX)
TRUNCATE(truncate_u64, uint64_t, 0, UINT64_MAX)
"""
