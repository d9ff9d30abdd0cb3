"""Whole kernels around matmuls: blocked, persistent, grouped, split along K, quantized.

Matmuls through descriptors, attention and convolution are here, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright_conformance.cases.mixed.kernels.whole_kernel import (
    Array,
    blocks,
    normal,
    poisoned,
    whole,
)
from tilewright_conformance.kernels import matrices
from tilewright_conformance.oracles import attention, matrix
from tilewright_conformance.oracles import rowwise as oracles
from tilewright_conformance.oracles.dtypes import spacing, storage
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.placement import Addresses
from tilewright_conformance.suite.session import Session

#: what attention may be off by, its weights being rounded to the operands' type
_CLOSE = {"f32": 1e-4, "f16": 8e-3}


def cases() -> Iterator[Case]:
    for type_ in ("f32", "f16", "bf16"):
        for programs in (0, 3):
            body = functools.partial(_matmul, type_, programs)
            name = "persistent" if programs else "grouped"
            yield _matmul_case(
                f"matmul/{name}/{type_}", body, type_, (32, 32, 16), quick=type_ != "f32"
            )
    yield _matmul_case(
        "matmul/leaky_relu/f16",
        functools.partial(_matmul, "f16", 0, activation=True),
        "f16",
        (32, 32, 16),
    )
    yield _matmul_case("matmul/problems_in_one_launch", _problems, "f32", (16, 16, 8), quick=True)
    for type_ in ("f32", "f16"):
        for split in (1, 3):
            atomics: set[tuple[str, str]] = {("f32", "add")} if split > 1 else set()
            own: dict[str, Any] = {
                "quick": split > 1 and type_ == "f16",
                "profile": "atomics" if split > 1 else "matmul",
                "atomics": atomics,
            }
            yield _matmul_case(
                f"matmul/split_{split}/{type_}",
                functools.partial(_split, type_, split),
                type_,
                (8, 16, 16),
                **own,
            )
    yield _matmul_case("matmul/int4_weights", _four_bits, "f32", (16, 16, 32), quick=True)
    yield whole(
        "matmul/int8_scaled",
        "matmul",
        _int8,
        "i8 f32",
        quick=True,
        dot={("i8", "i32")},
        dot_shape=(32, 32, 32),
    )
    for type_ in ("f32", "f16"):
        yield _matmul_case(
            f"matmul/gated_mlp/{type_}",
            functools.partial(_gated, type_),
            type_,
            (16, 32, 32),
            quick=type_ == "f16",
        )
        for made_on in ("host", "device"):
            own = {
                "quick": (type_, made_on) == ("f16", "host"),
                "profile": "descriptors",
                "features": {"descriptors"},
            }
            yield _matmul_case(
                f"matmul/batched_descriptors/{made_on}/{type_}",
                functools.partial(_described, type_, made_on),
                type_,
                (32, 32, 16),
                **own,
            )
        for causal in (True, False):
            name = "causal" if causal else "full"
            quick = (type_, causal) in (("f32", False), ("f16", True))
            yield _matmul_case(
                f"attention/forward/{name}/{type_}",
                functools.partial(_attention, type_, causal, False),
                type_,
                (16, 16, 16),
                quick=quick,
            )
            yield _matmul_case(
                f"attention/gradients/{name}/{type_}",
                functools.partial(_attention, type_, causal, True),
                type_,
                (16, 16, 16),
                quick=quick and causal,
            )
    for causal in (True, False):
        name = "causal" if causal else "full"
        body = functools.partial(_attention, "f16", causal, False, depth=64, block=(64, 32))
        yield _matmul_case(
            f"attention/forward/{name}/f16_depth_64", body, "f16", (64, 32, 32), quick=causal
        )
        body = functools.partial(_attention, "f16", causal, True, depth=64, block=(32, 32))
        yield _matmul_case(f"attention/gradients/{name}/f16_depth_64", body, "f16", (32, 32, 32))
    yield whole("attention/decode_over_pages", "math", _paged, quick=True)
    for stride, pad in ((1, 1), (2, 0)):
        yield _matmul_case(
            f"convolution/stride_{stride}_pad_{pad}",
            functools.partial(_convolution, stride, pad),
            "f32",
            (32, 16, 16),
            quick=stride == 2,
        )


def _matmul_case(
    id_: str,
    body: Any,
    type_: str,
    shape: tuple[int, int, int],
    *,
    profile: str = "matmul",
    quick: bool = False,
    **needs: Any,
) -> Case:
    return whole(
        id_,
        profile,
        body,
        f"f32 {type_}",
        quick=quick,
        dot={(type_, "f32")},
        dot_shape=shape,
        **needs,
    )


def _close(
    session: Session, found: Array, a: Array, b: Array, *, rounded: str = "", name: str = "c"
) -> None:
    """Compare a matmul accumulated in f32 with the one in float64, within the accumulation bound.

    The result may be ``rounded`` to another type.
    """
    wide = a.astype(np.float64), b.astype(np.float64)
    rtol = spacing(rounded) if rounded else 0.0
    session.check(
        found,
        np.matmul(*wide),
        atol=matrix.bound(*wide, 0.0, "f32"),
        rtol=rtol,
        zero_sign=False,
        name=name,
    )


def _matmul(type_: str, programs: int, session: Session, *, activation: bool = False) -> None:
    for m, n, k in ((1, 1, 1), (33, 65, 17), (70, 40, 50)):
        a, b = matrix.spread(session.rng, type_, m, k), matrix.spread(session.rng, type_, k, n)
        c = poisoned(m, n)
        grid = (programs or blocks(m, 32) * blocks(n, 32),)
        options = {
            "PROGRAMS": programs,
            "GROUP": 2,
            "ACTIVATION": matrices.leaky_relu if activation else None,
            "BM": 32,
            "BN": 32,
            "BK": 16,
        }
        session.launch(matrices.blocked_matmul, grid, a.given, b.given, c, m, n, k, **options)
        if activation:
            exact = a.values @ b.values
            session.check(
                c,
                np.where(exact >= 0, exact, 0.01 * exact),
                atol=matrix.bound(a.values, b.values, 0.0, "f32"),
                rtol=1e-6,
                zero_sign=False,
            )
        else:
            _close(session, c, a.values, b.values)


def _problems(session: Session) -> None:
    sizes = [(33, 17, 20), (5, 40, 7), (64, 1, 16)]
    a, b, c = (
        [normal(session, m, k) for m, n, k in sizes],
        [normal(session, k, n) for m, n, k in sizes],
        [poisoned(m, n) for m, n, k in sizes],
    )
    tables = [Addresses(arrays) for arrays in (a, b, c)]
    session.launch(
        matrices.grouped_matmul,
        (3,),
        *tables,
        np.array(sizes, np.int32).ravel(),
        len(sizes),
        GROUP=2,
        BM=16,
        BN=16,
        BK=8,
    )
    for x, y, found in zip(a, b, c, strict=True):
        _close(session, found, x, y)


def _split(type_: str, split: int, session: Session) -> None:
    m, n, k = 16, 32, 75
    a, b = normal(session, m, k, dtype=storage(type_)), normal(session, n, k, dtype=storage(type_))
    c = np.zeros((m, n), np.float32)
    session.launch(
        matrices.split_k,
        (2 * 2, split),
        a,
        b,
        c,
        m,
        n,
        k,
        k,
        1,
        1,
        k,
        n,
        1,
        BM=8,
        BN=16,
        BK=16,
        SPLIT=split,
    )
    _close(session, c, a, b.T)


def _four_bits(session: Session) -> None:
    m, n, k, group = 5, 24, 48, 16
    weights, zeros = (
        session.rng.integers(0, 16, (k, n)),
        session.rng.integers(0, 16, (k // group, n)),
    )
    nibble = np.arange(8) * 4
    packed = (
        (weights.reshape(k // 8, 8, n) << nibble[None, :, None])
        .sum(1)
        .astype(np.uint32)
        .view(np.int32)
    )
    packed_zeros = (
        (zeros.reshape(k // group, n // 8, 8) << nibble).sum(-1).astype(np.uint32).view(np.int32)
    )
    scales, x, y = normal(session, k // group, n), normal(session, m, k), poisoned(m, n)
    session.launch(
        matrices.int4_matmul,
        (1, 2),
        x,
        packed,
        scales,
        packed_zeros,
        y,
        m,
        n,
        k,
        GROUP=group,
        BM=16,
        BN=16,
        BK=32,
    )
    # a weight times its scale is rounded once
    _close(
        session,
        y,
        x,
        (weights - zeros.repeat(group, 0)) * scales.astype(np.float64).repeat(group, 0),
    )


def _int8(session: Session) -> None:
    for m, n, k in ((33, 40, 70), (5, 3, 32)):
        a, b = (
            session.rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (n, k))
        )
        left, right = (
            np.exp2(session.rng.integers(-8, 0, m)).astype(np.float32),
            np.exp2(session.rng.integers(-8, 0, n)).astype(np.float32),
        )
        c = poisoned(m, n)
        session.launch(
            matrices.int8_matmul,
            (blocks(m, 32), blocks(n, 32)),
            a,
            b,
            left,
            right,
            c,
            m,
            n,
            k,
            BM=32,
            BN=32,
            BK=32,
        )
        # results below 2**24 and scales that are powers of two: exact
        session.check(
            c, (a.astype(np.float64) @ b.T) * left[:, None] * right[None, :], zero_sign=False
        )


def _gated(type_: str, session: Session) -> None:
    dtype = storage(type_).type
    m, n, k = 21, 40, 70
    x, gate, up = (
        normal(session, m, k, dtype=dtype),
        normal(session, k, n, dtype=dtype) / dtype(8),
        normal(session, k, n, dtype=dtype) / dtype(8),
    )
    y = poisoned(m, n, dtype=dtype)
    session.launch(
        matrices.gated_mlp,
        (blocks(m, 16), blocks(n, 32)),
        x,
        gate,
        up,
        y,
        m,
        n,
        k,
        BM=16,
        BN=32,
        BK=32,
    )
    wide = x.astype(np.float64)
    session.check(
        y,
        oracles.silu(wide @ gate) * (wide @ up),
        rtol=2e-5 if type_ == "f32" else 2.0**-10,
        atol=5e-5,
        zero_sign=False,
    )


def _described(type_: str, made_on: str, session: Session) -> None:
    """Multiply rows of a multiple of 16 bytes, as descriptors ask for.

    Blocks hang over every edge of a batch.
    """
    dtype = storage(type_)
    count, m, n, k = 3, 41, 56, 40
    a, b, c = (
        normal(session, count, m, k, dtype=dtype),
        normal(session, count, k, n, dtype=dtype),
        poisoned(count, m, n, dtype=dtype),
    )
    grid = (blocks(m, 32), blocks(n, 32), count)
    sizes = {"BM": 32, "BN": 32, "BK": 16}
    if made_on == "host":
        described = [
            TensorDescriptor.from_tensor(array, [1, *block])
            for array, block in ((a, (32, 16)), (b, (16, 32)), (c, (32, 32)))
        ]
        session.launch(matrices.described_matmul, grid, *described, k, **sizes)
    else:
        session.launch(matrices.describing_matmul, grid, a, b, c, count, m, n, k, **sizes)
    _close(session, c, a, b, rounded=type_ if type_ == "f16" else "")


def _attention(
    type_: str,
    causal: bool,
    backward: bool,
    session: Session,
    *,
    depth: int = 16,
    block: tuple[int, int] = (16, 16),
) -> None:
    rows, columns = block
    for heads, length in ((2, 43), (1, 1)) if backward else ((2, 43), (1, 64), (3, 5), (1, 150)):
        q, k, v, do = (
            normal(session, heads, length, depth, dtype=storage(type_)) for _ in range(4)
        )
        scale, close = depth**-0.5, _CLOSE[type_]
        wanted, wanted_lse = attention.forward(q, k, v, scale, causal)
        grid = (blocks(length, rows), heads)
        if not backward:
            o, lse = poisoned(heads, length, depth, dtype=storage(type_)), poisoned(heads, length)
            session.launch(
                matrices.attention_forward,
                grid,
                q,
                k,
                v,
                o,
                lse,
                length,
                scale,
                D=depth,
                BM=rows,
                BN=columns,
                CAUSAL=causal,
            )
            session.check(o, wanted, rtol=close, atol=close / 2, zero_sign=False, name="attention")
            session.check(lse, wanted_lse, rtol=1e-5, atol=2e-5, name="log of the denominators")
            continue
        dq, dk, dv = (poisoned(heads, length, depth) for _ in range(3))
        lse, delta = wanted_lse.astype(np.float32), (wanted * do).sum(-1).astype(np.float32)
        session.launch(
            matrices.attention_backward,
            grid,
            q,
            k,
            v,
            do,
            lse,
            delta,
            dq,
            dk,
            dv,
            length,
            scale,
            D=depth,
            B=rows,
            CAUSAL=causal,
        )
        for name, found, exact in zip(
            ("dq", "dk", "dv"),
            (dq, dk, dv),
            attention.gradients(q, k, v, do, scale, causal),
            strict=True,
        ):
            session.check(found, exact, rtol=4 * close, atol=4 * close, zero_sign=False, name=name)


def _paged(session: Session) -> None:
    sequences, heads, kv_heads, depth, page, pages = 3, 4, 2, 16, 8, 5
    lengths = np.array([1, 37, 16], np.int32)
    table = session.rng.permutation(sequences * pages).reshape(sequences, pages).astype(np.int32)
    k, v = (normal(session, sequences * pages, page, kv_heads, depth) for _ in range(2))
    q, o = normal(session, sequences, heads, depth), poisoned(sequences, heads, depth)
    sizes = (heads, kv_heads, pages)
    session.launch(
        matrices.paged_decode,
        (sequences, heads),
        q,
        k,
        v,
        table,
        lengths,
        o,
        depth**-0.5,
        *sizes,
        PAGE=page,
        D=depth,
    )
    for s, length in enumerate(lengths):
        keys, values = (
            x[table[s]].reshape(-1, kv_heads, depth)[:length].repeat(2, 1) for x in (k, v)
        )
        session.check(o[s], attention.decode(q[s], keys, values, depth**-0.5), rtol=1e-4, atol=1e-5)


def _convolution(stride: int, pad: int, session: Session) -> None:
    images, channels, height, width, out, kernel = 2, 3, 11, 9, 16, 3
    x, w, bias = (
        normal(session, images, channels, height, width),
        normal(session, out, channels, kernel, kernel),
        normal(session, out),
    )
    oh, ow = (height + 2 * pad - kernel) // stride + 1, (width + 2 * pad - kernel) // stride + 1
    y = poisoned(images, out, oh, ow)
    sizes = {"C": channels, "OUT": out, "KH": kernel, "KW": kernel, "BM": 32, "BK": 16}
    session.launch(
        matrices.convolution,
        (blocks(oh * ow, 32), images),
        x,
        w,
        bias,
        y,
        height,
        width,
        oh,
        ow,
        stride,
        pad,
        **sizes,
    )
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[
        :, :, ::stride, ::stride
    ]
    exact = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.float64)) + bias[:, None, None]
    size = (
        np.einsum("bchwij,ocij->bohw", np.abs(windows), np.abs(w.astype(np.float64)))
        + np.abs(bias)[:, None, None]
    )
    session.check(
        y, np.maximum(exact, 0), atol=(channels * kernel**2 + 2) * 2.0**-23 * size, zero_sign=False
    )
