"""Atomic updates of floats in exact mode: additions of residues, and keys of extrema."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright_conformance.cases.exact.exact.exact_case import (
    Form,
    Operands,
    drawn,
    exact_case,
    form,
    zeros,
)
from tilewright_conformance.cases.mixed.kernels.whole_kernel import blocks
from tilewright_conformance.kernels import atomic_kernels, exact_kernels, tiles
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    yield from _additions()
    yield _extrema()


def _additions() -> Iterator[Case]:
    count, width = 13, 20
    index = np.array([4, 0, -1, 6, 6, 2, 5, -1, 1, 3, 0, 4, 2], np.int32)
    operands: Operands = {
        "grad": drawn("f32", count, width),
        "index": index,
        "table": drawn("f32", 7, width),
    }
    yield exact_case(
        "atomic_add/embedding_gradient",
        operands,
        *(
            form(
                atomic_kernels.gradient_by_tiles, (blocks(count, rows),), *operands, count, width,
                ROWS=rows, WIDTH=32,
            )
            for rows in (8, 16)
        ),
        form(tiles.embedding_gradient, (count,), *operands, width, WIDTH=32),
        form(
            atomic_kernels.gradient_by_table_row, (7,), *operands, count, width, WIDTH=32
        ),
        atomics={("f32", "add"), ("i64", "add")},
    )  # fmt: skip
    m, n, k = 35, 27, 45

    def split(parts: int) -> Form:
        return form(
            exact_kernels.matmul_parts, (blocks(m, 16), blocks(n, 16), parts), "a", "b", "c",
            m, n, k, SPLIT=parts, BLOCK=16, ATOMIC=True,
        )  # fmt: skip

    tiled = form(
        exact_kernels.matmul_tiled, (blocks(m, 32) * blocks(n, 32),), "a", "b", "c", m, n, k,
        BM=32, BN=32, BK=16,
    )  # fmt: skip
    for type_ in ("f16", "f32"):
        yield exact_case(
            f"atomic_add/split_k/{type_}",
            {"a": drawn("f16", m, k), "b": drawn("f16", k, n), "c": zeros(type_, m, n)},
            split(1),
            split(3),
            tiled,
            dot="i8",
            atomics={(type_, "add"), ("i64", "add")},
        )


def _extrema() -> Case:
    rows, columns = 4, 100
    arguments = ("x", "low", "high", columns)

    def run(block: int, atomic: bool) -> Form:
        grid = (rows, blocks(columns, block))
        constants = {"BLOCK": block, "ATOMIC": atomic}
        return form(atomic_kernels.row_extrema, grid, *arguments, **constants)

    return exact_case(
        "atomic_extrema/rows",
        {"x": drawn("f32", rows, columns), "low": drawn("f32", rows), "high": drawn("f32", rows)},
        run(16, True),
        run(64, True),
        run(128, False),
        atomics={("f32", "min"), ("f32", "max"), ("i32", "min"), ("i32", "max")},
    )
