"""Writing LLVM IR as text: names, blocks, loops, constants, declarations.

Text is written because it is an order of magnitude faster than building IR objects from Python and
LLVM parses it in well under a millisecond. The writer keeps each block as a list of lines with its
terminator apart, so that code may still be added to a block that already branches on: that is how
loop-invariant code is hoisted while the loop is being written.

    module = ModuleWriter()
    f = module.function("scale", [("ptr", "p"), ("i64", "n"), ("float", "s")])
    with f.loop("0", "%n", 1) as loop:
        q = f.emit(f"getelementptr float, ptr %p, i64 {loop.index}")
        f.store("float", f.emit(f"fmul float {f.load('float', q)}, %s"), q)
    f.ret()
    text = module.text()
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

#: LLVM type -> the letters that stand for it in the names of overloaded intrinsics.
_MANGLED: Final[dict[str, str]] = {
    "half": "f16",
    "bfloat": "bf16",
    "float": "f32",
    "double": "f64",
    "ptr": "p0",
}


def vector(type_: str, width: int) -> str:
    """``<width x type_>``; the scalar type itself for width 0."""
    return f"<{width} x {type_}>" if width else type_


def mangle(type_: str) -> str:
    """Return the suffix of an overloaded intrinsic for a type: ``v16f32`` of ``<16 x float>``."""
    if type_.startswith("<"):
        count, element = type_[1:-1].split(" x ")
        return f"v{count}{_MANGLED.get(element, element)}"
    return _MANGLED.get(type_, type_)


def float_constant(type_: str, value: float) -> str:
    """Return the exact text of a float of LLVM type ``half``, ``float`` or ``double``.

    It is rounded to nearest where it does not fit.
    """
    if type_ == "half":
        try:
            bits = struct.unpack("<H", struct.pack("<e", value))[0]
        except OverflowError:
            bits = 0x7C00 | (0x8000 if value < 0 else 0)
        return f"0xH{bits:04X}"
    if type_ == "float" and math.isfinite(value):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    if math.isnan(value):
        return "0xFFF8000000000000" if math.copysign(1.0, value) < 0 else "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def splat_constant(type_: str, text: str, width: int) -> str:
    """A constant as an operand of ``<width x type_>``; the scalar constant for width 0."""
    return f"splat ({type_} {text})" if width else text


class BasicBlock:
    """A basic block: lines, then one terminator."""

    __slots__ = ("label", "lines", "terminator")

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []
        self.terminator = ""


class Loop:
    """A counted loop being written.

    Attributes:
        index: the induction variable, i64 unless another type was asked for.
        values: the carried values at the top of an iteration.
        preheader: runs once if the loop runs at all; code may be added to it while the body is
            written.
        body: the first block of the body.
        results: after the loop has ended, the carried values' last states.
    """

    __slots__ = (
        "_carried",
        "_exit",
        "_first",
        "_guard",
        "_header",
        "_line",
        "_number",
        "_position",
        "_signed",
        "_step",
        "_type",
        "_upper",
        "body",
        "index",
        "next_values",
        "preheader",
        "results",
        "values",
    )

    def __init__(
        self,
        first: str,
        upper: str,
        step: str | int,
        carried: Sequence[tuple[str, str]],
        type_: str,
        signed: bool,
        guard: BasicBlock | None,
        blocks: tuple[BasicBlock, BasicBlock, BasicBlock],
    ) -> None:
        self._first, self._upper, self._step, self._carried = first, upper, step, carried
        self._type, self._signed, self._guard = type_, signed, guard
        self.preheader, self._header, self._exit = blocks
        self.body = self._header
        #: where in the header the phis go, which are written when the loop ends
        self._line = 0
        #: where the header is among the function's blocks, and how many loops it has up to this one
        self._position = self._number = 0
        self.index = ""
        self.values: list[str] = []
        self.results: list[str] = []
        self.next_values: Sequence[str] = ()


class FunctionWriter:
    """Writes one function. Values are named ``%t1``, ``%t2`` …; parameters keep their names."""

    def __init__(
        self,
        module: ModuleWriter,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str = "void",
        *,
        linkage: str = "",
        attributes: str = "#0",
    ) -> None:
        self.module, self.name, self.parameters = module, name, tuple(parameters)
        listed = ", ".join(f"{type_} %{parameter}" for type_, parameter in parameters)
        self._head = (
            f"define {linkage + ' ' if linkage else ''}{result} @{name}({listed}) {attributes} {{"
        )
        self._count = 0
        self.entry = BasicBlock("entry")
        #: first lines of the entry block
        self.allocations: list[str] = []
        self.blocks: list[BasicBlock] = [self.entry]
        self.current = self.entry
        self._types: dict[str, str] = {}
        self._loops = 0
        #: put behind each instruction from now on
        self.mark = ""

    def attach(self, text: str) -> None:
        """Give the function metadata, ``!dbg !3``."""
        self._head = f"{self._head.removesuffix('{')}{text} {{"

    # ---- names and plain instructions

    def fresh(self, hint: str = "t") -> str:
        """A new value name."""
        self._count += 1
        return f"%{hint}{self._count}"

    def emit(self, text: str, type_: str = "") -> str:
        """Append ``name = text`` to the current block and return the name.

        ``type_`` is remembered for :meth:`type_of` where passed.
        """
        self._count += 1
        name = f"%t{self._count}"
        self.current.lines.append(f"  {name} = {text}{self.mark}")
        if type_:
            self._types[name] = type_
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.current.lines.append(f"  {text}{self.mark}")

    def type_of(self, name: str) -> str:
        """The type given to :meth:`emit` with this name."""
        return self._types[name]

    # ---- blocks

    def new_block(self, hint: str = "b") -> BasicBlock:
        """A block that is not placed yet."""
        self._count += 1
        return BasicBlock(f"{hint}{self._count}")

    def place(self, block: BasicBlock) -> BasicBlock:
        """Add a block to the function and go on writing in it."""
        self.blocks.append(block)
        self.current = block
        return block

    @contextlib.contextmanager
    def inserting(self, block: BasicBlock) -> Iterator[None]:
        """Append to ``block``, before its terminator, within a ``with`` block.

        The ``with`` block may write no control flow.
        """
        saved = self.current
        self.current = block
        try:
            yield
        finally:
            self.current = saved

    def branch(self, block: BasicBlock) -> None:
        assert not self.current.terminator, f"block {self.current.label} has a terminator already"
        self.current.terminator = f"  br label %{block.label}"

    def branch_if(
        self,
        condition: str,
        then: BasicBlock,
        otherwise: BasicBlock,
        *,
        likely: bool | None = None,
        loop: str = "",
    ) -> None:
        """Branch on an i1.

        ``likely`` marks the usual way; ``loop`` is a hint for the loop that the branch closes
        (:meth:`ModuleWriter.loop_hint`).
        """
        assert not self.current.terminator, f"block {self.current.label} has a terminator already"
        hint = (
            ""
            if likely is None
            else f", !prof {self.module.metadata(_LIKELY if likely else _UNLIKELY)}"
        )
        hint += f", !llvm.loop {loop}" if loop else ""
        self.current.terminator = (
            f"  br i1 {condition}, label %{then.label}, label %{otherwise.label}{hint}"
        )

    def ret(self, text: str = "void") -> None:
        assert not self.current.terminator, f"block {self.current.label} has a terminator already"
        self.current.terminator = f"  ret {text}"

    def unreachable(self) -> None:
        assert not self.current.terminator
        self.current.terminator = "  unreachable"

    def phi(self, type_: str, incoming: Iterable[tuple[str, BasicBlock]]) -> str:
        listed = ", ".join(f"[ {value}, %{block.label} ]" for value, block in incoming)
        return self.emit(f"phi {type_} {listed}")

    # ---- control flow

    def begin_loop(
        self,
        lower: str,
        upper: str,
        step: str | int,
        carried: Sequence[tuple[str, str]] = (),
        *,
        nonempty: bool = False,
        type_: str = "i64",
        signed: bool = True,
    ) -> Loop:
        """Open ``for index in range(lower, upper, step)``; :meth:`end_loop` ends it.

        ``carried`` has the loop-carried values as (type, initial value).

        ``nonempty`` promises one iteration at least. The step is positive.
        """
        leave, header = self.new_block("exit"), self.new_block("loop")
        guard: BasicBlock | None = None
        if nonempty or (lower.isdigit() and upper.isdigit() and int(lower) < int(upper)):
            preheader = self.current
        else:
            preheader = self.new_block("preheader")
            runs = self.emit(f"icmp {'slt' if signed else 'ult'} {type_} {lower}, {upper}")
            guard = self.current
            self.branch_if(runs, preheader, leave)
            self.place(preheader)
        self.branch(header)
        self.place(header)
        loop = Loop(lower, upper, step, carried, type_, signed, guard, (preheader, header, leave))
        loop.index = self.fresh("i")
        loop.values = [self.fresh("c") for _ in carried]
        loop._line, loop._position = len(header.lines), len(self.blocks) - 1
        self._loops += 1
        loop._number = self._loops
        header.lines.extend([""] * (1 + len(carried)))
        return loop

    def end_loop(self, loop: Loop, next_values: Sequence[str] = ()) -> list[str]:
        """Close a loop with the carried values of the next iteration; the values after the loop."""
        assert len(next_values) == len(loop._carried)
        header, preheader, type_ = loop._header, loop.preheader, loop._type
        overflow = " nuw nsw" if type_ == "i64" and loop._first.isdigit() else ""
        following = self.emit(f"add{overflow} {type_} {loop.index}, {loop._step}")
        again = self.emit(
            f"icmp {'slt' if loop._signed else 'ult'} {type_} {following}, {loop._upper}"
        )
        if self.module.plain_loops and not self._multiplies(loop):
            # of a value that went through here, strength reduction does not see that it moves by a
            # step
            following = self.emit(f"freeze {type_} {following}")
            next_values = [
                self.emit(f"freeze {carried} {value}")
                if carried == "ptr" or carried[0] == "i"
                else value
                for (carried, _), value in zip(loop._carried, next_values, strict=True)
            ]
        latch = self.current
        self.branch_if(again, header, loop._exit)
        lines = [
            (
                f"  {loop.index} = phi {type_} [ {loop._first}, %{preheader.label} ], [ "
                f"{following}, %{latch.label} ]"
            )
        ]
        for (carried, first), name, value in zip(
            loop._carried, loop.values, next_values, strict=True
        ):
            lines.append(
                f"  {name} = phi {carried} [ {first}, %{preheader.label} ], [ {value}, "
                f"%{latch.label} ]"
            )
        header.lines[loop._line : loop._line + len(lines)] = lines
        self.place(loop._exit)
        if loop._guard is None:
            loop.results = list(next_values)
        else:
            loop.results = [
                self.phi(carried, ((first, loop._guard), (value, latch)))
                for (carried, first), value in zip(loop._carried, next_values, strict=True)
            ]
        return loop.results

    def _multiplies(self, loop: Loop) -> bool:
        """Return whether an innermost loop multiplies its index."""
        if loop._number != self._loops:
            return False
        factors = f" {loop.index},", f", {loop.index}"
        lines = (line for block in self.blocks[loop._position :] for line in block.lines)
        return any(
            " = mul " in line and (factors[0] in line or line.endswith(factors[1]))
            for line in lines
        )

    def is_last(self, loop: Loop) -> str:
        """Return an i1: the current iteration of an open loop is the last one.

        The index after the last one must be a number of its type.
        """
        following = self.emit(f"add {loop._type} {loop.index}, {loop._step}")
        return self.emit(
            f"icmp {'sge' if loop._signed else 'uge'} {loop._type} {following}, {loop._upper}"
        )

    def turns(self, loop: Loop) -> tuple[str, str]:
        """Return the i64s (iterations before the current one, iterations before the last one)."""
        type_ = loop._type
        last = self.emit(f"sub {type_} {loop._upper}, 1")
        found = []
        for index in (loop.index, last):
            if loop._first != "0":
                index = self.emit(f"sub {type_} {index}, {loop._first}")
            if str(loop._step) != "1":
                index = self.emit(f"udiv {type_} {index}, {loop._step}")
            found.append(index if type_ == "i64" else self.emit(f"zext {type_} {index} to i64"))
        return found[0], found[1]

    @contextlib.contextmanager
    def loop(
        self,
        lower: str,
        upper: str,
        step: str | int = 1,
        carried: Sequence[tuple[str, str]] = (),
        *,
        nonempty: bool = False,
    ) -> Iterator[Loop]:
        """Write a loop as a ``with`` block.

        Read ``index`` and ``values``, set ``next_values`` inside; read ``results`` after it.
        """
        loop = self.begin_loop(lower, upper, step, carried, nonempty=nonempty)
        yield loop
        self.end_loop(loop, loop.next_values)

    @contextlib.contextmanager
    def when(self, condition: str, *, likely: bool | None = None) -> Iterator[None]:
        """Run the ``with`` block's code where an i1 holds; it has no result."""
        then, join = self.new_block("then"), self.new_block("join")
        self.branch_if(condition, then, join, likely=likely)
        self.place(then)
        yield
        if not self.current.terminator:
            self.branch(join)
        self.place(join)

    # ---- memory

    def alloca(self, type_: str, count: int = 1, align: int = 64) -> str:
        """Stack space in the entry block."""
        name = self.fresh("stack")
        self.allocations.append(
            f"  {name} = alloca {f'[{count} x {type_}]' if count != 1 else type_}, align {align}"
        )
        return name

    def load(self, type_: str, pointer: str, align: int = 1, suffix: str = "") -> str:
        return self.emit(f"load {type_}, ptr {pointer}, align {align}{suffix}")

    def store(self, type_: str, value: str, pointer: str, align: int = 1, suffix: str = "") -> None:
        self.current.lines.append(
            f"  store {type_} {value}, ptr {pointer}, align {align}{suffix}{self.mark}"
        )

    def gep(self, type_: str, pointer: str, index: str | int) -> str:
        """Return the address of element ``index`` (i64) of type ``type_``; for 0 the pointer."""
        if index in (0, "0"):
            return pointer
        return self.emit(f"getelementptr {type_}, ptr {pointer}, i64 {index}")

    # ---- values

    def splat(self, type_: str, value: str, width: int) -> str:
        """A vector whose every lane is ``value``; constants stay constants."""
        if value[0] != "%":
            return f"splat ({type_} {value})"
        first = self.emit(f"insertelement <{width} x {type_}> poison, {type_} {value}, i64 0")
        return self.emit(
            f"shufflevector <{width} x {type_}> {first}, <{width} x {type_}> poison, <{width} x "
            "i32> zeroinitializer"
        )

    def iota(self, type_: str, width: int, step: int = 1) -> str:
        """The constant vector 0, step, 2*step …"""
        return f"<{', '.join(f'{type_} {i * step}' for i in range(width))}>"

    def intrinsic(
        self,
        name: str,
        result: str,
        operands: Sequence[tuple[str, str]],
        overloads: Sequence[str] | None = None,
        flags: str = "",
    ) -> str:
        """Call an intrinsic, declaring it.

        Its name is ``name`` plus the mangled ``overloads`` (default: the result type).
        """
        full = ".".join((name, *map(mangle, (result,) if overloads is None else overloads)))
        return self.call(full, result, operands, flags)

    def call(
        self, name: str, result: str, operands: Sequence[tuple[str, str]], flags: str = ""
    ) -> str:
        """Call a function by name, declaring it unless the module defines it; ``""`` is void."""
        self.module.declare(name, result, [type_ for type_, _ in operands])
        text = (
            f"call {flags + ' ' if flags else ''}{result} "
            f"@{name}({', '.join(f'{type_} {value}' for type_, value in operands)})"
        )
        if result == "void":
            self.do(text)
            return ""
        return self.emit(text)

    def text(self) -> str:
        lines = [self._head, "entry:", *self.allocations]
        for block in self.blocks:
            if block is not self.entry:
                lines.append(f"{block.label}:")
            lines.extend(block.lines)
            assert block.terminator, f"block {block.label} of @{self.name} has no terminator"
            lines.append(block.terminator)
        lines.append("}\n")
        return "\n".join(lines)


