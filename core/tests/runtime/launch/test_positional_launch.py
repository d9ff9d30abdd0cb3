"""``compiled[grid](*args)``: arguments that the kernel was not compiled for are refused before
anything is launched."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.runtime.arguments.array_protocols import ArgumentError


@tw.jit
def mixed(x, n, scale, flag, pair, NAME: tl.constexpr, none=None):
    tl.store(x, n * scale + pair[0])
    if flag:
        tl.store(x, pair[1])


def aligned(count, dtype=np.float32, offset=0):
    """An array whose address is ``offset`` elements past a multiple of 64."""
    whole = np.zeros(count + 64, dtype)
    start = -whole.ctypes.data % 64 // whole.itemsize + offset
    return whole[start : start + count]


X = aligned(8)
GOOD = (X, 7, 0.5, True, (3, 4.0), "a", None)


@pytest.fixture
def compiled(recorder, fresh):
    return fresh(mixed).warmup(*GOOD)


def test_what_fits_is_launched_with_the_values_of_its_types(recorder, compiled):
    compiled[(2,)](*GOOD)
    compiled[(2,)](
        aligned(3), np.int64(-9), 2, np.bool_(False), (np.int32(1 << 20), 1.5), "a", None, stream=5
    )
    assert [(grid, stream) for grid, stream, _ in recorder.launches] == [
        ((2, 1, 1), None),
        ((2, 1, 1), 5),
    ]
    assert recorder.launches[0][2] == (X, 7, 0.5, True, 3, 4.0)
    values = recorder.launches[1][2][1:]
    assert values == (-9, 2.0, False, 1 << 20, 1.5)
    assert [type(value) for value in values] == [int, float, bool, int, float]


BAD = {
    "an element type": (
        (0, aligned(8, np.float64)),
        r"argument 'x' is \*fp64, and this kernel was compiled for \*fp32",
    ),
    "an alignment": (
        (0, aligned(8, offset=1)),
        "the address of argument 'x' is not divisible by 16",
    ),
    "a number for an array": (
        (0, 1234),
        r"argument 'x' is 1234, and this kernel was compiled for \*fp32",
    ),
    "an array for a number": (
        (1, X),
        r"argument 'n' is \*fp32, and this kernel was compiled for i32",
    ),
    "a float for an integer": (
        (1, 7.0),
        "argument 'n' is 7.0, and this kernel was compiled for i32",
    ),
    "a wide integer": (
        (1, 1 << 40),
        "argument 'n' is 1099511627776, and this kernel was compiled for i32",
    ),
    "None for a number": (
        (2, None),
        "argument 'scale' is None, and this kernel was compiled for fp32",
    ),
    "a longer tuple": (
        (4, (1, 2.0, 3)),
        r"argument 'pair' is \(1, 2.0, 3\), and this kernel was compiled for a tuple of 2",
    ),
    "an item of a tuple": (
        (4, (X, 2.0)),
        r"argument 'pair.0' is \*fp32, and this kernel was compiled for i32",
    ),
    "another constant": (
        (5, "b"),
        "argument 'NAME' is 'b', and this kernel was compiled for the constant 'a'",
    ),
    "a value for None": (
        (6, 3),
        "argument 'none' is 3, and this kernel was compiled for the constant None",
    ),
    "no memory": ((0, tw.MockTensor("fp32")), "argument 'x' has no memory"),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused(recorder, compiled, change, words):
    position, value = change
    args = list(GOOD)
    args[position] = value
    with pytest.raises(ArgumentError, match=words):
        compiled[(1,)](*args)
    assert recorder.launches == []


def test_the_number_of_arguments_is_checked(compiled):
    with pytest.raises(
        LaunchError, match=r"mixed takes 7 arguments \(x, n, scale, flag, pair, NAME, none\), not 2"
    ):
        compiled[(1,)](X, 7)


def test_another_device_is_refused(install_recorder, fresh):
    recorder = install_recorder(count=2)
    with tw.backend("recorder"):
        kernel = fresh(mixed).warmup(*GOOD)
    kernel.device = recorder.tilewright_devices()[1]
    with pytest.raises(
        ArgumentError, match="argument 'x' lies on cpu:0, and this kernel was compiled for cpu:1"
    ):
        kernel[(1,)](*GOOD)
