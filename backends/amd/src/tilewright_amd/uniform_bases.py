"""Addresses as what all threads of a program have in common and what a thread adds to it.

The common part is kept in scalar registers, and what a thread adds is a 32-bit offset: an access then needs neither a sum of 64 bits nor, where a mask
leaves lanes out, a choice between pointers. Both are read off the affine forms of pointers (:mod:`tilewright.passes.affine`), where all steps along the axes
are constants; index arithmetic is taken not to overflow, as there.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Constant, NumPrograms, ProgramId
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import IntType, PointerType, TileType, element_type
from tilewright.llvm.registers import storage_size
from tilewright.passes.affine import Affine, Atom
from tilewright.passes.affine_forms import Form
from tilewright.passes.polynomials import Polynomial
from tilewright.simt.context import SimtContext
from tilewright.simt.linear_layout import coordinates

#: Offsets are below it, and so is the end of what is accessed.
LIMIT: Final = 1 << 31
#: Common parts that a kernel may have: each takes up to four scalar registers.
_MOST_BASES: Final = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where an access begins: at a pointer of the toolkit's that is the same in all lanes, ``thread`` (the name of an i32 that is not negative) and ``more``
    bytes behind it."""

    base: str
    thread: str
    more: int


class UniformBases:
    """Of a function in its final form."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._uniform: dict[Value, bool] = {}

    @functools.cached_property
    def _affine(self) -> Affine:
        return Affine(self._function)

    @functools.cached_property
    def _forms(self) -> dict[Operation, Form]:
        """The forms of the pointers of accesses, for those that are divided."""
        found: dict[Operation, Form] = {}
        for operation in self._function.walk():
            if isinstance(operation, Load | Store) and isinstance(operation.pointer.type, TileType):
                form = self._affine.form(operation.pointer)
                if form is not None and form.steps and _extent(form, operation.pointer) is not None:
                    found[operation] = form
        distinct = {(form.base, form.start.minus(Polynomial.number(_constant(form)))) for form in found.values()}
        return found if len(distinct) <= _MOST_BASES else {}

    def places(self, context: SimtContext, operation: Load | Store) -> list[Place] | None:
        """For each register of an operation's pointers; None where they cannot be divided."""
        form = self._forms.get(operation)
        if form is None or form.base is None or not self._are_known(context, operation, form):
            return None
        pointer = operation.pointer
        element = element_type(pointer.type)
        assert isinstance(element, PointerType) and isinstance(pointer.type, TileType)
        size, more = storage_size(element.pointee), _constant(form)
        base = self._base(context, form, form.start.minus(Polynomial.number(more)), size)
        w, layout, shape = context.writer, context.layout(pointer), pointer.type.shape
        steps = {key: step.constant for key, step in form.steps}
        images = [coordinates(image, shape) for image in (*layout.lanes, *layout.warps)]
        lanes = len(layout.lanes)
        found, sums = [], dict[tuple[int, ...], str]()
        for number in layout.register_elements():
            at, apart = coordinates(number, shape), more * size
            mixed = []
            for axis, step in steps.items():
                assert isinstance(axis, int) and step is not None
                if at[axis] & functools.reduce(lambda a, b: a | b, (image[axis] for image in images), 0):
                    mixed.append(at[axis])
                else:
                    mixed.append(0)
                    apart += at[axis] * step * size
            key = tuple(mixed)
            if key not in sums:
                terms = []
                for (axis, step), together in zip(steps.items(), key, strict=True):
                    assert isinstance(axis, int) and step is not None
                    part = context.thread_part([image[axis] for image in images[:lanes]], [image[axis] for image in images[lanes:]])
                    part = w.emit(f"xor i32 {part}, {together}") if together else part
                    if part != "0":
                        terms.append(w.emit(f"mul nuw nsw i32 {part}, {step * size}"))
                sums[key] = functools.reduce(lambda a, b: w.emit(f"add nuw nsw i32 {a}, {b}"), terms) if terms else "0"
            found.append(Place(base, sums[key], apart))
        return found

    def _are_known(self, context: SimtContext, operation: Operation, form: Form) -> bool:
        """Whether what a common part is made of is written where an operation is."""
        assert form.base is not None
        return _is_known(context, operation, form.base) and all(
            self._value(context, operation, self._affine.atom(number), number) is not None for number in form.start.unknowns()
        )

    def _value(self, context: SimtContext, operation: Operation, atom: Atom, number: int) -> Value | For | None:
        """The scalar that an unknown is, or the loop that it counts the iterations of."""
        if atom.kind == "iteration":
            (loop,) = atom.of
            step = self._affine.number(loop.step).constant
            return loop if loop in operation.ancestors() and step is not None and step > 0 and _is_known(context, operation, loop.lower) else None
        values = atom.of if atom.kind == "value" else self._affine.scalars(Polynomial.unknown(number))
        return next((value for value in values if _is_known(context, operation, value)), None)

    def _base(self, context: SimtContext, form: Form, start: Polynomial, size: int) -> str:
        w, total = context.writer, ""
        operation = context.operation
        assert operation is not None and form.base is not None
        for monomial, factor in start.terms:
            term = ""
            for number in monomial:
                name = self._wide(context, self._value(context, operation, self._affine.atom(number), number))
                term = w.emit(f"mul i64 {term}, {name}") if term else name
            term = w.emit(f"mul i64 {term}, {factor * size}") if term else str(factor * size)
            total = w.emit(f"add i64 {total}, {term}") if total else term
        base = context.scalar(form.base)
        if not self._is_uniform(form.base):
            base = w.emit(f"inttoptr i64 {_first(context, w.emit(f'ptrtoint ptr {base} to i64'), 'i64')} to ptr")
        return w.emit(f"getelementptr i8, ptr {base}, i64 {total}") if total else base

    def _wide(self, context: SimtContext, value: Value | For | None) -> str:
        """A scalar as an i64."""
        assert value is not None
        w = context.writer
        if isinstance(value, For):
            induction, lower = (self._wide(context, each) for each in (value.body.arguments[0], value.lower))
            step = self._affine.number(value.step).constant
            passed = induction if lower == "0" else w.emit(f"sub i64 {induction}, {lower}")
            return passed if step == 1 else w.emit(f"sdiv exact i64 {passed}, {step}")
        name, type_ = context.scalar(value), context.llvm_type(value.type)
        if not self._is_uniform(value):
            name = _first(context, name, type_)
        element = value.type
        assert isinstance(element, IntType)
        if type_ == "i64" or name == "0":
            return name
        counts = isinstance(value.owner, ProgramId | NumPrograms) or not element.signed
        return w.emit(f"{'zext' if counts else 'sext'} {type_} {name} to i64")

    def _is_uniform(self, value: Value) -> bool:
        """Whether LLVM sees that a scalar is the same in all lanes, which the toolkit knows of each."""
        if value not in self._uniform:
            self._uniform[value] = False
            owner = value.owner
            if isinstance(owner, Region):
                loop = owner.owner
                counted = isinstance(loop, For) and value is owner.arguments[0]
                found = isinstance(loop, Function) or (counted and all(map(self._is_uniform, (loop.lower, loop.step))))  # type: ignore[union-attr]
            elif isinstance(owner, Load):
                found = not owner.volatile and all(map(self._is_uniform, owner.operands))
            else:
                plain = isinstance(owner, ProgramId | NumPrograms | Constant) or owner.spec.elementwise
                found = plain and all(map(self._is_uniform, owner.operands))
            self._uniform[value] = found
        return self._uniform[value]


