"""Gradients of gates, rotations, scans, gathers, neighbors, dropout and descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.gradients.gradients.gradient_case import (
    Operand,
    form,
    gradient_case,
)
from tilewright_conformance.cases.mixed.kernels.whole_kernel import blocks
from tilewright_conformance.kernels import (
    exact_kernels,
    gradient_kernels,
    rowwise_kernels,
    tiles,
)
from tilewright_conformance.suite.case import Case

_N = 100
_X, _OUT = Operand((_N,)), Operand((_N,), "nan")
_LINE = {"x_ptr": _X, "out_ptr": _OUT}


def cases() -> Iterator[Case]:
    yield from _gates()
    yield from _scans()
    yield from _indexed()
    yield from _neighbors()
    yield from _described()
    yield from _triangles()


def _lines(kernel: Any, *sizes: int, per: int = 1, **values: Any) -> list[Any]:
    """A form for each block size, ``per`` blocks a program."""
    return [form(kernel, (blocks(_N, per * size),), n=_N, BLOCK=size, **values) for size in sizes]


def _gates() -> Iterator[Case]:
    operands = {"gate_ptr": _X, "up_ptr": _X, "out_ptr": _OUT}
    for name in ("silu", "gelu"):
        yield gradient_case(
            f"gated/{name}",
            operands,
            *_lines(gradient_kernels.gated, 32, 64, FORM=name),
            outputs="out_ptr",
            wrt="gate_ptr up_ptr",
            quick=name == "silu",
        )
    ends: dict[str, Any] = {"outputs": "out_ptr", "wrt": "x_ptr"}
    for name, other in (("silu", "silu by exp2"), ("gelu", "gelu by sigmoid")):
        yield gradient_case(
            f"activation/{name}",
            _LINE,
            *_lines(exact_kernels.activation, 32, 64, FORM=name),
            *_lines(exact_kernels.activation, 32, FORM=other),
            **ends,
        )
    rows, columns = 5, 20
    yield gradient_case(
        "residual/gelu",
        {
            "x_ptr": Operand((rows, columns)),
            "bias_ptr": Operand((columns,)),
            "residual_ptr": Operand((rows, columns)),
            "out_ptr": Operand((rows, columns), "nan"),
        },
        *(
            form(
                tiles.activated, (blocks(rows, r), blocks(columns, c)), rows=rows, columns=columns,
                FN=tiles.gelu, ROWS=r, COLUMNS=c,
            )
            for r, c in ((4, 8), (8, 32))
        ),
        outputs="out_ptr",
        wrt="x_ptr bias_ptr residual_ptr",
    )  # fmt: skip
    heads, half = 3, 5
    x = (4, heads, 2 * half)
    yield gradient_case(
        "rotary/heads",
        {
            "x_ptr": Operand(x),
            "cos_ptr": Operand((4, half)),
            "sin_ptr": Operand((4, half)),
            "out_ptr": Operand(x, "nan"),
        },
        *(
            form(gradient_kernels.rotated, (4,), heads=heads, half=half, HEADS=h, HALF=c)
            for h, c in ((4, 8), (8, 16))
        ),
        outputs="out_ptr",
        wrt="x_ptr cos_ptr sin_ptr",
        atomic=True,
    )
    yield gradient_case(
        "dropout/line",
        {"x_ptr": _X, "y_ptr": _OUT},
        *_lines(rowwise_kernels.dropout, 32, per=4, p=0.3, seed=7),
        outputs="y_ptr",
        wrt="x_ptr",
        atomic=True,
    )


def _scans() -> Iterator[Case]:
    ends: dict[str, Any] = {"outputs": "out_ptr", "wrt": "x_ptr"}
    one = [form(exact_kernels.prefix_blocks, (1,), n=_N, BLOCK=size) for size in (32, 64)]
    whole = form(exact_kernels.prefix_whole, (1,), n=_N, BLOCK=128)
    yield gradient_case("prefix_sum/line", _LINE, *one, whole, **ends)
    n = 40
    pair = {"a_ptr": Operand((n,)), "b_ptr": Operand((n,)), "out_ptr": Operand((n,), "nan")}
    ends = {"outputs": "out_ptr", "wrt": "a_ptr b_ptr"}
    scans = [form(exact_kernels.recurrence_scan, (1,), n=n, BLOCK=block) for block in (64, 128)]
    yield gradient_case("recurrence/scan", pair, *scans, **ends, quick=True)
    loop = form(exact_kernels.recurrence_loop, (1,), n=n)
    yield gradient_case("recurrence/loop", pair, loop, scans[0], **ends)
    length, channels, states = 20, 2, 4
    operands = {
        "x_ptr": Operand((length, channels)),
        "delta_ptr": Operand((length, channels), low=0.1),
        "a_ptr": Operand((channels, states), high=-0.1),
        "b_ptr": Operand((length, states)),
        "c_ptr": Operand((length, states)),
        "y_ptr": Operand((length, channels), "nan"),
    }
    yield gradient_case(
        "selective_scan/forwards",
        operands,
        *(
            form(
                rowwise_kernels.selective_scan, (channels,), length=length, channels=channels,
                REVERSE=False, STATES=states, CHUNK=chunk,
            )
            for chunk in (8, 16)
        ),
        outputs="y_ptr",
        wrt="x_ptr delta_ptr a_ptr b_ptr c_ptr",
        atomic=True,
    )  # fmt: skip


def _indexed() -> Iterator[Case]:
    count, width = 13, 20
    yield gradient_case(
        "embedding/rows",
        {
            "table_ptr": Operand((7, width)),
            "index_ptr": np.array([4, 0, -1, 6, 6, 2, 5, -1, 1, 3, 0, 4, 2], np.int32),
            "out_ptr": Operand((count, width), "nan"),
        },
        *(
            form(
                tiles.embedding, (blocks(count, block),), count=count, width=width, WIDTH=32,
                BLOCK=block,
            )
            for block in (4, 16)
        ),
        outputs="out_ptr",
        wrt="table_ptr",
        atomic=True,
        quick=True,
    )  # fmt: skip
    starts = np.array([0, 4, 4, 11], np.int32)
    yield gradient_case(
        "sparse_matrix/rows",
        {
            "values_ptr": Operand((11,)),
            "columns_ptr": np.array([1, 3, 5, 7, 0, 1, 2, 3, 4, 5, 6], np.int32),
            "starts_ptr": starts,
            "x_ptr": Operand((8,)),
            "y_ptr": Operand((3,), "nan"),
        },
        *(form(tiles.sparse_times_vector, (3,), BLOCK=block) for block in (4, 8)),
        outputs="y_ptr",
        wrt="values_ptr x_ptr",
        atomic=True,
    )
    yield gradient_case(
        "group_scale/line",
        {"x_ptr": _X, "s_ptr": Operand((5,)), "out_ptr": _OUT},
        *(
            form(exact_kernels.group_scale, (blocks(_N, block),), rows=5, n=20, BLOCK=block)
            for block in (16, 64)
        ),
        outputs="out_ptr",
        wrt="x_ptr s_ptr",
        atomic=True,
    )


def _neighbors() -> Iterator[Case]:
    yield gradient_case(
        "convolution/line",
        {"x_ptr": _X, "w_ptr": Operand((5,)), "y_ptr": _OUT},
        *_lines(tiles.stencil, 32, 64, REACH=2),
        outputs="y_ptr",
        wrt="x_ptr w_ptr",
        atomic=True,
    )
    rows, columns = 9, 12
    yield gradient_case(
        "stencil/torus",
        {"x_ptr": Operand((rows, columns)), "y_ptr": Operand((rows, columns), "nan")},
        *(
            form(
                tiles.five_points, (blocks(rows, r), blocks(columns, c)), rows=rows,
                columns=columns, alpha=0.3, ROWS=r, COLUMNS=c,
            )
            for r, c in ((4, 8), (8, 16))
        ),
        outputs="y_ptr",
        wrt="x_ptr",
        atomic=True,
    )  # fmt: skip
    yield gradient_case(
        "transpose/matrix",
        {"x_ptr": Operand((rows, columns)), "y_ptr": Operand((columns, rows), "nan")},
        *(
            form(
                tiles.transpose, (blocks(rows, block), blocks(columns, block)), rows=rows,
                columns=columns, BLOCK=block,
            )
            for block in (4, 16)
        ),
        outputs="y_ptr",
        wrt="x_ptr",
    )  # fmt: skip


def _described() -> Iterator[Case]:
    rows, columns = 10, 28
    for r, c in ((4, 8), (8, 16)):
        operands = {
            name: Operand((rows, columns), contents, block=(r, c))
            for name, contents in (("x", "drawn"), ("y", "drawn"), ("out", "nan"))
        }
        yield gradient_case(
            f"descriptor/{r}x{c}",
            operands,
            form(
                gradient_kernels.scaled_blocks, (blocks(rows, r), blocks(columns, c)), ROWS=r,
                COLUMNS=c,
            ),
            outputs="out",
            wrt="x y",
            features={"descriptors"},
        )  # fmt: skip
    index = np.array([3, 0, 9, 3, 3, 7, 1, 0], np.int32)
    yield gradient_case(
        "descriptor/gather",
        {
            "x": Operand((rows, 16), block=(1, 16)),
            "index_ptr": index,
            "out_ptr": Operand((len(index), 16), "nan"),
        },
        form(gradient_kernels.gathered_rows, (1,), n=len(index), R=8, C=16),
        outputs="out_ptr",
        wrt="x",
        features={"descriptors"},
        atomic=True,
    )


def _triangles() -> Iterator[Case]:
    yield gradient_case(
        "lower_triangle/two_loops",
        {"x_ptr": _X, "w_ptr": _X, "out_ptr": _OUT},
        *(
            form(gradient_kernels.lower_triangle, (blocks(_N, b),), n=_N, B=b, S=s)
            for b, s in ((16, 4), (32, 16))
        ),
        outputs="out_ptr",
        wrt="x_ptr w_ptr",
        quick=True,
    )
