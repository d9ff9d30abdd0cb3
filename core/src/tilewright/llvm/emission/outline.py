"""Outlining: long functions split into short ones.

Code generation for a function of LLVM's takes time in proportion to its length only while that is
moderate: what strength reduction collects in a loop, and the registers that are live across a whole
body, make it grow with the square. So a function of more than :data:`LONG` lines is cut: stretches
of its blocks of at most :data:`LONGEST` lines become functions of their own, which it calls.

A stretch begins in the middle of a block and ends in the middle of the same or a later one. Between
the two, control stays inside: every edge to a block of the stretch comes from one of its blocks,
and every edge from one leads to one, or to the function's way out in the middle, for which the new
function returns true. So only straight code, whole branches and whole loops are moved; where one of
those is too long itself, the stretches lie inside it.

    define internal i1 @NAME.cut3(ptr %cut.frame, T %t7 …)    (void without an edge to the way out)

Values keep their names. What a stretch reads of the function around it is passed. What it computes
and others read goes through a frame, a structure in the caller's stack memory: the stretch stores
at its end, other stretches load at their beginning, the caller loads after the call. Since a
definition dominates its uses, a member of the frame holds what the value had when it was last
computed, in loops too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tilewright.llvm.emission.result_types import result_type
from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter

#: Lines from which on a function is cut; below, its text stays as it is.
LONG: Final = 4000
#: Lines of a stretch at most, beside loads and stores of values that cross its ends.
LONGEST: Final = 1500
#: Lines of a stretch at least: a call costs what a few lines do.
SHORTEST: Final = 100

_NAME: Final = re.compile(r"%[\w.$-]+")
_TARGET: Final = re.compile(r"label %([\w.$-]+)")
_FRAME: Final = "%cut.frame"


class _Stretch:
    """Lines from (block, line) ``start`` to before (block, line) ``end``."""

    __slots__ = ("end", "start")

    def __init__(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        self.start, self.end = start, end


def cut_function(
    writer: FunctionWriter,
    stop: BasicBlock | None = None,
    *,
    long: int = LONG,
    longest: int = LONGEST,
    shortest: int = SHORTEST,
) -> int:
    """Outline stretches of a finished function of more than ``long`` lines; return their number.

    Args:
        stop: the block that leaves the function in the middle, which has no phis and reads nothing
            that a stretch computes.
        longest: lines of a stretch at most.
        shortest: lines of a stretch at least.

    Raises:
        ValueError: a value that crosses an end is of an instruction whose type does not follow from
            its text.
    """
    if sum(len(block.lines) + 1 for block in writer.blocks) <= long:
        return 0
    graph = _Graph(writer.blocks, stop)
    stretches = _stretches(graph, longest, shortest)
    if stretches:
        _Cut(writer, graph, stop).move(stretches)
    return len(stretches)


class _Graph:
    """A function's blocks by number, each with the spans of its predecessors and successors."""

    __slots__ = ("blocks", "into", "out", "phis", "stops")

    def __init__(self, blocks: Sequence[BasicBlock], stop: BasicBlock | None) -> None:
        self.blocks = blocks
        number = {block.label: at for at, block in enumerate(blocks)}
        way_out = None if stop is None else stop.label
        nowhere = (len(blocks), -1)
        self.out: list[tuple[int, int]] = []
        self.into = [nowhere] * len(blocks)
        #: how many lines at the top of a block are phis, which stay where the block's label is
        self.phis: list[int] = []
        #: whether a block leads to the way out
        self.stops: list[bool] = []
        for at, block in enumerate(blocks):
            labels = _TARGET.findall(block.terminator)
            targets = [number[label] for label in labels if label != way_out]
            if block.terminator.startswith("  ret"):
                targets.append(len(blocks))
            self.out.append((min(targets), max(targets)) if targets else nowhere)
            self.stops.append(way_out in labels)
            for target in targets:
                if target < len(blocks):
                    first, last = self.into[target]
                    self.into[target] = (min(first, at), max(last, at))
            self.phis.append(
                next(
                    (line for line, text in enumerate(block.lines) if " = phi " not in text),
                    len(block.lines),
                )
            )

    def closing(self, first: int, most: int) -> tuple[int, int] | None:
        """Find the nearest block after ``first`` such that control between the two stays inside.

        The second result counts the lines between, the phis of the last with them; None if there is
        none within ``most`` lines.
        """
        furthest = latest = first
        lines = 0
        for at in range(first, len(self.blocks) - 1):
            low, high = self.out[at]
            if low <= first:
                return None
            furthest = max(furthest, high)
            low, high = self.into[at + 1]
            if low < first:
                return None
            latest = max(latest, high)
            lines += self.phis[at + 1]
            if lines > most:
                return None
            if furthest <= at + 1 and latest <= at:
                return at + 1, lines
            lines += len(self.blocks[at + 1].lines) - self.phis[at + 1] + 1
        return None


