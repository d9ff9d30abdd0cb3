"""Descriptors of different padding that merge: in branches, loops, expressions, calls."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.descriptors.descriptors.blocks import (
    demand_padded,
    described,
    on_host,
    spaced,
)
from tilewright_conformance.oracles.dtypes import given
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison
from tilewright_conformance.testlib.case_table import Table

case = Table("descriptors", "descriptors")


@tw.jit
def both(x, rows, columns, stride):
    """Descriptors of a tensor that pad with zero, and with NaN."""
    zero = tl.make_tensor_descriptor(
        x, [rows, columns], [stride, 1], [8, 16], padding_option="zero"
    )
    nan = tl.make_tensor_descriptor(x, [rows, columns], [stride, 1], [8, 16], padding_option="nan")
    return zero, nan


@tw.jit
def put(y, desc):
    tl.store(
        y + tl.program_id(0) * 128 + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :],
        desc.load([5, 9]),
    )


@tw.jit
def branch(x, y, rows, columns, stride):
    zero, nan = both(x, rows, columns, stride)
    if tl.program_id(0) % 2 == 1:
        desc = nan
    else:
        desc = zero
    put(y, desc)


@tw.jit
def conditional(x, y, rows, columns, stride):
    zero, nan = both(x, rows, columns, stride)
    desc = nan if tl.program_id(0) % 2 == 1 else zero
    put(y, desc)


@tw.jit
def swapped(x, y, rows, columns, stride):
    one, other = both(x, rows, columns, stride)
    for _ in range(tl.program_id(0)):
        one, other = other, one
    put(y, one)


@tw.jit
def replaced(x, y, rows, columns, stride):
    desc, nan = both(x, rows, columns, stride)
    for _ in range(tl.program_id(0) % 2 + 1):
        put(y, desc)
        desc = nan


@tw.jit
def chosen(a, b, first):
    if first:
        return a
    return b


@tw.jit
def returned(x, y, rows, columns, stride):
    zero, nan = both(x, rows, columns, stride)
    put(y, chosen(nan, zero, tl.program_id(0) % 2 == 1))


_FORMS: dict[str, Any] = {
    kernel.__name__: kernel for kernel in (branch, conditional, swapped, replaced, returned)
}


@case(
    "padding/meet",
    "descriptor.load",
    each=_FORMS,
    needs=lambda _: described("f32", tile=128),
    quick=("branch", "swapped"),
)
def paddings_that_meet(session: Session, kernel: Any) -> None:
    """Each program pads as the descriptor does that it came to."""
    data = spaced(session.rng, "f32", (11, 20))
    y = poison("f32", (4, 8, 16))
    session.launch(kernel, (4,), given(data, "f32"), given(y, "f32"), 11, 20, data.strides[0] // 4)
    for program, block in enumerate(y):
        demand_padded(session, block, data, (5, 9), "f32", "nan" if program % 2 else "zero")


@tw.jit
def given_two(zero, nan, y):
    desc = zero
    if tl.program_id(0) % 2 == 1:
        desc = nan
    tl.store(
        y + tl.program_id(0) * 128 + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :],
        desc.load([5, 9]),
    )


@case(
    "padding/meet/host",
    "descriptor.load",
    each={"f16": "f16", "f32": "f32"},
    needs=lambda element: described(element, tile=128),
)
def paddings_of_arguments_that_meet(session: Session, element: str) -> None:
    """Descriptors that the host made, of tensors that differ."""
    data = [spaced(session.rng, element, shape) for shape in ((11, 20), (8, 12))]
    y = poison(element, (4, 8, 16))
    descriptors = [
        on_host(array, element, (8, 16), padding)
        for array, padding in zip(data, ("zero", "nan"), strict=True)
    ]
    session.launch(given_two, (4,), *descriptors, given(y, element))
    for program, block in enumerate(y):
        demand_padded(
            session, block, data[program % 2], (5, 9), element, ("zero", "nan")[program % 2]
        )
