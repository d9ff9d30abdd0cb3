"""The text form of a module, which :mod:`tilewright.ir.parser` reads back exactly.

    tilewright.ir 1.0 {target = "any"}

    kernel @add(%x: ptr<f32> {divisibility = 16}, %n: i32) {
      %pid = program_id 0 : i32
      %v = load %p, mask=%m {eviction = first} : tile<1024xf32> loc("add.py":12:4 in "add")
      %acc#1 = for %lo, %hi, %step, inits=[%acc] {num_stages = 3} : f32 body(%i: i32, %acc#2: f32) {
        yield %acc#2
      }
      return
    }

One line an operation: results, name, operands by group, attributes, result types, regions,
location.

- Single operands come bare, optional ones as ``name=%v``, variadic groups as ``name=[%v, ...]``;
  absent optional operands and empty variadic groups are absent. The operands of an operation with
  only one group come bare whatever its kind.
- Attributes come in the table's order, those equal to their default not at all. An operation
  without operands and with a single attribute writes the value bare.
- Layouts and other encodings are named in lines after the header, ``#L0 = layout<...>``, and a tile
  that has one says so: ``tile<64x32xf16, #L0>``.
- What is known of a whole function stands before its body:
  ``kernel @add(...) attributes {warps = 4} {``.
- A value is called by its name hint, made unique by ``#n``; ``%0``, ``%1`` ... have no hint. Hints
  that are no identifiers are quoted.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.core import Function, Location, Module, Operation, Region, Value
from tilewright.ir.encoding import Encoding, EncodingNames, EncodingText, full_text
from tilewright.ir.table import Attribute, Kind, OpSpec
from tilewright.ir.types import Type
from tilewright.recursion import deep_recursion

_BARE = re.compile(r"[^\W\d][\w.]*\Z")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
#: Words that mean a number or a boolean where an attribute's value is expected.
RESERVED_WORDS = frozenset({"true", "false", "inf", "nan"})
_CANONICAL_NAN = 0x7FF8000000000000


def quote(text: str) -> str:
    """``text`` in double quotes; what cannot be seen is escaped as ``\\u{hex}``."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return (
        '"'
        + "".join(
            _ESCAPES.get(char) or (char if char.isprintable() else f"\\u{{{ord(char):x}}}")
            for char in text
        )
        + '"'
    )


def float_text(value: float) -> str:
    """The shortest decimal that reads back as ``value``; a NaN that is not the usual one shows its
    bits."""
    if value != value:
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return "nan" if bits == _CANONICAL_NAN else f"nan({bits:#x})"
    return repr(value)


def name_text(name: str) -> str:
    """A name, quoted unless it is an identifier (dots allowed)."""
    return name if _BARE.match(name) else quote(name)


def attribute_text(
    value: Any, declared: Attribute | None = None, encoding: EncodingText = full_text
) -> str:
    """An attribute's value.

    Choices of an enumeration come without quotes where they are identifiers.
    """
    if isinstance(value, str):
        bare = (
            declared is not None
            and declared.kind == "enum"
            and _BARE.match(value)
            and value not in RESERVED_WORDS
        )
        return value if bare else quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, tuple):
        return f"[{', '.join([attribute_text(item, None, encoding) for item in value])}]"
    if isinstance(value, Type):
        return value.written(encoding)
    if isinstance(value, Encoding):
        return encoding(value)
    raise TypeError(f"an attribute holds numbers, strings, types and tuples of them, not {value!r}")


def location_text(location: Location) -> str:
    """``loc("file":line:column in "function" at "file":line:column in "caller")``."""
    return f"loc({' at '.join([_place(place) for place in location.chain()])})"


def _place(place: Location) -> str:
    text = f"{quote(place.file)}:{place.line}:{place.column}"
    return f"{text} in {quote(place.function)}" if place.function else text


def is_default(declared: Attribute, value: Any) -> bool:
    """Return whether ``value`` is the attribute's default, so that it goes without saying."""
    return (
        not declared.required
        and type(value) is type(declared.default)
        and value == declared.default
    )


def bare_attribute(spec: OpSpec) -> Attribute | None:
    """The attribute that stands without braces: the only one of an operation without operands."""
    return (
        spec.attributes[0]
        if not spec.operands and len(spec.attributes) == 1 and spec.attributes[0].required
        else None
    )


class Names:
    """The names of one function's values, given out in order of definition."""

    __slots__ = ("_counts", "_texts", "_unnamed")

    def __init__(self) -> None:
        self._texts: dict[Value, str] = {}
        self._counts: dict[str, int] = {}
        self._unnamed = 0

    @classmethod
    def of(cls, function: Function) -> Names:
        """Return the names in a full print of ``function``."""
        names = cls()
        names._define_region(function.body)
        return names

    def _define_region(self, region: Region) -> None:
        for argument in region.arguments:
            self[argument]
        for operation in region:
            for result in operation.results:
                self[result]
            for inner in operation.regions:
                self._define_region(inner)

    def __getitem__(self, value: Value) -> str:
        text = self._texts.get(value)
        if text is None:
            hint = value.name
            if not hint:
                text = f"%{self._unnamed}"
                self._unnamed += 1
            else:
                count = self._counts.get(hint, 0)
                self._counts[hint] = count + 1
                text = f"%{name_text(hint)}#{count}" if count else f"%{name_text(hint)}"
            self._texts[value] = text
        return text


