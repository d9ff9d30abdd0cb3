"""Grouped matmuls against loops over the groups in float64, and their gradients."""

import numpy as np
import pytest

import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.linear import grouped_matmul as module
from tilewright_kernels.linear.blocks import grouped_blocks, k_grouped_blocks
from tilewright_kernels.linear.grouped_kernels import (
    grouped_descriptor_kernel,
    grouped_matmul_kernel,
    k_grouped_descriptor_kernel,
    k_grouped_matmul_kernel,
)
from tilewright_kernels.operations.devices import Device

ENDS = [0, 5, 5, 37, 90, 91]


def drawn(dtype=np.float32):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((ENDS[-1], 40)).astype(dtype)
    b = rng.standard_normal((len(ENDS) - 1, 40, 24)).astype(dtype)
    return a, b, np.array(ENDS, np.int32)


def doubled(*arrays):
    return (each.astype(np.float64) for each in arrays)


@pytest.mark.parametrize("dtype, limit", [(np.float32, 1e-5), (np.float16, 4e-3)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_contiguous_groups(dtype, limit, is_transposed):
    a, b, rows = drawn(dtype)
    if is_transposed:
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    out = np.full((len(a), b.shape[2]), np.nan, dtype)
    tk.grouped_matmul(a, b, rows, out=out)
    expected = tk.grouped_matmul_reference(*doubled(a, b), rows)
    np.testing.assert_allclose(out, expected, rtol=limit, atol=limit * 20)


def test_groups_with_a_capacity():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((4, 19, 33)).astype(np.float32)
    b = rng.standard_normal((4, 33, 21)).astype(np.float32)
    used = np.array([0, 19, 7, 1], np.int32)
    for group, count in enumerate(used):
        a[group, count:] = np.nan
    out = np.full((4, 19, 21), np.nan, np.float32)
    tk.grouped_matmul(a, b, used, out=out)
    expected = tk.grouped_matmul_reference(*doubled(a, b), used)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    assert not out[0].any()


def test_groups_along_k():
    a, _, rows = drawn()
    b = np.random.default_rng(2).standard_normal((len(a), 17)).astype(np.float32)
    out = np.full((len(rows) - 1, 40, 17), np.nan, np.float32)
    tk.k_grouped_matmul(a, b, rows, out=out)
    expected = tk.k_grouped_matmul_reference(*doubled(a, b), rows)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


RAGGED = [0, 1, 15, 16, 17, 0, 0, 40, 33, 5]


@pytest.mark.parametrize("programs", [1, 3, 40])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("capacity", [0, 41])
@pytest.mark.parametrize("more", [0, 8])
def test_programs_of_descriptors_equal_the_formula(is_transposed, capacity, more, programs):
    rng = np.random.default_rng(5)
    rows = np.array(RAGGED if capacity else np.cumsum([0, *RAGGED]), np.int32)
    groups = len(RAGGED)
    b = rng.standard_normal((groups, 40, 24)).astype(np.float32)
    a = rng.standard_normal((groups, 41, 40) if capacity else (rows[-1], 40)).astype(np.float32)
    if capacity:
        for group, count in enumerate(RAGGED):
            a[group, count:] = np.nan
    memory = np.ascontiguousarray(b.swapaxes(1, 2)) if is_transposed else b
    out = np.full((*a.shape[:-1], 24), np.nan, np.float32)
    grouped_descriptor_kernel[(programs,)](
        a.reshape(-1, 40), memory, out.reshape(-1, 24), rows, groups, 24, 40,
        40, 40 * 24, memory.shape[2], 24,
        BLOCK_M=16, BLOCK_N=16, MORE_N=more, BLOCK_K=16, GROUP_M=2, CAPACITY=capacity,
        B_IS_TRANSPOSED=is_transposed, PROGRAMS=programs, SUM=tl.float32, PRECISION="ieee",
    )  # fmt: skip
    expected = tk.grouped_matmul_reference(*doubled(np.nan_to_num(a), b), rows)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("programs", [1, 3, 100])
@pytest.mark.parametrize("capacity", [0, 41])
def test_programs_of_descriptors_along_k_equal_the_formula(capacity, programs):
    rng = np.random.default_rng(6)
    rows = np.array(RAGGED if capacity else np.cumsum([0, *RAGGED]), np.int32)
    groups = len(RAGGED)
    count = groups * capacity if capacity else rows[-1]
    a, b = (rng.standard_normal((count, each)).astype(np.float32) for each in (40, 24))
    out = np.full((groups, 40, 24), np.nan, np.float32)
    starts = np.arange(groups) * capacity if capacity else rows[:-1]
    # what a group has is not multiplied in others
    a[starts[7] : starts[7] + RAGGED[7]] = np.inf
    k_grouped_descriptor_kernel[(programs,)](
        a, b, out, rows, groups, 40, 24, 40, 24, 40 * 24, 24,
        BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2, CAPACITY=capacity, PROGRAMS=programs,
        SUM=tl.float32, PRECISION="ieee",
    )  # fmt: skip
    for group, start in enumerate(starts):
        part = slice(start, start + RAGGED[group])
        if group == 7:
            assert not np.isfinite(out[group]).any()
        else:
            expected = a[part].astype(np.float64).T @ b[part]
            np.testing.assert_allclose(out[group], expected, rtol=1e-5, atol=1e-4)


def test_no_rows():
    a, b, rows = drawn()
    assert tk.grouped_matmul(a[:0], b, rows * 0).shape == (0, 24)
    assert not tk.k_grouped_matmul(a[:0], a[:0], rows * 0).any()


@pytest.mark.parametrize("has_capacity", [False, True])
def test_gradients(has_capacity):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    if has_capacity:
        shapes, rows = ((3, 7, 12), (3, 12, 9)), torch.tensor([7, 0, 4], dtype=torch.int32)
    else:
        shapes, rows = ((19, 12), (3, 12, 9)), torch.tensor([0, 4, 4, 19], dtype=torch.int32)
    given = [torch.randn(each, generator=generator).requires_grad_() for each in shapes]
    exact = [each.detach().double().requires_grad_() for each in given]
    dy = torch.randn((*shapes[0][:-1], 9), generator=generator)
    tk.grouped_matmul(*given, rows).backward(dy)
    tk.grouped_matmul_reference(*exact, rows).backward(dy.double())
    for found, expected in zip(given, exact, strict=True):
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=1e-4, atol=1e-5)


def test_gradients_of_groups_along_k():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(1)
    rows = torch.tensor([0, 4, 4, 19], dtype=torch.int32)
    given = [torch.randn(19, each, generator=generator).requires_grad_() for each in (6, 8)]
    exact = [each.detach().double().requires_grad_() for each in given]
    dy = torch.randn((3, 6, 8), generator=generator)
    tk.k_grouped_matmul(*given, rows).backward(dy)
    tk.k_grouped_matmul_reference(*exact, rows).backward(dy.double())
    for found, expected in zip(given, exact, strict=True):
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=1e-4, atol=1e-5)


