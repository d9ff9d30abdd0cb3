"""Reductions and scans in a stated order, on tiles in memory.

Combinations are not contracted with the multiplications that make their operands: a fused one
rounds once, and where it happens depends on the code around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.control import Reduce, Scan
from tilewright.ir.order import TREE
from tilewright.ir.types import TileType
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import around_axis, for_each, for_strips, viewed

#: Elements that the tree combines first.
_QUAD: Final = 4


class OrderedCombination:
    """A reduction or scan of tiles that are seen as [before, extent, after] around its axis."""

    def __init__(self, context: Context, operation: Reduce | Scan) -> None:
        self.context, self.w, self.region = context, context.writer, operation.combine
        tiles = [context.resolve(value) for value in operation.inputs]
        self.shape = _shape(tiles[0])
        self.inputs = [context.materialize(value) for value in tiles]
        self.before, self.extent, self.after = around_axis(self.shape, operation.axis)
        self.elements = [buffer.element for buffer in self.inputs]
        self.vectors = context.is_straight_line(self.region)
        self.width = min(map(context.elements_for, self.elements)) if self.vectors else 1

    def combine(self, left: Sequence[str], right: Sequence[str], lanes: int) -> list[str]:
        """Combine values of ``lanes`` lanes, 0 for scalars."""
        if lanes:
            return self.context.evaluate_vectors(self.region, [*left, *right], lanes)
        return self.context.evaluate_scalars(self.region, [*left, *right])

    def load(self, buffers: Sequence[Buffer], at: str, lanes: int) -> list[str]:
        """Load elements from the ``at``-th in row-major order on."""
        flat = [viewed(buffer, buffer.numel) for buffer in buffers]
        if lanes:
            return [self.context.load_vector(buffer, (at,), lanes) for buffer in flat]
        return [self.context.load_element(buffer, (at,)) for buffer in flat]

    def store(self, buffers: Sequence[Buffer], at: str, values: Sequence[str], lanes: int) -> None:
        for buffer, value in zip(buffers, values, strict=True):
            flat = viewed(buffer, buffer.numel)
            if lanes:
                self.context.store_vector(flat, (at,), value, lanes)
            else:
                self.context.store_element(flat, (at,), value)

    def types(self, lanes: int) -> list[str]:
        return [self.context.llvm_type(element, lanes) for element in self.elements]

    def linear(self, *terms: tuple[str, int]) -> str:
        """Emit the sum of each number times its factor."""
        constant, names = 0, []
        for number, factor in terms:
            if number.isdigit():
                constant += int(number) * factor
            elif factor == 1:
                names.append(number)
            else:
                names.append(self.w.emit(f"mul nuw nsw i64 {number}, {factor}"))
        if constant or not names:
            names.append(str(constant))
        total = names[0]
        for name in names[1:]:
            total = self.w.emit(f"add nuw nsw i64 {total}, {name}")
        return total

    def shuffled(
        self, left: Sequence[str], right: Sequence[str], lanes: int, chosen: Sequence[int]
    ) -> list[str]:
        """Choose lanes of two vectors of ``lanes`` lanes, which count on from each other."""
        order = ", ".join(f"i32 {lane}" for lane in chosen)
        return [
            self.w.emit(f"shufflevector {type_} {a}, {type_} {b}, <{len(chosen)} x i32> <{order}>")
            for type_, a, b in zip(self.types(lanes), left, right, strict=True)
        ]


class _Reduction(OrderedCombination):
    """A reduction; ``results`` are seen as [before, after]."""

    def __init__(self, context: Context, operation: Reduce) -> None:
        super().__init__(context, operation)
        shape = self.shape[: operation.axis] + self.shape[operation.axis + 1 :]
        self.results = [context.new_buffer(shape, element) for element in self.elements]
        self.tree = operation.order == TREE

    def write(self) -> None:
        for_each(self.w, self.before, self._write_lines)

    def _write_lines(self, o: str) -> None:
        if self.after == 1 and self.tree:
            self._write_row(o)
            return
        for_strips(self.w, self.after, self.width, lambda i, lanes: self._write_strip(o, i, lanes))

    def _at(self, o: str, k: str, i: str) -> str:
        return self.linear((o, self.extent * self.after), (k, self.after), (i, 1))

    def _write_strip(self, o: str, i: str, lanes: int) -> None:
        """Reduce ``lanes`` lines that lie side by side."""

        def element(k: str) -> list[str]:
            return self.load(self.inputs, self._at(o, k, i), lanes)

        if not self.tree:
            values = element("0")
            if self.extent > 1:
                carried = list(zip(self.types(lanes), values, strict=True))
                with self.w.loop("1", str(self.extent), 1, carried, nonempty=True) as loop:
                    loop.next_values = self.combine(loop.values, element(loop.index), lanes)
                values = loop.results
        else:
            values = self._reduce_quads(element, lanes)
        self.store(self.results, self.linear((o, self.after), (i, 1)), values, lanes)

    def _reduce_quads(self, element: Callable[[str], list[str]], lanes: int) -> list[str]:
        quads, rest = divmod(self.extent, _QUAD)
        count = -(-self.extent // _QUAD)
        if count == 1:
            return self._quad([element(str(k)) for k in range(self.extent)], lanes)
        step = max(lanes, 1)
        scratch = [self.context.new_buffer((count * step,), e) for e in self.elements]

        def write(q: str) -> None:
            members = [element(self.linear((q, _QUAD), ("1", k))) for k in range(_QUAD)]
            self.store(scratch, self.linear((q, step)), self._quad(members, lanes), lanes)

        for_each(self.w, quads, write)
        if rest:
            members = [element(str(quads * _QUAD + k)) for k in range(rest)]
            self.store(scratch, str(quads * step), self._quad(members, lanes), lanes)
        self._halve(scratch, count, step)
        return self.load(scratch, "0", lanes)

    def _quad(self, members: list[list[str]], lanes: int) -> list[str]:
        """Combine up to four elements: neighbors, then pairs of neighbors."""
        while len(members) > 1:
            members = [
                self.combine(members[k], members[k + 1], lanes)
                if k + 1 < len(members)
                else members[k]
                for k in range(0, len(members), 2)
            ]
        return members[0]

    def _halve(self, scratch: Sequence[Buffer], count: int, step: int) -> None:
        """Combine halves of ``count`` groups of ``step`` elements until one group is left."""
        while count > 1:
            half = 1 << (count - 1).bit_length() - 1

            def body(at: str, lanes: int, distance: int = half * step) -> None:
                upper = self.load(scratch, self.linear((at, 1), ("1", distance)), lanes)
                lower = self.load(scratch, at, lanes)
                self.store(scratch, at, self.combine(lower, upper, lanes), lanes)

            for_strips(self.w, (count - half) * step, self.width, body)
            count = half

    def _write_row(self, o: str) -> None:
        """Reduce one contiguous line."""
        quads, rest = divmod(self.extent, _QUAD)
        count = -(-self.extent // _QUAD)
        scratch = [self.context.new_buffer((count,), element) for element in self.elements]

        def element(k: str) -> list[str]:
            return self.load(self.inputs, self.linear((o, self.extent), (k, 1)), 0)

        def write(q: str, lanes: int) -> None:
            if not lanes:
                members = [element(self.linear((q, _QUAD), ("1", k))) for k in range(_QUAD)]
                self.store(scratch, q, self._quad(members, 0), 0)
                return
            first = self.linear((o, self.extent), (q, _QUAD))
            parts = [
                self.load(self.inputs, self.linear((first, 1), ("1", lanes * part)), lanes)
                for part in range(_QUAD)
            ]
            while len(parts) > 1:
                parts = [
                    self._neighbors(parts[k], parts[k + 1], lanes) for k in range(0, len(parts), 2)
                ]
            self.store(scratch, q, parts[0], lanes)

        for_strips(self.w, quads, self.width, write)
        if rest:
            members = [element(str(quads * _QUAD + k)) for k in range(rest)]
            self.store(scratch, str(quads), self._quad(members, 0), 0)
        self._halve(scratch, count, 1)
        self.store(self.results, o, self.load(scratch, "0", 0), 0)

    def _neighbors(self, low: Sequence[str], high: Sequence[str], lanes: int) -> list[str]:
        """Combine the neighbors of two vectors that follow each other."""
        even, odd = (
            self.shuffled(low, high, lanes, range(first, 2 * lanes, 2)) for first in (0, 1)
        )
        return self.combine(even, odd, lanes)


class _Scan(OrderedCombination):
    """A scan; elements are numbered in its direction."""

    def __init__(self, context: Context, operation: Scan) -> None:
        super().__init__(context, operation)
        self.reverse = operation.reverse
        self.results = [context.new_buffer(self.shape, element) for element in self.elements]
        self.tree = operation.order == TREE
        if self.after == 1:
            self.width = min(self.width, self.extent & -self.extent) if self.tree else 1

    def write(self) -> None:
        for_each(self.w, self.before, self._write_lines)

    def _write_lines(self, o: str) -> None:
        if self.after > 1:
            for_strips(
                self.w, self.after, self.width, lambda i, lanes: self._write_strip(o, i, lanes)
            )
        elif self.width > 1:
            self._write_row(o)
        else:
            self._write_strip(o, "0", 0)

    def _at(self, o: str, k: str, i: str, strip: int = 1) -> str:
        """Return the place of element ``k``, the first of ``strip`` along the axis."""
        if self.reverse:
            last = self.extent - strip
            k = str(last - int(k)) if k.isdigit() else self.w.emit(f"sub nuw nsw i64 {last}, {k}")
        return self.linear((o, self.extent * self.after), (k, self.after), (i, 1))

    def _write_strip(self, o: str, i: str, lanes: int) -> None:
        """Scan ``lanes`` lines that lie side by side."""

        def read(buffers: Sequence[Buffer], k: str) -> list[str]:
            return self.load(buffers, self._at(o, k, i), lanes)

        def write(k: str, values: Sequence[str]) -> None:
            self.store(self.results, self._at(o, k, i), values, lanes)

        first = read(self.inputs, "0")
        write("0", first)
        if self.extent == 1:
            return
        if not self.tree:
            carried = list(zip(self.types(lanes), first, strict=True))
            with self.w.loop("1", str(self.extent), 1, carried, nonempty=True) as loop:
                loop.next_values = self.combine(loop.values, read(self.inputs, loop.index), lanes)
                write(loop.index, loop.next_values)
            return
        with self.w.loop("1", str(self.extent), 1, nonempty=True) as loop:
            write(loop.index, read(self.inputs, loop.index))
        for bit in range((self.extent - 1).bit_length()):
            for start, count, source in self._blocks(bit):
                before = read(self.results, source)

                def body(step: str, start: str = start, before: list[str] = before) -> None:
                    k = self.linear((start, 1), (step, 1))
                    write(k, self.combine(before, read(self.results, k), lanes))

                for_each(self.w, count, body)

    def _blocks(self, bit: int) -> Iterator[tuple[str, int, str]]:
        """Yield (first, length, element before) of the blocks that a bit of the index joins.

        Blocks of full length are in a loop, which is open while the caller handles the block.
        """
        length = 1 << bit
        pairs, rest = divmod(self.extent, 2 * length)
        if pairs:
            if pairs == 1:
                yield str(length), length, str(length - 1)
            else:
                with self.w.loop("0", str(pairs), 1, nonempty=True) as loop:
                    base = self.linear((loop.index, 2 * length), ("1", length - 1))
                    yield self.linear((base, 1), ("1", 1)), length, base
        if rest > length:
            first = pairs * 2 * length + length
            yield str(first), rest - length, str(first - 1)

    def _write_row(self, o: str) -> None:
        """Scan one contiguous line, a vector at a time."""
        width = self.width

        def read(buffers: Sequence[Buffer], k: str) -> list[str]:
            return self._in_direction(self.load(buffers, self._at(o, k, "0", width), width))

        def write(k: str, values: Sequence[str]) -> None:
            self.store(self.results, self._at(o, k, "0", width), self._in_direction(values), width)

        low = (width - 1).bit_length()

        def scan_vector(strip: str) -> None:
            k = self.linear((strip, width))
            values = read(self.inputs, k)
            for bit in range(low):
                sources = [
                    (lane >> bit << bit) - 1 if lane >> bit & 1 else lane for lane in range(width)
                ]
                combined = self.combine(
                    self.shuffled(values, values, width, sources), values, width
                )
                upper = [lane + width if lane >> bit & 1 else lane for lane in range(width)]
                values = self.shuffled(values, combined, width, upper)
            write(k, values)

        for_each(self.w, self.extent // width, scan_vector)
        for bit in range(low, (self.extent - 1).bit_length()):
            for start, count, source in self._blocks(bit):
                scalars = self.load(self.results, self._at(o, source, "0"), 0)
                before = [
                    self.w.splat(type_, scalar, width)
                    for type_, scalar in zip(self.types(0), scalars, strict=True)
                ]

                def body(strip: str, start: str = start, before: list[str] = before) -> None:
                    k = self.linear((start, 1), (strip, width))
                    write(k, self.combine(before, read(self.results, k), width))

                for_each(self.w, count // width, body)

    def _in_direction(self, values: Sequence[str]) -> list[str]:
        """Return the lanes in the direction of the scan, or from it back."""
        if not self.reverse:
            return list(values)
        return self.shuffled(values, values, self.width, range(self.width - 1, -1, -1))


def lower_ordered_reduce(context: Context, operation: Reduce) -> None:
    """Reduce in the order that the operation states."""
    with _without_contraction(context):
        reduction = _Reduction(context, operation)
        reduction.write()
    for result, buffer in zip(operation.results, reduction.results, strict=True):
        if isinstance(result.type, TileType):
            context.bind_buffer(result, buffer)
        else:
            context.bind_scalar(result, context.load_element(buffer, ()))


def lower_ordered_scan(context: Context, operation: Scan) -> None:
    """Scan in the order that the operation states."""
    with _without_contraction(context):
        scan = _Scan(context, operation)
        scan.write()
    for result, buffer in zip(operation.results, scan.results, strict=True):
        context.bind_buffer(result, buffer)


@contextmanager
def _without_contraction(context: Context) -> Iterator[None]:
    saved, context.contract = context.contract, ""
    try:
        yield
    finally:
        context.contract = saved


def _shape(tile: Value) -> tuple[int, ...]:
    assert isinstance(tile.type, TileType)
    return tile.type.shape