@deep_recursion()
def print_module(module: Module, *, locations: bool = True) -> str:
    """Return the module as text that ends with a newline.

    Malformed modules print, too, as well as they can.
    """
    major, minor = module.version
    header = f"tilewright.ir {major}.{minor}"
    if module.attributes:
        header += f" {_attributes_text(module.attributes)}"
    encodings = EncodingNames()
    functions = [
        print_function(function, locations=locations, encoding=encodings)
        for function in module.functions.values()
    ]
    return "\n\n".join(["\n".join([header, *encodings.definitions()]), *functions]) + "\n"


def print_function(
    function: Function, *, locations: bool = True, encoding: EncodingText = full_text
) -> str:
    """One function as text, without a newline at its end."""
    printer = _Printer(Names(), locations, encoding)
    head = f"{'kernel' if function.kernel else 'function'} @{name_text(function.name)}"
    arguments = []
    for index, argument in enumerate(function.arguments):
        text = f"{printer.names[argument]}: {printer.typed(argument)}"
        attributes = (
            function.argument_attributes[index]
            if index < len(function.argument_attributes)
            else None
        )
        arguments.append(f"{text} {_attributes_text(attributes)}" if attributes else text)
    results = ""
    if len(function.result_types) == 1:
        results = f" -> {function.result_types[0]}"
    elif function.result_types:
        results = f" -> ({', '.join(map(str, function.result_types))})"
    if function.attributes:
        results += f" attributes {_attributes_text(function.attributes)}"
    printer.lines.append(f"{head}({', '.join(arguments)}){results} {{")
    printer.body(function.body, "  ")
    end = (
        f"}} {location_text(function.location)}"
        if locations and function.location is not None
        else "}"
    )
    printer.lines.append(end)
    return "\n".join(printer.lines)


def print_operation(operation: Operation, *, locations: bool = True) -> str:
    """One operation with its regions. Its values are called as in a print of the whole function."""
    printer = _Printer(_names_around(operation), locations, full_text)
    printer.operation(operation, "")
    return "\n".join(printer.lines)


def _names_around(operation: Operation) -> Names:
    region = operation.parent
    while region is not None and isinstance(region.owner, Operation):
        region = region.owner.parent
    return (
        Names.of(region.owner)
        if region is not None and isinstance(region.owner, Function)
        else Names()
    )


def _attributes_text(attributes: Mapping[str, Any]) -> str:
    texts = [f"{name_text(name)} = {attribute_text(value)}" for name, value in attributes.items()]
    return f"{{{', '.join(texts)}}}"


class _Printer:
    """Collects the lines of one function."""

    __slots__ = ("encoding", "lines", "locations", "names")

    def __init__(self, names: Names, locations: bool, encoding: EncodingText) -> None:
        self.names, self.locations, self.encoding = names, locations, encoding
        self.lines: list[str] = []

    def typed(self, value: Value) -> str:
        """A value's type, with its layout where it has one: ``tile<64x32xf16, #L0>``."""
        text = value.type.written(self.encoding)
        return text if value.layout is None else f"{text[:-1]}, {self.encoding(value.layout)}>"

    def body(self, region: Region, indent: str) -> None:
        for operation in region:
            self.operation(operation, indent)

    def operation(self, operation: Operation, indent: str) -> None:
        spec, names = operation.spec, self.names
        parts = [indent]
        if operation.results:
            parts += [", ".join([names[value] for value in operation.results]), " = "]
        parts.append(spec.name)
        operands = self._operands(operation)
        if operands:
            parts += [" ", operands]
        if operation.attributes:
            parts.append(self._attributes(operation))
        if operation.results:
            parts += [" : ", ", ".join([self.typed(value) for value in operation.results])]
        for index, region in enumerate(operation.regions):
            name = spec.regions[index] if index < len(spec.regions) else f"region{index}"
            arguments = ", ".join(
                [f"{names[value]}: {self.typed(value)}" for value in region.arguments]
            )
            parts.append(f" {name}({arguments}) {{" if arguments else f" {name} {{")
            self.lines.append("".join(parts))
            self.body(region, indent + "  ")
            parts = [indent, "}"]
        if self.locations and operation.location is not None:
            parts += [" ", location_text(operation.location)]
        self.lines.append("".join(parts))

    def _operands(self, operation: Operation) -> str:
        spec, names = operation.spec, self.names
        texts = [names[value] for value in operation.operands]
        if spec.simple_operands or len(spec.operands) == 1:
            return ", ".join(texts)
        parts: list[str] = []
        start = 0
        for declared, size in zip(spec.operands, operation.segments, strict=False):
            group: Sequence[str] = texts[start : start + size]
            start += size
            if not group:
                continue
            if declared.kind is Kind.SINGLE:
                parts += group
            elif declared.kind is Kind.OPTIONAL:
                parts.append(f"{declared.name}={group[0]}")
            else:
                parts.append(f"{declared.name}=[{', '.join(group)}]")
        return ", ".join(parts)

    def _attributes(self, operation: Operation) -> str:
        spec, given = operation.spec, operation.attributes
        if (
            bare_attribute(spec) is not None
            and len(given) == 1
            and spec.attributes[0].name in given
        ):
            bare = spec.attributes[0]
            return f" {attribute_text(given[bare.name], bare, self.encoding)}"
        texts = [
            f"{declared.name} = {attribute_text(given[declared.name], declared, self.encoding)}"
            for declared in spec.attributes
            if declared.name in given and not is_default(declared, given[declared.name])
        ]
        texts += [
            f"{name_text(name)} = {attribute_text(value, None, self.encoding)}"
            for name, value in sorted(given.items())
            if not spec.has_attribute(name)
        ]
        return f" {{{', '.join(texts)}}}" if texts else ""


__all__ = ["Names", "location_text", "print_function", "print_module", "print_operation"]
