"""The register budget of pipelined loops.

It limits the prefetch distance of loads that go through registers, ping-pong, and prefetched
fragments. On targets with few registers it is enforced for loads through registers: if it is
exceeded, loads are serialized: each one starts when the previous one is stored, and overlaps a part
of the iteration's matmuls. If that is not enough, loop-invariant operands are stored to shared
memory before the loop, and read from there step by step, as the loaded ones are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import FloatType, PointerType, TileType, bit_width, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.analysis.register_pressure import Pressure, peak_words_in, words_of
from tilewright.simt.analysis.shared_views import views_of
from tilewright.simt.dialect.attributes import is_made_in, layout_of, warps_of
from tilewright.simt.dialect.layout_rules import SHAPE_OPERATIONS, SOURCES
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.dialect.ops.dot import Multiplication, PlannedDot
from tilewright.simt.dialect.pipeline_attributes import IN_TURN, KEPT, SLOTS, WIDTH, Ahead
from tilewright.simt.pipeline.shared_memory_budget import scratch_beside, slot_bytes
from tilewright.simt.target.fragments import fragment
from tilewright.simt.target.matmul_plan import OPERAND_ALIGNMENT, REGISTERS
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def register_budget(loop: For, target: SimtTarget, options: Mapping[str, Any]) -> int:
    """Return the registers that a thread's tiles and addresses may take."""
    sizes = target.resources
    limit = min(
        sizes.registers,
        sizes.register_file // (sizes.warp_size * warps_of(loop)),
        options.get("maxnreg") or sizes.registers,
    )
    return limit - target.costs.other_registers


