"""Samples of elementwise operations whose operands are of one type, derived from their traits.

The types are those that the operation's rule accepts, so that no operation is named here. Integers
are any; floats are moderate, and compared within four units in the last place. An operation that
needs other arguments has a family of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from tilewright.ir.ops import TABLE
from tilewright.ir.table import OpSpec, RuleError, Shape
from tilewright.ir.types import FloatType, Type
from tilewright_conformance.op_samples.arithmetic import apply
from tilewright_conformance.op_samples.kernel import (
    ANY,
    STANDARD_FLOATS,
    WIDE_INTEGERS,
    Draw,
    Sample,
    shapes_for,
)


def _accepts(spec: OpSpec, type_: Type) -> bool:
    groups = {operand.name: (type_,) for operand in spec.operands}
    try:
        spec.rule(
            Shape(
                spec, groups, {attribute.name: attribute.default for attribute in spec.attributes}
            )
        )
    except RuleError:
        return False
    return True


def _samples(spec: OpSpec) -> Iterator[Sample]:
    accepted = [type_ for type_ in (*WIDE_INTEGERS, *STANDARD_FLOATS) if _accepts(spec, type_)]
    for index, type_ in enumerate(accepted):
        draw, ulp = (Draw(-4.0, 4.0), 4) if isinstance(type_, FloatType) else (ANY, 0)
        for shape in shapes_for(index):
            yield apply(
                spec.name,
                (type_,) * len(spec.operands),
                shape,
                (draw,) * len(spec.operands),
                ulp=ulp,
            )


SAMPLES: dict[str, Callable[[], Iterator[Sample]]] = {
    spec.name: functools.partial(_samples, spec)
    for spec in TABLE
    if spec.elementwise and not spec.explicit_results
}
