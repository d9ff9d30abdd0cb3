"""Matmuls with plain pointers, as they are usually written: candidates for promotion to TMA."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes


@tw.jit
def plain(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A block a program, of matrices without strides whose extents are multiples of the blocks'."""
    rows, columns, k = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(a + rows[:, None] * K + step * BK + k[None, :])
        right = tl.load(b + (step * BK + k[:, None]) * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@device_function
def grouped_block(program, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of the block that a program takes: down GROUP block rows before going one
    block column on."""
    per_group = GROUP * tl.cdiv(N, BN)
    first = program // per_group * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    return (first + program % per_group % height) * BM, program % per_group // height * BN


@device_function
def store_block(c, total, row, column, M, N, c_row, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(
        c + rows[:, None] * c_row + columns[None, :], total.to(c.dtype.element_ty), mask=inside
    )


@device_function
def wrapping(
    a, b, c, M, N, K, a_row, a_column, b_row, b_column, c_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    ACC_TYPE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows and columns past the end come round again; pointers go on along K."""
    row, column = grouped_block(tl.program_id(0), M, N, BM, BN, GROUP)
    rows, columns, inner = (
        (row + tl.arange(0, BM)) % M,
        (column + tl.arange(0, BN)) % N,
        tl.arange(0, BK),
    )
    left = a + (rows[:, None] * a_row + inner[None, :] * a_column)
    right = b + (inner[:, None] * b_row + columns[None, :] * b_column)
    total = tl.zeros((BM, BN), dtype=ACC_TYPE)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(left, mask=inner[None, :] < K - k * BK, other=0)
        y = tl.load(right, mask=inner[:, None] < K - k * BK, other=0)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=ACC_TYPE)
        left += BK * a_column
        right += BK * b_row
    store_block(c, total, row, column, M, N, c_row, BM, BN)


@device_function
def persistent(
    a, b, c, M, N, K, a_row, a_column, b_row, b_column, c_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    ACC_TYPE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Each program takes several blocks; rows and columns past the end are led to the first, the
    block's place is computed again for the store."""
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    programs = 2
    again = tl.program_id(0) - programs
    for tile in range(tl.program_id(0), tiles, programs):
        row, column = grouped_block(tile, M, N, BM, BN, GROUP)
        rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
        rows = tl.max_contiguous(tl.multiple_of(tl.where(rows < M, rows, 0), BM), BM)
        columns = tl.max_contiguous(tl.multiple_of(tl.where(columns < N, columns, 0), BN), BN)
        total = tl.zeros((BM, BN), dtype=ACC_TYPE)
        for k in range(tl.cdiv(K, BK)):
            inner = k * BK + tl.arange(0, BK)
            x = tl.load(
                a + (rows[:, None] * a_row + inner[None, :] * a_column),
                mask=inner[None, :] < K,
                other=0,
            )
            y = tl.load(
                b + (inner[:, None] * b_row + columns[None, :] * b_column),
                mask=inner[:, None] < K,
                other=0,
            )
            total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=ACC_TYPE)
        again += programs
        row, column = grouped_block(again, M, N, BM, BN, GROUP)
        store_block(c, total, row, column, M, N, c_row, BM, BN)


@device_function
def by_block_pointers(
    a, b, c, M, N, K, a_row, a_column, b_row, b_column, c_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    ACC_TYPE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Block pointers, which bound each access."""
    row, column = grouped_block(tl.program_id(0), M, N, BM, BN, GROUP)
    left = tl.make_block_ptr(
        a,
        shape=(M, K),
        strides=(a_row, a_column),
        offsets=(row, 0),
        block_shape=(BM, BK),
        order=(1, 0),
    )
    right = tl.make_block_ptr(
        b,
        shape=(K, N),
        strides=(b_row, b_column),
        offsets=(0, column),
        block_shape=(BK, BN),
        order=(1, 0),
    )
    total = tl.zeros((BM, BN), dtype=ACC_TYPE)
    for _ in range(0, K, BK):
        x = tl.load(left, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(right, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=ACC_TYPE)
        left, right = tl.advance(left, (0, BK)), tl.advance(right, (BK, 0))
    store_block(c, total, row, column, M, N, c_row, BM, BN)


@device_function
def part_of_the_sum(
    a,
    b,
    c,
    M,
    N,
    K,
    a_row,
    b_row,
    c_row,
    first,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """The sum from ``first`` on, of rows that lie eight before those of the result; none lies
    before the matrix."""
    tl.assume(first >= 0)
    row, column = grouped_block(tl.program_id(0), M, N, BM, BN, 2)
    rows, columns, inner = row - 8 + tl.arange(0, BM), column + tl.arange(0, BN), tl.arange(0, BK)
    left = a + 16 * first + (rows[:, None] * a_row + inner[None, :])
    right = b + (16 * first + inner)[:, None] * b_row + columns[None, :]
    above = (rows[:, None] >= 0) & (rows[:, None] < M)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(16 * first, K, BK):
        x = tl.load(left, mask=above & (inner[None, :] < K - k), other=0)
        y = tl.load(right, mask=(inner[:, None] < K - k) & (columns[None, :] < N), other=0)
        total = tl.dot(x, y, total)
        left += BK
        right += BK * b_row
    store_block(c, total, row, column, M, N, c_row, BM, BN)


#: The kernels, which all take the same arguments.
KERNELS = {fn.__name__: fn for fn in (wrapping, persistent, by_block_pointers)}


@device_function
def batched(
    a,
    b,
    c,
    M,
    N,
    K,
    a_batch,
    a_row,
    b_batch,
    b_row,
    c_batch,
    c_row,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """One matmul per program along the second grid axis, with masks on all axes."""
    batch = tl.program_id(1).to(tl.int64)
    a, b, c = a + batch * a_batch, b + batch * b_batch, c + batch * c_batch
    row, column = tl.program_id(0) // tl.cdiv(N, BN) * BM, tl.program_id(0) % tl.cdiv(N, BN) * BN
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(
            a + rows[:, None] * a_row + inner[None, :],
            mask=(rows[:, None] < M) & (inner[None, :] < K),
            other=0.0,
        )
        y = tl.load(
            b + inner[:, None] * b_row + columns[None, :],
            mask=(columns[None, :] < N) & (inner[:, None] < K),
            other=0.0,
        )
        total = tl.dot(x, y, total)
    store_block(c, total, row, column, M, N, c_row, BM, BN)


@device_function
def switched(a, b, c, n, matrices, allowed, S: tl.constexpr, BK: tl.constexpr):
    """Multiply S x n and n x S matrices, the first one through a device-side descriptor.

    Results are zero for programs beyond them, and where the mask excludes all elements.
    """
    matrix = tl.program_id(0)
    left = tl.make_tensor_descriptor(a, [matrices, S, n], [S * n, n, 1], [1, S, BK])
    rows, inner = tl.arange(0, S), tl.arange(0, BK)
    total = tl.zeros((S, S), dtype=tl.float32)
    for k in range(0, n, BK):
        x = left.load([matrix, 0, k]).reshape(S, BK)
        at = b + matrix.to(tl.int64) * n * S + (k + inner)[:, None] * S + rows[None, :]
        y = tl.load(
            at, mask=((k + inner)[:, None] < n) & (matrix < matrices) & (allowed > 0), other=0.0
        )
        total = tl.dot(x, y, total)
    tl.store(c + matrix * S * S + rows[:, None] * S + rows[None, :], total)


@device_function
def attention(
    q, k, v, out, n, q_head, k_head, scale, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr
):
    """Compute softmax of scores times values, with one head per program along the second grid axis.

    Keys are read transposed, and rows past the end are masked off.
    """
    attention_tile(
        tl.program_id(0), tl.program_id(1), q, k, v, out, n, q_head, k_head, scale, BM, BN, HEAD
    )


@device_function
def persistent_attention(
    q, k, v, out, n, q_head, k_head, scale, heads,
    BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Compute the same by programs that take several blocks of rows."""
    blocks = tl.cdiv(n, BM)
    for tile in range(tl.program_id(0), blocks * heads, tl.num_programs(0)):
        attention_tile(
            tile % blocks, tile // blocks, q, k, v, out, n, q_head, k_head, scale, BM, BN, HEAD
        )


@device_function
def attention_tile(
    block, head, q, k, v, out, n, q_head, k_head, scale,
    BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Compute a block of rows of a head."""
    rows, lanes = block * BM + tl.arange(0, BM), tl.arange(0, HEAD)
    queries = tl.load(
        q + head * q_head + rows[:, None] * HEAD + lanes[None, :], mask=rows[:, None] < n, other=0.0
    )
    greatest, total = (
        tl.full([BM], -float("inf"), dtype=tl.float32),
        tl.zeros([BM], dtype=tl.float32),
    )
    gathered = tl.zeros([BM, HEAD], dtype=tl.float32)
    columns = tl.arange(0, BN)
    keys_at = k + head * k_head + lanes[:, None] + columns[None, :] * HEAD
    values_at = v + head * k_head + columns[:, None] * HEAD + lanes[None, :]
    for start in range(0, n, BN):
        keys = tl.load(keys_at, mask=columns[None, :] < n - start, other=0.0)
        scores = tl.where(
            columns[None, :] < n - start, tl.dot(queries, keys) * scale, -float("inf")
        )
        higher = tl.maximum(greatest, tl.max(scores, axis=1))
        weights, kept = tl.exp2(scores - higher[:, None]), tl.exp2(greatest - higher)
        values = tl.load(values_at, mask=columns[:, None] < n - start, other=0.0)
        total, greatest = total * kept + tl.sum(weights, axis=1), higher
        gathered = tl.dot(weights.to(values.dtype), values, gathered * kept[:, None])
        keys_at += BN * HEAD
        values_at += BN * HEAD
    at = out + head * q_head + rows[:, None] * HEAD + lanes[None, :]
    tl.store(at, (gathered / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < n)


def kernel_module(
    fn: Any, types: dict[str, str], constants: dict[str, Any], aligned: tuple[str, ...]
) -> Module:
    """Tile IR of a kernel.

    Args:
        types: of arguments that are no ``i32``.
        aligned: the arguments that are known to be multiples of 16.
    """
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in fn.arg_names
    }
    module = compile_function(
        fn, signature, constants, {name: {"divisibility": 16} for name in aligned}
    )
    run_passes(module)
    return module


def dot_module(
    fn: Any,
    element: str,
    result: str,
    extents: tuple[int, int, int],
    *,
    transposed: tuple[bool, bool] = (False, False),
    sums: Any = tl.float32,
    precision: str = "ieee",
    aligned: bool = True,
) -> Module:
    """Tile IR of one of :data:`KERNELS`.

    Args:
        element, result: types of elements, as the language writes them.
        extents: of blocks: BM, BN, BK.
        transposed: whether the rows of a, and those of b, lie side by side in memory, in place of
        columns.
        aligned: whether addresses and the other strides are known to be multiples of 16.
    """
    ones = ("a_row" if transposed[0] else "a_column", "b_row" if transposed[1] else "b_column")
    constants = {
        **dict(zip(("BM", "BN", "BK"), extents, strict=True)),
        "GROUP": 2,
        "ACC_TYPE": sums,
        "PRECISION": precision,
        **dict.fromkeys(ones, 1),
    }
    types = {"a": f"*{element}", "b": f"*{element}", "c": f"*{result}"}
    known = [
        name
        for name in fn.arg_names
        if name not in constants and name not in ("M", "N", "K", "c", "c_row")
    ]
    return kernel_module(fn, types, constants, tuple(known) if aligned else ())


def matrix(values: np.ndarray[Any, Any], transposed: bool, poison: Any) -> np.ndarray[Any, Any]:
    """Values in memory whose rows (columns, where they are ``transposed``) are multiples of 16
    elements apart, with poison between and behind."""
    stored = values.T if transposed else values
    whole = np.full((stored.shape[0] + 1, -(-stored.shape[1] // 16) * 16), poison, values.dtype)
    whole[: stored.shape[0], : stored.shape[1]] = stored
    found = whole[: stored.shape[0], : stored.shape[1]]
    return found.T if transposed else found
