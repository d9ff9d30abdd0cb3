"""Loops over K with operands in all layouts, and rows gathered by indices."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from tilewright_conformance.cases.matmul.dots import kernels
from tilewright_conformance.cases.matmul.dots.dot_case import ACCUMULATORS, dot_case
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles.dtypes import language
from tilewright_conformance.oracles.matrix import Operand
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session

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


def loop_cases() -> Iterator[Case]:
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
    return dot_case(
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


def gather_cases() -> Iterator[Case]:
    for number, (type_, index, m, n, twice, warps, stages) in enumerate(_GATHERS):
        body = functools.partial(_gather, type_, index, m, n, twice, warps, stages)
        id_ = f"gathered/{type_}/{index}/{m}x{n}_{'twice' if twice else 'once'}"
        quick, dot = number < 2, {(type_, "f32")}
        yield dot_case(id_, body, (type_, "f32"), dot, (m, n, n), quick=quick, elements=n * n)


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
