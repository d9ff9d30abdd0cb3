"""From a directive to a kernel with arguments: a function's operands and results are in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import Builder, Function, Module, Value, verify
from tilewright.ir.parser import ParseError, parse_module
from tilewright.ir.table import OpTable
from tilewright.ir.types import DescriptorType, PointerType, TileType, Type, element_type, shape_of
from tilewright.passes.inline import inline
from tilewright.reference.interpreter import DescriptorValue
from tilewright_conformance.runtests.directives import Contents, Expected, Run
from tilewright_conformance.runtests.literals import (
    Array,
    Literal,
    LiteralError,
    array,
    exact,
    scalar,
)

#: Name of the kernel that calls a function.
KERNEL = "run"


@dataclass(frozen=True)
class Check:
    """An array of the kernel that is compared after the run.

    Attributes:
        name: of the result or argument, for messages.
        index: of the kernel's argument.
        expected: expected numbers; floats as float64, not rounded to the type.
        ulp: units in the last place by which a float may differ.
    """

    name: str
    index: int
    element: Type
    expected: Array
    ulp: float


@dataclass(frozen=True)
class Prepared:
    """A kernel for one directive."""

    module: Module
    arguments: tuple[Any, ...]
    checks: tuple[Check, ...]
    grid: tuple[int, int, int]

    def fresh_arguments(self) -> list[Any]:
        """Return a copy of the arguments, which a run changes in place."""
        return [_copy(value) for value in self.arguments]


def _copy(value: Any) -> Any:
    if isinstance(value, DescriptorValue):
        return DescriptorValue(_copy(value.base), value.shape, value.strides, value.padding)
    return value.copy() if isinstance(value, np.ndarray) else value


def prepare(ir: str, run: Run, table: OpTable, lines: Sequence[str]) -> Prepared:
    """Make the kernel of a directive: the kernel that it names, or one that calls its function.

    Args:
        lines: lines of the file, for messages.

    Raises:
        ParseError: the directive and the function do not fit; says where.
    """
    module = parse_module(ir, table)
    verify(module)
    preparation = _Preparation(module, run, lines)
    try:
        return preparation.prepared()
    except LiteralError as error:
        raise preparation.failure(error.message, error.literal) from None


class _Preparation:
    def __init__(self, module: Module, run: Run, lines: Sequence[str]) -> None:
        self.module, self.run, self.lines = module, run, lines
        function = module.functions.get(run.name)
        if function is None:
            known = ", ".join(f"@{name}" for name in module.functions) or "none"
            raise self.failure(f"there is no function @{run.name}; the file has {known}")
        self.function: Function = function
        self.types: list[Type] = []
        self.arguments: list[Any] = []
        self.checks: list[Check] = []

    def failure(self, message: str, at: Literal | Contents | None = None) -> ParseError:
        line, column = (at.line, at.column) if at is not None else (self.run.line, self.run.column)
        return ParseError(line, column, message, self.lines[line - 1])

    def prepared(self) -> Prepared:
        run, function = self.run, self.function
        for what, found, types in (
            ("arguments", run.arguments, function.arguments),
            ("results", run.results, function.result_types),
        ):
            if len(found) != len(types):
                noun = what if len(types) != 1 else what.removesuffix("s")
                raise self.failure(f"@{run.name} has {len(types)} {noun}, not {len(found)}")
        if not function.kernel and run.grid != (1, 1, 1):
            raise self.failure("only a kernel runs on a grid")
        for argument, literal in zip(function.arguments, run.arguments, strict=True):
            self._argument(argument, literal)
        for index, expected in enumerate(run.results):
            name = f"result {index}" if len(run.results) > 1 else "the result"
            self._result(name, function.result_types[index], expected)
        for contents in run.contents:
            self._contents(contents)
        for name, other in list(self.module.functions.items()):
            if other.kernel and other is not function:
                del self.module.functions[name]
        if not function.kernel:
            self._call()
            inline(self.module)
            verify(self.module)
        return Prepared(self.module, tuple(self.arguments), tuple(self.checks), run.grid)

    def _argument(self, argument: Value, literal: Literal) -> None:
        type_ = argument.type
        if isinstance(type_, PointerType):
            self._add(type_, self._memory(literal, type_.pointee))
        elif isinstance(type_, DescriptorType):
            self._add(type_, self._descriptor(literal, type_))
        elif self.function.kernel:
            self._add(type_, scalar(literal, type_))
        else:
            element = element_type(type_)
            if isinstance(element, PointerType):
                message = f"%{argument.name} is a tile of pointers, which has no text"
                raise self.failure(message, literal)
            self._check_shape(literal, type_)
            self._add(PointerType(element), array(literal, element).reshape(-1))

    def _add(self, type_: Type, value: Any) -> None:
        self.types.append(type_)
        self.arguments.append(value)

    def _memory(self, literal: Literal, element: Type) -> Array:
        if isinstance(element, PointerType):
            raise self.failure("pointers in memory have no text", literal)
        if len(literal.shape()) != 1:
            raise self.failure("expected the memory behind the pointer, a list of numbers", literal)
        return array(literal, element)

    def _descriptor(self, literal: Literal, type_: DescriptorType) -> DescriptorValue:
        shape = literal.shape()
        if len(shape) != type_.rank:
            raise self.failure(f"expected a tensor of rank {type_.rank}, lists in lists", literal)
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return DescriptorValue(array(literal, type_.element), shape, strides)

    def _check_shape(self, literal: Literal, type_: Type) -> None:
        found, wanted = literal.shape(), shape_of(type_)
        if found != wanted:
            text = "x".join(map(str, found)) or "a number"
            raise self.failure(f"expected a value of {type_}, found {text}", literal)

    def _check(self, name: str, index: int, element: Type, expected: Expected) -> None:
        numbers = exact(expected.literal, element)
        self.checks.append(Check(name, index, element, numbers, expected.ulp))

    def _result(self, name: str, type_: Type, expected: Expected) -> None:
        element = element_type(type_)
        if isinstance(element, PointerType):
            raise self.failure(f"{name} is a pointer, which has no text", expected.literal)
        self._check_shape(expected.literal, type_)
        self._check(name, len(self.arguments), element, expected)
        # begins as something that the expected value is not, so that a missing store shows
        wrong = array(expected.literal, element).reshape(-1)
        flipped = ~wrong if wrong.dtype == np.bool_ else (~wrong.view(np.uint8)).view(wrong.dtype)
        self._add(PointerType(element), flipped)

    def _contents(self, contents: Contents) -> None:
        names = [argument.name for argument in self.function.arguments]
        if contents.name not in names:
            known = ", ".join(f"%{name}" for name in names) or "none"
            message = f"there is no argument %{contents.name}; @{self.run.name} has {known}"
            raise self.failure(message, contents)
        index = names.index(contents.name)
        value, literal = self.arguments[index], contents.expected.literal
        memory: Any = value.base if isinstance(value, DescriptorValue) else value
        type_ = self.function.arguments[index].type
        if not isinstance(type_, PointerType | DescriptorType):
            raise self.failure(f"%{contents.name} is of type {type_}, and has no memory", contents)
        if literal.shape() != memory.shape:
            extents = "x".join(map(str, memory.shape))
            raise self.failure(f"expected {extents} elements, as %{contents.name} has", literal)
        element = type_.pointee if isinstance(type_, PointerType) else type_.element
        self._check(f"%{contents.name}", index, element, contents.expected)

    def _call(self) -> None:
        """Add a kernel that loads the function's operands, calls it, and stores its results."""
        kernel = self.module.add(Function(KERNEL, self.types))
        builder = Builder.at_end(kernel.body)
        operands = kernel.arguments[: len(self.function.arguments)]
        given = []
        for operand, argument in zip(operands, self.function.arguments, strict=True):
            if operand.type is not argument.type:
                operand = builder.load(_pointers(builder, operand, argument.type))
            given.append(operand)
        name, types = self.function.name, self.function.result_types
        call = builder.region_op("call", given, regions=(), results=types, callee=name)
        for result, pointer in zip(call.results, kernel.arguments[len(operands) :], strict=True):
            builder.store(_pointers(builder, pointer, result.type), result)
        builder.return_()


def _pointers(builder: Builder, base: Value, type_: Type) -> Value:
    """Return pointers to the elements of a value of ``type_`` that begins at ``base``."""
    if not isinstance(type_, TileType):
        return base
    count = math.prod(type_.shape)
    spread = builder.splat(base, result=TileType((count,), base.type))
    pointers = builder.addptr(spread, builder.arange(start=0, end=count))
    if len(type_.shape) == 1:
        return pointers
    return builder.reshape(pointers, result=TileType(type_.shape, base.type))
