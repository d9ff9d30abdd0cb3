"""Runs of a kernel on the emulated target with a random valid layout for every tile."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.ir import Builder
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.control import Map, Scan
from tilewright.ir.ops.debug import InlineAsm
from tilewright.ir.ops.shape import Broadcast, Cat, Gather, Join, Split
from tilewright.ir.order import effective_order
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import TileType, shape_of
from tilewright.simt.analysis.xor_exchange import xor_distance
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.assign_layouts.verify import check
from tilewright.simt.dialect import layout_rules
from tilewright.simt.dialect.attributes import OFFSET, SHARED_BYTES, WARPS, layout_of
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.emulator import EmulatedTarget, run_text
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, log2
from tilewright.simt.layouts.scan_plan import scan_layout
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.simt.passes.allocate_shared import scratch_of
from tilewright.simt.passes.inline_and_expand import prepare


def random_layout(
    rng: random.Random, shape: tuple[int, ...], lanes: int, warps: int, first: Sequence[int] = ()
) -> LinearLayout:
    """Draw a layout of a tile: bits of the coordinates go anywhere, often mixed.

    Surplus threads hold copies of others' elements.

    ``first`` are images that the first registers have.
    """
    bits = sum(map(log2, shape))
    basis = Basis(first)
    units = [1 << bit for bit in range(bits)]
    rng.shuffle(units)
    mixed = rng.random() < 0.4
    pool = [rng.randrange(1, 1 << bits) for _ in range(4 * bits)] if mixed and bits else []
    vectors = [vector for vector in (*pool, *units) if basis.add(vector)]
    lane_count = rng.randint(0, min(log2(lanes), len(vectors)))
    if rng.random() < 0.7:
        lane_count = min(log2(lanes), len(vectors))
    warp_count = rng.randint(0, min(log2(warps), len(vectors) - lane_count))
    twisted = rng.random() < 0.25

    def threads(count: int, number: int) -> tuple[int, ...]:
        taken = [vectors.pop() for _ in range(count)]
        rest = [
            rng.randrange(1 << bits) if twisted and rng.random() < 0.5 else 0
            for _ in range(log2(number) - count)
        ]
        images = taken + rest
        if rng.random() < 0.5:
            rng.shuffle(images)
        return tuple(images)

    lane_images, warp_images = threads(lane_count, lanes), threads(warp_count, warps)
    return LinearLayout(shape, (*first, *vectors), lane_images, warp_images)


class RandomAssignment:
    """Assigns random layouts to a function's tiles, with conversions where they differ."""

    def __init__(
        self, function: Function, rng: random.Random, target: EmulatedTarget, num_warps: int
    ) -> None:
        self.function, self.rng, self.target = function, rng, target
        self.num_warps = function.attributes[WARPS] = num_warps
        self._region(function.body)
        self._place_scratch()

    def layout(self, value: Value | tuple[int, ...], first: Sequence[int] = ()) -> LinearLayout:
        shape = value if isinstance(value, tuple) else shape_of(value.type)
        return random_layout(
            self.rng, shape, self.target.resources.warp_size, self.num_warps, first
        )

    def _region(self, region: Region) -> None:
        for operation in region:
            if operation.spec.terminator:
                continue
            special = getattr(self, f"_{operation.name.replace('.', '_')}", None)
            interface = interface_of(self.target, operation.name)
            if special is not None:
                special(operation)
            elif operation.spec.elementwise or (
                interface is not None and interface.layout in shape_rules.ONE_LAYOUT
            ):
                self._uniform(operation)
            else:
                for position, operand in enumerate(operation.operands):
                    if isinstance(operand.type, TileType):
                        self.need(operation, position, self.layout(operand))
                for value in operation.results:
                    if isinstance(value.type, TileType):
                        value.layout = self.layout(value)

    def need(self, operation: Operation, position: int, layout: LinearLayout) -> None:
        """Convert an operand to a layout."""
        value = operation.operands[position]
        if layout_of(value) == layout:
            return
        convert = Builder.at(operation).create(SIMT_TABLE["simt.convert"], [[value]], {})
        convert.results[0].layout = layout
        operation.set_operand(position, convert.results[0])

    def _tiles(self, values: Sequence[Value]) -> list[tuple[int, Value]]:
        return [
            (position, value)
            for position, value in enumerate(values)
            if isinstance(value.type, TileType)
        ]

    def _all(self, operation: Operation, layout: Callable[[Value], LinearLayout]) -> None:
        for position, operand in self._tiles(operation.operands):
            self.need(operation, position, layout(operand))

    def _uniform(self, operation: Operation) -> None:
        tiles = [
            value
            for value in (*operation.operands, *operation.results)
            if isinstance(value.type, TileType)
        ]
        if not tiles:
            return
        pack = operation.attribute("pack") if isinstance(operation, Map | InlineAsm) else 1
        pack = min(pack, tiles[0].type.numel)  # type: ignore[attr-defined]
        layout = self.layout(tiles[0], [1 << bit for bit in range(log2(pack))])
        if isinstance(operation, Scan):
            layout = scan_layout(layout, operation.axis, effective_order(operation))
        self._all(operation, lambda value: layout)
        for _, value in self._tiles(operation.results):
            value.layout = layout

    def _shaped(self, operation: Operation) -> None:
        result = operation.results[0]
        if isinstance(operation, Join | Cat):
            layout = self.layout(operation.operands[0])
            self._all(operation, lambda value: layout)
            result.layout = layout_rules.result_layout(operation, layout)
            return
        if isinstance(operation, Split):
            if isinstance(result.type, TileType):
                layout = self.layout(result)
                self.need(operation, 0, layout.joined())
                for part in operation.results:
                    part.layout = layout
            else:
                lanes, warps = log2(self.target.resources.warp_size), log2(self.num_warps)
                self.need(operation, 0, LinearLayout((2,), (1,), (0,) * lanes, (0,) * warps))
            return
        result.layout = self.layout(result)
        source = layout_rules.operand_layout(operation, layout_of(result))
        if isinstance(operation, Broadcast):
            registers = list(source.registers)
            self.rng.shuffle(registers)
            source = LinearLayout(source.shape, tuple(registers), source.lanes, source.warps)
        self.need(operation, 0, source)

    _join = _cat = _split = _expand_dims = _reshape = _permute = _broadcast = _shaped

    def _reduce(self, operation: Operation) -> None:
        layout = self.layout(operation.operands[0])
        self._all(operation, lambda value: layout)
        for _, value in self._tiles(operation.results):
            value.layout = layout.without_axis(operation.attribute("axis"))

    def _gather(self, operation: Operation) -> None:
        layout = self.layout(operation.operands[1])
        exchanged = (
            isinstance(operation, Gather)
            and xor_distance(operation) is not None
            and self.rng.random() < 0.7
        )
        self.need(operation, 1, layout)
        self.need(operation, 0, layout if exchanged else self.layout(operation.operands[0]))
        operation.results[0].layout = layout

    def _one_for_operands(self, operation: Operation) -> None:
        layouts: dict[tuple[int, ...], LinearLayout] = {}
        self._all(
            operation,
            lambda value: layouts.setdefault(shape_of(value.type), self.layout(value)),
        )
        for _, value in self._tiles(operation.results):
            value.layout = self.layout(value)

    _histogram = _assert = _print = _one_for_operands

    # ---- control flow

    def _carry(self, values: Sequence[Value], layouts: Sequence[LinearLayout | None]) -> None:
        for value, layout in zip(values, layouts, strict=True):
            if layout is not None:
                value.layout = layout

    def _needs(
        self, operation: Operation, layouts: Sequence[LinearLayout | None], first: int = 0
    ) -> None:
        for position, layout in enumerate(layouts, first):
            if layout is not None:
                self.need(operation, position, layout)

    def _drawn(self, values: Sequence[Value]) -> list[LinearLayout | None]:
        return [
            self.layout(value) if isinstance(value.type, TileType) else None for value in values
        ]

    def _if(self, operation: Operation) -> None:
        layouts = self._drawn(operation.results)
        for region in operation.regions:
            self._region(region)
            self._needs(region.last, layouts)  # type: ignore[arg-type]
        self._carry(operation.results, layouts)

    def _for(self, operation: Operation) -> None:
        (body,) = operation.regions
        layouts = self._drawn(operation.results)
        self._needs(operation, layouts, 3)
        self._carry(body.arguments[1:], layouts)
        self._region(body)
        self._needs(body.last, layouts)  # type: ignore[arg-type]
        self._carry(operation.results, layouts)

    def _while(self, operation: Operation) -> None:
        before, after = operation.regions
        carried, forwarded = self._drawn(before.arguments), self._drawn(operation.results)
        self._needs(operation, carried)
        self._carry(before.arguments, carried)
        self._region(before)
        self._needs(before.last, forwarded, 1)  # type: ignore[arg-type]
        self._carry(after.arguments, forwarded)
        self._region(after)
        self._needs(after.last, carried)  # type: ignore[arg-type]
        self._carry(operation.results, forwarded)

    # ---- shared memory

    def _place_scratch(self) -> None:
        """Every operation has its own scratch space, and a barrier before it writes there again."""
        total = 0
        for operation in list(self.function.walk()):
            size = scratch_of(operation, self.target)
            if size:
                Builder.at(operation).barrier()
                operation.attributes[OFFSET] = total
                total += -(-size // 128) * 128
        self.function.attributes[SHARED_BYTES] = total
        sizes = self.target.resources
        self.target.resources = replace(sizes, shared_memory=max(sizes.shared_memory, total))


def run(
    module: Module,
    arguments: Sequence[Any],
    grid: Sequence[int],
    rng: random.Random,
    num_warps: int,
    warp_size: int,
) -> str:
    """Run a copy of the module, and return the LLVM IR that ran.

    Arguments are as after :func:`~tilewright.simt.passes.inline_and_expand.prepare`.
    """
    module = parse_module(print_module(module))
    target = EmulatedTarget(warp_size)
    prepare(module, target)
    function = module.kernel
    RandomAssignment(function, rng, target, num_warps)
    check(function, target)
    text = lower_function(function, target, {"enable_fp_fusion": False})
    run_text(
        text, target, [argument.type for argument in function.arguments], arguments, grid, num_warps
    )
    return text
