"""Matmuls: samples of the operations as Tile IR, and ``tl.dot`` and ``tl.dot_scaled`` in kernels.

Matmuls in float64 are the oracle. Numbers of few bits accumulate exactly in any order; numbers that
use all bits are held to the accumulation-length bound of ``oracles.matrix``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright_conformance.cases.matmul.dots import kernels
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles.dtypes import language, storage
from tilewright_conformance.oracles.matrix import Operand
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.sampled_cases import sampled

Array = np.ndarray[Any, Any]
Body = Callable[[Session], None]

#: operands -> the accumulators that a matmul of them may have
ACCUMULATORS: dict[str, tuple[str, ...]] = {
    "f16": ("f32", "f16"),
    "bf16": ("f32",),
    "f32": ("f32",),
    "f64": ("f64",),
    "i8": ("i32",),
    "u8": ("i32",),
    "f8e4m3fn": ("f32", "f16"),
    "f8e5m2": ("f32", "f16"),
    "f8e4m3fnuz": ("f32",),
    "f8e5m2fnuz": ("f32",),
    "f8e4b15": ("f32",),
}
#: leading batch axes, M, N, K; a backend whose smallest matmul is larger refuses the last ones
SHAPES: tuple[tuple[int, ...], ...] = (
    (16, 16, 16),
    (16, 64, 32),
    (64, 16, 32),
    (32, 32, 128),
    (128, 32, 16),
    (4, 16, 16, 32),
    (2, 2, 16, 32, 16),
    (1, 16, 32),
    (64, 1, 16),
    (8, 8, 32),
    (2, 1, 32, 16),
)
#: Of the types that every matrix unit has, the larger ones too.
LARGE = ((128, 128, 32), (64, 128, 64))


_TABLE = Table("dots", "matmul", "NumPy, float64")


def cases() -> Iterator[Case]:
    for case in sampled("dots", "matmul", {"dot": True, "dot_scaled": True}):
        yield _in_profile(case)
    for make in (
        _matmuls,
        _precisions,
        _specials,
        _loops,
        _gathers,
        _fusions,
        _conversions,
        _scaled,
    ):
        yield from make()


def _case(
    id_: str,
    body: Body,
    types: tuple[str, ...],
    dot: set[tuple[str, str]],
    shape: tuple[int, ...],
    **own: Any,
) -> Case:
    """A case of profile ``matmul``, or ``fp8`` where a type is one of the narrow ones.

    ``shape`` is (M, N, K) of its smallest matmul.
    """
    subject, tile = own.pop("subject", "tl.dot"), own.pop("elements", 1 << 11)
    every = {*types, *(name for pair in dot for name in pair)}
    precisions = frozenset(own.pop("precisions", ()))
    more = {
        "dot": frozenset(dot),
        "dot_precisions": precisions,
        "dot_shape": shape or None,
        "tile": tile,
    }
    return _in_profile(_TABLE.case(id_, subject, body, *every, **more, **own))


def _in_profile(case: Case) -> Case:
    # sampled cases, and those whose pairs of e2m1 are plain bytes
    narrow = any(matrix.is_fp8(name) for name in case.needs.dtypes) or "e2m1" in case.id
    return dataclasses.replace(case, profile="fp8") if narrow else case


# ---- one matmul, with and without a third operand


def _matmuls() -> Iterator[Case]:
    for type_, accumulators in ACCUMULATORS.items():
        for result in accumulators:
            common = type_ in ("f16", "bf16", "f32", "i8") and result != "f16"
            for index, (*batches, m, n, k) in enumerate(
                SHAPES + LARGE * common if common else SHAPES[::2]
            ):
                text = "x".join(map(str, (*batches, m, n, k)))
                body = functools.partial(_matmul, type_, type_, result, (tuple(batches), m, n, k))
                yield _matmul_case(
                    f"product/{type_}/into_{result}/{text}",
                    body,
                    type_,
                    type_,
                    result,
                    (m, n, k),
                    quick=index in (0, 3, 5),
                )
    for left, right, result in (
        ("f8e5m2", "f8e4m3fn", "f32"),
        ("f8e4m3fn", "f8e5m2", "f32"),
        ("f8e4m3fn", "f8e5m2", "f16"),
        ("f8e4m3fnuz", "f8e5m2fnuz", "f32"),
    ):
        body = functools.partial(_matmul, left, right, result, ((), 16, 32, 64))
        yield _matmul_case(
            f"product/{left}/by_{right}_into_{result}",
            body,
            left,
            right,
            result,
            (16, 32, 64),
            quick=True,
        )
    for type_ in ("i8", "u8"):
        body = functools.partial(_matmul, type_, type_, "i32", ((), 16, 16, 32), named=type_)
        yield _matmul_case(
            f"product/{type_}/named_{type_}", body, type_, type_, "i32", (16, 16, 32)
        )


def _matmul_case(
    id_: str, body: Body, left: str, right: str, result: str, shape: tuple[int, ...], **own: Any
) -> Case:
    # fp8e4b15 is a storage format: its matmuls are those of fp16
    dot = {("f16", result)} if left == "f8e4b15" else {(left, result), (right, result)}
    m, n, k = shape
    return _case(
        id_, body, (left, right, result), dot, shape, elements=4 * max(m * n, m * k, k * n), **own
    )


def _matmul(
    left: str,
    right: str,
    result: str,
    shape: tuple[tuple[int, ...], int, int, int],
    session: Session,
    *,
    named: str = "",
) -> None:
    """Exact numbers, then those that use all bits."""
    batches, m, n, k = shape
    for draw in (matrix.few_bits, matrix.spread):
        a, b = draw(session.rng, left, *batches, m, k), draw(session.rng, right, *batches, k, n)
        c = matrix.few_bits(session.rng, result, *batches, m, n)
        rounded = draw is matrix.spread
        _launch_matmul(
            session,
            a,
            b,
            c,
            result,
            rounded=rounded,
            out=named or (result if result == "f16" else ""),
            imprecise=rounded and matrix.is_fp8(left),
        )


def _launch_matmul(
    session: Session,
    a: Operand,
    b: Operand,
    c: Operand,
    result: str,
    *,
    rounded: bool,
    out: str = "",
    precision: str = "ieee",
    imprecise: bool = False,
) -> None:
    """Run ``a @ b + c`` and ``a @ b`` and compare them: equal, or within the error bound.

    The bound holds where ``rounded``.
    """
    *batches, m, k = a.values.shape
    n = b.values.shape[-1]
    found = np.zeros((2, *batches, m, n), storage(result))
    options = {"BATCHES": batches, "M": m, "N": n, "K": k, "OUT": language(out) if out else None}
    session.launch(
        kernels.matmul,
        (1,),
        a.given,
        b.given,
        c.given,
        found,
        **options,
        PRECISION=precision if precision != "ieee" else None,
    )
    with np.errstate(all="ignore"):
        exact = np.matmul(a.values, b.values)
        for own, third, name in (
            (found[0], c.values, "a @ b + c"),
            (found[1], np.zeros(()), "a @ b"),
        ):
            atol = (
                matrix.bound(a.values, b.values, third, result, precision, imprecise=imprecise)
                if rounded and result != "i32"
                else 0.0
            )
            session.check(
                own,
                (exact + third).astype(own.dtype) if result == "i32" else exact + third,
                atol=atol,
                zero_sign=False,
                name=name,
            )


#: accumulator -> NumPy's dtype of it


# ---- precisions of fp32


def _precisions() -> Iterator[Case]:
    for precision in matrix.PRECISIONS:
        for m, n, k in ((16, 16, 16), (32, 32, 64), (64, 32, 256)):
            body = functools.partial(_precise, precision, (m, n, k))
            kwargs: dict[str, Any] = {
                "precisions": {precision} - {"ieee"},
                "quick": k == 64,
                "elements": 1 << 14,
            }
            yield _case(
                f"precision/f32/{precision}/{m}x{n}x{k}",
                body,
                ("f32",),
                {("f32", "f32")},
                (m, n, k),
                **kwargs,
            )
    for allowed in (True, False):
        body = functools.partial(_allowed, allowed)
        # True allows the rounding, and a backend without it computes exactly: nothing is needed for
        # it.
        yield _case(
            f"precision/f32/allow_tf32_{allowed}",
            body,
            ("f32",),
            {("f32", "f32")},
            (32, 32, 64),
            quick=True,
        )
    for limit in (0, 16, 64):
        body = functools.partial(_imprecise, limit)
        yield _case(
            f"precision/f8e4m3fn/max_imprecise_{limit}",
            body,
            ("f8e4m3fn", "f32"),
            {("f8e4m3fn", "f32")},
            (32, 32, 64),
            quick=limit == 16,
        )
    body = functools.partial(_uneven, "f32", "f32")
    yield _case(
        "precision/f32/terms_of_all_sizes",
        body,
        ("f32",),
        {("f32", "f32")},
        (16, 16, 64),
        quick=True,
    )
    yield _case(
        "precision/f64/terms_of_all_sizes",
        functools.partial(_uneven, "f64", "f64"),
        ("f64",),
        {("f64", "f64")},
        (16, 16, 64),
        quick=True,
    )
    yield _case(
        "precision/f16/sums_beyond_f16",
        _beyond_half,
        ("f16", "f32"),
        {("f16", "f32")},
        (16, 16, 64),
        quick=True,
    )


def _precise(precision: str, shape: tuple[int, int, int], session: Session) -> None:
    m, n, k = shape
    a, b, c = (matrix.spread(session.rng, "f32", *own) for own in ((m, k), (k, n), (m, n)))
    _launch_matmul(session, a, b, c, "f32", rounded=True, precision=precision)


def _allowed(tf32: bool, session: Session) -> None:
    a, b = matrix.spread(session.rng, "f32", 32, 64), matrix.spread(session.rng, "f32", 64, 32)
    found = np.zeros((32, 32), np.float32)
    session.launch(
        kernels.allowing, (1,), a.given, b.given, found, TF32=tf32, IMPRECISE=None, M=32, N=32, K=64
    )
    precision = "tf32" if tf32 and "tf32" in session.capabilities.dot_precisions else "ieee"
    session.check(
        found, a.values @ b.values, atol=matrix.bound(a.values, b.values, 0.0, "f32", precision)
    )


def _imprecise(limit: int, session: Session) -> None:
    for draw in (matrix.few_bits, matrix.spread):
        a, b = draw(session.rng, "f8e4m3fn", 32, 64), draw(session.rng, "f8e4m3fn", 64, 32)
        found = np.zeros((32, 32), np.float32)
        session.launch(
            kernels.allowing,
            (1,),
            a.given,
            b.given,
            found,
            TF32=None,
            IMPRECISE=limit,
            M=32,
            N=32,
            K=64,
        )
        atol = (
            matrix.bound(a.values, b.values, 0.0, "f32", imprecise=True)
            if draw is matrix.spread
            else 0.0
        )
        session.check(found, a.values @ b.values, atol=atol, zero_sign=False)


def _uneven(type_: str, result: str, session: Session) -> None:
    """Terms from 2**-30 to 2**30, of one sign, so that each result keeps its leading bits."""
    size = np.exp2(session.rng.integers(-15, 16, (16, 64)))
    a = matrix.encoded(type_, session.rng.uniform(1, 2, (16, 64)) * size)
    b = matrix.encoded(
        type_,
        session.rng.uniform(1, 2, (64, 16)) * np.exp2(session.rng.integers(-15, 16, (64, 16))),
    )
    _launch_matmul(session, a, b, matrix.encoded(result, np.zeros((16, 16))), result, rounded=True)


def _beyond_half(session: Session) -> None:
    """Matmuls of fp16 whose results fp16 holds neither in magnitude nor in bits."""
    a = matrix.encoded("f16", session.rng.integers(100, 300, (16, 64)))
    b = matrix.encoded("f16", session.rng.integers(1, 8, (64, 16)))
    # All results are whole numbers below 2**24: exact in fp32.
    _launch_matmul(session, a, b, matrix.whole(session.rng, "f32", 16, 16), "f32", rounded=False)


# ---- NaN, infinities, overflow, subnormals


def _specials() -> Iterator[Case]:
    for type_, result in (
        ("f16", "f32"),
        ("f16", "f16"),
        ("bf16", "f32"),
        ("f32", "f32"),
        ("f64", "f64"),
        ("f8e5m2", "f32"),
        ("f8e4m3fn", "f32"),
    ):
        body = functools.partial(_special, type_, result)
        yield _case(
            f"special/{type_}/into_{result}",
            body,
            (type_, result),
            {(type_, result)},
            (16, 16, 32),
            quick=True,
        )
    yield _case("special/f16/subnormal", _subnormal, ("f16", "f32"), {("f16", "f32")}, (16, 16, 32))
    for type_ in ("i8", "u8"):
        body = functools.partial(_extreme, type_)
        yield _case(
            f"special/{type_}/extremes",
            body,
            (type_, "i32"),
            {(type_, "i32")},
            (16, 16, 64),
            quick=True,
        )


#: the bits of (NaN, infinity, the maximum) where NumPy has no such type; 0 where the format has
#: none
_BITS = {
    "bf16": (0x7FC0, 0x7F80, 0x7F7F),
    "f8e5m2": (0x7F, 0x7C, 0x7B),
    "f8e4m3fn": (0x7F, 0, 0x7E),
}


def _special(type_: str, result: str, session: Session) -> None:
    a, b = matrix.few_bits(session.rng, type_, 16, 32), matrix.few_bits(session.rng, type_, 32, 16)
    c = matrix.few_bits(session.rng, result, 16, 16)
    left, right = matrix.bits_of(a), matrix.bits_of(b)
    nan, infinity, maximum = _BITS.get(type_, (np.nan, np.inf, _maximum(type_)))
    right[:, 5] = 0
    left[1, 9] = nan
    if infinity:
        left[2, 4] = infinity
        left[3, [0, 6]] = infinity, _negated(type_, infinity)
        right[8, 11] = infinity
    left[4], right[7] = (
        0,
        matrix.encoded(type_, np.array(4.0)).given
        if type_ not in _BITS
        else matrix.bits_of(matrix.encoded(type_, np.array(4.0))),
    )
    left[4, 7] = maximum
    c.given[6, 3], c.given[7, 3], c.given[8] = np.nan, np.inf, -np.inf
    a, b, c = (
        _revalued(type_, a),
        _revalued(type_, b),
        Operand(c.given, c.given.astype(np.float64)),
    )
    _launch_matmul(session, a, b, c, result, rounded=False, out="f16" if result == "f16" else "")


def _negated(type_: str, pattern: Any) -> Any:
    return -pattern if type_ not in _BITS else pattern | 1 << (15 if type_ == "bf16" else 7)


def _maximum(type_: str) -> Any:
    return np.finfo(storage(type_)).max if type_ not in _BITS else 0


def _revalued(type_: str, operand: Operand) -> Operand:
    """An operand whose patterns were changed, with the values that they stand for now."""
    bits = matrix.bits_of(operand)
    return Operand(
        operand.given, bits.astype(np.float64) if type_ not in _BITS else matrix.worth(type_, bits)
    )


def _subnormal(session: Session) -> None:
    a = matrix.encoded("f16", session.rng.integers(-9, 10, (16, 32)) * 2.0**-24)
    _launch_matmul(
        session,
        a,
        matrix.whole(session.rng, "f16", 32, 16),
        matrix.encoded("f32", np.zeros((16, 16))),
        "f32",
        rounded=False,
    )


def _extreme(type_: str, session: Session) -> None:
    """Multiply the maximum and minimum integers, with results close to the end of int32.

    The third operand brings them there, as close as they may come in any order.
    """
    limits = np.iinfo(matrix.encoded(type_, np.zeros(())).given.dtype)
    a, b = (
        matrix.encoded(type_, session.rng.choice([limits.min, limits.max], shape))
        for shape in ((16, 64), (64, 16))
    )
    room = np.iinfo(np.int32).max - np.matmul(np.abs(a.values), np.abs(b.values))
    _launch_matmul(session, a, b, matrix.encoded("i32", room), "i32", rounded=False)


# ---- loops over K


#: operands -> (rows, columns, depth) of the blocks
_LOOP_BLOCKS = {
    "f16": (32, 32, 32),
    "bf16": (32, 64, 16),
    "f32": (32, 32, 16),
    "f64": (16, 16, 16),
    "i8": (32, 32, 32),
    "u8": (16, 32, 32),
    "f8e5m2": (32, 32, 32),
}
_LAYOUTS = ("rows", "left_transposed", "right_transposed", "both_transposed", "steps")


def _loops() -> Iterator[Case]:
    for type_, block in _LOOP_BLOCKS.items():
        result = ACCUMULATORS[type_][0]
        for index, layout in enumerate(
            _LAYOUTS if type_ in ("f16", "f32", "i8") else _LAYOUTS[:3:2]
        ):
            form = ("acc", "add", "two", "while", "acc")[index]
            yield _loop_case(
                f"loop/{type_}/{layout}_{form}",
                type_,
                result,
                block,
                layout,
                form,
                quick=index in (0, 2),
            )
    for form in ("add", "two", "while"):
        yield _loop_case(f"loop/f16/rows_{form}", "f16", "f32", (32, 32, 32), "rows", form)
        yield _loop_case(f"loop/bf16/rows_{form}", "bf16", "f32", (16, 32, 32), "rows", form)
    yield _loop_case("loop/f16/into_f16", "f16", "f16", (32, 32, 16), "rows", "acc", quick=True)
    yield _loop_case("loop/f16/blocks_of_128", "f16", "f32", (128, 128, 32), "rows", "acc")
    yield _loop_case("loop/f16/blocks_of_64", "f16", "f32", (64, 64, 64), "right_transposed", "acc")
    yield _loop_case("loop/bf16/blocks_of_128", "bf16", "f32", (128, 64, 64), "rows", "acc")
    yield _loop_case("loop/f32/blocks_of_64", "f32", "f32", (64, 64, 32), "rows", "acc")
    for warps, stages in ((1, 1), (2, 4), (8, 2)):
        own = {"num_warps": warps, "num_stages": stages}
        yield _loop_case(
            f"loop/f16/warps_{warps}_stages_{stages}",
            "f16",
            "f32",
            (64, 64, 32),
            "rows",
            "acc",
            options=own,
            quick=warps == 8,
        )
    yield _loop_case(
        "loop/bf16/warps_8_blocks_of_128",
        "bf16",
        "f32",
        (128, 128, 32),
        "right_transposed",
        "acc",
        options={"num_warps": 8},
    )
    yield _loop_case("loop/f32/tf32", "f32", "f32", (32, 32, 16), "rows", "acc", "tf32", quick=True)
    yield _loop_case(
        "loop/f32/tf32x3", "f32", "f32", (32, 32, 16), "right_transposed", "acc", "tf32x3"
    )


def _loop_case(
    id_: str,
    type_: str,
    result: str,
    block: tuple[int, int, int],
    layout: str,
    form: str,
    precision: str = "ieee",
    *,
    options: Mapping[str, int] = MappingProxyType({}),
    quick: bool = False,
) -> Case:
    body = functools.partial(_loop, type_, result, block, layout, form, precision, options)
    elements = max(block[0] * block[1], block[0] * block[2], block[1] * block[2])
    return _case(
        id_,
        body,
        (type_, result),
        {(type_, result)},
        block,
        precisions={precision} - {"ieee"},
        quick=quick,
        elements=elements,
    )


def _loop(
    type_: str,
    result: str,
    block: tuple[int, int, int],
    layout: str,
    form: str,
    precision: str,
    own: Mapping[str, int],
    session: Session,
) -> None:
    """Loop over sizes that no block divides; one is a single block and less; K is zero in one."""
    bm, bn, bk = block
    for m, n, k in ((bm + 3, 2 * bn - 1, 3 * bk + 5), (bm - 5, 3, bk - 3), (5, bn + 2, 0)):
        left = layout in ("left_transposed", "both_transposed")
        right = layout in ("right_transposed", "both_transposed")
        a = _laid_out(session, type_, (m, k), layout, transposed=left)
        b = _laid_out(session, type_, (k, n), layout, transposed=right)
        c = matrix.few_bits(session.rng, result, m, n)
        found = c.given.copy()
        strides = (*_strides(a), *_strides(b), n)
        options = {
            "FORM": form,
            "OUT": language(result),
            "PRECISION": None if precision == "ieee" else precision,
            "BM": bm,
            "BN": bn,
            "BK": bk,
        }
        options |= own
        session.launch(
            kernels.looped,
            (-(-m // bm), -(-n // bn)),
            a.given,
            b.given,
            found,
            m,
            n,
            k,
            *strides,
            **options,
        )
        exact = a.values @ b.values + c.values
        if result == "i32":
            session.check(found, exact.astype(np.int32))
        else:
            atol = matrix.bound(
                a.values, b.values, c.values, result, precision, imprecise=matrix.is_fp8(type_)
            )
            session.check(found, exact, atol=atol, zero_sign=False)


def _laid_out(
    session: Session, type_: str, shape: tuple[int, int], layout: str, *, transposed: bool
) -> Operand:
    """A matrix in column-major order where ``transposed``, or with elements two places apart.

    The layout ``steps`` has the latter.
    """
    step = 2 if layout == "steps" else 1
    whole = matrix.spread(
        session.rng, type_, *(shape[::-1] if transposed else (shape[0], step * shape[1]))
    )
    values = whole.values.T if transposed else whole.values[:, ::step]
    return Operand(whole.given, values)


def _strides(operand: Operand) -> tuple[int, int]:
    row, column = operand.values.strides
    return row // 8, column // 8


# ---- operands whose rows an index in memory names


#: (type, of the index, M, N, whether rows are loaded for each factor, warps, stages); each quick
#: one has another width of index and number of loads.
_GATHERS = (
    ("f32", "int64", 16, 32, False, 4, 2),
    ("f16", "int32", 32, 32, True, 4, 3),
    ("f32", "int32", 16, 64, True, 4, 2),
    ("f16", "int64", 64, 64, False, 8, 3),
)


def _gathers() -> Iterator[Case]:
    for number, (type_, index, m, n, twice, warps, stages) in enumerate(_GATHERS):
        body = functools.partial(_gather, type_, index, m, n, twice, warps, stages)
        id_ = f"gathered/{type_}/{index}/{m}x{n}_{'twice' if twice else 'once'}"
        quick, dot = number < 2, {(type_, "f32")}
        yield _case(id_, body, (type_, "f32"), dot, (m, n, n), quick=quick, elements=n * n)


def _gather(
    type_: str, index: str, m: int, n: int, twice: bool, warps: int, stages: int, session: Session
) -> None:
    """Three blocks of rows, the last one not whole."""
    depth, count = n, 3 * n - 5
    q, table = (matrix.whole(session.rng, type_, rows, depth, most=1) for rows in (m, 4 * n))
    rows = session.rng.permutation(4 * n)
    k = table.values[rows[:count]]
    found = np.zeros((m, depth), np.float32)
    given = (q.given, table.given, rows.astype(index), found, count, depth)
    options = {"num_warps": warps, "num_stages": stages}
    session.launch(kernels.gathered, (1,), *given, M=m, N=n, D=depth, TWICE=twice, **options)
    session.check(found, (q.values @ k.T) @ k, zero_sign=False)


# ---- operations around a matmul


_FUSIONS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "left_transposed": lambda x, y, z: x.T @ y,
    "right_transposed": lambda x, y, z: x @ y.T,
    "both_transposed": lambda x, y, z: y @ x,
    "with_itself": lambda x, y, z: x @ x.T,
    "chained": lambda x, y, z: x @ y @ z,
    "chained_on_the_right": lambda x, y, z: x @ (y @ z),
    "summed": lambda x, y, z: y @ z + x @ y + x @ z,
    "computed": lambda x, y, z: np.where(x > 0, y, -x) @ (1.5 * z),
    "masked": lambda x, y, z: np.tril(x) @ y,
    "by_a_unit": lambda x, y, z: np.roll(x, -3, axis=1),
    "repeated_row": lambda x, y, z: np.broadcast_to(x.max(0), x.shape) @ y,
    "woven": lambda x, y, z: (x + y) @ z,
    "added_up": lambda x, y, z: x @ y + (y @ z).sum(1)[:, None] - (x @ z).max(0)[None, :],
    "powers": lambda x, y, z: x @ x @ z,
    "nested": lambda x, y, z: 9 * (x @ y),
    "scaled_loop": lambda x, y, z: (
        (x @ y) * np.where(np.arange(len(x)) % 2 == 0, 2.5, 2.0)[:, None]
    ),
}


def _fusions() -> Iterator[Case]:
    for type_, size in (("f16", 16), ("f16", 32), ("bf16", 16), ("f32", 32)):
        for name in _FUSIONS:
            quick = (type_, size) == ("f16", 32) and name in (
                "left_transposed",
                "right_transposed",
                "chained",
                "nested",
                "scaled_loop",
                "woven",
            )
            body = functools.partial(_fusion, name, type_, size)
            shape = (2 * size if name == "woven" else size, size, size)
            own: dict[str, Any] = {
                "subject": f"tl.dot, {name}",
                "quick": quick,
                "elements": 2 * size**2,
            }
            yield _case(
                f"around/{name}/{type_}/{size}",
                body,
                (type_, "f32"),
                {(type_, "f32")},
                shape,
                **own,
            )
    yield _case(
        "around/chosen/f16/16",
        _branches,
        ("f16", "f32"),
        {("f16", "f32")},
        (16, 16, 16),
        subject="tl.dot, chosen",
        quick=True,
    )


def _around(
    session: Session, name: str, type_: str, size: int, programs: int = 1
) -> tuple[Array, tuple[Array, Array, Array]]:
    x, y, z = (matrix.whole(session.rng, type_, size, size, most=1) for _ in range(3))
    found = np.zeros((programs, size, size), np.float32)
    session.launch(
        kernels.fused,
        (programs,),
        x.given,
        y.given,
        z.given,
        found,
        FN=getattr(kernels, name),
        SIZE=size,
    )
    return found, (x.values, y.values, z.values)


def _fusion(name: str, type_: str, size: int, session: Session) -> None:
    found, values = _around(session, name, type_, size)
    session.check(found[0], _FUSIONS[name](*values), zero_sign=False)


def _branches(session: Session) -> None:
    found, (x, y, _) = _around(session, "chosen", "f16", 16, programs=2)
    session.check(found, np.stack([x @ y, y @ x]), zero_sign=False)


#: the storage type, and the type it is converted to for the matmul
_CONVERSIONS = (
    ("i8", "f16"),
    ("u8", "f32"),
    ("f32", "f16"),
    ("f16", "bf16"),
    ("f16", "f32"),
    ("bf16", "f32"),
    ("f8e5m2", "f16"),
    ("f8e4m3fn", "bf16"),
)


def _conversions() -> Iterator[Case]:
    for stored, type_ in _CONVERSIONS:
        body = functools.partial(_converted, stored, type_)
        yield _case(
            f"converted/{stored}/to_{type_}",
            body,
            (stored, type_, "f32"),
            {(type_, "f32")},
            (16, 32, 32),
            quick=stored in ("i8", "f8e5m2"),
        )
    for type_, result in (("f16", "f32"), ("f32", "f32"), ("i8", "i32"), ("f64", "f64")):
        body = functools.partial(_batches, type_, result)
        yield _case(
            f"batches/{type_}/transposed",
            body,
            (type_, result),
            {(type_, result)},
            (16, 32, 16),
            quick=type_ == "f16",
            elements=1 << 12,
        )


def _converted(stored: str, type_: str, session: Session) -> None:
    """Integers of few bits and scales that are powers of two: exact in any of the types."""
    a, b = (
        matrix.whole(session.rng, stored, 16, 32, most=4),
        matrix.whole(session.rng, type_, 32, 32),
    )
    scale = matrix.encoded("f32", np.exp2(session.rng.integers(-3, 3, 16)))
    found = np.zeros((16, 32), np.float32)
    session.launch(
        kernels.converted,
        (1,),
        a.given,
        scale.given,
        b.given,
        found,
        TYPE=language(type_),
        M=16,
        N=32,
        K=32,
    )
    session.check(found, (a.values * scale.values[:, None]) @ b.values, zero_sign=False)


def _batches(type_: str, result: str, session: Session) -> None:
    a, b = matrix.whole(session.rng, type_, 4, 16, 16), matrix.whole(session.rng, type_, 4, 32, 16)
    found = np.zeros((4, 16, 32), storage(result))
    session.launch(kernels.batches_transposed, (1,), a.given, b.given, found, B=4, M=16, N=32, K=16)
    session.check(found, (a.values @ b.values.swapaxes(1, 2)).astype(found.dtype), zero_sign=False)


# ---- block-scaled matmuls


_FORMATS = ("e2m1", "e4m3", "e5m2", "bf16", "fp16")
#: Rows, columns and depth of a matmul by default.
_SCALED_SHAPE = 16, 32, 64
_FORMAT_TYPES = {"e2m1": "u8", "e4m3": "u8", "e5m2": "u8", "bf16": "bf16", "fp16": "f16"}


def _scaled() -> Iterator[Case]:
    for left in _FORMATS:
        for right in _FORMATS:
            with_scales = (left not in ("bf16", "fp16"), right not in ("bf16", "fp16"))
            yield _scaled_case(
                f"{left}_{right}", left, right, quick=left == right, with_scales=with_scales
            )
    for pack in ((True, False), (False, True), (False, False)):
        yield _scaled_case(
            f"e2m1_e2m1/pack_{pack[0]}_{pack[1]}",
            "e2m1",
            "e2m1",
            pack=pack,
            quick=pack == (False, True),
        )
    yield _scaled_case("e2m1_e5m2/batches", "e2m1", "e5m2", batches=(2,))
    yield _scaled_case("e4m3_bf16/batches", "e4m3", "bf16", batches=(2,), with_scales=(True, False))
    yield _scaled_case("e2m1_e2m1/groups_of_16", "e2m1", "e2m1", group=16, quick=True)
    yield _scaled_case("e4m3_e4m3/left_scale_alone", "e4m3", "e4m3", with_scales=(True, False))
    yield _scaled_case(
        "e4m3_e4m3/right_scale_alone", "e4m3", "e4m3", with_scales=(False, True), quick=True
    )
    yield _scaled_case("e4m3_e4m3/scale_not_a_number", "e4m3", "e4m3", spoilt=True, quick=True)
    yield _scaled_case("e4m3_e4m3/fast_math", "e4m3", "e4m3", fast=True)
    # as great as instructions that scale by themselves take at once, and greater
    for left in _FORMATS[:3]:
        for right in _FORMATS[:3]:
            yield _scaled_case(
                f"{left}_{right}/32x64x256",
                left,
                right,
                quick=(left, right) == ("e4m3", "e2m1"),
                shape=(32, 64, 256),
            )
    for left, right in (("e2m1", "e4m3"), ("e5m2", "e5m2")):
        yield _scaled_case(
            f"{left}_{right}/64x64x64", left, right, quick=left == "e5m2", shape=(64, 64, 64)
        )
    yield _scaled_case(
        "e5m2_e4m3/64x64x128/scale_not_a_number", "e5m2", "e4m3", spoilt=True, shape=(64, 64, 128)
    )
    yield _scaled_case(
        "e2m1_e4m3/16x32x128/batches", "e2m1", "e4m3", batches=(2,), shape=(16, 32, 128)
    )
    yield _scaled_case(
        "e4m3_e2m1/32x32x128/right_scale_alone",
        "e4m3",
        "e2m1",
        with_scales=(False, True),
        shape=(32, 32, 128),
        quick=True,
    )
    yield _scaled_case(
        "e4m3_e5m2/32x32x128/no_scales",
        "e4m3",
        "e5m2",
        with_scales=(False, False),
        shape=(32, 32, 128),
    )
    yield from _scaled_ranges()


def _scaled_case(id_: str, left: str, right: str, *, quick: bool = False, **own: Any) -> Case:
    types = {_FORMAT_TYPES[left], _FORMAT_TYPES[right], "f32"}
    if any(own.get("with_scales", (True, True))):
        types.add("u8" if own.get("group", 32) == 32 else "f8e4m3fn")
    # the narrow formats are types too, though they come as bytes
    types |= {
        name for kind, name in (("e4m3", "f8e4m3fn"), ("e5m2", "f8e5m2")) if kind in (left, right)
    }
    body = functools.partial(_scaled_matmul, left, right, own)
    m, n, k = own.get("shape", _SCALED_SHAPE)
    elements = 2 * max(m * k, k * n, m * n)  # there are two batches at most
    return _case(
        f"scaled/{id_}",
        body,
        tuple(types),
        set(),
        (),
        subject="tl.dot_scaled",
        quick=quick,
        features={"dot_scaled"},
        elements=elements,
    )


def _scaled_matmul(left: str, right: str, own: dict[str, Any], session: Session) -> None:
    (m, n, k), group = own.get("shape", _SCALED_SHAPE), own.get("group", 32)
    batches, pack, with_scales = (
        own.get("batches", ()),
        own.get("pack", (True, True)),
        own.get("with_scales", (True, True)),
    )
    rng = session.rng
    a = matrix.scaled_operand(rng, left, (*batches, m, k), -1 if pack[0] else -2)
    b = matrix.scaled_operand(rng, right, (*batches, k, n), -2 if pack[1] else -1)
    x, y = (
        matrix.scales(rng, (*batches, m, k // group), group),
        matrix.scales(rng, (*batches, n, k // group), group),
    )
    if own.get("spoilt"):
        x.given[..., 3, 1], x.values[..., 3, 1] = 255, np.nan
    a_values = a.values * np.repeat(x.values, group, -1) if with_scales[0] else a.values
    b_values = (
        b.values * np.swapaxes(np.repeat(y.values, group, -1), -1, -2)
        if with_scales[1]
        else b.values
    )
    c, found = matrix.few_bits(rng, "f32", *batches, m, n), np.zeros((*batches, m, n), np.float32)
    shapes = [
        part for size, shape in map(_size_and_shape, (a, b, x, y, c)) for part in (size, shape)
    ]
    given = (
        a.given,
        x.given if with_scales[0] else None,
        b.given,
        y.given if with_scales[1] else None,
        c.given,
    )
    session.launch(
        kernels.scaled_matmul,
        (1,),
        *given,
        found,
        A=left,
        B=right,
        SHAPES=shapes,
        PACK=pack,
        FAST=own.get("fast", False),
    )
    with np.errstate(invalid="ignore"):
        exact = np.matmul(a_values, b_values) + c.values
        # Scaled elements have at most 11 bits and scales none: hardware that brings operands to 16
        # bits loses nothing.
        atol = matrix.bound(a_values, b_values, c.values, "f32", imprecise=True)
    session.check(found, exact, atol=atol, zero_sign=False)


#: Left and right format, the codes of their scales (None: there are none), the power of two that
#: elements of 16 bits are multiplied by besides, and whether the case is quick: elements times
#: scales that are out of the range of every type, whose matmuls are in that of f32.
_RANGES = (
    ("e4m3", "e4m3", (254, 1), 0, True),
    ("e4m3", "e4m3", (0, 253), 0, False),
    ("e4m3", "e4m3", (0, 127), 0, False),
    ("e2m1", "e2m1", (1, 254), 0, False),
    ("e2m1", "e2m1", (254, 0), 0, False),
    ("e5m2", "e5m2", (250, 4), 0, False),
    ("e5m2", "e4m3", (0, 250), 0, True),
    ("e4m3", "e2m1", (10, 245), 0, False),
    ("bf16", "e4m3", (None, 253), -120, False),
    ("bf16", "e5m2", (None, 0), 120, False),
    ("bf16", "bf16", (250, 20), 0, False),
    ("bf16", "e4m3", (20, 240), 0, False),
    ("fp16", "e4m3", (None, 146), 0, True),
    ("fp16", "e5m2", (None, 60), 0, False),
    ("fp16", "e2m1", (None, 230), 0, False),
    ("e4m3", "fp16", (254, 5), 0, False),
    ("fp16", "fp16", (3, 252), 0, False),
)


def _scaled_ranges() -> Iterator[Case]:
    for left, right, codes, power, quick in _RANGES:
        names = "_".join("none" if code is None else str(code) for code in codes)
        # the sum of a loop, and of some a dot alone, or one whose result is used in the loop
        for form in ("summed", *(("once", "maximum") if quick else ())):
            types = {_FORMAT_TYPES[left], _FORMAT_TYPES[right], "f32", "u8"}
            types |= {
                name
                for kind, name in (("e4m3", "f8e4m3fn"), ("e5m2", "f8e5m2"))
                if kind in (left, right)
            }
            body = functools.partial(_scaled_range, left, right, codes, power, form)
            id_, own = (
                f"scaled/{left}_{right}/scales_{names}/{form}",
                {"quick": quick and form == "once", "elements": 1 << 12},
            )
            yield _case(
                id_,
                body,
                tuple(types),
                set(),
                (),
                subject="tl.dot_scaled",
                features={"dot_scaled"},
                **own,
            )


def _scaled_range(
    left: str,
    right: str,
    codes: tuple[int | None, int | None],
    power: int,
    form: str,
    session: Session,
) -> None:
    (m, n, k), trips, rng = _SCALED_SHAPE, 1 if form == "once" else 2, session.rng
    a = _moved(matrix.scaled_operand(rng, left, (trips, m, k), -1), left, power)
    b = _moved(matrix.scaled_operand(rng, right, (trips, k, n), -2), right, power)
    scales = [
        _near(rng, code, (trips, rows, k // 32)) for code, rows in zip(codes, (m, n), strict=True)
    ]
    factors = [np.repeat(scale.values, 32, -1) for scale in scales]
    matmuls = [
        (x * p, y * q.T)
        for x, p, y, q in zip(a.values, factors[0], b.values, factors[1], strict=True)
    ]
    exact, atol, found = np.zeros((m, n)), np.zeros((m, n)), np.zeros((m, n), np.float32)
    for x, y in matmuls:
        exact = np.maximum(exact, x @ y) if form == "maximum" else exact + x @ y
        # beside that, the smallest subnormal of f32 for each sum
        atol += matrix.bound(x, y, 0.0, "f32", imprecise=True) + k * 2.0**-149
    shapes: list[Any] = []
    for own in (a, b, *scales):
        array = matrix.bits_of(own)
        shapes += [array[0].size, list(array.shape[1:])]
    left_scale, right_scale = (
        None if code is None else scale.given for code, scale in zip(codes, scales, strict=True)
    )
    given = (a.given, left_scale, b.given, right_scale)
    session.launch(
        kernels.scaled_range,
        (1,),
        *given,
        found,
        trips,
        A=left,
        B=right,
        SHAPES=[*shapes, m * n, [m, n]],
        MAXIMUM=form == "maximum",
    )
    session.check(found, exact, atol=atol, zero_sign=False)


def _moved(operand: Operand, format_: str, power: int) -> Operand:
    """Elements in bf16 times a power of two."""
    return (
        matrix.encoded("bf16", operand.values * 2.0**power)
        if power and format_ == "bf16"
        else operand
    )


def _near(rng: np.random.Generator, code: int | None, shape: tuple[int, ...]) -> Operand:
    """Scales at most one from a code; 1 where there are none."""
    if code is None:
        return Operand(np.zeros(shape, np.uint8), np.ones(shape))
    codes = np.clip(code + rng.integers(-1, 2, shape), 0, 254).astype(np.uint8)
    return Operand(codes, np.exp2(codes.astype(np.float64) - 127))


def _size_and_shape(operand: Operand) -> tuple[int, list[int]]:
    array = matrix.bits_of(operand)
    return array.size, list(array.shape)
