"""A fingerprint of what a module computes: equal for modules that differ only in locations and
value names."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.encoding import Encoding, full_text
from tilewright.ir.printer import is_default, quote
from tilewright.ir.types import Type
from tilewright.recursion import deep_recursion


@deep_recursion()
def structural_hash(module: Module) -> str:
    """The SHA-256, in hexadecimal, of the module's structure.

    It covers version, module attributes, functions (by name, whatever their order), argument types
    and attributes, and every operation with its operands, attributes, result types and regions. It
    leaves out locations, value names, and whether a default is written out.
    """
    parts = [f"tilewright.ir {module.version[0]}.{module.version[1]}"]
    parts += [
        f"{quote(name)}={_attribute(value)}" for name, value in sorted(module.attributes.items())
    ]
    for _, function in sorted(module.functions.items()):
        _Function(parts).function(function)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _attribute(value: Any) -> str:
    """A text that differs for different values, also for true and 1, 0.0 and -0.0, and NaNs of
    other bits."""
    if isinstance(value, float):
        return f"f{struct.pack('<d', value).hex()}"
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, tuple):
        return f"[{','.join([_attribute(item) for item in value])}]"
    if isinstance(value, Type):
        return f"t{value}"
    if isinstance(value, Encoding):
        return full_text(value)
    raise TypeError(f"an attribute holds numbers, strings, types and tuples of them, not {value!r}")


def _typed(value: Value) -> str:
    return str(value.type) if value.layout is None else f"{value.type}, {full_text(value.layout)}"


class _Function:
    """Numbers the values of one function in order of definition."""

    __slots__ = ("numbers", "parts")

    def __init__(self, parts: list[str]) -> None:
        self.parts = parts
        self.numbers: dict[Value, int] = {}

    def function(self, function: Function) -> None:
        kind = "kernel" if function.kernel else "function"
        self.parts.append(
            f"{kind} {quote(function.name)} -> {','.join(map(str, function.result_types))}"
        )
        for attributes in (function.attributes, *function.argument_attributes):
            self.parts.append(
                ",".join(
                    [
                        f"{quote(name)}={_attribute(value)}"
                        for name, value in sorted(attributes.items())
                    ]
                )
            )
        self.region(function.body)

    def region(self, region: Region) -> None:
        self.parts.append(f"({','.join([_typed(value) for value in region.arguments])}){{")
        self._define(region.arguments)
        for operation in region:
            self.operation(operation)
        self.parts.append("}")

    def operation(self, operation: Operation) -> None:
        spec, numbers, given = operation.spec, self.numbers, operation.attributes
        operands = ",".join([str(numbers.get(value, -1)) for value in operation.operands])
        segments = "" if spec.simple_operands else f"{operation.segments}"
        attributes = ""
        if given:
            kept = [
                f"{declared.name}={_attribute(given[declared.name])}"
                for declared in spec.attributes
                if declared.name in given and not is_default(declared, given[declared.name])
            ]
            kept += [
                f"{name}={_attribute(value)}"
                for name, value in sorted(given.items())
                if "." in name
            ]
            attributes = ",".join(kept)
        results = ",".join([_typed(value) for value in operation.results])
        self.parts.append(f"{spec.name} {operands} {segments} {attributes} {results}")
        self._define(operation.results)
        for region in operation.regions:
            self.region(region)

    def _define(self, values: list[Value]) -> None:
        numbers = self.numbers
        for value in values:
            numbers[value] = len(numbers)