def test_wrong_arguments_are_refused():
    a, b, rows = drawn()
    with pytest.raises(ValueError, match="no groups of rows"):
        tk.grouped_matmul(a[:, :7], b, rows)
    with pytest.raises(ValueError, match="rows has the shape"):
        tk.grouped_matmul(a, b, rows[:-1])
    with pytest.raises(TypeError, match="and b of float16"):
        tk.grouped_matmul(a, b.astype(np.float16), rows)
    with pytest.raises(ValueError, match="same rows"):
        tk.k_grouped_matmul(a, a[1:], rows)


@pytest.mark.parametrize("has_capacity", [False, True])
def test_invariant_results_do_not_depend_on_other_rows(has_capacity):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(each).astype(np.float32) for each in ((70, 300), (3, 300, 40)))
    if has_capacity:
        one = tk.grouped_matmul(a[None, :2], b[:1], np.int32([2]), invariant=True)[0]
        every = np.stack([a, a[::-1], a])
        found = tk.grouped_matmul(every, b, np.int32([70, 3, 9]), invariant=True)[0]
    else:
        one = tk.grouped_matmul(a[:2], b[:1], np.int32([0, 2]), invariant=True)
        every = np.concatenate([a, a[::-1]])
        found = tk.grouped_matmul(every, b, np.int32([0, 70, 71, 140]), invariant=True)
    np.testing.assert_array_equal(found[:2], one)


def test_invariant_groups_along_k_do_not_depend_on_others():
    a, b, rows = drawn()
    b = np.random.default_rng(2).standard_normal((len(a), 17)).astype(np.float32)
    every = tk.k_grouped_matmul(a, b, rows, invariant=True)
    for group in range(len(rows) - 1):
        part = slice(rows[group], rows[group + 1])
        alone = np.int32([0, rows[group + 1] - rows[group]])
        one = tk.k_grouped_matmul(a[part], b[part], alone, invariant=True)
        np.testing.assert_array_equal(one[0], every[group])


