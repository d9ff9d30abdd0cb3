"""Reading a module back from the text form that :mod:`tilewright.ir.printer` writes.

A tokenizer made of one regular expression and a recursive descent over its tokens. White space and
``//`` comments mean nothing. The parser checks what it needs to build the graph (names, counts of
operands and results); the rules of the op table are the verifier's.
"""

from __future__ import annotations

import difflib
import functools
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from tilewright.ir.core import IR_VERSION, Function, Location, Module, Operation, Region, Value
from tilewright.ir.encoding import Encoding
from tilewright.ir.ops import TABLE
from tilewright.ir.printer import bare_attribute
from tilewright.ir.table import Attribute, Kind, OpSpec, OpTable
from tilewright.ir.type_text import parse_type, split_comma
from tilewright.ir.types import Type
from tilewright.recursion import deep_recursion

_T = TypeVar("_T")

_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_PLACE = re.compile(r'"([^"\\\n]*)":(\d{1,9}):(\d{1,9})(?: in "([^"\\\n]*)")?')
_PLACE_TEXT = r'"[^"\\\n]*":\d{1,9}:\d{1,9}(?:\ in\ "[^"\\\n]*")?'
#: One token and the space before it. A location as the printer writes it is one token, where no
#: name in it has escapes: most of a module's text is locations.
_TOKEN = re.compile(
    rf"""
    (?:\s+|//[^\n]*)*+
  (?:
    (?P<value>%(?:\d+|(?:[^\W\d][\w.]*|"(?:[^"\\\n]|\\.)*")(?:\#\d+)?))
  | (?P<symbol>@(?:[^\W\d][\w.]*|"(?:[^"\\\n]|\\.)*"))
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<location>loc\({_PLACE_TEXT}(?:\ at\ {_PLACE_TEXT})*\))
  | (?P<encoding>\#[^\W\d]\w*)
  | (?P<shaped>[^\W\d][\w.]*<)
  | (?P<number>nan\(0x[0-9a-f]+\)|-inf\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<word>[^\W\d][\w.]*)
  | (?P<mark>->|[{{}}()\[\]=,:])
  | (?P<end>\Z)
  )
    """,
    re.X,
)
_ESCAPE = re.compile(r'\\(?:u\{([0-9a-f]+)\}|(["\\ntr]))|\\.')
_PLAIN = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r"}
_type = functools.lru_cache(maxsize=4096)(parse_type)


class ParseError(ValueError):
    """The text is no module.

    ``line`` and ``column`` count from 1; ``message`` says what was expected; ``str`` shows the
    source line with a caret.
    """

    def __init__(self, line: int, column: int, message: str, source: str = "") -> None:
        where = f"line {line}, column {column}: {message}"
        super().__init__(f"{where}\n  {source}\n  {' ' * (column - 1)}^" if source else where)
        self.line, self.column, self.message, self.source = line, column, message, source

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.line, self.column, self.message, self.source)


@deep_recursion()
def parse_module(text: str, table: OpTable = TABLE) -> Module:
    """The module that ``text`` describes, unverified.

    ``table`` is the op table, extended by the plugins whose operations occur.

    Raises:
        ParseError: the text does not follow the grammar, or is of an IR version that this one does
            not read.
    """
    return _Parser(text, table).module()


