"""Matmuls of every number of a format by one, of quantized rows, and with scales."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.fp8.fp8.fp8_case import BYTES, COMMON, TABLE, fp8_case
from tilewright_conformance.oracles.dtypes import IR, given
from tilewright_conformance.oracles.formats import FORMATS, format_of
from tilewright_conformance.oracles.matrix import E2M1, SCALED, bound
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session


@tw.jit
def by_unit(x_ptr, unit_ptr, out_ptr, M: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr):
    row, inner, column = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K)
    x = tl.load(x_ptr + row[:, None] * K + inner[None, :])
    unit = tl.load(unit_ptr + inner[:, None] * K + column[None, :])
    tl.store(out_ptr + row[:, None] * K + column[None, :], tl.dot(x, unit, out_dtype=OUT))


@tw.jit
def quantised(x_ptr, scale_ptr, w_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Quantize rows of fp32 to the weights' format by a scale, multiply, and scale back."""
    row, inner, column = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    x = tl.load(x_ptr + row[:, None] * K + inner[None, :])
    scale = tl.load(scale_ptr + row)
    w = tl.load(w_ptr + inner[:, None] * N + column[None, :])
    multiplied = tl.dot((x / scale[:, None]).to(w.dtype), w)
    tl.store(out_ptr + row[:, None] * N + column[None, :], multiplied * scale[:, None])


def _by_unit(name: str, accumulator: str, session: Session) -> None:
    """Each finite number of the format, times one."""
    form, size = FORMATS[name], 32
    finite = BYTES[np.isfinite(form.worth(BYTES))]
    bits = np.resize(finite, (16, size))
    unit = form.nearest(np.eye(size), "rtne").astype(np.uint8)
    found = np.zeros((16, size), np.float16 if accumulator == "f16" else np.float32)
    out = tl.float16 if accumulator == "f16" else tl.float32
    session.launch(
        by_unit, (1,), given(bits, name), given(unit, name), found, M=16, K=size, OUT=out
    )
    session.check(found, form.worth(bits), zero_sign=False)


def _quantised(name: str, session: Session) -> None:
    """Quantize by powers of two, so that only the rounding to the format counts.

    Additions of few bits are exact.
    """
    form = FORMATS[name]
    x = session.rng.standard_normal((16, 64)).astype(np.float32)
    scale = np.exp2(np.ceil(np.log2(np.abs(x).max(1) / form.maximum))).astype(np.float32)
    weights = form.nearest(session.rng.integers(-1, 2, (64, 32)).astype(np.float64), "rtne").astype(
        np.uint8
    )
    found = np.zeros((16, 32), np.float32)
    session.launch(quantised, (1,), x, scale, given(weights, name), found, M=16, N=32, K=64)
    rows = form.rounded((x / scale[:, None]).astype(np.float64))
    exact = rows @ form.worth(weights)
    lost = bound(rows, form.worth(weights), 0.0, "f32", imprecise=True)
    session.check(found, exact * scale[:, None], atol=lost * scale[:, None], zero_sign=False)


def matmul_cases(name: str) -> Iterator[Case]:
    text = IR[name]
    for accumulator in ("f32", "f16") if name in COMMON else ("f32",):
        pair = ("f16" if name == "float8e4b15" else text, accumulator)
        body = functools.partial(_by_unit, name, accumulator)
        types = (accumulator, "f16") if name == "float8e4b15" else (accumulator,)
        more: dict[str, Any] = {"dot": frozenset({pair}), "dot_shape": (16, 32, 32), "tile": 1024}
        yield fp8_case(
            name,
            f"dot/every-number-{accumulator}",
            "tl.dot",
            body,
            *types,
            quick=accumulator == "f32" and name in COMMON,
            **more,
        )
    pair = ("f16" if name == "float8e4b15" else text, "f32")
    types = ("f32", "f16") if name == "float8e4b15" else ("f32",)
    more = {"dot": frozenset({pair}), "dot_shape": (16, 32, 64), "tile": 2048}
    yield fp8_case(
        name,
        "dot/quantised",
        "tl.dot",
        functools.partial(_quantised, name),
        *types,
        quick=name == "float8e4nv",
        **more,
    )


# ---- block-scaled operands: every number of a format under many scales


@tw.jit
def scaled_by_unit(
    x_ptr,
    scale_ptr,
    unit_ptr,
    out_ptr,
    FORMAT: tl.constexpr,
    BYTES: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
):
    row, inner, column = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K)
    x = tl.load(x_ptr + row[:, None] * BYTES + tl.arange(0, BYTES)[None, :])
    scale = tl.load(scale_ptr + row[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    unit = tl.load(unit_ptr + inner[:, None] * K + column[None, :])
    out = tl.dot_scaled(x, scale, FORMAT, unit, None, "bf16")
    tl.store(out_ptr + row[:, None] * K + column[None, :], out)


def _scaled_unit(format_: str, session: Session) -> None:
    m, k = 16, 64
    if format_ == "e2m1":
        codes = np.resize(session.rng.permutation(BYTES), m * k // 2).reshape(m, k // 2)
        values = E2M1[np.stack([codes & 15, codes >> 4], -1).reshape(m, k)]
    else:
        form = format_of(SCALED[format_])
        finite = BYTES[np.isfinite(form.worth(BYTES))]
        codes = np.resize(session.rng.permutation(finite), m * k).reshape(m, k)
        values = form.worth(codes)
    scales = session.rng.integers(127 - 90, 127 + 90, (m, k // 32)).astype(np.uint8)
    scales[0], scales[1, 1] = 127, 255
    factor = np.where(scales == 255, np.nan, np.exp2(scales.astype(np.float64) - 127)).repeat(32, 1)
    unit = np.ascontiguousarray(
        (np.eye(k, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    )
    found = np.zeros((m, k), np.float32)
    options = {"FORMAT": format_, "BYTES": codes.shape[1], "M": m, "K": k}
    session.launch(scaled_by_unit, (1,), codes, scales, given(unit, "bfloat16"), found, **options)
    expected = values * factor
    expected[1] = np.nan  # a scale that is no number spoils its row
    session.check(found, expected, zero_sign=False)


def scaled_cases() -> Iterator[Case]:
    for format_ in ("e2m1", *SCALED):
        types = ("u8", "bf16", "f32", SCALED.get(format_, "u8"))
        body = functools.partial(_scaled_unit, format_)
        options: dict[str, Any] = {
            "features": {"dot_scaled"},
            "tile": 4096,
            "quick": format_ != "e5m2",
        }
        yield TABLE.case(f"scaled/{format_}/every-code", "tl.dot_scaled", body, *types, **options)
