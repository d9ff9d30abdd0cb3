"""Attention in exact mode: plain and flash, causal or not, and over pages of keys and values."""

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
from tilewright_conformance.cases.mixed.kernels.whole_kernel import blocks
from tilewright_conformance.kernels import exact_kernels, matrices
from tilewright_conformance.suite.case import Case

_HEADS, _LENGTH, _HEAD = 2, 24, 16


def cases() -> Iterator[Case]:
    for type_, causal in (("f32", False), ("f16", False), ("f16", True)):
        shape = (_HEADS, _LENGTH, _HEAD)
        operands = {name: drawn(type_, *shape) for name in ("q", "k", "v")}
        operands |= {"out": result(type_, *shape), "lse": result("f32", _HEADS, _LENGTH)}
        name = f"{'causal' if causal else 'full'}/{type_}"
        forms = (_flash(causal, 16, 16), _flash(causal, 32, 16), _plain(causal))
        yield exact_case(f"attention/flash/{name}", operands, *forms, dot="i8")
        if causal:
            yield exact_case(f"attention/native/{name}", operands, *forms, dot="native")
            yield exact_case(
                f"attention/blocks_without_mask/{name}",
                operands,
                *(_without_mask(rows, columns) for rows, columns in ((16, 16), (32, 16))),
                dot="i8",
            )
        else:
            yield exact_case(f"attention/plain/{name}", operands, _plain(False), _plain(False, 64))
    yield _paged()


def _paged() -> Case:
    """Decoding of one query each, whose keys and values lie in pages of one memory."""
    sequences, heads, kv_heads, depth, slots = 3, 4, 2, 16, 48
    numbers = np.random.default_rng(5)
    large = numbers.permutation(sequences * slots // 16).reshape(sequences, slots // 16)
    tables = {16: large.astype(np.int32)}
    for page in (8, 4):  # halves of the pages twice as large
        halves = tables[2 * page][..., None] * 2 + np.arange(2, dtype=np.int32)
        tables[page] = halves.reshape(sequences, slots // page).astype(np.int32)

    def run(page: int) -> Form:
        return form(
            matrices.paged_decode, (sequences, heads), "q", "k", "v", f"pages of {page}",
            "lengths", "out", depth**-0.5, heads, kv_heads, slots // page, PAGE=page, D=depth,
        )  # fmt: skip

    operands: Operands = {
        "q": drawn("f32", sequences, heads, depth),
        "k": drawn("f32", sequences * slots, kv_heads, depth),
        "v": drawn("f32", sequences * slots, kv_heads, depth),
        **{f"pages of {page}": table for page, table in tables.items()},
        "lengths": np.array([1, 37, 16], np.int32),
        "out": result("f32", sequences, heads, depth),
    }
    return exact_case("attention/paged/f32", operands, run(8), run(16), run(4))


def _plain(causal: bool, length: int = 32) -> Form:
    return form(
        exact_kernels.attention, (_LENGTH, _HEADS), "q", "k", "v", "out", "lse", _HEAD**-0.5,
        _LENGTH, CAUSAL=causal, LENGTH=length, HEAD=_HEAD,
    )  # fmt: skip


def _flash(causal: bool, rows: int, columns: int) -> Form:
    return form(
        exact_kernels.flash, (blocks(_LENGTH, rows), _HEADS), "q", "k", "v", "out", "lse",
        _HEAD**-0.5, _LENGTH, CAUSAL=causal, BM=rows, BN=columns, HEAD=_HEAD,
    )  # fmt: skip


def _without_mask(rows: int, columns: int) -> Form:
    return form(
        matrices.attention_forward, (blocks(_LENGTH, rows), _HEADS), "q", "k", "v", "out", "lse",
        _LENGTH, _HEAD**-0.5, D=_HEAD, BM=rows, BN=columns,
    )  # fmt: skip
