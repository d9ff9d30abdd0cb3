"""Whose doing a narrow access is: arguments of the kernel, numbers that it has loaded, constants of
its source, or what it computes.

Axis analysis says that an address is not known to be a multiple of 16 bytes; who reads that wants
to know whose doing it is. The functions here go back from an access through the arithmetic that
leads to it, along the operands that lack what the access needs, to where these come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import (
    Addptr,
    Arange,
    Binary,
    Bitcast,
    Cast,
    Cmp,
    ProgramId,
    Select,
    Unary,
)
from tilewright.ir.ops.control import For, Yield
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Moved
from tilewright.ir.table import Trait
from tilewright.ir.types import I1, PointerType, TileType, byte_size, element_type
from tilewright.passes.analysis.affine import Affine, Atom
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.analysis.transfer_functions import moved_axes
from tilewright.passes.rewriter import constant_of

#: What is said of arguments.
ARGUMENTS_REMEDY: Final = (
    " (launches state it of multiples of 16 only; for other multiples, state it in the kernel with "
    "tl.multiple_of)"
)


@dataclass
class Sources:
    """Sources of values whose divisibility is insufficient.

    Attributes:
        arguments: name of a kernel's argument -> required divisor; pointers: the arguments that are
            addresses, in bytes.
        loaded: line of a load, 0 if unknown -> required divisor of the loaded number.
        constants: description of a constant -> divisor that it lacks.
        programs: axis of the grid -> divisor that the program id along it lacks.
        computed: description of any other value -> required divisor.
    """

    arguments: dict[str, int] = field(default_factory=dict)
    pointers: dict[str, int] = field(default_factory=dict)
    loaded: dict[int, int] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    programs: dict[int, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self._tables())

    def __str__(self) -> str:
        lacking = [
            f"the address `{name}` is not known to be a multiple of {need} bytes"
            for name, need in self.pointers.items()
        ]
        lacking += [
            f"`{name}` is not known to be a multiple of {need}"
            for name, need in self.arguments.items()
        ]
        for line, need in self.loaded.items():
            place = f" at line {line}" if line else ""
            lacking.append(f"what is loaded{place} is not known to be a multiple of {need}")
        lacking += [f"{what} is no multiple of {need}" for what, need in self.constants.items()]
        lacking += [
            f"tl.program_id({axis}) is no multiple of {need}"
            for axis, need in self.programs.items()
        ]
        lacking += [
            f"{what} is not known to be a multiple of {need}"
            for what, need in self.computed.items()
        ]
        return " and ".join(lacking)

    def add(self, other: Sources) -> None:
        """Add other sources; keep the maximum of the required divisors."""
        for table, more in zip(self._tables(), other._tables(), strict=True):
            for name, need in more.items():
                table[name] = max(need, table.get(name, 1))

    def _tables(self) -> tuple[dict[Any, int], ...]:
        return (
            self.arguments,
            self.pointers,
            self.loaded,
            self.constants,
            self.programs,
            self.computed,
        )

    @property
    def remedy(self) -> str:
        """Advice to the user, in parentheses; empty if only changing the program helps."""
        if self.arguments or self.pointers:
            return ARGUMENTS_REMEDY
        return " (tl.multiple_of states it)" if self.loaded or self.computed else ""


def of_polynomial(number: Polynomial, affine: Affine, need: int) -> Sources:
    """Return why a polynomial is not known to be a multiple of ``need``.

    The sources are the unknowns, or else the factors, of the terms that are not.
    """
    found = Sources()
    for monomial, factor in number.terms:
        term = Polynomial(((monomial, factor),))
        lacking = need // min(need, affine.divisor(term))
        if lacking == 1:
            continue
        of_term = Sources()
        for unknown in monomial:
            others = affine.divisor(
                Polynomial.of({tuple(other for other in monomial if other != unknown): factor})
            )
            _of_atom(affine.atom(unknown), need // min(need, others), of_term)
        if not monomial:
            found.constants[f"the constant {factor}"] = need
        elif abs(factor) != 1 and not (of_term.arguments or of_term.loaded):
            found.constants[f"the factor {factor}"] = need
        else:
            found.add(of_term)
    return found


def _of_atom(atom: Atom, need: int, found: Sources) -> None:
    """Add an unknown of a polynomial with a required divisor."""
    if atom.kind == "program_id":
        found.programs[atom.of[0]] = need
    elif atom.kind == "value":
        (value,) = atom.of
        operation = value.definition
        if (
            operation is None
            and isinstance(value.owner, Region)
            and isinstance(value.owner.owner, Function)
        ):
            found.arguments[value.name] = need
        elif isinstance(operation, Load):
            found.loaded[_line(operation)] = need
        else:
            found.computed[
                "what the kernel computes" if operation is None else _computed(operation)
            ] = need


def strides_text(strides: Sequence[Polynomial], affine: Affine) -> str:
    """The strides of a tile's axes of which none is known to be 1, as the end of a sentence; that
    it may be where one is any number."""
    said, free = [], False
    for stride in strides:
        scalar = next(iter(affine.scalars(stride)), None)
        name = scalar.name if scalar is not None and scalar.definition is None else ""
        said.append(
            str(stride.constant)
            if stride.constant is not None
            else f"`{name}`"
            if name
            else "a product or sum"
        )
        free |= bool(name) and affine.divisor(stride) == 1
    hint = " (a stride that is 1 should be a constant, or an argument that is 1)" if free else ""
    return f": the strides are {' and '.join(said)}{hint}" if said else ""


class AccessCauses:
    """Causes of a function's narrow accesses, found by axis analysis."""

    def __init__(self, function: Function, axes: Mapping[Value, AxisInfo]) -> None:
        self._axes = axes
        self._names = {argument: argument.name for argument in function.arguments}

    def of_address(self, pointer: Value, width: int) -> Sources:
        """Return why groups of ``width`` elements are not known to be aligned.

        The sources are arguments and loaded numbers with insufficient divisors.
        """
        found = Sources()
        self._follow(pointer, width, width * byte_size_of(pointer), found, set())
        return found

    def of_mask(self, mask: Value, axis: int, width: int) -> Sources:
        """Return why groups of ``width`` elements along an axis are not known to share one mask.

        The sources are bounds that the width does not divide.
        """
        found = Sources()
        work, seen = [(mask, axis)], set[tuple[Value, int]]()
        while work:
            value, axis = work.pop()
            if (
                (value, axis) in seen
                or not isinstance(value.type, TileType)
                or self._axes[value].constancy[axis] >= width
            ):
                continue
            seen.add((value, axis))
            operation = value.definition
            if isinstance(operation, Cmp):
                for operand in (
                    operation.operands if operation.predicate not in ("eq", "ne") else ()
                ):
                    self._follow(operand, width, width, found, set())
            elif isinstance(operation, Moved):
                work += self._before(operation, axis)
            elif operation is not None and not isinstance(operation, Load):
                work += [
                    (operand, axis)
                    for operand in operation.operands
                    if element_type(operand.type) is I1
                ]
        return found

    def _before(self, operation: Moved, axis: int) -> list[tuple[Value, int]]:
        """Return the operand and axis that an operation moves to an axis of its result."""
        moved = moved_axes(operation)
        return (
            []
            if moved is None
            else [
                (operation.x, before)
                for before in range(self._axes[operation.x].rank)
                if moved(before) == axis
            ]
        )

    def of_stride(self, pointer: Value, axis: int, width: int) -> Sources:
        """Return why ``width`` addresses along an axis are not known to be consecutive.

        The sources are the arguments and constants that coordinates are multiplied by, loaded
        offsets, and other values computed from coordinates. Their required divisors have no
        meaning.
        """
        found = Sources()
        work, seen = [(pointer, axis)], set[tuple[Value, int]]()
        while work:
            value, axis = work.pop()
            info = self._axes[value]
            along = axis if isinstance(value.type, TileType) and axis < info.rank else -1
            if (
                (value, axis) in seen
                or along < 0
                or max(info.constancy[along], info.contiguity[along]) >= width
            ):
                continue
            seen.add((value, axis))
            operation = value.definition
            if isinstance(operation, Load):
                found.loaded[_line(operation)] = 1
            elif isinstance(operation, Moved):
                before = self._before(operation, axis)
                work += before
                if not before:
                    found.computed[_computed(operation)] = 1
            elif isinstance(operation, Binary) and operation.name == "mul":
                self._stride(operation, axis, found, work)
            elif isinstance(operation, Binary | Unary) and self._descends(operation, axis, width):
                found.constants["-1"] = 1
            elif isinstance(operation, Addptr | Cast | Hint | Select) or (
                operation is not None and operation.name in ("add", "sub")
            ):
                work += [(operand, axis) for operand in operation.operands]
            elif isinstance(operation, For):
                work.append((operation.inits[value.index], axis))
            elif operation is not None:
                lines = self._loads_behind(operation)
                found.loaded.update(dict.fromkeys(lines, 1))
                if not lines:
                    found.computed[_computed(operation)] = 1
            elif (
                isinstance(value.owner, Region)
                and isinstance(loop := value.owner.owner, For)
                and value.index
            ):
                work.append((loop.inits[value.index - 1], axis))
        return found

    def stride_note(self, pointer: Value, axis: int, width: int) -> str:
        """Explain, as the end of a sentence, why addresses along an axis may not be consecutive."""
        cause = self.of_stride(pointer, axis, width)
        if cause.loaded:
            lines = ", ".join(str(line) for line in sorted(cause.loaded) if line)
            return f": they follow what is loaded{f' at line {lines}' if lines else ''}"
        if cause.constants:
            return f": the stride is the constant {' and '.join(cause.constants)}"
        if cause.arguments:
            return f": {' and '.join(self._stride_text(name) for name in cause.arguments)}"
        return f": they follow {' and '.join(cause.computed)}" if cause.computed else ""

    def _stride_text(self, name: str) -> str:
        """Describe an argument that is a stride."""
        argument = next(argument for argument, own in self._names.items() if own == name)
        divisor = self._axes[argument].divisibility_of_all()
        if divisor > 1:
            return f"the stride `{name}` is a multiple of {divisor}"
        return (
            f"`{name}` may be any stride (a stride that is 1 should be a constant, or an "
            "argument that is 1)"
        )

    def _stride(
        self, product: Binary, axis: int, found: Sources, work: list[tuple[Value, int]]
    ) -> None:
        """Add the factor that coordinates along an axis are multiplied by."""
        for operand, other in ((product.a, product.b), (product.b, product.a)):
            name, constant = self._argument(operand), constant_of(operand)
            if name:
                found.arguments[name] = 1
                return
            if isinstance(constant, int):
                if constant != 1:
                    found.constants[f"{constant}"] = 1
                else:
                    work.append((other, axis))
                return
        found.computed[_computed(product)] = 1

    def _loads_behind(self, operation: Operation) -> list[int]:
        """The lines of the loads of tiles that an operation without regions computes from, element
        by element."""
        lines, work, seen = [], [operation], {operation}
        while work:
            each = work.pop()
            if isinstance(each, Load):
                lines.append(_line(each))
            elif each.spec.elementwise or isinstance(each, Moved):
                makers = [
                    operand.definition
                    for operand in each.operands
                    if isinstance(operand.type, TileType) and operand.definition is not None
                ]
                work += [maker for maker in makers if maker not in seen]
                seen.update(makers)
        return lines

    def _descends(self, operation: Binary | Unary, axis: int, width: int) -> bool:
        """Return whether what runs on along an axis is taken from something else, or from 0."""
        if operation.name not in ("sub", "neg"):
            return False
        taken = operation.b if isinstance(operation, Binary) else operation.x
        return isinstance(taken.type, TileType) and self._axes[taken].contiguity[axis] >= width

    def _argument(self, value: Value) -> str:
        """The name of the argument that a value is, moved to tiles or of another type; the empty
        string for others."""
        while isinstance(value.definition, Moved | Cast | Hint):
            value = value.definition.x
        return self._names.get(value, "")

    def _follow(
        self, value: Value, width: int, need: int, found: Sources, seen: set[Value]
    ) -> None:
        """Add where a value comes from that is a multiple of ``need`` at the beginning of no group
        of ``width`` elements."""
        pointer = isinstance(element_type(value.type), PointerType)
        unit = byte_size_of(value) if pointer else 1
        info = self._axes[value]
        if (
            need <= 1
            or value in seen
            or any(info.divisibility_at(axis, width, unit) % need == 0 for axis in range(info.rank))
        ):
            return
        seen.add(value)
        operation, constant = value.definition, constant_of(value)
        if operation is None:
            self._follow_argument(value, width, need, found, seen)
        elif isinstance(constant, int):
            found.constants[f"the constant {constant}"] = need
        elif isinstance(operation, Load):
            line = _line(operation)
            found.loaded[line] = max(need, found.loaded.get(line, 1))
        elif isinstance(operation, Addptr):
            self._follow(operation.pointer, width, need, found, seen)
            self._follow(
                operation.offset, width, need // byte_size_of(operation.pointer), found, seen
            )
        elif isinstance(operation, Binary) and operation.name == "mul":
            self._follow_product(operation, width, need, found, seen)
        elif isinstance(operation, Select):
            for operand in (operation.a, operation.b):
                self._follow(operand, width, need, found, seen)
        elif (
            isinstance(operation, Moved | Cast | Bitcast | Hint)
            or Trait.COMMON_DIVISOR in operation.spec.traits
            or operation.spec.forwards
        ):
            for operand in operation.operands:
                self._follow(operand, width, need, found, seen)
        elif isinstance(operation, For):
            self._follow(operation.inits[value.index], width, need, found, seen)
        elif isinstance(operation, ProgramId):
            found.programs[operation.axis] = max(need, found.programs.get(operation.axis, 1))
        elif not isinstance(operation, Arange):
            what = _computed(operation)
            found.computed[what] = max(need, found.computed.get(what, 1))

    def _follow_product(
        self, product: Binary, width: int, need: int, found: Sources, seen: set[Value]
    ) -> None:
        """Either factor could have what is lacking: an argument is asked for it first, a stride,
        before what only this product is of."""
        for operand, other in ((product.a, product.b), (product.b, product.a)):
            name = self._argument(operand)
            if name:
                had = max(
                    self._axes[other].divisibility_at(axis, 1)
                    for axis in range(self._axes[other].rank)
                )
                found.arguments[name] = max(need // min(need, had), found.arguments.get(name, 1))
                return
        for operand, other in ((product.a, product.b), (product.b, product.a)):
            constant = constant_of(operand)
            if isinstance(constant, int):
                inner = Sources()
                had = constant & -constant
                self._follow(other, width, need // min(need, had), inner, seen)
                if inner.arguments or inner.loaded:
                    found.arguments.update(inner.arguments)
                    found.loaded.update(inner.loaded)
                else:
                    found.constants[f"the factor {constant}"] = need
                return
        for operand in product.operands:
            self._follow(operand, width, need, found, seen)

    def _follow_argument(
        self, value: Value, width: int, need: int, found: Sources, seen: set[Value]
    ) -> None:
        name = self._names.get(value)
        if name is not None:
            table = found.pointers if isinstance(value.type, PointerType) else found.arguments
            table[name] = max(need, table.get(name, 1))
            return
        loop = value.owner.owner if not isinstance(value.owner, Operation) else None
        if not isinstance(loop, For):
            return
        index, last = value.index, loop.body.last
        if index == 0:
            begins, goes_on = loop.lower, loop.step
        else:
            assert isinstance(last, Yield)
            begins, goes_on = loop.inits[index - 1], last.values[index - 1]
        for operand in (begins, goes_on):
            self._follow(operand, width, need, found, seen)


def _computed(operation: Operation) -> str:
    """Describe the result of an operation."""
    line = _line(operation)
    return f"what is computed at line {line}" if line else "what the kernel computes"


def byte_size_of(pointer: Value) -> int:
    """Return the bytes of the pointee of a pointer or tile of pointers."""
    element = element_type(pointer.type)
    assert isinstance(element, PointerType)
    return byte_size(element.pointee)


def _line(operation: Operation) -> int:
    return operation.location.line if operation.location is not None else 0


__all__ = ["ARGUMENTS_REMEDY", "AccessCauses", "Sources", "of_polynomial", "strides_text"]
