"""Strength-reduced addresses: a thread's addresses as uniform distances from its first one.

Where the distances are the same for all threads, a thread holds one address of a tile. The
distances are polynomials over scalars of the program, which the hardware keeps once for all threads
of a warp, or folds into its accesses. Index arithmetic is assumed not to overflow, as in
:mod:`tilewright.passes.analysis.affine`. Strength reduction is done on targets with few registers,
and elsewhere for copies ahead into shared memory at constant distances, which take no registers.
"""

from __future__ import annotations

import functools
import operator

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.types import IntType, TileType
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.passes.analysis.affine import Affine, is_inside
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.ops.async_copy import CopyStart, LoadStart
from tilewright.simt.layouts.linear_layout import coordinates
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.simt_target import SimtTarget


class AddressSteps:
    """The strength-reduced addresses of a function in its final form."""

    def __init__(self, function: Function, target: SimtTarget) -> None:
        self._function, self._few = function, target.resources.few_registers
        self._affine: Affine | None = None
        self._known: dict[Operation, tuple[Polynomial, ...] | None] = {}

    def of(self, operation: Operation) -> tuple[Polynomial, ...] | None:
        """Return the distance of each register's address from the first one's, in elements.

        Returns None if the distances may differ between threads, or if the operation computes all
        its addresses.
        """
        if not isinstance(operation, CopyStart) and not (
            self._few and isinstance(operation, LoadStart)
        ):
            return None
        if operation not in self._known:
            self._affine = self._affine or Affine(self._function)
            found = _steps(self._affine, operation)
            pays = self._few or (
                found is not None and not any(distance.unknowns() for distance in found)
            )
            self._known[operation] = found if pays else None
        return self._known[operation]

    def distance(self, context: SimtContext, polynomial: Polynomial, size: int) -> str:
        """Emit a distance in bytes, as an i64, for elements of ``size`` bytes."""
        assert self._affine is not None
        w, terms = context.writer, []
        for monomial, factor in polynomial.terms:
            name = str(factor * size)
            for number in monomial:
                name = w.emit(
                    f"mul i64 {_wide(context, w, self._affine.atom(number).of[0])}, {name}"
                )
            terms.append(name)
        return functools.reduce(lambda a, b: w.emit(f"add i64 {a}, {b}"), terms)


def _wide(context: SimtContext, w: FunctionWriter, value: Value) -> str:
    """Sign-extend an integer to i64."""
    name, type_ = context.scalar(value), context.llvm_type(value.type)
    return name if type_ == "i64" else w.emit(f"sext {type_} {name} to i64")


def _steps(affine: Affine, operation: CopyStart | LoadStart) -> tuple[Polynomial, ...] | None:
    pointer = operation.pointer
    assert isinstance(pointer.type, TileType)
    layout = layout_of(pointer)
    # a register's offset never carries into the thread's offset
    form = (
        affine.form(pointer)
        if sum(layout.images) == functools.reduce(operator.or_, layout.images, 0)
        else None
    )
    if form is None:
        return None
    steps = [form.step(axis) for axis in range(pointer.type.rank)]
    found = []
    for element in layout.register_elements():
        distance = Polynomial()
        for step, coordinate in zip(steps, coordinates(element, pointer.type.shape), strict=True):
            if not coordinate:
                continue
            if step is None:
                return None
            distance = distance.plus(step, coordinate)
        found.append(distance)
    return (
        tuple(found) if all(_is_known(affine, distance, operation) for distance in found) else None
    )


def _is_known(affine: Affine, polynomial: Polynomial, operation: Operation) -> bool:
    """Return whether a polynomial's unknowns are signed scalars defined outside the loops.

    The loops are those around the operation.
    """
    for number in polynomial.unknowns():
        atom = affine.atom(number)
        if atom.kind != "value":
            return False
        (value,) = atom.of
        if (
            not isinstance(value.type, IntType)
            or not value.type.signed
            or any(is_inside(value, outer) for outer in operation.ancestors())
        ):
            return False
    return True
