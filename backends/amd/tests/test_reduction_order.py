"""Reductions and scans in a stated order on emulated waves: the reference's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled

from tilewright_conformance.testlib import reduction_order
from tilewright_conformance.testlib.reduction_order import ORDERS, TREE

Array = np.ndarray[Any, Any]
ARCHS = ("gfx942", "gfx1100")


def run(kernel: Any, arch: str, num_warps: int, x: Array, out: Array, **constants: Any) -> None:
    code = compiled(kernel, "x=*fp32:16, out=*fp32:16", arch, constants, num_warps=num_warps)
    launched(code, [x, out])


def same_bits(
    kernel: Any,
    arch: str,
    num_warps: int,
    x: Array,
    extent: int | tuple[int, ...],
    **constants: Any,
) -> None:
    expected, found = (np.zeros(extent, np.float32) for _ in range(2))
    kernel[(1,)](x, expected, *constants.values(), backend="reference")
    run(kernel, arch, num_warps, x, found, **constants)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [32, 64, 512])
def test_probes_find_the_tree(n: int, num_warps: int, arch: str) -> None:
    pairs = reduction_order.some_pairs(n)
    pairs = pairs[:: max(1, len(pairs) // 16)][:16]
    for rows in (16,) if n < 512 else (1, 16):
        for start in range(0, len(pairs), rows if rows > 1 else 6):
            chosen = pairs[start : start + rows]
            if len(chosen) < rows:
                continue
            out = np.zeros(rows, np.float32)
            x = reduction_order.probes(n, chosen)
            run(reduction_order.sum_rows, arch, num_warps, x, out, N=n, ROWS=rows, ORDER=TREE)
            assert out.tolist() == [n - reduction_order.subtree(TREE, n, *pair) for pair in chosen]


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_layouts_do_not_change_bits(rows: int, num_warps: int, arch: str) -> None:
    for n in (32, 512 if rows < 16 else 64):
        x = reduction_order.spread((rows, n))
        for kernel in (reduction_order.sum_rows, reduction_order.mean_rows):
            same_bits(kernel, arch, num_warps, x, rows, N=n, ROWS=rows, ORDER=TREE)
        columns = np.ascontiguousarray(x.T)
        same_bits(
            reduction_order.sum_columns,
            arch,
            num_warps,
            columns,
            rows,
            N=n,
            COLUMNS=rows,
            ORDER=TREE,
        )


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("order", ORDERS)
def test_scans(order: str, num_warps: int, arch: str) -> None:
    for rows, n in ((1, 512 if order == TREE else 64), (16, 32)):
        x = reduction_order.spread((rows, n))
        for reverse in (False, True):
            constants = {"N": n, "ROWS": rows, "REVERSE": reverse, "ORDER": order}
            same_bits(reduction_order.scan_rows, arch, num_warps, x, (rows, n), **constants)


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_one_element_after_the_other(num_warps: int, arch: str) -> None:
    for rows, n in ((1, 64), (16, 32)):
        x = reduction_order.spread((rows, n))
        for kernel in (reduction_order.sum_rows, reduction_order.mean_rows):
            constants = {"N": n, "ROWS": rows, "ORDER": "sequential"}
            same_bits(kernel, arch, num_warps, x, rows, **constants)


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_matmuls_in_sequence(dtype: str, arch: str) -> None:
    m, n, k = 16, 32, 32
    kind = {"fp16": np.float16, "fp32": np.float32}[dtype]
    a, b = (reduction_order.spread(shape, 3).astype(kind) for shape in ((m, k), (k, n)))
    expected = reduction_order.spread((m, n), 4)
    for num_warps in (1, 4):
        found = reduction_order.spread((m, n), 4)
        code = compiled(
            reduction_order.multiply,
            f"a=*{dtype}:16, b=*{dtype}:16, c=*fp32:16",
            arch,
            {"M": m, "N": n, "K": k, "ORDER": "sequential"},
            num_warps=num_warps,
        )
        launched(code, [a, b, found])
        if num_warps == 1:
            reduction_order.multiply[(1,)](
                a, b, expected, m, n, k, "sequential", backend="reference"
            )
        assert found.tobytes() == expected.tobytes()