class _Parser:
    """Tokens and the place among them.

    ``scope`` maps the names that may be read here to their values.
    """

    def __init__(self, text: str, table: OpTable) -> None:
        self.text, self.table = text, table
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.offsets: list[int] = []
        self.at = 0
        self.scope: dict[str, Value] = {}
        self.encodings: dict[str, Encoding] = {}
        self.locations: dict[str, Location | None] = {}
        self._tokenize()

    def _tokenize(self) -> None:
        text, match = self.text, _TOKEN.match
        kinds, texts, offsets = self.kinds, self.texts, self.offsets
        kind, end = "", 0
        while kind != "end":
            found = match(text, end)
            if found is None:
                space = _SPACE.match(text, end)
                offset = space.end() if space else end
                self._fail(f"{text[offset]!r} begins nothing that the text form has", offset)
            kind = found.lastgroup or ""
            offset, end = found.span(kind)
            if kind == "shaped":
                end = self._close_bracket(offset, end)
            kinds.append(kind)
            texts.append(text[offset:end])
            offsets.append(offset)

    def _close_bracket(self, start: int, offset: int) -> int:
        """The end of the type that begins at ``start``, whose first '<' ends at ``offset``."""
        depth, text = 1, self.text
        while depth:
            following = text[offset : offset + 1]
            if following in ("", "\n"):
                self._fail("this type has no closing '>'", start)
            depth += (following == "<") - (following == ">")
            offset += 1
        return offset

    # Tokens.

    def _fail(self, message: str, offset: int | None = None) -> NoReturn:
        """Raise at ``offset``, or at the current token."""
        if offset is None:
            offset = self.offsets[self.at]
        start = self.text.rfind("\n", 0, offset) + 1
        source = self.text[start:].partition("\n")[0]
        raise ParseError(self.text.count("\n", 0, offset) + 1, offset - start + 1, message, source)

    def _found(self) -> str:
        return f"'{self.texts[self.at]}'" if self.kinds[self.at] != "end" else "the end of the text"

    def _expected(self, what: str) -> NoReturn:
        self._fail(f"expected {what}, found {self._found()}")

    def _is(self, text: str) -> bool:
        return self.texts[self.at] == text and self.kinds[self.at] in ("mark", "word")

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self.at += 1
            return True
        return False

    def _expect(self, text: str, what: str = "") -> None:
        if not self._accept(text):
            self._expected(f"'{text}' {what}".rstrip())

    def _take(self, kind: str, what: str) -> str:
        if self.kinds[self.at] != kind:
            self._expected(what)
        self.at += 1
        return self.texts[self.at - 1]

    def _listed(self, item: Callable[[], _T], end: str) -> list[_T]:
        """Items between commas up to and with ``end``."""
        found: list[_T] = []
        if self._accept(end):
            return found
        while True:
            found.append(item())
            if self._accept(end):
                return found
            self._expect(",", f"or '{end}'")

    def _integer(self, what: str) -> int:
        text = self._take("number", what)
        try:
            return int(text)
        except ValueError:
            self.at -= 1
            self._expected(what)

    def _string(self, what: str = "a string") -> str:
        return self._unquote(self._take("string", what), self.offsets[self.at - 1])

    def _unquote(self, text: str, offset: int) -> str:
        def plain(found: re.Match[str]) -> str:
            if found[1]:
                code = int(found[1], 16)
                return (
                    chr(code)
                    if code <= 0x10FFFF
                    else self._fail(f"no character has the code {found[1]}", offset)
                )
            return (
                _PLAIN[found[2]]
                if found[2]
                else self._fail(
                    f"'{found[0]}' is no escape; there are \\\" \\\\ \\n \\t \\r and \\u{{hex}}",
                    offset,
                )
            )

        body = text[1:-1]
        return _ESCAPE.sub(plain, body) if "\\" in body else body

    def _name(self, text: str, offset: int) -> str:
        """A name that may be quoted."""
        return self._unquote(text, offset) if text.startswith('"') else text

    def _hint(self, text: str, offset: int) -> str:
        """The name hint of a value's text: no hint for a number, and without the ``#n`` that makes
        it unique."""
        name = text[1:]
        if name.isdecimal():
            return ""
        if not name.endswith('"'):
            stem, mark, count = name.rpartition("#")
            if mark and count.isdecimal():
                name = stem
        return self._name(name, offset)

    # Module and functions.

    def module(self) -> Module:
        if not self._accept("tilewright.ir"):
            self._expected("'tilewright.ir' and the version")
        version = self._version()
        module = Module(version)
        if self._accept("{"):
            module.attributes.update(self._free_attributes())
        while self.kinds[self.at] == "encoding":
            self._encoding_definition()
        while self.kinds[self.at] != "end":
            where = self.offsets[self.at]
            function = self._function()
            if function.name in module.functions:
                self._fail(f"the module has a function @{function.name} already", where)
            module.add(function)
        return module

    def _version(self) -> tuple[int, int]:
        where = self.offsets[self.at]
        major, dot, minor = self._take("number", "the IR's version, MAJOR.MINOR").partition(".")
        if not (major.isdecimal() and dot and minor.isdecimal()):
            self._fail("expected the IR's version, MAJOR.MINOR", where)
        version = int(major), int(minor)
        if version[0] != IR_VERSION[0] or version > IR_VERSION:
            ours = ".".join(map(str, IR_VERSION))
            self._fail(
                f"the text is of Tile IR version {major}.{minor}; this compiler reads "
                f"{IR_VERSION[0]}.0 to {ours}",
                where,
            )
        return version

    def _encoding_definition(self) -> None:
        name, where = self._take("encoding", "an encoding's name"), self.offsets[self.at - 1]
        if name in self.encodings:
            self._fail(f"{name} is defined already", where)
        self._expect("=", f"and what {name} is")
        text = self._take("shaped", "an encoding, keyword<...>")
        self.at -= 1
        try:
            self.encodings[name] = self._encoding(text)
        except ValueError as error:
            self._fail(str(error))
        self.at += 1

    def _encoding(self, text: str) -> Encoding:
        """The encoding of a name, or of a whole text.

        Raises:
            ValueError: there is none.
        """
        if text.startswith("#"):
            found = self.encodings.get(text)
            if found is None:
                raise ValueError(
                    f"{text} is not defined before it is read here{_closest(text, self.encodings)}"
                )
            return found
        keyword, _, rest = text.partition("<")
        parse = self.table.encodings.get(keyword)
        if parse is None or not rest.endswith(">"):
            raise ValueError(
                f"{text!r} is no "
                f"encoding{_choice(list(self.table.encodings)).replace('it has', 'there are')}"
            )
        return parse(rest[:-1])

    def _function(self) -> Function:
        kernel = self._is("kernel")
        if not kernel and not self._is("function"):
            self._expected("'kernel' or 'function'")
        self.at += 1
        name = self._name(
            self._take("symbol", "the function's name, @name")[1:], self.offsets[self.at - 1]
        )
        self.scope = {}
        self._expect("(", "and the arguments")
        arguments: list[tuple[Value, dict[str, Any]]] = []
        region = Region()

        def argument() -> None:
            value = self._argument(region)
            arguments.append((value, self._free_attributes() if self._accept("{") else {}))

        self._listed(argument, ")")
        results: list[Type] = []
        if self._accept("->"):
            results = self._listed(self._type, ")") if self._accept("(") else [self._type()]
        function = Function(name, (), results, kernel=kernel)
        if self._accept("attributes"):
            self._expect("{", "and the function's attributes")
            function.attributes = self._free_attributes()
        region.owner = function
        function.body = region
        function.argument_attributes = [attributes for _, attributes in arguments]
        self._expect("{", "and the function's body")
        self._operations(region)
        function.location = self._location()
        return function

    def _argument(self, region: Region) -> Value:
        text, offset = self._take("value", "an argument, %name: type"), self.offsets[self.at - 1]
        self._expect(":", "and the argument's type")
        type_, layout = self._typed()
        value = region.add_argument(type_, self._hint(text, offset))
        value.layout = layout
        self._define(text, value, offset)
        return value

    def _define(self, text: str, value: Value, offset: int) -> None:
        if text in self.scope:
            self._fail(f"{text} is defined already", offset)
        self.scope[text] = value

    def _type(self) -> Type:
        where = self.offsets[self.at]
        found, layout = self._typed()
        if layout is not None:
            self._fail("a layout has no place here", where)
        return found

    def _typed(self) -> tuple[Type, Encoding | None]:
        """A type, and the layout of a value of it."""
        if self.kinds[self.at] not in ("shaped", "word"):
            self._expected("a type")
        text = self.texts[self.at]
        layout: Encoding | None = None
        try:
            keyword, bracket, rest = text.partition("<")
            if keyword in self.table.types:
                found = self.table.types[keyword](rest[:-1] if bracket else "", self._encoding)
            else:
                body, comma, name = split_comma(rest[:-1]) if keyword == "tile" else (text, "", "")
                if comma:
                    layout = self._encoding(name.strip())
                    text = f"tile<{body}>"
                found = _type(text)
        except ValueError as error:
            self._fail(str(error))
        misfit = layout.misfit(found) if layout is not None else ""
        if misfit:
            self._fail(misfit)
        self.at += 1
        return found, layout

    # Operations.

    def _operations(self, region: Region) -> None:
        """Operations up to and with '}'.

        What they define is forgotten behind it, the region's arguments too.
        """
        added: list[str] = []
        while not self._accept("}"):
            self._operation(region, added)
        for text in added:
            del self.scope[text]

    def _operation(self, region: Region, added: list[str]) -> None:
        names = self._results()
        where = self.offsets[self.at]
        spec = self._spec()
        bare = bare_attribute(spec)
        attributes: dict[str, Any] = {}
        groups = self._operands(spec)
        if bare is not None and not self._is("{"):
            attributes[bare.name] = self._attribute_value(bare)
        elif self._accept("{"):
            attributes = self._attributes(spec)
        typed = self._result_types(spec, names)
        types, layouts = [type_ for type_, _ in typed], [layout for _, layout in typed]
        regions = [self._region(name, spec) for name in spec.regions]
        operands = [value for group in groups for value in group]
        operation = Operation(
            spec,
            operands,
            tuple([len(group) for group in groups]),
            attributes,
            types,
            regions,
            self._location(),
        )
        if len(names) != len(types):
            self._fail(
                f"{spec.name} has {len(types)} result types for {len(names)} named results", where
            )
        for (text, offset), value, layout in zip(names, operation.results, layouts, strict=True):
            value.name, value.layout = self._hint(text, offset), layout
            self._define(text, value, offset)
            added.append(text)
        region.append(operation)

    def _results(self) -> list[tuple[str, int]]:
        names: list[tuple[str, int]] = []
        if self.kinds[self.at] != "value":
            return names
        while True:
            names.append((self._take("value", "a result, %name"), self.offsets[self.at - 1]))
            if self._accept("="):
                return names
            self._expect(",", "or '='")

    def _spec(self) -> OpSpec:
        name = self.texts[self.at]
        if self.kinds[self.at] != "word":
            self._expected("an operation or '}'")
        if name not in self.table:
            close = _closest(name, [spec.name for spec in self.table])
            self._fail(f"there is no operation {name!r}{close}")
        self.at += 1
        return self.table[name]

    def _operands(self, spec: OpSpec) -> list[list[Value]]:
        """The operand groups, in the table's order."""
        where = self.offsets[self.at - 1]
        bare: list[Value] = []
        named: dict[str, list[Value]] = {}
        # Line ends mean nothing: where no operand is due, values may be the results of the next
        # operation.
        due = (
            not self._at_results()
            if not any(declared.kind is Kind.SINGLE for declared in spec.operands)
            else True
        )
        while due:
            if self.kinds[self.at] == "value":
                bare.append(self._read())
            elif self.kinds[self.at] == "word" and self.texts[self.at + 1] == "=":
                self._named_group(spec, named)
            elif bare or named:
                self._expected("an operand")
            if not self._accept(","):
                break
        if len(spec.operands) == 1 and not named:
            kind = spec.operands[0].kind
            if (kind is Kind.SINGLE and len(bare) != 1) or (
                kind is Kind.OPTIONAL and len(bare) > 1
            ):
                self._fail(f"{spec.name} takes 1 operand, {len(bare)} are given", where)
            return [bare]
        single = [declared.name for declared in spec.operands if declared.kind is Kind.SINGLE]
        if len(single) != len(bare):
            names = f" ({', '.join(single)})" if single else ""
            self._fail(
                f"{spec.name} takes {len(single)} operands without a name{names}, {len(bare)} "
                "are given",
                where,
            )
        rest = iter(bare)
        return [
            [next(rest)] if declared.kind is Kind.SINGLE else named.get(declared.name, [])
            for declared in spec.operands
        ]

    def _at_results(self) -> bool:
        """Return whether the values here are named before '='."""
        at = self.at
        while self.kinds[at] == "value" and self.texts[at + 1] == ",":
            at += 2
        return self.kinds[at] == "value" and self.texts[at + 1] == "="

    def _named_group(self, spec: OpSpec, named: dict[str, list[Value]]) -> None:
        name = self.texts[self.at]
        declared = next(
            (
                operand
                for operand in spec.operands
                if operand.name == name and operand.kind is not Kind.SINGLE
            ),
            None,
        )
        if declared is None:
            known = [operand.name for operand in spec.operands if operand.kind is not Kind.SINGLE]
            self._fail(f"{spec.name} has no operand that is written {name}={_choice(known)}")
        if name in named:
            self._fail(f"operand {name} is given twice")
        self.at += 2
        if declared.kind is Kind.VARIADIC:
            self._expect("[", "and the values")
            named[name] = self._listed(self._read, "]")
        else:
            named[name] = [self._read()]

    def _read(self) -> Value:
        text = self._take("value", "a value, %name")
        value = self.scope.get(text)
        if value is None:
            self.at -= 1
            self._fail(f"{text} is not defined before it is read here{_closest(text, self.scope)}")
        return value

    def _result_types(
        self, spec: OpSpec, names: list[tuple[str, int]]
    ) -> list[tuple[Type, Encoding | None]]:
        if not names:
            if self._is(":"):
                self._fail(f"{spec.name} has result types but no named results")
            return []
        self._expect(":", f"and the type of {names[0][0]}")
        typed = [self._typed()]
        while self._accept(","):
            typed.append(self._typed())
        return typed

    def _region(self, name: str, spec: OpSpec) -> Region:
        self._expect(name, f"and that region of {spec.name}")
        region, added = Region(), len(self.scope)
        if self._accept("("):
            self._listed(lambda: self._argument(region), ")")
        arguments = list(self.scope)[added:]
        self._expect("{", f"and region {name}")
        self._operations(region)
        for text in arguments:
            del self.scope[text]
        return region

    # Attributes and locations.

    def _free_attributes(self) -> dict[str, Any]:
        """Attributes that no table declares: of the module, of arguments. '{' has been read."""
        found: dict[str, Any] = {}

        def item() -> None:
            name, where = self._attribute_name()
            if name in found:
                self._fail(f"attribute {name} is given twice", where)
            found[name] = self._attribute_value(None)

        self._listed(item, "}")
        return found

    def _attributes(self, spec: OpSpec) -> dict[str, Any]:
        """An operation's attributes. '{' has been read."""
        found: dict[str, Any] = {}

        def item() -> None:
            name, where = self._attribute_name()
            if name in found:
                self._fail(f"attribute {name} is given twice", where)
            free = "." in name
            if not free and not spec.has_attribute(name):
                self._fail(
                    f"{spec.name} has no attribute "
                    f"{name!r}{_choice([declared.name for declared in spec.attributes])}",
                    where,
                )
            found[name] = self._attribute_value(None if free else spec.attribute(name))

        self._listed(item, "}")
        return found

    def _attribute_name(self) -> tuple[str, int]:
        where = self.offsets[self.at]
        if self.kinds[self.at] not in ("word", "string"):
            self._expected("an attribute's name")
        self.at += 1
        name = self._name(self.texts[self.at - 1], where)
        self._expect("=", f"and the value of {name}")
        return name, where

    def _attribute_value(self, declared: Attribute | None) -> Any:
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind == "string":
            return self._string()
        if kind == "number":
            self.at += 1
            return _number(text)
        if kind == "mark" and text == "[":
            self.at += 1
            return tuple(self._listed(lambda: self._attribute_value(None), "]"))
        if kind == "word":
            if text in ("true", "false"):
                self.at += 1
                return text == "true"
            if text in ("inf", "nan"):
                self.at += 1
                return float(text)
            if declared is not None and declared.kind == "enum":
                self.at += 1
                return text
        if kind == "encoding" or text.partition("<")[0] in self.table.encodings:
            try:
                encoding = self._encoding(text)
            except ValueError as error:
                self._fail(str(error))
            self.at += 1
            return encoding
        if kind in ("word", "shaped"):
            return self._type()
        self._expected("an attribute's value")

    def _location(self) -> Location | None:
        if self.kinds[self.at] == "location":
            self.at += 1
            return self._known_location(self.texts[self.at - 1])
        if not (self._is("loc") and self.texts[self.at + 1] == "("):
            return None
        self.at += 2
        places: list[tuple[str, int, int, str]] = []
        while True:
            file = self._string("a file's name")
            self._expect(":")
            line = self._integer("a line")
            self._expect(":")
            column = self._integer("a column")
            places.append((file, line, column, self._string() if self._accept("in") else ""))
            if self._accept(")"):
                break
            self._expect("at", "or ')'")
        return _chained(places)

    def _known_location(self, text: str) -> Location | None:
        """The location of a token; the operations of one place share it."""
        found = self.locations.get(text)
        if found is None:
            found = _chained(
                [
                    (file, int(line), int(column), function)
                    for file, line, column, function in _PLACE.findall(text)
                ]
            )
            self.locations[text] = found
        return found


def _chained(places: Sequence[tuple[str, int, int, str]]) -> Location | None:
    """The location of places that are called each by the next."""
    location: Location | None = None
    for file, line, column, function in reversed(places):
        location = Location(file, line, column, function, location)
    return location


def _number(text: str) -> int | float:
    if text.startswith("nan("):
        found: float = struct.unpack("<d", struct.pack("<Q", int(text[6:-1], 16)))[0]
        return found
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _closest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def _choice(known: list[str]) -> str:
    return f"; it has {', '.join(known)}" if known else ""


__all__ = ["ParseError", "parse_module"]
