"""Direct stores: a loop of dots writes its sums to the kernel's data, where nobody can tell."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_cpu.codegen.state import stack_slots

RNG = np.random.default_rng(0)
#: Of memory that a kernel is given.
ALIGNMENT = 64


@tw.jit
def _product(
    a_ptr, b_ptr, c_ptr, d_ptr, M, N, K, scm, SCN: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    places = rows[:, None] * scm + columns[None, :] * SCN
    if KIND == "old":
        old = tl.load(c_ptr + places, mask=inside)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        here = start + k
        a = tl.load(
            a_ptr + rows[:, None] * K + here[None, :],
            mask=(rows[:, None] < M) & (here[None, :] < K),
            other=0,
        )
        b = tl.load(
            b_ptr + here[:, None] * N + columns[None, :],
            mask=(here[:, None] < K) & (columns[None, :] < N),
            other=0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    if KIND == "later":
        tl.store(d_ptr + places, tl.load(c_ptr + places, mask=inside), mask=inside)
    tl.store(c_ptr + places, total, mask=inside)
    if KIND == "old":
        tl.store(d_ptr + places, old, mask=inside)
    if KIND == "twice":
        tl.store(d_ptr + places, total, mask=inside)


def _draw(*shape: int) -> np.ndarray:
    return RNG.integers(-8, 8, shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["plain", "old", "later", "twice"])
@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 16), (64, 128, 300), (61, 70, 259), (64, 64, 0), (3, 130, 100)]
)
def test_results_are_those_of_a_copy(
    m: int, n: int, k: int, columns_first: bool, kind: str
) -> None:
    a, b = _draw(m, k), _draw(k, n)
    # rows, or columns, of a larger array, which keeps its other elements
    shape = (n, m + 5) if columns_first else (m, n + 5)
    c, d = np.full(shape, 77, np.float32), np.full(shape, 78, np.float32)
    strides = (1, m + 5) if columns_first else (n + 5, 1)
    before = c.copy()
    _product[tw.cdiv(m, 64), tw.cdiv(n, 64)](
        a, b, c, d, m, n, k, *strides, KIND=kind, BLOCK_M=64, BLOCK_N=64, BLOCK_K=16
    )
    wanted, other = before.copy(), np.full(shape, 78, np.float32)
    views = [each.T[:m, :n] if columns_first else each[:m, :n] for each in (wanted, other)]
    views[0][...] = a @ b
    if kind in ("old", "later"):
        views[1][...] = 77
    if kind == "twice":
        views[1][...] = a @ b
    np.testing.assert_array_equal(c, wanted)
    np.testing.assert_array_equal(d, other)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("ahead", [0, 3, 64 * 64 - 3])
def test_a_result_over_an_operand(ahead: int, right: bool) -> None:
    """All operands are read before a store of the same program."""
    memory, other = _draw(3 * 64 * 64), _draw(64, 64)
    own, result = memory[: 64 * 64].copy().reshape(64, 64), memory[ahead:]
    operands = (other, memory) if right else (memory, other)
    _product[(1,)](
        *operands, result, other, 64, 64, 64, 64, 1, KIND="plain",
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=16,
    )  # fmt: skip
    wanted = other @ own if right else own @ other
    np.testing.assert_array_equal(result[: 64 * 64].reshape(64, 64), wanted)


@pytest.mark.parametrize("rows", [128, 127])
def test_a_whole_tile_is_not_in_memory_of_its_own(
    rows: int,
    module_of: Callable[..., Any],
    compiled: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The packed operand alone is: nothing clears, adds to or copies an accumulator."""
    monkeypatch.setattr(stack_slots, "STACK_LIMIT", 0)
    a, b, c = _draw(rows, 64), _draw(64, 128), np.full((rows, 128), np.nan, np.float32)
    arguments = [a, b, c, c, rows, 128, 64, 128]
    blocks = {"SCN": 1, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    kernel = compiled(module_of(_product, arguments, optimise=True, KIND="plain", **blocks))
    size, cleared = kernel.code.metadata["memory_bytes"], kernel.code.metadata["cleared_bytes"]
    memory = np.full(size + ALIGNMENT, 0xA5, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    memory[start : start + cleared] = 0
    kernel._function(
        kernel.pack(arguments, (1, 1, 1)).ctypes.data, 0, 1, memory.ctypes.data + start
    )
    np.testing.assert_array_equal(c, a @ b)
    written = np.count_nonzero(memory[start + cleared :] != 0xA5)
    panels, tile = 64 * 128 * 4, 128 * 128 * 4
    assert written <= panels + 2048 if rows == 128 else written >= panels + tile * 127 // 128