_LIKELY: Final = '!{!"branch_weights", i32 2000, i32 1}'
_UNLIKELY: Final = '!{!"branch_weights", i32 1, i32 2000}'


class ModuleWriter:
    """Writer of a module: functions, their declarations, constants, attributes and metadata.

    Args:
        attributes: the text of attribute group #0, which :class:`FunctionWriter` adds to each
            function.
        plain_loops: the code generator takes addresses in loops as they are written, except in
            those that multiply their index and hold no other loop. To look for others that the loop
            may count on instead takes it a third of its time, and gains nothing where an
            instruction adds a base, a scaled index and an offset anyway.

    Attributes:
        state: what a backend remembers of the module for as long as it is written.
    """

    def __init__(self, attributes: str = "nounwind", *, plain_loops: bool = False) -> None:
        self.attributes, self.plain_loops = attributes, plain_loops
        self.state: object = None
        self.functions: list[FunctionWriter] = []
        self._declared: dict[str, str] = {}
        self._globals: list[str] = []
        self._strings: dict[bytes, str] = {}
        self._metadata: dict[str, str] = {}
        #: named metadata -> its operands
        self._named: dict[str, list[str]] = {}

    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str = "void",
        *,
        linkage: str = "",
        attributes: str = "#0",
    ) -> FunctionWriter:
        """A new function of parameters (type, name), and its writer."""
        writer = FunctionWriter(
            self, name, parameters, result, linkage=linkage, attributes=attributes
        )
        self.functions.append(writer)
        return writer

    def declare(self, name: str, result: str, parameters: Sequence[str]) -> None:
        """Declare an external function or an intrinsic; once is enough."""
        if name not in self._declared:
            self._declared[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def string(self, data: bytes) -> str:
        """A private constant that holds ``data`` and a zero; its name."""
        name = self._strings.get(data)
        if name is None:
            name = self._strings[data] = f"@str.{len(self._strings)}"
            text = "".join(
                chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}"
                for byte in data
            )
            self._globals.append(
                f'{name} = private unnamed_addr constant [{len(data) + 1} x i8] c"{text}\\00"'
            )
        return name

    def add_global(self, text: str) -> None:
        """A global given as its whole line of IR; once is enough."""
        if text not in self._globals:
            self._globals.append(text)

    def metadata(self, text: str) -> str:
        """The number (``!3``) of a metadata node given as its text."""
        name = self._metadata.get(text)
        if name is None:
            name = self._metadata[text] = f"!{len(self._metadata)}"
        return name

    def loop_hint(self, hint: str) -> str:
        """Add a distinct metadata node with a loop hint, such as ``llvm.loop.unroll.full``."""
        node = self.metadata(f'!{{!"{hint}"}}')
        return self.metadata(f"distinct !{{!{len(self._metadata)}, {node}}}")

    def number_in(self, named: str, node: str) -> int:
        """Return the number, from 1 on, of a node among the operands of named metadata.

        A new node is added.
        """
        operands = self._named.setdefault(named, [])
        if node not in operands:
            operands.append(node)
        return operands.index(node) + 1

    def text(self) -> str:
        """The module."""
        defined = {function.name for function in self.functions}
        bodies = [function.text() for function in self.functions]
        parts = [
            *self._globals,
            *bodies,
            *(line for name, line in self._declared.items() if name not in defined),
        ]
        parts.append(f"attributes #0 = {{ {self.attributes} }}")
        parts.extend(
            f"{name} = !{{{', '.join(operands)}}}" for name, operands in self._named.items()
        )
        parts.extend(f"{name} = {text}" for text, name in self._metadata.items())
        return "\n".join(parts) + "\n"
