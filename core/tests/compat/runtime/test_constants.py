"""Constants in programs written for Triton.

A plain function, a launch value, a cast to a value's type.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright as tw  # noqa: E402
from tilewright.compat import triton  # noqa: E402
from tilewright.compat.triton import language as tl  # noqa: E402


@tl.constexpr
def greatest(dtype):
    """It is given an element type as the kernel has it."""
    if dtype.is_floating():
        return float("inf")
    return 2 ** (dtype.int_bitwidth - 1) - 1


def least_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    start = tl.full([N], greatest(x.dtype.element_ty), x.dtype.element_ty)
    tl.store(out, tl.min(tl.minimum(start, tl.load(x + at)), 0))


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32"])
def test_functions_that_are_constants(dtype):
    x, out = (
        torch.arange(3, 19).to(getattr(torch, dtype)),
        torch.zeros(1, dtype=getattr(torch, dtype)),
    )
    triton.jit(least_kernel)[(1,)](x, out, N=16)
    assert out.item() == 3


def computed_kernel(x, out, n, N: tl.constexpr):
    COUNT: tl.constexpr = n + 1
    FIRST: tl.constexpr = tl.load(x)
    total = FIRST * 0
    for i in range(COUNT):
        ITEM: tl.constexpr = tl.load(x + i)
        total += ITEM
    tl.store(out, total + tl.constexpr(FIRST))


def test_values_of_the_launch_that_are_named_as_constants():
    x, out = torch.arange(1, 9), torch.zeros(1, dtype=torch.int64)
    triton.jit(computed_kernel)[(1,)](x, out, 3, N=8)
    assert out.item() == 1 + 2 + 3 + 4 + 1
    with pytest.raises(
        tw.CompilationError,
        match=r"COUNT is declared tl.constexpr, but its value is computed at run time",
    ):
        tw.jit(computed_kernel)[(1,)](np.arange(1, 9), np.zeros(1, np.int64), 3, N=8)


def twice_kernel(x, n):
    COUNT: tl.constexpr = n + 1
    COUNT: tl.constexpr = n + 2
    tl.store(x, COUNT)


def test_names_of_values_are_given_once():
    with pytest.raises(
        triton.CompilationError, match=r"COUNT is already defined. constexpr cannot be reassigned"
    ):
        triton.jit(twice_kernel)[(1,)](torch.zeros(1, dtype=torch.int32), 1)


def rounded_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.store(
        out + at,
        tl.cast(value, x.dtype.element_ty, fp_downcast_rounding="rtne").to(
            out.dtype.element_ty, fp_downcast_rounding="rtz"
        ),
    )


@pytest.mark.parametrize("to", ["float32", "float16"])
def test_a_rounding_where_nothing_is_rounded_does_nothing(to):
    x = torch.tensor([1.0, 1 / 3, -2.7, 1e-3])
    out = torch.zeros(4, dtype=getattr(torch, to))
    triton.jit(rounded_kernel)[(1,)](x, out, N=4)
    exact = out.to(torch.float64)
    assert torch.all(exact.abs() <= x.to(torch.float64).abs()) and torch.allclose(
        exact, x.to(torch.float64), rtol=1e-3
    )
    assert to == "float16" or torch.equal(out, x)


def scaled_kernel(x, out, s, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) * s)


@pytest.mark.parametrize("value", [0.1, np.float64(0.1), np.float16(0.1)])
def test_floats_of_a_launch_are_fp32(value):
    x, out = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    compiled = triton.jit(scaled_kernel)[(1,)](x, out, value, N=4)
    assert compiled.src.signature["s"] == "fp32"
    assert out.tolist() == [float(np.float32(value))] * 4
