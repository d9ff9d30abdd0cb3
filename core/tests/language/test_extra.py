"""Contents of ``tl.extra``: device functions, and their errors."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import tilewright.language as tl
from tilewright.language.extra import libdevice

MODES = ("rn", "rz", "rd", "ru")
#: the functions of the library, without those with a rounding mode
PLAIN = [
    "clz",
    "popc",
    "byte_perm",
    "mulhi",
    "mul24",
    "brev",
    "sad",
    "abs",
    "floor",
    "rcp64h",
    "rsqrt",
    "ceil",
    "trunc",
    "exp2",
    "saturatef",
    "fast_dividef",
    "sqrt",
    "hiloint2double",
    "double2loint",
    "double2hiint",
    "int_as_float",
    "float_as_int",
    "uint_as_float",
    "float_as_uint",
    "longlong_as_double",
    "double_as_longlong",
    "fast_sinf",
    "fast_cosf",
    "fast_log2f",
    "fast_logf",
    "fast_expf",
    "fast_tanf",
    "fast_exp10f",
    "fast_log10f",
    "fast_powf",
    "fast_tanhf",
    "hadd",
    "rhadd",
    "rsqrt_rn",
    "ffs",
    "rint",
    "llrint",
    "nearbyint",
    "isnan",
    "signbit",
    "copysign",
    "finitef",
    "isinf",
    "isfinited",
    "nextafter",
    "sin",
    "cos",
    "sinpi",
    "cospi",
    "tan",
    "log2",
    "exp",
    "exp10",
    "cosh",
    "sinh",
    "tanh",
    "atan2",
    "atan",
    "asin",
    "acos",
    "log",
    "log10",
    "log1p",
    "acosh",
    "asinh",
    "atanh",
    "expm1",
    "hypot",
    "rhypot",
    "norm3d",
    "rnorm3d",
    "norm4d",
    "rnorm4d",
    "cbrt",
    "rcbrt",
    "j0",
    "j1",
    "jn",
    "y0",
    "y1",
    "yn",
    "cyl_bessel_i0",
    "cyl_bessel_i1",
    "erf",
    "erfinv",
    "erfc",
    "erfcx",
    "erfcinv",
    "normcdfinv",
    "normcdf",
    "lgamma",
    "tgamma",
    "ldexp",
    "scalbn",
    "fmod",
    "remainder",
    "fma",
    "pow",
    "round",
    "llround",
    "fdim",
    "ilogb",
    "logb",
    "int2double_rn",
    "uint2double_rn",
]
DIRECTED = ("add", "sub", "mul", "div", "fma", "rcp", "sqrt", "double2float")
CONVERSIONS = [
    *(
        f"{floating}2{integer}"
        for floating in ("float", "double")
        for integer in ("int", "uint", "ll", "ull")
    ),
    *(f"{integer}2float" for integer in ("int", "uint", "ll", "ull")),
    "ll2double",
    "ull2double",
]


def test_every_function_of_the_library_is_there() -> None:
    expected = {*PLAIN, *(f"{name}_{mode}" for name in (*DIRECTED, *CONVERSIONS) for mode in MODES)}
    assert set(libdevice.__all__) == expected
    assert len(expected) == 198
    for name in libdevice.__all__:
        function: Any = getattr(libdevice, name)
        assert inspect.getdoc(function), name
        assert function.__name__ == name or name.startswith("fast_"), name
    assert libdevice.pow is tl.extra.libdevice.pow
    assert not hasattr(libdevice, "no_such_function")


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'powr'"):
        _ = libdevice.powr


def test_types_that_are_refused(bench: Any) -> None:
    half = bench.value(tl.float16, [8])
    with pytest.raises(ValueError, match=r"^pow: Expected dtype \['fp32', 'fp64'\] but got fp16$"):
        bench(libdevice.pow, half, 2.0)
    with pytest.raises(ValueError, match=r"^float2int_rn: Expected dtype \['fp32'\] but got fp64$"):
        bench(libdevice.float2int_rn, bench.value(tl.float64, [8]))


def test_operands_are_promoted_and_broadcast(bench: Any) -> None:
    x, y = bench.value(tl.float32, [8, 1]), bench.value(tl.float64, [4])
    assert bench(libdevice.hypot, x, y).type is tl.block_type(tl.float64, [8, 4])
    assert bench(libdevice.pow, x, 2).type is tl.block_type(tl.float32, [8, 1])
    assert bench(libdevice.ilogb, y).type is tl.block_type(tl.int32, [4])
    assert bench(libdevice.lgamma, x).type is tl.block_type(tl.float32, [8, 1])
    bench.verify()


def test_the_library_is_a_module_under_its_name() -> None:
    path = "tilewright.language.extra.libdevice"
    subprocess.run(
        [sys.executable, "-c", f"from {path} import pow; import {path} as l; assert l.pow is pow"],
        check=True,
    )
