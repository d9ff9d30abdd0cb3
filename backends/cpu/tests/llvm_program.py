"""Functions of LLVM IR, read from the text that the native pool is written in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_BITS = {"i1": 1, "i8": 8, "i32": 32, "i64": 64, "ptr": 64}
_TYPE = r"(?:\[\d+ x \[\d+ x \w+\]\]|\[\d+ x \w+\]|[%\w]+)"


@dataclass
class Function:
    parameters: list[str]
    #: label -> instructions
    blocks: dict[str, list[tuple[Any, ...]]]
    #: label -> register -> {predecessor: operand}
    phis: dict[str, dict[str, dict[str, Any]]]
    #: (label, index) -> registers that are read from there on
    live: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)


class Program:
    """The functions and structure types of a module's text."""

    def __init__(self, text: str) -> None:
        self.structs: dict[str, list[str]] = {}
        for name, body in re.findall(r"^(%\w+) = type \{ (.*) \}$", text, re.M):
            self.structs[name] = re.findall(_TYPE, body)
        self.functions: dict[str, Function] = {}
        for head, name, body in re.findall(r"^define (.*?)@([\w.]+)\((.*?^\}$)", text, re.M | re.S):
            del head
            parameters, _, rest = body.partition(") ")
            self.functions[name] = self._function(re.findall(r"%\w+", parameters), rest)

    def size(self, type_: str) -> int:
        if type_ in self.structs:
            return self.offset(type_, len(self.structs[type_]))
        if array := re.fullmatch(r"\[(\d+) x (.*)\]", type_):
            return int(array[1]) * self.size(array[2])
        return _BITS[type_] // 8

    def offset(self, struct: str, index: int) -> int:
        """The offset of a field; the fields have no gaps."""
        return sum(map(self.size, self.structs[struct][:index]))

    def operand(self, type_: str, text: str) -> Any:
        """A register's name, or the value of a constant."""
        text = text.strip()
        if text.startswith("%"):
            return text
        if text.startswith("@"):
            return (text[1:], 0)
        if text.startswith("getelementptr"):
            inner = text[text.index("(") + 1 : -1]
            element, _, rest = inner.partition(", ptr ")
            base, *indices = (part.split(" ")[-1] for part in rest.split(", "))
            offset = int(indices[0]) * self.size(element)
            if len(indices) > 1:
                offset += self.offset(element, int(indices[1]))
            return (base[1:], offset)
        named = {"null": 0, "true": 1, "false": 0}
        return named[text] if text in named else int(text) & ((1 << _BITS[type_]) - 1)

    def _function(self, parameters: list[str], body: str) -> Function:
        blocks: dict[str, list[tuple[Any, ...]]] = {}
        phis: dict[str, dict[str, dict[str, Any]]] = {}
        label = ""
        for line in body.split("\n")[1:]:
            if opened := re.fullmatch(r"(\w+):", line):
                label = opened[1]
                blocks[label], phis[label] = [], {}
            elif phi := re.fullmatch(r"  (%\w+) = phi (\w+) (.*)", line):
                edges = re.findall(r"\[ (.*?), %(\w+) \]", phi[3])
                phis[label][phi[1]] = {where: self.operand(phi[2], what) for what, where in edges}
            elif line.startswith("  "):
                blocks[label].append(self._instruction(line.strip()))
        function = Function(parameters, blocks, phis)
        _find_live(function)
        return function

    def _instruction(self, line: str) -> tuple[Any, ...]:
        result, text = "", line
        if made := re.match(r"(%\w+) = (.*)", line):
            result, text = made[1], made[2]
        word = text.split(" ")[0]
        reader = getattr(self, f"_read_{word}", None)
        if reader is None:
            raise NotImplementedError(line)
        found: tuple[Any, ...] = reader(result, text)
        return found

    def _pair(self, result: str, text: str) -> tuple[Any, ...]:
        kind, type_, a, b = re.match(r"(\w+(?: \w+)?) (i\d+|ptr) (.*?), (.*)", text).groups()
        return ("pair", result, kind, _BITS[type_], self.operand(type_, a), self.operand(type_, b))

    _read_add = _read_sub = _read_mul = _read_udiv = _read_urem = _read_shl = _read_lshr = _pair
    _read_and = _read_or = _read_icmp = _pair

    def _convert(self, result: str, text: str) -> tuple[Any, ...]:
        type_, value, wanted = re.match(r"\w+ (\w+) (.*?) to (\w+)", text).groups()
        return ("convert", result, _BITS[wanted], self.operand(type_, value))

    _read_zext = _read_trunc = _read_ptrtoint = _read_inttoptr = _convert

    def _read_select(self, result: str, text: str) -> tuple[Any, ...]:
        condition, type_, a, b = re.match(r"select i1 (.*?), (\w+) (.*?), \w+ (.*)", text).groups()
        chosen = [self.operand(type_, a), self.operand(type_, b)]
        return ("select", result, self.operand("i1", condition), *chosen)

    def _read_extractvalue(self, result: str, text: str) -> tuple[Any, ...]:
        return ("convert", result, 1, re.findall(r"%\w+", text)[-1])

    def _read_alloca(self, result: str, text: str) -> tuple[Any, ...]:
        return ("alloca", result)

    def _read_getelementptr(self, result: str, text: str) -> tuple[Any, ...]:
        element, base, rest = re.match(rf"getelementptr ({_TYPE}), ptr (.*?), (.*)", text).groups()
        indices = [self.operand(*one.split(" ")) for one in rest.split(", ")]
        steps = [(self.size(element), indices[0])]
        if len(indices) > 1 and element in self.structs:
            return ("step", result, self.operand("ptr", base), self.offset(element, indices[1]), [])
        if len(indices) > 1:
            steps = [(self.size(element.split(" x ", 1)[1][:-1]), indices[1])]
        return ("step", result, self.operand("ptr", base), 0, steps)

    def _read_load(self, result: str, text: str) -> tuple[Any, ...]:
        atomic = re.match(r"load atomic (\w+), ptr (.*) (\w+), align", text)
        if atomic:
            return ("load", result, self.operand("ptr", atomic[2]), atomic[3])
        pointer = re.match(r"load \w+, ptr (.*), align", text)[1]
        return ("read", result, self.operand("ptr", pointer))

    def _read_store(self, result: str, text: str) -> tuple[Any, ...]:
        atomic = re.match(r"store atomic (\w+) (.*?), ptr (.*) (\w+), align", text)
        if atomic:
            value = self.operand(atomic[1], atomic[2])
            return ("store", self.operand("ptr", atomic[3]), value, atomic[4])
        if "zeroinitializer" in text:
            return ("nothing",)
        type_, value, pointer = re.match(r"store (\w+) (.*?), ptr (.*), align", text).groups()
        return ("write", self.operand("ptr", pointer), self.operand(type_, value))

    def _read_atomicrmw(self, result: str, text: str) -> tuple[Any, ...]:
        found = re.match(r"atomicrmw (\w+) ptr (.*), (i\d+) (\S+) (\w+)$", text)
        kind, pointer, type_, value, order = found.groups()
        operand = self.operand(type_, value)
        return ("update", result, self.operand("ptr", pointer), kind, operand, order, _BITS[type_])

    def _read_cmpxchg(self, result: str, text: str) -> tuple[Any, ...]:
        found = re.match(r"cmpxchg ptr (.*), (i\d+) (\S+), i\d+ (\S+) (\w+) (\w+), align", text)
        pointer, type_, old, new, order, _ = found.groups()
        both = self.operand(type_, old), self.operand(type_, new)
        return ("exchange", result, self.operand("ptr", pointer), *both, order)

    def _read_fence(self, result: str, text: str) -> tuple[Any, ...]:
        return ("fence",)

    def _read_call(self, result: str, text: str) -> tuple[Any, ...]:
        found = re.match(r"call (?:\w+ \(.*?\)|\w+) ([@%][\w.]+)\((.*)\)$", text)
        callee, listed = found.groups()
        given = filter(None, re.split(r", (?=(?:i\d+|ptr) )(?![^(]*\))", listed))
        arguments = [self.operand(*one.split(" ", 1)) for one in given]
        return ("call", result, callee[1:] if callee[0] == "@" else callee, arguments)

    def _read_br(self, result: str, text: str) -> tuple[Any, ...]:
        labels = re.findall(r"label %(\w+)", text)
        if len(labels) == 1:
            return ("jump", labels[0])
        condition = re.match(r"br i1 (.*?),", text)[1]
        return ("branch", self.operand("i1", condition), *labels)

    def _read_ret(self, result: str, text: str) -> tuple[Any, ...]:
        parts = text.split(" ", 2)
        return ("ret", self.operand(parts[1], parts[2]) if len(parts) > 2 else 0)


