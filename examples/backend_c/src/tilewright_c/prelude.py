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

/* Floats as integers: truncated, and saturated where they are out of range. */
#define TRUNCATE(name, type, low, high) \
  static inline type name(double x, type nan) { \
    return x != x ? nan : x <= (double)low ? low : x >= (double)high ? high : (type)x; \
  }
TRUNCATE(truncate_i16, int16_t, INT16_MIN, INT16_MAX)
TRUNCATE(truncate_i32, int32_t, INT32_MIN, INT32_MAX)
TRUNCATE(truncate_i64, int64_t, INT64_MIN, INT64_MAX)
TRUNCATE(truncate_u16, uint16_t, 0, UINT16_MAX)
TRUNCATE(truncate_u32, uint32_t, 0, UINT32_MAX)
TRUNCATE(truncate_u64, uint64_t, 0, UINT64_MAX)
"""
