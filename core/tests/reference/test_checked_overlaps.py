"""Checked mode where two arguments are parts of one array."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.reference.checks.checked_mode import CheckedOptions


@tw.jit
def move(dst, src, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(dst + at, tl.load(src + at))


@tw.jit
def clear_then_read(dst, src, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(dst + at, tl.zeros((B,), tl.float32))
    tl.store(out + at, tl.load(src + at, at > 1, 0.0))


def findings(kernel, *args, checked=True, grid=(1,)):
    try:
        kernel[grid](*args, B=16, backend="reference", checked=checked)
    except tw.KernelError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("dst", "src"), [(slice(3, None), slice(None)), (slice(None), slice(3, None))]
)
def test_stores_to_what_another_argument_is_read_for_are_reported(dst, src):
    x = np.arange(80, dtype=np.float32)
    said = findings(move, x[dst], x[src])
    assert (
        "in move: overlapping-arguments: store through dst: what is written is accessed "
        "through src too"
    ) in said
    assert "(and 12 more lanes)" in said
    assert not findings(move, x[dst], x[src], checked=CheckedOptions(overlaps=False))


def test_loads_of_what_another_argument_wrote_are_reported():
    x, out = np.arange(80, dtype=np.float32), np.zeros(16, np.float32)
    assert (
        "overlapping-arguments: load through src: what is read is accessed through dst too"
        in findings(clear_then_read, x[8:], x, out)
    )


WHOLE = slice(None)


@pytest.mark.parametrize(
    ("dst", "src"),
    [
        (WHOLE, WHOLE),
        (WHOLE, slice(0, 40)),
        (slice(40, None), WHOLE),
        (slice(8, None), slice(60, None)),
    ],
)
def test_what_is_in_place_or_apart_is_not(dst, src):
    x = np.arange(80, dtype=np.float32)
    assert not findings(move, x[dst], x[src])


@tw.jit
def negate(x, stride, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x + at * stride, -tl.load(x + at * stride, at < n), at < n)


@tw.jit
def negate_fours(x, n, B: tl.constexpr, STRIDE: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x + at * STRIDE, -tl.load(x + at * STRIDE, at < n), at < n)


def test_arrays_with_gaps_whose_strides_the_kernel_does_not_know_are_told_of():
    x = np.zeros((8, 4), np.float32)[:, 1]
    with pytest.warns(
        UserWarning,
        match=(
            r"negate: argument 'x' is not contiguous \(shape \(8,\), strides \(4,\)\), and no "
            r"argument is one of its strides"
        ),
    ):
        negate[(1,)](x, 1, 8, B=8, backend="reference", checked=True)


@pytest.mark.filterwarnings("error")
def test_arrays_whose_strides_the_kernel_knows_are_not():
    x = np.zeros((8, 4), np.float32)[:, 1]
    negate[(1,)](x, 4, 8, B=8, backend="reference", checked=True)
    negate[(1,)](x, 1, 1, B=8, backend="reference")
    negate_fours[(1,)](x, 8, B=8, STRIDE=4, backend="reference", checked=True)


def test_tensors_whose_memory_is_not_what_they_read_as_are_refused():
    torch = pytest.importorskip("torch")
    x = torch.zeros(8, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    with pytest.raises(
        LaunchError,
        match=r"negate: argument 'x' is a tensor with the negative bit.*resolve_neg\(\)",
    ):
        negate[(1,)](x, x.stride(0), 8, B=8, backend="reference", checked=True)
