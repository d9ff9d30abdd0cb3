"""Inclusive prefix combinations along an axis.

Across the other axes whole vectors are combined step by step. Along the contiguous axis a vector is
scanned in registers in log2(lanes) steps (Hillis and Steele, "Data parallel algorithms", 1986),
then combined with what came before it. Combines with control flow run on scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.core import Region
from tilewright.ir.ops.control import Scan
from tilewright.ir.order import ANY, effective_order
from tilewright.ir.types import TileType
from tilewright_cpu.codegen.context import Buffer, Context
from tilewright_cpu.codegen.loops.strip_loop import around_axis, for_each, for_strips, viewed
from tilewright_cpu.codegen.ops.ordered_combine import lower_ordered_scan


def lower_scan(context: Context, operation: Scan) -> None:
    """Scan tiles of one shape together."""
    if effective_order(operation) != ANY:
        lower_ordered_scan(context, operation)
        return
    inputs = [context.materialize(operand) for operand in operation.inputs]
    results = []
    for value in operation.results:
        assert isinstance(value.type, TileType)
        results.append(context.new_buffer(value.type.shape, value.type.element))
    scan = _Scan(context, operation, inputs, results)
    scan.write()
    for value, buffer in zip(operation.results, results, strict=True):
        context.bind_buffer(value, buffer)


class _Scan:
    """One scan: tiles seen as [before, extent, after] around its axis."""

    def __init__(
        self, context: Context, operation: Scan, inputs: Sequence[Buffer], results: Sequence[Buffer]
    ) -> None:
        self.context, self.w = context, context.writer
        self.before, self.extent, self.after = around_axis(inputs[0].shape, operation.axis)
        self.reverse = operation.reverse
        self.combine: Region = operation.combine
        shape = (self.before, self.extent, self.after)
        self.inputs, self.results = (
            [viewed(buffer, *shape) for buffer in buffers] for buffers in (inputs, results)
        )
        self.vectors = context.is_straight_line(self.combine)
        self.width = (
            min(context.elements_for(buffer.element) for buffer in inputs) if self.vectors else 1
        )

    def write(self) -> None:
        if self.after == 1 and self.vectors and self.extent >= self.width > 1:
            for_each(self.w, self.before, self._row)
        else:
            for_each(
                self.w,
                self.before,
                lambda o: for_strips(
                    self.w, self.after, self.width, lambda i, lanes: self._column(o, i, lanes)
                ),
            )

    # ---- elements in the order of the scan

    def _load(self, at: tuple[str, str, str], lanes: int) -> list[str]:
        if lanes:
            return [self.context.load_vector(buffer, at, lanes) for buffer in self.inputs]
        return [self.context.load_element(buffer, at) for buffer in self.inputs]

    def _store(self, at: tuple[str, str, str], values: Sequence[str], lanes: int) -> None:
        for buffer, value in zip(self.results, values, strict=True):
            if lanes:
                self.context.store_vector(buffer, at, value, lanes)
            else:
                self.context.store_element(buffer, at, value)

    def _types(self, lanes: int) -> list[str]:
        return [self.context.llvm_type(buffer.element, lanes) for buffer in self.inputs]

    def _combined(self, earlier: Sequence[str], later: Sequence[str], lanes: int) -> list[str]:
        arguments = [*earlier, *later]
        return (
            self.context.evaluate_vectors(self.combine, arguments, lanes)
            if self.vectors
            else self.context.evaluate_scalars(self.combine, arguments)
        )

    def _at(self, step: str, strip: int = 1) -> str:
        """First coordinate along the axis of ``strip`` elements, whose first has number ``step``.

        Elements are numbered in the order of the scan.
        """
        if not self.reverse:
            return step
        if step.isdigit():
            return str(self.extent - strip - int(step))
        return self.w.emit(f"sub nuw nsw i64 {self.extent - strip}, {step}")

    # ---- across the contiguous axis, or one element after the other

    def _column(self, o: str, i: str, lanes: int) -> None:
        first = self._load((o, self._at("0"), i), lanes)
        self._store((o, self._at("0"), i), first, lanes)
        self._continue(o, i, lanes, first, 1)

    def _continue(self, o: str, i: str, lanes: int, values: Sequence[str], start: int) -> None:
        """Go on from element ``start`` with what the elements before combine to."""
        if start >= self.extent:
            return
        with self.w.loop(
            str(start),
            str(self.extent),
            1,
            list(zip(self._types(lanes), values, strict=True)),
            nonempty=True,
        ) as loop:
            at = (o, self._at(loop.index), i)
            loop.next_values = self._combined(loop.values, self._load(at, lanes), lanes)
            self._store(at, loop.next_values, lanes)

    # ---- along the contiguous axis

    def _row(self, o: str) -> None:
        width = self.width
        values = self._scanned(self._vector(o, "0"))
        self._store_strip(o, "0", values)
        whole = self.extent // width * width
        if whole > width:
            with self.w.loop(
                str(width),
                str(whole),
                width,
                list(zip(self._types(width), values, strict=True)),
                nonempty=True,
            ) as loop:
                scanned = self._scanned(self._vector(o, loop.index))
                loop.next_values = self._combined(self._last(loop.values), scanned, width)
                self._store_strip(o, loop.index, loop.next_values)
            values = loop.results
        if whole < self.extent:
            lane = 0 if self.reverse else width - 1
            scalars = [
                self.w.emit(f"extractelement {type_} {value}, i64 {lane}")
                for type_, value in zip(self._types(width), values, strict=True)
            ]
            self._continue(o, "0", 0, scalars, whole)

    def _flat(self, buffer: Buffer) -> Buffer:
        return viewed(buffer, self.before, self.extent)

    def _vector(self, o: str, step: str) -> list[str]:
        at = (o, self._at(step, self.width))
        return [
            self.context.load_vector(self._flat(buffer), at, self.width) for buffer in self.inputs
        ]

    def _store_strip(self, o: str, step: str, values: Sequence[str]) -> None:
        at = (o, self._at(step, self.width))
        for buffer, value in zip(self.results, values, strict=True):
            self.context.store_vector(self._flat(buffer), at, value, self.width)

    def _shuffled(self, values: Sequence[str], lanes: Sequence[int]) -> list[str]:
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        return [
            self.w.emit(
                f"shufflevector {type_} {value}, {type_} poison, <{self.width} x i32> <{order}>"
            )
            for type_, value in zip(self._types(self.width), values, strict=True)
        ]

    def _last(self, values: Sequence[str]) -> list[str]:
        """The element scanned last, in every lane."""
        return self._shuffled(values, [0 if self.reverse else self.width - 1] * self.width)

    def _scanned(self, values: Sequence[str]) -> list[str]:
        """Vectors scanned by lanes: after the step of distance d a lane combines 2d elements."""
        width, values, distance = self.width, list(values), 1
        while distance < width:
            sources = [
                lane + distance if self.reverse else lane - distance for lane in range(width)
            ]
            reached = [0 <= source < width for source in sources]
            moved = self._shuffled(
                values,
                [
                    source if inside else lane
                    for lane, (source, inside) in enumerate(zip(sources, reached, strict=True))
                ],
            )
            combined = self._combined(moved, values, width)
            mask = f"<{', '.join(f'i1 {str(inside).lower()}' for inside in reached)}>"
            values = [
                self.w.emit(f"select <{width} x i1> {mask}, {type_} {new}, {type_} {old}")
                for type_, new, old in zip(self._types(width), combined, values, strict=True)
            ]
            distance *= 2
        return values


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {"scan": lower_scan}