def prefetch_distance(
    loop: For, loads: list[Ahead], most: int, target: SimtTarget, options: Mapping[str, Any]
) -> int:
    """Return the prefetch distance of loads whose tiles stay in registers until they are stored.

    It is at least 1 and at most ``most``.
    """
    ahead = sum(
        -(
            -layout_of(load.results[0]).register_count
            * bit_width(element_type(load.results[0].type))
            // 32
        )
        for load in loads
    )
    left = register_budget(loop, target, options) - peak_words_in(loop.regions[0])
    return max(1, min(most, left // ahead))


def phases_fit(
    loop: For,
    loads: list[Ahead],
    matmul: PlannedDot,
    distance: int,
    target: SimtTarget,
    options: Mapping[str, Any],
) -> bool:
    """Return whether registers suffice for ping-pong: for all fragments of an iteration.

    Loads start ``distance`` iterations ahead in registers (0: not in registers).
    """
    words = distance * sum(map(words_of, (load.results[0] for load in loads)))
    words += sum(map(words_of, _carried_tiles(loop)))
    for load in _by_pointers(loads):
        # a pointer for each access
        width = load.attributes.get(WIDTH) or max(
            1, 8 * target.resources.max_access // bit_width(element_type(load.results[0].type))
        )
        words += 2 * -(-layout_of(load.pointer).register_count // width)
    for position, operand in enumerate((matmul.a, matmul.b)):
        registers = plan_of(matmul, target).operand(position).register_count
        words += -(-registers * bit_width(element_type(operand.type)) // 32)
    return words <= register_budget(loop, target, options)


def steps_fit(
    loop: For,
    loads: list[Ahead],
    matmul: PlannedDot,
    target: SimtTarget,
    options: Mapping[str, Any],
) -> bool:
    """Return whether registers suffice to prefetch a matmul's fragments one K step ahead.

    They hold the loop-carried values, the fragments of two steps, and pointers for the copies.
    """
    words = sum(map(words_of, _carried_tiles(loop)))
    for position, operand in enumerate((matmul.a, matmul.b)):
        type_, layout = fragment(
            plan_of(matmul, target), position, element_type(operand.type), warps_of(matmul), target
        )
        words += 2 * -(-layout.register_count * bit_width(type_.element) // 32)
    words += sum(
        2 * layout_of(load.pointer).register_count // int(load.attributes[WIDTH])
        for load in _by_pointers(loads)
    )
    return words <= register_budget(loop, target, options)


def _by_pointers(loads: list[Ahead]) -> list[Load]:
    return [load for load in loads if isinstance(load, Load)]


def _carried_tiles(loop: For) -> list[Value]:
    """Return the loop-carried tiles, except tiles of pointers."""
    return [
        argument
        for argument in loop.regions[0].arguments
        if isinstance(argument.type, TileType)
        and not isinstance(argument.type.element, PointerType)
    ]


def spare_registers(loop: For, loads: list[Ahead], budget: int, target: SimtTarget) -> None:
    """Reduce a loop's live registers to ``budget`` words a thread, by serialized loads and spills.

    The loads start one iteration ahead and go through registers.
    """
    ahead = [_words_apart(load.results[0]) for load in loads]
    words = words_in_loop(loop, loads, target)
    if words + sum(ahead) <= budget:
        return
    if len(loads) > 1:
        loop.attributes[IN_TURN] = True
    words += max(ahead)
    free = aligned(
        target.resources.shared_memory
        - scratch_beside(loop, target)
        - loop.attributes[SLOTS] * sum(map(slot_bytes, loads))
    )
    for matmul, position in to_be_shared(loop, words - budget, free, target):
        matmul.attributes[KEPT] = (*matmul.attributes.get(KEPT, ()), position)


def to_be_shared(
    loop: For, excess: int, free: int, target: SimtTarget
) -> list[tuple[PlannedDot, int]]:
    """Select (matmul, position) of loop-invariant operands to move to shared memory.

    They take at most ``free`` bytes and relieve a thread of ``excess`` words, as far as possible.
    """
    shared: set[Value] = set()
    found = []
    for matmul, position in _constant_operands(loop, target):
        operand = (matmul.a, matmul.b)[position]
        assert isinstance(operand.type, TileType)
        size = -aligned(-operand.type.numel * storage_size(operand.type.element))
        if operand not in shared and excess > 0 and size <= free:
            shared.add(operand)
            excess, free = excess - words_of(operand), free - size
        if operand in shared:
            found.append((matmul, position))
    return found


def aligned(size: int) -> int:
    """Round bytes down to a multiple of the alignment of operands."""
    return size // OPERAND_ALIGNMENT * OPERAND_ALIGNMENT


def words_in_loop(loop: For, loads: list[Ahead], target: SimtTarget) -> int:
    """Estimate a thread's live registers of tiles in a loop's body, without tiles in flight."""
    (body,) = loop.regions
    copied = {
        reader
        for load in loads
        for view in views_of(load.results[0])
        for reader in _as_it_is(view.value)
    }
    return sum(map(words_of, _captured(loop))) + _InLoop(copied, target).region(body)


class _InLoop(Pressure):
    """Register pressure of a loop whose loads are read from shared memory.

    A tile that is read from shared memory takes only the registers of one step's fragments; matmuls
    accumulate in place.
    """

    def __init__(self, copied: Collection[Value], target: SimtTarget) -> None:
        self.copied, self.target = copied, target

    def words(self, value: Value) -> int:
        return 0 if value in self.copied else super().words(value)

    def in_place(self, operation: Operation) -> bool:
        return isinstance(operation, Multiplication) or super().in_place(operation)

    def beside(self, operation: Operation) -> int:
        if not isinstance(operation, Multiplication):
            return 0
        plan, words = plan_of(operation, self.target), 0
        for position, operand in enumerate((operation.a, operation.b)):
            if operand in self.copied and plan.reads[position] == REGISTERS:
                depth = plan.a.shape[-1]
                words += _words_apart(operand) * (plan.k_step or depth) // depth
        return words


def _words_apart(tile: Value) -> int:
    """Registers of a tile with at least 16 bits for each element.

    Narrower elements are unpacked to be transposed or converted.
    """
    assert isinstance(tile.type, TileType)
    return -(-layout_of(tile).register_count * max(16, bit_width(tile.type.element)) // 32)


def _as_it_is(value: Value) -> list[Value]:
    return [value, *(user.results[0] for user in value.uses if isinstance(user, Convert))]


def _captured(loop: For) -> set[Value]:
    """Return the tiles that a loop reads but that are defined outside, except index arithmetic."""
    found = set()
    for operation in loop.regions[0].walk():
        for value in operation.operands:
            if (
                not isinstance(value.type, TileType)
                or value.layout is None
                or is_made_in(value, loop)
                or _is_source(value)
            ):
                continue
            if isinstance(value.type.element, FloatType) or isinstance(operation, Multiplication):
                found.add(value)
    return found


def _is_source(value: Value) -> bool:
    return value.definition is not None and (
        isinstance(value.definition, SOURCES) or value.definition.name in SHAPE_OPERATIONS
    )


def _constant_operands(loop: For, target: SimtTarget) -> Iterator[tuple[PlannedDot, int]]:
    """Yield (matmul, position) of loop-invariant operands in registers.

    They could be read from shared memory step by step.
    """
    for matmul in loop.regions[0]:
        if isinstance(matmul, PlannedDot):
            plan = plan_of(matmul, target)
            for position, operand in enumerate((matmul.a, matmul.b)):
                held = (
                    isinstance(operand.type, TileType)
                    and not is_made_in(operand, loop)
                    and not _is_source(operand)
                )
                if held and plan.reads == (REGISTERS, REGISTERS) and plan.k_step:
                    yield matmul, position
