"""Copies of operands that can only be loaded by elements."""

import numpy as np
import pytest
from checks import check_architectures

from tilewright_kernels.linear.alignment import is_transposed_in_memory, with_aligned_rows
from tilewright_kernels.linear.matmul import MATMUL
from tilewright_kernels.operations.frameworks import NUMPY
from tilewright_kernels.operations.launcher import DirectLauncher


def drawn(rows, columns, *, transposed):
    values = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float16)
    return np.asfortranarray(values) if transposed else values


@pytest.mark.parametrize("m, n, k", [(257, 260, 301), (256, 257, 264), (259, 256, 272)])
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_copies_are_aligned_and_have_the_same_matmul(m, n, k, a_transposed, b_transposed):
    a, b = drawn(m, k, transposed=a_transposed), drawn(k, n, transposed=b_transposed)
    x, y = with_aligned_rows(DirectLauncher(NUMPY, a), a, b)
    assert is_transposed_in_memory(x) is not None and is_transposed_in_memory(y) is not None
    assert x.shape[1] == y.shape[0]
    np.testing.assert_array_equal(x[:, :k], a)
    np.testing.assert_array_equal(y[:k], b)
    assert not x[:, k:].any() and not y[k:].any()


@pytest.mark.parametrize("m, n, k", [(512, 512, 512), (8, 513, 513)])
def test_aligned_and_small_operands_are_not_copied(m, n, k):
    a, b = drawn(m, k, transposed=False), drawn(k, n, transposed=True)
    x, y = with_aligned_rows(DirectLauncher(NUMPY, a), a, b)
    assert x is a and y is b


def test_kernels_compile():
    a, b = drawn(257, 301, transposed=False), drawn(301, 300, transposed=True)
    check_architectures(MATMUL, a, b, architectures=["sm_90a"])
