"""Masked-off lanes of loads without ``other`` are zero wherever they are observed.

The emulator fills unobserved lanes with a pattern that shows in any result that depends on them.
Arrays are NaN (or -1) beyond the masks.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.testing.emulator_check import LANES, compare, inside, small


@device_function
def norm_backward(
    grad,
    x,
    mean,
    rstd,
    weight,
    dx,
    dweight,
    dbias,
    batch,
    width,
    BATCH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Batch normalization of one channel, tile by tile.

    Only the masks of the loads exclude missing elements.
    """
    rows, columns = tl.arange(0, BATCH), tl.arange(0, WIDTH)
    centre, scale = tl.load(mean), tl.load(rstd)
    products, total = tl.zeros((BATCH, WIDTH), tl.float32), tl.zeros((BATCH, WIDTH), tl.float32)
    for start in range(0, width, WIDTH):
        at = rows[:, None] * width + (start + columns)[None, :]
        inside = (rows[:, None] < batch) & ((start + columns)[None, :] < width)
        g = tl.load(grad + at, mask=inside)
        products += (tl.load(x + at, mask=inside) - centre) * g
        total += g
    first, second = tl.sum(products), tl.sum(total)
    tl.store(dweight, first * scale)
    tl.store(dbias, second)
    w = tl.load(weight)
    for start in range(0, width, WIDTH):
        at = rows[:, None] * width + (start + columns)[None, :]
        inside = (rows[:, None] < batch) & ((start + columns)[None, :] < width)
        g, here = tl.load(grad + at, mask=inside), tl.load(x + at, mask=inside)
        tl.store(
            dx + at,
            w * scale * (g - (second + (here - centre) * scale * scale * first) / (batch * width)),
            mask=inside,
        )


@pytest.mark.parametrize(("batch", "width"), [(3, 5), (4, 8), (1, 21), (4, 17)])
def test_batch_norm_backward(batch: int, width: int) -> None:
    rng = np.random.default_rng(batch)
    grad, x = (
        np.append(small(rng, batch * width), np.full(64, np.nan, np.float32)) for _ in range(2)
    )
    one = [np.array([value], np.float32) for value in (1.0, 0.5, 2.0)]
    made = [
        np.full(batch * width, 7, np.float32),
        np.full(1, 7, np.float32),
        np.full(1, 7, np.float32),
    ]
    signature = dict.fromkeys(
        ("grad", "x", "mean", "rstd", "weight", "dx", "dweight", "dbias"), "*fp32"
    ) | {"batch": "i32", "width": "i32"}
    function, _, _ = compare(
        norm_backward,
        signature,
        [grad, x, *one, *made, batch, width],
        stages=1,
        divisibility=4,
        BATCH=4,
        WIDTH=8,
    )
    marked = [
        operation.attributes.get("simt.unobserved", False)
        for operation in function.walk()
        if operation.name == "load" and operation.operand("mask")
    ]
    assert marked == [False, False, True, True]


@device_function
def whole(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n))


@device_function
def one(x, out, n, VOLATILE: tl.constexpr):
    tl.store(out, tl.load(x, mask=n > 0, volatile=VOLATILE))


#: element type -> (NumPy's, how it is stored)
ELEMENTS = {
    "fp32": np.float32,
    "fp16": np.float16,
    "i8": np.int8,
    "u16": np.uint16,
    "i32": np.int32,
    "i64": np.int64,
    "fp64": np.float64,
}


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("n", [0, 1, 13, 16, 32])
def test_elements(element: str, n: int) -> None:
    x = np.arange(1, 33).astype(ELEMENTS[element])
    signature = {"x": f"*{element}", "out": f"*{element}", "n": "i32"}
    compare(whole, signature, [x, np.full(32, 7, ELEMENTS[element]), n], stages=1, BLOCK=32)


@pytest.mark.parametrize("volatile", [False, True])
@pytest.mark.parametrize("n", [0, 1])
def test_scalars(volatile: bool, n: int) -> None:
    compare(
        one,
        {"x": "*fp32", "out": "*fp32", "n": "i32"},
        [np.array([5], np.float32), np.full(1, 7, np.float32), n],
        stages=1,
        VOLATILE=volatile,
    )


@device_function
def product(a, b, table, out, K, BK: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Matmuls whose K ends inside of a block.

    The row indices of ``b`` come from a table that ends there too; masked-off lanes refer to its
    first row.
    """
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        row = tl.load(table + inner, mask=inner < K)
        x = tl.load(a + rows[:, None] * 64 + inner[None, :], mask=inner[None, :] < K)
        y = tl.load(b + row[:, None] * N + columns[None, :])
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@pytest.mark.parametrize("widths", [(), (4, 8, 16)], ids=["registers", "copies"])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("K", [5, 16, 37])
def test_pipelined_loops(K: int, stages: int, widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(K)
    a, b = small(rng, 16, 64), small(rng, 128, 8)
    a[:, K:], b[64:] = (
        np.nan,
        np.nan,
    )  # what the machine leaves in lanes that nobody sees, 77, would be a row of NaN
    table = np.append(rng.permutation(64)[:K], np.full(64 - K, 1 << 20)).astype(np.int32)
    signature = {"a": "*fp32", "b": "*fp32", "table": "*i32", "out": "*fp32", "K": "i32"}
    target = emulator.EmulatedTarget(LANES, copy_widths=widths)
    _, loops, _ = compare(
        product,
        signature,
        [a, b, table, np.full((16, 8), 7, np.float32), K],
        stages=stages,
        target=target,
        BK=16,
        M=16,
        N=8,
    )
    started = [start.attribute("unobserved") for start in inside(loops[0], "simt.load_start")]
    assert started == ([] if widths or stages == 1 else [False, True])  # those of b are all read