def _registers(values: Any) -> Iterator[str]:
    for value in values:
        if isinstance(value, str) and value.startswith("%"):
            yield value
        elif isinstance(value, list | tuple):
            yield from _registers(value)


def _find_live(function: Function) -> None:
    """The registers that are read from each instruction on."""
    entry: dict[str, set[str]] = {label: set() for label in function.blocks}
    changed = True
    while changed:
        changed = False
        for label, block in reversed(function.blocks.items()):
            last, live = block[-1], set()
            targets = {"jump": last[1:], "branch": last[2:]}.get(last[0], ())
            for following in targets:
                live |= entry[following] - set(function.phis[following])
                live |= set(_registers([p[label] for p in function.phis[following].values()]))
            for index in range(len(block) - 1, -1, -1):
                instruction = block[index]
                made = _made_by(instruction)
                live = (live - {made}) | set(_registers(instruction[2 if made else 1 :]))
                if instruction[0] == "call" and instruction[2].startswith("%"):
                    live.add(instruction[2])
                function.live[label, index] = tuple(sorted(live))
            if live != entry[label]:
                entry[label], changed = live, True


_WITHOUT_RESULT = {"store", "write", "fence", "jump", "branch", "ret", "nothing"}


def _made_by(instruction: tuple[Any, ...]) -> str:
    return "" if instruction[0] in _WITHOUT_RESULT else instruction[1]
