"""Kernels that go row by row in exact mode: softmax, losses, norms, sorting, quantizing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright_conformance.cases.exact.exact.exact_case import (
    Form,
    Operands,
    drawn,
    exact_case,
    form,
    result,
)
from tilewright_conformance.kernels import exact_kernels, rowwise_kernels, tiles
from tilewright_conformance.suite.case import Case

_ROWS, _COLUMNS = 4, 100


def cases() -> Iterator[Case]:
    yield from _softmax()
    yield from _losses()
    yield from _norms()
    yield from _orders()
    x, q = drawn("f32", _ROWS, _COLUMNS), np.full((_ROWS, _COLUMNS), 77, np.int8)
    yield exact_case(
        "quantise/i8",
        {"x": x, "q": q, "scale": result("f32", _ROWS)},
        *(
            form(
                rowwise_kernels.quantise, (_ROWS,), "x", "q", "scale", _COLUMNS,
                LARGEST=127.0, BLOCK=block,
            )
            for block in (128, 256)
        ),
    )  # fmt: skip
    yield exact_case(
        "rotary/f32",
        {"q": drawn("f32", 5, 3, 14), "cos": drawn("f32", 5, 7), "sin": drawn("f32", 5, 7)},
        *(
            form(
                rowwise_kernels.rotate, (5,), "q", "cos", "sin", 42, 3, 7,
                BACKWARD=False, HEADS=heads, HALF=half,
            )
            for heads, half in ((4, 8), (8, 16))
        ),
    )  # fmt: skip


def _softmax() -> Iterator[Case]:
    operands: Operands = {"x": drawn("f32", _ROWS, _COLUMNS), "out": result("f32", _ROWS, _COLUMNS)}

    def whole(block: int, maximum: bool = True) -> Form:
        constants = {"BLOCK": block, "MAXIMUM": maximum}
        return form(exact_kernels.softmax, (_ROWS,), "x", "out", _COLUMNS, **constants)

    def online(block: int) -> Form:
        return form(exact_kernels.softmax_online, (_ROWS,), "x", "out", _COLUMNS, BLOCK=block)

    yield exact_case("softmax/whole", operands, whole(128), whole(256), whole(128, False))
    yield exact_case("softmax/online", operands, online(32), online(64), whole(128), quick=True)
    yield exact_case(
        "softmax/with_lse",
        {**operands, "lse": result("f32", _ROWS)},
        *(
            form(tiles.online_softmax, (_ROWS,), "x", "out", "lse", _COLUMNS, BLOCK=block)
            for block in (32, 64)
        ),
    )


def _losses() -> Iterator[Case]:
    target = np.array([3, 99, 0, 40], np.int32)
    operands: Operands = {
        "x": drawn("f32", _ROWS, _COLUMNS),
        "target": target,
        "loss": result("f32", _ROWS),
    }
    arguments = ("x", "target", "loss", _COLUMNS)

    def online(block: int) -> Form:
        return form(exact_kernels.cross_entropy_online, (_ROWS,), *arguments, BLOCK=block)

    yield exact_case(
        "cross_entropy/online",
        operands,
        online(32),
        online(64),
        form(exact_kernels.cross_entropy, (_ROWS,), *arguments, BLOCK=128),
    )
    yield exact_case(
        "cross_entropy/and_gradient",
        operands,
        *(
            form(
                rowwise_kernels.cross_entropy, (_ROWS,), *arguments, _COLUMNS, -100,
                smoothing=0.125, HAS_CAP=False, cap=0.0, BLOCK=block,
            )
            for block in (32, 128)
        ),
    )  # fmt: skip


def _norms() -> Iterator[Case]:
    x = drawn("f16", _ROWS, _COLUMNS)
    operands: Operands = {
        "x": x,
        "out": result("f32", _ROWS, _COLUMNS),
        "w": drawn("f32", _COLUMNS),
        "b": drawn("f32", _COLUMNS),
        "mean": result("f32", _ROWS),
        "rstd": result("f32", _ROWS),
    }
    arguments = (*operands, _COLUMNS)

    def two_pass(block: int) -> Form:
        return form(exact_kernels.layer_norm, (_ROWS,), *arguments, 1e-5, BLOCK=block)

    def welford(block: int) -> Form:
        return form(exact_kernels.layer_norm_welford, (_ROWS,), *arguments, 1e-5, BLOCK=block)

    moments = form(
        exact_kernels.layer_norm_moments, (_ROWS,), *arguments, 1 / _COLUMNS, 1e-5, BLOCK=128
    )
    yield exact_case("layer_norm/two_pass", operands, two_pass(32), two_pass(128), quick=True)
    yield exact_case("layer_norm/welford", operands, welford(32), welford(64), two_pass(64))
    yield exact_case("layer_norm/moments", operands, moments, two_pass(64))
    yield exact_case(
        "rms_norm/f16",
        {"x": x, "w": drawn("f32", _COLUMNS), "y": result("f16", _ROWS, _COLUMNS),
         "rstd": result("f32", _ROWS)},
        *(
            form(
                rowwise_kernels.rms_norm_forward, (_ROWS,), "x", "w", "y", "rstd",
                _COLUMNS, _COLUMNS, 1e-6, BLOCK=block,
            )
            for block in (32, 128)
        ),
    )  # fmt: skip


def _orders() -> Iterator[Case]:
    x, columns = drawn("f32", _ROWS, 50), 50
    places = np.full((_ROWS, 4), 77, np.int32)
    yield exact_case(
        "sort/rows",
        {"x": x, "y": result("f32", _ROWS, columns)},
        *(
            form(
                rowwise_kernels.bitonic_rows, (1,), "x", "y", columns,
                DESCENDING=True, ROWS=_ROWS, BLOCK=block,
            )
            for block in (64, 128)
        ),
    )  # fmt: skip
    yield exact_case(
        "sort/by_key",
        {"x": x, "values": result("f32", _ROWS, 4), "places": places},
        *(
            form(
                rowwise_kernels.top_k, (_ROWS,), "x", "values", "places", columns, K=4, BLOCK=block
            )
            for block in (64, 128)
        ),
    )
    yield exact_case(
        "argmax/rows",
        {
            "x": x,
            "value": result("f32", _ROWS),
            "place": np.full(_ROWS, 77, np.int32),
            "lowest": np.full(_ROWS, 77, np.int32),
        },
        *(
            form(tiles.row_maxima, (_ROWS,), "x", "value", "place", "lowest", columns, BLOCK=block)
            for block in (16, 64)
        ),
    )
