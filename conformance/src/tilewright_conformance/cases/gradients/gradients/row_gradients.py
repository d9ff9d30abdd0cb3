"""Gradients of kernels that go row by row: softmax, losses, norms, orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.gradients.gradients.gradient_case import (
    Operand,
    Operands,
    form,
    gradient_case,
)
from tilewright_conformance.kernels import exact_kernels, gradient_kernels, rowwise_kernels, tiles
from tilewright_conformance.suite.case import Case

_ROWS, _N = 3, 50
_X, _OUT = Operand((_ROWS, _N)), Operand((_ROWS, _N), "nan")
_SPACED = Operand((_ROWS, _N), "spaced")
_LINE = {"x_ptr": _X, "out_ptr": _OUT}
_LOSS = Operand((_ROWS,), "nan")
_W, _B = Operand((_N,)), Operand((_N,))


def cases() -> Iterator[Case]:
    yield from _softmax()
    yield from _losses()
    yield from _norms()
    yield from _orders()


def _rows(kernel: Any, *blocks: int, **values: Any) -> list[Any]:
    """A form for each block size, a row a program."""
    return [form(kernel, (_ROWS,), BLOCK=block, **values) for block in blocks]


def _softmax() -> Iterator[Case]:
    whole = _rows(exact_kernels.softmax, 64, 128, n=_N)
    ends: dict[str, Any] = {"outputs": "out_ptr", "wrt": "x_ptr"}
    yield gradient_case("softmax/whole", _LINE, *whole, **ends, quick=True)
    yield gradient_case("softmax/saved", _LINE, *whole, **ends, saved="out_ptr")
    online = _rows(exact_kernels.softmax_online, 16, 32, n=_N)
    yield gradient_case("softmax/online", _LINE, *online, whole[0], **ends)
    yield gradient_case(
        "log_softmax/whole",
        _LINE,
        *_rows(gradient_kernels.log_softmax, 64, 128, n=_N),
        **ends,
    )


def _losses() -> Iterator[Case]:
    operands: Operands = {
        "x_ptr": _X,
        "target_ptr": np.array([3, _N - 1, 0], np.int32),
        "loss_ptr": _LOSS,
    }
    online = _rows(exact_kernels.cross_entropy_online, 16, 32, n=_N)
    yield gradient_case(
        "cross_entropy/online", operands, *online, outputs="loss_ptr", wrt="x_ptr", quick=True
    )
    yield gradient_case(
        "cross_entropy/whole",
        operands,
        *_rows(exact_kernels.cross_entropy, 64, 128, n=_N),
        outputs="loss_ptr",
        wrt="x_ptr",
        atomic=True,
    )
    yield gradient_case(
        "divergence/rows",
        {"x_ptr": _X, "y_ptr": Operand((_ROWS, _N), low=0.1), "out_ptr": _LOSS},
        *_rows(gradient_kernels.divergence, 16, 64, n=_N),
        outputs="out_ptr",
        wrt="x_ptr y_ptr",
    )


def _norms() -> Iterator[Case]:
    statistics = {"mean_ptr": _LOSS, "rstd_ptr": _LOSS}
    operands = {**_LINE, "w_ptr": _W, "b_ptr": _B, **statistics}
    ends: dict[str, Any] = {"outputs": "out_ptr", "wrt": "x_ptr w_ptr b_ptr"}
    two_pass = _rows(exact_kernels.layer_norm, 16, 64, n=_N, eps=1e-5)
    yield gradient_case("layer_norm/two_pass", operands, *two_pass, **ends)
    yield gradient_case("layer_norm/saved", operands, *two_pass, **ends, saved="mean_ptr rstd_ptr")
    yield gradient_case(
        "layer_norm/welford",
        operands,
        *_rows(exact_kernels.layer_norm_welford, 16, 32, n=_N, eps=1e-5),
        **ends,
    )
    yield gradient_case(
        "layer_norm/statistics",
        operands,
        *two_pass,
        outputs="mean_ptr rstd_ptr",
        wrt="x_ptr",
    )
    yield gradient_case(
        "rms_norm/rows",
        {"x_ptr": _X, "w_ptr": _W, "y_ptr": _OUT, "rstd_ptr": _LOSS},
        *_rows(rowwise_kernels.rms_norm_forward, 32, 64, stride=_N, columns=_N, eps=1e-6),
        outputs="y_ptr",
        wrt="x_ptr w_ptr",
        quick=True,
    )
    channels, size = 6, 7
    x = (2, channels, size)
    yield gradient_case(
        "group_norm/images",
        {
            "x_ptr": Operand(x),
            "w_ptr": Operand((channels,)),
            "b_ptr": Operand((channels,)),
            "out_ptr": Operand(x, "nan"),
        },
        *(
            form(
                gradient_kernels.group_norm, (2, 2), channels=channels, size=size, eps=1e-5,
                GROUP=3, BLOCK=block,
            )
            for block in (32, 64)
        ),
        outputs="out_ptr",
        wrt="x_ptr w_ptr b_ptr",
        atomic=True,
    )  # fmt: skip
    wide = 300
    yield gradient_case(
        "dynamic_tanh/wide_row",
        {
            "x_ptr": Operand((_ROWS, wide)),
            "alpha_ptr": Operand((1,), low=0.5),
            "w_ptr": Operand((wide,)),
            "out_ptr": Operand((_ROWS, wide), "nan"),
        },
        *_rows(gradient_kernels.dynamic_tanh, 512, 1024, n=wide),
        outputs="out_ptr",
        wrt="x_ptr alpha_ptr w_ptr",
        quick=True,
    )
    yield gradient_case(
        "welford/rows",
        {"x_ptr": _X, "mean_ptr": _LOSS, "variance_ptr": _LOSS},
        *_rows(tiles.welford, 16, 32, columns=_N),
        outputs="mean_ptr variance_ptr",
        wrt="x_ptr",
    )


def _orders() -> Iterator[Case]:
    yield gradient_case(
        "sort/rows",
        {"x_ptr": Operand((2, _N), "spaced"), "y_ptr": Operand((2, _N), "nan")},
        *(
            form(
                rowwise_kernels.bitonic_rows, (1,), columns=_N, DESCENDING=True, ROWS=2, BLOCK=block
            )
            for block in (64, 128)
        ),
        outputs="y_ptr",
        wrt="x_ptr",
    )
    yield gradient_case(
        "top_k/rows",
        {"x_ptr": _SPACED, "out_ptr": Operand((_ROWS, 4), "nan")},
        *_rows(gradient_kernels.top_values, 64, 128, n=_N, K=4),
        outputs="out_ptr",
        wrt="x_ptr",
    )
    windows = 20
    yield gradient_case(
        "max_pool/line",
        {"x_ptr": Operand((windows * 4,), "spaced"), "out_ptr": Operand((windows,), "nan")},
        *(
            form(gradient_kernels.max_pool, (-(-windows // block),), n=windows, WINDOW=4,
                 BLOCK=block)
            for block in (8, 32)
        ),
        outputs="out_ptr",
        wrt="x_ptr",
    )  # fmt: skip
    yield gradient_case(
        "maximum/over_blocks",
        {
            "x_ptr": _SPACED,
            "value_ptr": _LOSS,
            "place_ptr": np.full(_ROWS, 77, np.int32),
            "lowest_ptr": np.full(_ROWS, 77, np.int32),
        },
        *_rows(tiles.row_maxima, 16, 64, columns=_N),
        outputs="value_ptr",
        wrt="x_ptr",
    )
