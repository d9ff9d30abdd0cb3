"""``tl.extra.cpu``, against NumPy on the reference and this machine."""

import numpy as np
import pytest
from tilewright.language.extra.cpu import vnni_decode

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError


@tw.jit
def decode(
    packed, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr, N: tl.constexpr
):
    found = vnni_decode(
        tl.load(packed + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    )
    tl.store(out + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :], found)


def pack_pairs(matrix):
    """Interleave two rows into one."""
    return np.stack((matrix[0::2], matrix[1::2]), axis=2).reshape(matrix.shape[0] // 2, -1)


@pytest.mark.parametrize(
    ("dtype", "times"), [(np.int16, 1), (np.float16, 1), (np.int8, 2), (np.uint8, 2)]
)
@pytest.mark.parametrize(("k", "n"), [(8, 4), (16, 1), (4, 32)])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_packed_matrices_are_unpacked(backend, dtype, times, k, n):
    matrix = np.random.default_rng(k * n).integers(0, 100, (k, n)).astype(dtype)
    packed = matrix
    for _ in range(times):
        packed = pack_pairs(packed)
    out = np.zeros_like(matrix)
    decode[(1,)](np.ascontiguousarray(packed), out, *packed.shape, k, n, backend=backend)
    np.testing.assert_array_equal(out, matrix)


def test_wide_elements_are_refused():
    with pytest.raises(tw.CompilationError, match="Expected 8-bit or 16-bit values"):
        decode[(1,)](
            np.zeros((2, 8), np.float32),
            np.zeros((4, 4), np.float32),
            2,
            8,
            4,
            4,
            backend="reference",
        )


@tw.jit
def strides(out, n, step):
    for i in range(0, n, step):
        tl.store(out + i, i)


@tw.jit
def strides_until(out, n, step):
    for i in range(0, n, step):
        tl.store(out + i, i)
        if i > 100:
            break


@pytest.mark.parametrize("step", [0, -3])
@pytest.mark.parametrize("kernel", [strides, strides_until])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_loop_whose_step_is_not_positive_stops_the_kernel(backend, kernel, step):
    out = np.zeros(10, np.int32)
    kernel[(1,)](out, 10, 3, backend=backend)
    assert out.tolist() == [0, 0, 0, 3, 0, 0, 6, 0, 0, 9]
    with pytest.raises(
        KernelError,
        match="the step of a range must be positive where it is known at run time alone",
    ):
        kernel[(1,)](out, 10, step, backend=backend)