def _first(context: SimtContext, name: str, type_: str) -> str:
    """The value of the first lane."""
    return context.writer.intrinsic("llvm.amdgcn.readfirstlane", type_, [(type_, name)])


def _is_known(context: SimtContext, operation: Operation, value: Value) -> bool:
    """Whether a scalar is written, in a region that an operation is in."""
    if value not in context.registers or isinstance(value.type, TileType):
        return False
    region = value.owner if isinstance(value.owner, Region) else value.owner.parent
    return isinstance(region, Region) and (isinstance(region.owner, Function) or region in _regions(operation))


def _regions(operation: Operation) -> list[Region]:
    found: list[Region] = []
    place: Operation | Function | None = operation
    while isinstance(place, Operation) and isinstance(place.parent, Region):
        found.append(place.parent)
        place = place.parent.owner
    return found


def _constant(form: Form) -> int:
    """The part of a form's start that is a number, where offsets may have it."""
    found = dict(form.start.terms).get((), 0)
    return found if found > 0 else 0


def _extent(form: Form, pointer: Value) -> int | None:
    """Bytes from the common part of a tile's addresses to its end; None where that is not known to be below the limit."""
    assert isinstance(pointer.type, TileType)
    element = element_type(pointer.type)
    assert isinstance(element, PointerType)
    total = _constant(form) + 1
    for key, step in form.steps:
        if not isinstance(key, int) or step.constant is None or step.constant < 0:
            return None
        total += (pointer.type.shape[key] - 1) * step.constant
    total *= storage_size(element.pointee)
    return total if total < LIMIT else None