def _stretches(graph: _Graph, longest: int, shortest: int) -> list[_Stretch]:
    """Stretches that do not overlap, in order, each as long as it may be."""
    found: list[_Stretch] = []
    # the entry keeps its lines: stack and heap memory is set up there
    start = (1, graph.phis[1]) if len(graph.blocks) > 1 else (1, 0)
    while start[0] < len(graph.blocks):
        (block, line), size = start, 0
        following: tuple[int, int] | None = None
        while following is None:
            rest = len(graph.blocks[block].lines) - line
            if size + rest >= longest:
                line += longest - size
                size = longest
                following = (block, line)
                break
            size += rest
            line += rest
            closing = graph.closing(block, longest)
            if closing is None:
                following = (
                    (block + 1, graph.phis[block + 1])
                    if block + 1 < len(graph.blocks)
                    else (block + 1, 0)
                )
            elif size + closing[1] > longest:
                following = (block, line)
            else:
                size += closing[1]
                block = closing[0]
                line = graph.phis[block]
        if size >= shortest:
            found.append(_Stretch(start, (block, line)))
        start = following
    return found


class _Cut:
    """Moves stretches of one function."""

    def __init__(self, writer: FunctionWriter, graph: _Graph, stop: BasicBlock | None) -> None:
        self.writer, self.graph, self.stop = writer, graph, stop
        #: value -> the line that defines it; none for a parameter
        self.definitions: dict[str, str] = {}
        self.types = {f"%{name}": type_ for type_, name in writer.parameters}
        for line in writer.allocations:
            self._define(line)
        for block in writer.blocks:
            for line in block.lines:
                self._define(line)

    def _define(self, line: str) -> None:
        name, equals, _ = line.strip().partition(" = ")
        if equals and name[0] == "%":
            self.definitions[name] = line

    def _type(self, name: str) -> str:
        type_ = self.types.get(name)
        if type_ is None:
            type_ = self.types[name] = result_type(
                self.definitions[name].strip().partition(" = ")[2], self._type
            )
        return type_

    def _names(self, lines: Iterable[str]) -> dict[str, None]:
        """The values that lines name, in order."""
        return {
            name: None
            for name in _NAME.findall("\n".join(lines))
            if name in self.definitions or name in self.types
        }

    def move(self, stretches: Sequence[_Stretch]) -> None:
        parts = [self._taken(stretch) for stretch in stretches]
        named = [
            self._names(line for block in part for line in (*block.lines, block.terminator))
            for part in parts
        ]
        kept = self._names(
            line for block in self.writer.blocks for line in (*block.lines, block.terminator)
        )
        owner: dict[str, int] = {}
        for number, part in enumerate(parts):
            for block in part:
                for line in block.lines:
                    name, equals, _ = line.strip().partition(" = ")
                    if equals and name in self.definitions:
                        owner[name] = number
        #: values that a stretch computes and others read
        crossing = {
            name: None
            for number, names in enumerate(named)
            for name in names
            if name in owner and owner[name] != number
        }
        crossing.update((name, None) for name in kept if name in owner)
        member = {
            name: at for at, name in enumerate(sorted(crossing, key=lambda name: owner[name]))
        }
        frame_type = f"%{self.writer.name.strip(chr(34))}.frame"
        if self.writer.name.startswith('"'):
            frame_type = f'%"{frame_type[1:]}"'

        def place(name: str, into: list[str]) -> str:
            pointer = f"{name}.place"
            into.append(
                f"  {pointer} = getelementptr {frame_type}, ptr {_FRAME}, i64 0, i32 {member[name]}"
            )
            return pointer

        def loads(names: Iterable[str]) -> list[str]:
            lines: list[str] = []
            for name in names:
                pointer = place(name, lines)
                lines.append(f"  {name} = load {self._type(name)}, ptr {pointer}")
            return lines

        calls: list[list[str]] = []
        for number, (part, names) in enumerate(zip(parts, named, strict=True)):
            read = [name for name in names if owner.get(name, -1) not in (number, -1)]
            passed = [name for name in names if name not in owner]
            computed = [name for name in member if owner[name] == number]
            symbol = self._symbol(number)
            stops = self.stop is not None and any(
                f"label %{self.stop.label}" in block.terminator for block in part
            )
            parameters = [(self._type(name), name[1:]) for name in passed]
            function = self.writer.module.function(
                symbol,
                [("ptr", _FRAME[1:]), *parameters],
                "i1" if stops else "void",
                linkage="internal",
                attributes="noinline #0",
            )
            stores: list[str] = []
            for name in computed:
                pointer = place(name, stores)
                stores.append(f"  store {self._type(name)} {name}, ptr {pointer}")
            head = BasicBlock(f"{part[0].label}.cut")
            head.lines, head.terminator = loads(read), f"  br label %{part[0].label}"
            part[-1].lines += stores
            part[-1].terminator = "  ret i1 false" if stops else "  ret void"
            function.entry.terminator = f"  br label %{head.label}"
            function.blocks += [head, *part]
            if stops:
                assert self.stop is not None
                way_out = BasicBlock(self.stop.label)
                way_out.terminator = "  ret i1 true"
                function.blocks.append(way_out)
            listed = ", ".join(
                [f"ptr {_FRAME}", *(f"{type_} %{name}" for type_, name in parameters)]
            )
            call = f"call {'i1' if stops else 'void'} @{symbol}({listed})"
            calls.append(
                [
                    f"  %cut.stopped{number} = {call}" if stops else f"  {call}",
                    *loads(name for name in computed if name in kept),
                ]
            )
        self._rejoin(stretches, calls)
        members = ", ".join(self._type(name) for name in member)
        self.writer.module.add_global(f"{frame_type} = type {{ {members} }}")
        self.writer.allocations.append(f"  {_FRAME} = alloca {frame_type}, align 64")

    def _symbol(self, number: int) -> str:
        name = self.writer.name
        return f'{name[:-1]}.cut{number}"' if name.endswith('"') else f"{name}.cut{number}"

    def _taken(self, stretch: _Stretch) -> list[BasicBlock]:
        """Take the blocks of a stretch out of the function.

        Of blocks that lie inside partly it takes the lines, which are left empty here.
        """
        (first, top), (last, bottom) = stretch.start, stretch.end
        blocks = self.graph.blocks
        taken: list[BasicBlock] = []
        for at in range(first, last + 1):
            block, piece = blocks[at], BasicBlock(blocks[at].label)
            begin, end = top if at == first else 0, bottom if at == last else len(block.lines)
            piece.lines = block.lines[begin:end]
            # the places of lines stay what they are: other stretches may lie in this block
            block.lines[begin:end] = [""] * (end - begin)
            if at < last:
                piece.terminator = block.terminator
                block.terminator = ""
            taken.append(piece)
        return taken

    def _rejoin(self, stretches: Sequence[_Stretch], calls: Sequence[list[str]]) -> None:
        """Put the calls where the stretches were, and drop the blocks that are in them."""
        gone: set[int] = set()
        for number in reversed(range(len(stretches))):
            (first, top), (last, bottom) = stretches[number].start, stretches[number].end
            block = self.graph.blocks[first]
            if first == last:
                block.lines[top:bottom] = calls[number]
                continue
            end = self.graph.blocks[last]
            del end.lines[:bottom]
            call, *loaded = calls[number]
            block.lines[top:] = [call]
            end.lines[:0] = loaded
            block.terminator = f"  br label %{end.label}"
            if call.startswith(f"  %cut.stopped{number} "):
                assert self.stop is not None
                unlikely = self.writer.module.metadata('!{!"branch_weights", i32 1, i32 2000}')
                block.terminator = (
                    f"  br i1 %cut.stopped{number}, label %{self.stop.label}, label "
                    f"%{end.label}, !prof {unlikely}"
                )
            gone.update(range(first + 1, last))
        self.writer.blocks[:] = [
            block for at, block in enumerate(self.graph.blocks) if at not in gone
        ]
