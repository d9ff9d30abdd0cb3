"""OpenCL C prelude of every kernel: replacements for C headers, and access to any address."""

from __future__ import annotations

from tilewright_c.c_types import KEPT

#: The C types in which values are in memory: at addresses of any alignment, whatever else was
#: written there.
IN_MEMORY = "".join(
    f"typedef {type_} at_{type_} __attribute__((may_alias, aligned(1)));\n"
    for type_ in sorted({*KEPT.values()} - {"_Bool"})
)

HEADERS = f"""
#pragma OPENCL FP_CONTRACT OFF
typedef char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;
typedef uchar uint8_t; typedef ushort uint16_t; typedef uint uint32_t; typedef ulong uint64_t;
#define _Bool bool
#define INT8_MIN CHAR_MIN
#define INT8_MAX CHAR_MAX
#define INT16_MIN SHRT_MIN
#define INT16_MAX SHRT_MAX
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT8_MAX UCHAR_MAX
#define UINT16_MAX USHRT_MAX
#define UINT32_MAX UINT_MAX
#define UINT64_MAX ULONG_MAX
#define memcpy __builtin_memcpy
{"".join(f"#define {name}f {name}{chr(10)}" for name in ("fma", "fmod", "nextafter", "sqrt"))}
{IN_MEMORY}"""
