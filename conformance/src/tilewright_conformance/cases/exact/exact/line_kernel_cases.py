"""Scans, activations, gathers and neighbors in exact mode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright_conformance.cases.exact.exact.exact_case import (
    Form,
    drawn,
    exact_case,
    form,
    result,
)
from tilewright_conformance.cases.mixed.kernels.whole_kernel import blocks
from tilewright_conformance.kernels import exact_kernels, rowwise_kernels, tiles
from tilewright_conformance.suite.case import Case

_N = 200


def cases() -> Iterator[Case]:
    yield from _scans()
    yield from _activations()
    yield from _indexed()
    yield from _neighbors()


def _scans() -> Iterator[Case]:
    line = {"x": drawn("f32", _N), "out": result("f32", _N)}
    yield exact_case(
        "prefix_sum/blocks",
        line,
        *(form(exact_kernels.prefix_blocks, (1,), "x", "out", _N, BLOCK=size) for size in (32, 64)),
        form(exact_kernels.prefix_whole, (1,), "x", "out", _N, BLOCK=256),
        quick=True,
    )
    n = 60
    pair = {"a": drawn("f32", n), "b": drawn("f32", n), "out": result("f32", n)}
    yield exact_case(
        "recurrence/scan",
        pair,
        *(form(exact_kernels.recurrence_scan, (1,), *pair, n, BLOCK=block) for block in (64, 128)),
        form(exact_kernels.recurrence_loop, (1,), *pair, n),
    )
    length, channels, states = 40, 3, 8
    operands = {
        "x": drawn("f32", length, channels),
        "delta": drawn("f32", length, channels),
        "a": drawn("f32", channels, states),
        "b": drawn("f32", length, states),
        "c": drawn("f32", length, states),
        "y": result("f32", length, channels),
    }
    for reverse in (False, True):
        yield exact_case(
            f"selective_scan/{'backwards' if reverse else 'forwards'}",
            operands,
            *(
                form(
                    rowwise_kernels.selective_scan, (channels,), *operands, length, channels,
                    REVERSE=reverse, STATES=states, CHUNK=chunk,
                )
                for chunk in (16, 32)
            ),
        )  # fmt: skip


def _activations() -> Iterator[Case]:
    line = {"x": drawn("f32", _N), "out": result("f32", _N)}

    def activation(name: str, block: int) -> Form:
        grid = (blocks(_N, block),)
        return form(exact_kernels.activation, grid, "x", "out", _N, BLOCK=block, FORM=name)

    for name, other in (("silu", "silu by exp2"), ("gelu", "gelu by sigmoid")):
        yield exact_case(
            f"{name}/f32", line, activation(name, 64), activation(name, 128), activation(other, 64)
        )
    rows, columns = 9, 20
    yield exact_case(
        "residual/silu/f16",
        {
            "x": drawn("f16", rows, columns),
            "bias": drawn("f32", columns),
            "residual": drawn("f16", rows, columns),
            "out": result("f16", rows, columns),
        },
        *(
            form(
                tiles.activated, (blocks(rows, height), blocks(columns, width)),
                "x", "bias", "residual", "out", rows, columns,
                FN=tiles.silu, ROWS=height, COLUMNS=width,
            )
            for height, width in ((4, 16), (16, 8))
        ),
    )  # fmt: skip


def _indexed() -> Iterator[Case]:
    width, count = 20, 13
    index = np.array([4, 0, -1, 6, 6, 2, 5, -1, 1, 3, 0, 4, 2], np.int32)
    yield exact_case(
        "gather/rows",
        {"table": drawn("f16", 7, width), "index": index, "out": result("f16", count, width)},
        *(
            form(
                tiles.embedding, (blocks(count, block),), "table", "index", "out", count, width,
                WIDTH=32, BLOCK=block,
            )
            for block in (4, 16)
        ),
    )  # fmt: skip
    starts = np.array([0, 10, 11, 50, 50, 90], np.int32)
    yield exact_case(
        "segments/totals",
        {
            "x": drawn("f32", 90),
            "starts": starts,
            "out": result("f32", 5),
            "most": result("f32", 5),
        },
        *(
            form(tiles.segment_totals, (5,), "x", "starts", "out", "most", BLOCK=block)
            for block in (16, 32)
        ),
    )
    yield exact_case(
        "sparse/times_vector",
        {
            "values": drawn("f32", 90),
            "columns": np.random.default_rng(4).integers(0, 30, 90).astype(np.int32),
            "starts": starts,
            "x": drawn("f32", 30),
            "y": result("f32", 5),
        },
        *(
            form(
                tiles.sparse_times_vector, (5,), "values", "columns", "starts", "x", "y",
                BLOCK=block,
            )
            for block in (16, 32)
        ),
    )  # fmt: skip
    yield exact_case(
        "group_scale/f32",
        {"x": drawn("f32", 4, 50), "scale": drawn("f32", 4), "out": result("f32", 4, 50)},
        *(
            form(
                exact_kernels.group_scale, (blocks(_N, block),), "x", "scale", "out", 4, 50,
                BLOCK=block,
            )
            for block in (64, 128)
        ),
    )  # fmt: skip


def _neighbors() -> Iterator[Case]:
    yield exact_case(
        "stencil/f32",
        {"x": drawn("f32", _N), "w": drawn("f32", 5), "y": result("f32", _N)},
        *(
            form(tiles.stencil, (blocks(_N, block),), "x", "w", "y", _N, REACH=2, BLOCK=block)
            for block in (64, 128)
        ),
    )
    rows, columns = 9, 20
    yield exact_case(
        "heat/torus",
        {"x": drawn("f32", rows, columns), "y": result("f32", rows, columns)},
        *(
            form(
                tiles.five_points, (blocks(rows, height), blocks(columns, width)), "x", "y",
                rows, columns, 0.1, ROWS=height, COLUMNS=width,
            )
            for height, width in ((4, 16), (16, 8))
        ),
    )  # fmt: skip
    yield exact_case(
        "transpose/f16",
        {"x": drawn("f16", rows, columns), "y": result("f16", columns, rows)},
        *(
            form(
                tiles.transpose, (blocks(rows, block), blocks(columns, block)), "x", "y",
                rows, columns, BLOCK=block,
            )
            for block in (8, 16)
        ),
    )  # fmt: skip
