"""Matmuls of packed weights against their formula, and conversions of layouts."""

import ml_dtypes
import numpy as np
import pytest
from checks import check_architectures

import tilewright_kernels as tk
from tilewright_kernels.linear import quantized_matmul as module
from tilewright_kernels.linear.blocks import Blocks
from tilewright_kernels.linear.element_types import OPERANDS
from tilewright_kernels.linear.packed.quantized_kernels import persistent_quantized_kernel
from tilewright_kernels.operations.devices import Device

BF16 = ml_dtypes.bfloat16


def weights(n, k, groups, bits, has_zeros, dtype=np.float32):
    rng = np.random.default_rng(0)
    q = rng.integers(0, 1 << bits, (n, k))
    scales = rng.uniform(0.5, 1.5, (n, groups)).astype(dtype)
    zeros = rng.integers(0, 1 << bits, (n, groups)).astype(dtype) if has_zeros else None
    return q, tk.pack_weights(q, bits), scales, zeros


def in_order(q, bits):
    """Pack consecutive elements of a row to words, the first one in the lowest bits."""
    parts = q.astype(np.int64).reshape(len(q), -1, 32 // bits) << (bits * np.arange(32 // bits))
    return parts.sum(2).astype(np.uint32).view(np.int32)


def doubled(array):
    return None if array is None else array.astype(np.float64)


def spread(q, scales, zeros):
    group = q.shape[1] // scales.shape[1]
    return (q - np.repeat(zeros, group, 1)) * np.repeat(scales, group, 1)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("m, has_zeros", [(1, False), (1, True), (7, True), (70, False)])
def test_results_equal_the_formula(bits, m, has_zeros):
    k, n = 192, 45
    q, words, scales, zeros = weights(n, k, 3, bits, has_zeros)
    np.testing.assert_array_equal(tk.unpack_weights(words, bits), q)
    a = np.random.default_rng(1).standard_normal((m, 2 * k)).astype(np.float32)[:, ::2]
    out = np.full((m, n), np.nan, np.float32)
    tk.quantized_matmul(a, words, scales, zeros, bits=bits, out=out)
    expected = tk.quantized_matmul_reference(
        doubled(a), words, doubled(scales), doubled(zeros), bits=bits
    )
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("blocks", [Blocks(16, 32, 32, split=3), Blocks(64, 32, 256)])
def test_parts_along_k_and_blocks_of_several_runs(monkeypatch, blocks):
    monkeypatch.setattr(module, "_blocks", lambda *_: blocks)
    _, words, scales, zeros = weights(40, 256, 4, 4, True)
    a = np.random.default_rng(2).standard_normal((3, 256)).astype(np.float32)
    expected = tk.quantized_matmul_reference(*map(doubled, (a,)), words, scales, zeros)
    found = tk.quantized_matmul(a, words, scales, zeros)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("bits, dtype", [(2, np.float16), (4, np.float16), (4, BF16), (8, BF16)])
@pytest.mark.parametrize("m, groups, has_zeros", [(1, 2, False), (7, 2, True), (20, 8, True)])
def test_the_kernel_for_few_rows(monkeypatch, bits, dtype, m, groups, has_zeros):
    monkeypatch.setattr(module, "_MMA_SYNC", ("cpu",))
    monkeypatch.setattr(module, "_few_rows_blocks", lambda *_: Blocks(32, 64, 128, 2, 1, 2))
    k, n = 256, 45
    _, words, scales, zeros = weights(n, k, groups, bits, has_zeros, dtype)
    a = np.random.default_rng(1).standard_normal((m, 2 * k)).astype(dtype)[:, ::2]
    out = np.full((m, n), np.nan, dtype)
    tk.quantized_matmul(a, words, scales, zeros, bits=bits, out=out)
    expected = tk.quantized_matmul_reference(
        doubled(a), words, doubled(scales), doubled(zeros), bits=bits
    )
    tolerance = 2e-3 if dtype is np.float16 else 1.6e-2
    found = out.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("bits, dtype", [(2, np.float16), (4, np.float16), (4, BF16), (8, BF16)])
@pytest.mark.parametrize("m, n, has_zeros", [(70, 40, False), (33, 136, True)])
def test_persistent_programs_equal_the_formula(bits, dtype, m, n, has_zeros):
    k, block_k = 256, 64
    _, words, scales, zeros = weights(n, k, 2, bits, has_zeros, dtype)
    a = np.random.default_rng(1).standard_normal((m, k)).astype(dtype)
    out = np.full((m, n), np.nan, dtype)
    persistent_quantized_kernel[(3,)](
        a, words, scales, zeros, out, m, n, k, k, n, 2, 1, *((2, 1) if has_zeros else (0, 0)),
        GROUP=128, BITS=bits, RUN=128, GRANULE=block_k, BLOCK_M=32, BLOCK_N=16, BLOCK_K=block_k,
        GROUP_M=2, PROGRAMS=3, OPERAND=OPERANDS[np.dtype(dtype).name], DIVISOR_N=8,
    )  # fmt: skip
    expected = tk.quantized_matmul_reference(
        doubled(a), words, doubled(scales), doubled(zeros), bits=bits
    )
    tolerance = 2e-3 if dtype is np.float16 else 1.6e-2
    found = out.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(
    "m, blocks", [(128, (128, 64)), (256, (128, 128)), (512, (256, 128)), (1024, (256, 128))]
)
def test_blocks_of_persistent_programs_fill_the_processors(m, blocks):
    found = module._fastest(list(module._PERSISTENT), m, 8192, 8192, Device("hopper", 132))
    assert (found.m, found.n) == blocks


@pytest.mark.parametrize(
    "groups, order, persists", [(2, "F", True), (2, "C", False), (8, "F", False)]
)
def test_persistent_programs_are_of_scales_that_tma_copies(groups, order, persists):
    """Of consecutive rows, and of groups that are multiples of a block along K."""
    _, words, scales, _ = weights(64, 256, groups, 4, False, np.float16)
    found = module._Weights(words, np.asarray(scales, order=order), None, 4, 256)
    assert found.may_persist(64) == found.may_persist(128) == persists


def test_persistent_programs_compile():
    _, words, scales, zeros = weights(64, 256, 2, 4, True, np.float16)
    a = np.zeros((128, 256), np.float16)
    given = a, words, *map(np.asfortranarray, (scales, zeros)), 4
    check_architectures(module.QUANTIZED_MATMUL, *given, architectures=("sm_90a",))


@pytest.mark.parametrize("n, k, groups", [(64, 64, 2), (45, 192, 3)])
def test_weights_that_are_unpacked_first(monkeypatch, n, k, groups):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(module, "_unpacks_first", lambda *_: True)
    _, words, scales, zeros = map(torch.from_numpy, weights(n, k, groups, 4, True))
    a = torch.randn((30, k), generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = a.detach().double().requires_grad_()
    dc = torch.randn((30, n), generator=torch.Generator().manual_seed(1))
    c = tk.quantized_matmul(a, words, scales, zeros)
    c.backward(dc)
    reference = tk.quantized_matmul_reference(exact, words, scales.double(), zeros.double())
    reference.backward(dc.double())
    torch.testing.assert_close(c.double(), reference, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(a.grad.double(), exact.grad, rtol=1e-4, atol=1e-3)


def test_scales_and_zeros_of_any_strides():
    _, words, scales, zeros = weights(24, 128, 4, 4, True)
    a = np.random.default_rng(2).standard_normal((3, 128)).astype(np.float32)
    expected = tk.quantized_matmul(a, words, scales, zeros)
    wide = np.full((24, 8), np.nan, np.float32)
    wide[:, ::2] = zeros
    found = tk.quantized_matmul(a, words, np.asfortranarray(scales), wide[:, ::2])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("k, run", [(256, 128), (192, 64), (48, 16)])
def test_words_of_a_run_of_all_rows_lie_together(bits, k, run):
    q = np.random.default_rng(0).integers(0, 1 << bits, (5, k))
    words = tk.pack_weights(q, bits)
    assert words.shape == (k // run, 5, run * bits // 32) and words.flags.c_contiguous
    np.testing.assert_array_equal(tk.unpack_weights(words, bits), q)
    np.testing.assert_array_equal(tk.pack_weights(q[3:4, run : 2 * run], bits)[0, 0], words[1, 3])


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_gptq(bits):
    n, k, groups = 32, 64, 2
    q, _, scales, zeros = weights(n, k, groups, bits, True)
    zeros = np.maximum(zeros, 1)
    qweight = np.ascontiguousarray(in_order(q, bits).T)
    qzeros = in_order(zeros.T.astype(np.int64) - 1, bits)
    found = tk.weights_from_gptq(qweight, qzeros, np.ascontiguousarray(scales.T), bits=bits)
    a = np.eye(k, dtype=np.float32)
    result = tk.quantized_matmul(a, *found, bits=bits)
    np.testing.assert_allclose(result.T, spread(q, scales, zeros), rtol=1e-5, atol=1e-5)


def test_weights_of_awq():
    n, k, groups = 24, 64, 2
    q, _, scales, zeros = weights(n, k, groups, 4, True)

    def packed(matrix):
        words = np.zeros((len(matrix), n // 8), np.int64)
        for place, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            words |= matrix[:, column::8].astype(np.int64) << (4 * place)
        return words.astype(np.uint32).view(np.int32)

    found = tk.weights_from_awq(packed(q.T), packed(zeros.T), np.ascontiguousarray(scales.T))
    result = tk.quantized_matmul(np.eye(k, dtype=np.float32), *found)
    np.testing.assert_allclose(result.T, spread(q, scales, zeros), rtol=1e-5, atol=1e-5)


def test_weights_of_hqq():
    n, k, groups = 6, 64, 2
    q, _, scales, zeros = weights(n, k, groups, 4, True)
    zeros += 0.25
    rows = q.reshape(-1, k // groups).astype(np.uint8)
    half = len(rows) // 2
    found = tk.weights_from_hqq(
        (rows[:half] << 4) | rows[half:], scales.reshape(-1, 1), zeros.reshape(-1, 1), (n, k)
    )
    result = tk.quantized_matmul(np.eye(k, dtype=np.float32), *found)
    np.testing.assert_allclose(result.T, spread(q, scales, zeros), rtol=1e-5, atol=1e-5)


def test_gradient_of_the_rows():
    torch = pytest.importorskip("torch")
    _, words, scales, zeros = weights(21, 96, 3, 4, True)
    words, scales, zeros = map(torch.from_numpy, (words, scales, zeros))
    a = torch.randn((2, 5, 96), generator=torch.Generator().manual_seed(0)).requires_grad_()
    exact = a.detach().double().requires_grad_()
    dc = torch.randn((2, 5, 21), generator=torch.Generator().manual_seed(1))
    tk.quantized_matmul(a, words, scales, zeros).backward(dc)
    reference = tk.quantized_matmul_reference(exact, words, scales.double(), zeros.double())
    reference.backward(dc.double())
    torch.testing.assert_close(a.grad.double(), exact.grad, rtol=1e-4, atol=1e-3)


def test_wrong_arguments_are_refused():
    _, words, scales, zeros = weights(8, 64, 2, 4, True)
    a = np.ones((2, 64), np.float32)
    with pytest.raises(ValueError, match="are no weights of 3 bits"):
        tk.quantized_matmul(a, words, scales, bits=3)
    with pytest.raises(ValueError, match="for rows of 60 elements"):
        tk.quantized_matmul(a[:, :60], words, scales)
    with pytest.raises(ValueError, match="scales of shape"):
        tk.quantized_matmul(a, words, scales[:5])
    with pytest.raises(ValueError, match="zeros are of shape"):
        tk.quantized_matmul(a, words, scales, zeros[:, :1])
    with pytest.raises(ValueError, match="do not fill words"):
        tk.pack_weights(np.ones((2, 9), np.int32), 4)