@pytest.mark.parametrize("invariant", [False, True])
def test_blocks_of_invariant_groups_do_not_follow_the_rows(invariant, monkeypatch):
    monkeypatch.setattr(module, "device_of", lambda array: Device("hopper", 132))
    launched = {module.GROUPED_MATMUL: set(), module.K_GROUPED_MATMUL: set()}

    class Recorder:
        def __call__(self, kernel, grid, *arguments, **keywords):
            sizes = [keywords[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")]
            launched[operation].add((kernel, *sizes, keywords.get("invariant")))

    for count in (64, 2000, 60000):
        a, b = np.empty((count, 512), np.float16), np.empty((8, 512, 768), np.float16)
        rows, options = np.zeros(9, np.int32), ("ieee", invariant)
        operation = module.GROUPED_MATMUL
        operation.launch(Recorder(), np.empty((count, 768), np.float16), a, b, rows, *options)
        operation = module.K_GROUPED_MATMUL
        operation.launch(Recorder(), np.empty((8, 512, 512), np.float16), a, a, rows, 8, *options)
    assert (len(launched[module.GROUPED_MATMUL]) == 1) == invariant
    if invariant:
        assert len(launched[module.K_GROUPED_MATMUL]) == 1


@pytest.mark.parametrize(
    "m, n, rows, groups, columns",
    [(2048, 768, 256, 128, 128), (7168, 4096, 1024, 32, 256), (2048, 768, 4096, 8, 128)],
)
def test_blocks_of_groups_along_k_are_small_unless_there_are_many_rounds(
    m, n, rows, groups, columns
):
    found = k_grouped_blocks(m, n, rows, 16, Device("hopper", 132), groups, may_persist=True)
    assert (found.m, found.n, found.is_persistent) == (128, columns, True)


@pytest.mark.parametrize("columns, persists", [(768, True), (777, False), (64, False)])
def test_groups_along_k_are_multiplied_by_descriptors_where_tma_can_copy(
    columns, persists, monkeypatch
):
    monkeypatch.setattr(module, "device_of", lambda array: Device("hopper", 132))
    launched = []
    a, b = np.empty((2048, 512), np.float16), np.empty((2048, columns), np.float16)
    module.K_GROUPED_MATMUL.launch(
        lambda kernel, grid, *arguments, **keywords: launched.append(kernel),
        np.empty((8, 512, columns), np.float16), a, b, np.zeros(9, np.int32), 8, "ieee",
    )  # fmt: skip
    assert launched == [k_grouped_descriptor_kernel if persists else k_grouped_matmul_kernel]


@pytest.mark.parametrize(
    "n, k, rows, groups, columns",
    [
        (768, 2048, 256, 128, 256),
        (768, 2048, 128, 64, 192),
        (2048, 768, 256, 128, 256),
        (7168, 4096, 1024, 32, 256),
        (4096, 4096, 4096, 16, 256),
    ],
)
def test_blocks_of_groups_are_narrower_where_rounds_are_fuller(n, k, rows, groups, columns):
    hopper = Device("hopper", 132)
    found = grouped_blocks(rows, n, k, 16, hopper, groups, may_widen=True)
    assert (found.m, found.n) == (128, columns)
    assert grouped_blocks(rows, n, k, 16, hopper, groups).n == 256


@pytest.mark.parametrize("n, k, by_descriptors", [(768, 2048, True), (776, 2049, False)])
def test_programs_compute_all_columns(n, k, by_descriptors, monkeypatch):
    monkeypatch.setattr(module, "device_of", lambda array: Device("hopper", 132))
    launched = []

    def run(kernel, grid, *arguments, **keywords):
        launched.append((kernel, grid, keywords))

    a, b = np.empty((8192, k), np.float16), np.empty((64, k, n), np.float16)
    c, rows = np.empty((8192, n), np.float16), np.zeros(65, np.int32)
    module.GROUPED_MATMUL.launch(run, c, a, b, rows, "ieee")
    ((kernel, grid, keywords),) = launched
    if by_descriptors:
        # each program goes through all blocks
        assert kernel is grouped_descriptor_kernel and grid == (132,)
        assert (keywords["BLOCK_N"], keywords["MORE_N"]) == (128, 64)
    else:
        tiles = 8192 // keywords["BLOCK_M"] + 64
        assert kernel is grouped_matmul_kernel and "MORE_N" not in keywords
        assert grid == (tiles * -(-n // keywords["BLOCK_N"]),)
