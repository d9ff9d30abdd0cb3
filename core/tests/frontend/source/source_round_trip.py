"""Modules to source and back: the source is compiled, and both modules are compared.

Modules are equal here if they compute the same values by the same operations: the order of
operations without effects, of what loops carry, and names do not matter.
"""

from __future__ import annotations

import itertools
import linecache
from typing import Any

from tilewright.frontend.compile import compile_function
from tilewright.frontend.source.expression_text import parameter_type_text
from tilewright.frontend.source.module_source import source_of_module
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.control import For, If, While
from tilewright.ir.printer import is_default
from tilewright.ir.table import Effect, Trait
from tilewright.passes.clone import clone_module
from tilewright.passes.inline import inline
from tilewright.passes.pipeline import run as run_passes

_FILES = itertools.count()
#: Rounds in which the colors of what a loop carries are refined.
_ROUNDS = 3


def kernels_in(text: str) -> dict[str, Any]:
    """Execute a text of the source, and return what it defines."""
    name = f"<source {next(_FILES)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": f"source_{next(_FILES)}"}
    exec(compile(text, name, "exec"), namespace)
    return namespace


def compiled(text: str, module: Module) -> Module:
    """Compile the source of a module for arguments of the module's types."""
    kernel = module.kernel
    function = kernels_in(text)[kernel.name]
    parts = zip(function.arg_names, kernel.arguments, strict=True)
    signature = {name: parameter_type_text(value.type) for name, value in parts}
    facts = {
        name: dict(attributes)
        for name, attributes in zip(function.arg_names, kernel.argument_attributes, strict=True)
        if attributes
    }
    return compile_function(function, signature, {}, facts)


def round_trip(module: Module) -> tuple[Module, Module, str]:
    """Return a module, and the one compiled from its source, after the standard passes."""
    text = source_of_module(module)
    again = compiled(text, module)
    original = clone_module(module)
    for one in (original, again):
        inline(one)
        run_passes(one)
    return original, again, text


def color(module: Module) -> int:
    """Return a number that modules share if and, but for chance, only if they compute the same."""
    return _Colors(module.kernel).effects


class _Colors:
    def __init__(self, function: Function) -> None:
        self._values: dict[Value, int] = {}
        for index, argument in enumerate(function.arguments):
            self._values[argument] = hash(("argument", index, str(argument.type)))
        self.effects = hash(tuple(self._region(function.body, 0)))

    def _of(self, value: Value) -> int:
        return self._values[value]

    def _region(self, region: Region, start: int) -> list[int]:
        effects: list[int] = []
        for operation in region:
            if not operation.spec.terminator:
                self._operation(operation, effects, start)
        return effects

    def _operation(self, operation: Operation, effects: list[int], start: int) -> None:
        operands = [self._of(value) for value in operation.operands]
        if Trait.COMMUTATIVE in operation.spec.traits:
            operands.sort()
        own = hash(
            (
                operation.name,
                _attributes(operation),
                tuple(operands),
                operation.segments,
                tuple(str(value.type) for value in operation.results),
            )
        )
        if isinstance(operation, If):
            self._if(operation, effects, start)
            return
        if isinstance(operation, For | While):
            self._loop(operation, effects, start)
            return
        for region in operation.regions:
            for index, argument in enumerate(region.arguments):
                self._values[argument] = hash(("element", index, str(argument.type)))
            inner = self._region(region, 0)
            assert region.last is not None
            own = hash((own, tuple(inner), tuple(self._of(x) for x in region.last.operands)))
        if operation.spec.effects & ~Effect.REGION:
            own = hash((own, len(effects), start))
            effects.append(own)
        for index, value in enumerate(operation.results):
            self._values[value] = hash((own, index))

    def _if(self, operation: If, effects: list[int], start: int) -> None:
        condition, sides = self._of(operation.condition), []
        here = hash((start, len(effects)))
        inner = [self._region(region, here) for region in operation.regions]
        for region in operation.regions:
            assert region.last is not None
            sides.append([self._of(value) for value in region.last.operands])
        if any(inner):
            effects.append(hash(("if", condition, *map(tuple, inner))))
        for index, value in enumerate(operation.results):
            self._values[value] = hash((condition, sides[0][index], sides[1][index]))

    def _loop(self, operation: For | While, effects: list[int], start: int) -> None:
        inits = [self._of(value) for value in operation.group("inits")]
        bounds = [self._of(v) for v in operation.operands[: len(operation.operands) - len(inits)]]
        head = hash((operation.name, _attributes(operation), tuple(bounds)))
        first = [hash((head, "carried", value)) for value in inits]
        colors, here = first, hash((start, len(effects)))
        inner: list[int] = []
        for _ in range(_ROUNDS):
            if isinstance(operation, For):
                (body,) = operation.regions
                self._values[body.arguments[0]] = hash((head, "counter"))
                self._bind(body.arguments[1:], colors)
                inner = self._region(body, here)
                final = colors
            else:
                before, body = operation.regions
                self._bind(before.arguments, colors)
                inner = self._region(before, here)
                end = before.last
                assert end is not None
                condition, *final = (self._of(value) for value in end.operands)
                self._bind(body.arguments, final)
                inner = [condition, *inner, *self._region(body, here)]
            assert body.last is not None
            nexts = [self._of(value) for value in body.last.operands]
            colors = [hash((a, b)) for a, b in zip(first, nexts, strict=True)]
        if isinstance(operation, For):
            final = colors
        effectful = any(x.spec.effects & ~Effect.REGION for x in operation.walk())
        if effectful or isinstance(operation, While):
            effects.append(hash((head, tuple(inner))))
        for value, found in zip(operation.results, final, strict=True):
            self._values[value] = hash((head, found))

    def _bind(self, values: list[Value], colors: list[int]) -> None:
        for value, found in zip(values, colors, strict=True):
            self._values[value] = found


def _attributes(operation: Operation) -> tuple[Any, ...]:
    found = {
        name: value
        for name, value in operation.attributes.items()
        if not operation.spec.has_attribute(name)
        or not is_default(operation.spec.attribute(name), value)
    }
    return tuple(sorted((name, str(value)) for name, value in found.items()))
