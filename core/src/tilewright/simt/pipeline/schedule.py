"""Choice of the prefetch distance of loads, and of the form in which each loop is expanded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorLoad, Load, MakeDescriptor
from tilewright.ir.table import Effect
from tilewright.ir.types import PointerType, TileType, bit_width, element_type
from tilewright.simt.analysis.alias import is_address, reached, root_of, writer_in
from tilewright.simt.analysis.iteration_slices import Slice, slice_of
from tilewright.simt.analysis.pipelined_loads import stepped_matmul
from tilewright.simt.analysis.pipelined_loops import pipelined_loops, stages_of, streaming_loops
from tilewright.simt.analysis.register_pressure import peak_words_in, words_of
from tilewright.simt.dialect.attributes import PROGRAMS, function_of, layout_of, note, warps_of
from tilewright.simt.dialect.ops.dot import PlannedDot
from tilewright.simt.dialect.pipeline_attributes import (
    ALTERNATING,
    BY,
    CHAIN,
    DISTANCE,
    EARLY,
    FORM,
    LATE,
    PARTS,
    SLOTS,
    STEPS,
    TRAILS,
    WIDTH,
    Ahead,
    deselect,
    forget,
    selected,
)
from tilewright.simt.passes.allocate_tensor_memory import accumulator_of
from tilewright.simt.pipeline.back_to_back import asynchronous_matmuls, is_chain, late_half
from tilewright.simt.pipeline.defer_matmul_wait import trailing_matmul
from tilewright.simt.pipeline.occupancy import settle_chains
from tilewright.simt.pipeline.ping_pong import can_alternate
from tilewright.simt.pipeline.register_budget import spare_registers
from tilewright.simt.pipeline.shared_memory_budget import fitting_slots, slot_bytes
from tilewright.simt.pipeline.start_matmuls import held_by
from tilewright.simt.pipeline.warp_specialize import is_separable
from tilewright.simt.target.copy_mechanism import BARRIER, GROUPS, REGISTERS
from tilewright.simt.target.fragments import fragment
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget, required

#: Slots of a buffer that is filled from registers: one is read while the other is written.
_HALVES: Final = 2
#: Minimum number of iterations in flight with ping-pong.
_ALTERNATING: Final = 3


def schedule(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Choose the form of each loop that has selected loads."""
    for loop in [*pipelined_loops(function, options), *streaming_loops(function)]:
        if selected(loop) and not _schedule(loop, target, options):
            forget(loop)
    settle_chains(function, target)
    forms = {
        loop: loop.attributes[FORM]
        for loop in function.walk()
        if isinstance(loop, For) and FORM in loop.attributes
    }
    # with warp specialization, or several programs on an SM, there are no registers to spare
    if not {PARTS, CHAIN} & set(forms.values()) and PROGRAMS not in function.attributes:
        for loop in (loop for loop, form in forms.items() if form == GROUPS):
            _let_trail(loop, target, options)


def _let_trail(loop: For, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Defer the wait for a loop's last matmul to the next iteration, if registers allow.

    The registers that the matmul reads stay live for longer.
    """
    last = trailing_matmul(loop, target)
    if last is not None:
        held = sum(map(words_of, held_by(last.matmul, target)))
        if peak_words_in(loop.regions[0]) + held <= _register_budget(loop, target, options):
            last.matmul.attributes[TRAILS] = True


def _schedule(loop: For, target: SimtTarget, options: Mapping[str, Any]) -> bool:
    (body,) = loop.regions
    stages = stages_of(loop, options)
    loads = selected(loop)
    part = slice_of(body, loads, target)
    writer = writer_in(body, _read_ahead(loads, part))
    if writer is not None:
        note(
            loop, f"not pipelined: {writer.name} in the loop may change what later iterations load"
        )
        return False
    form = _form(loop, target)
    loads = selected(loop)  # those that keep their mechanism
    # loads through registers are prefetched into registers, not into shared memory
    slots = _HALVES if form == REGISTERS else stages
    barriers = (
        2 * slots * required(target.mbarriers, target, "mbarriers").bytes if form == BARRIER else 0
    )
    fitting = fitting_slots(loop, loads, slots, barriers, target)
    if slice_of(body, loads, target) is None or fitting < 2:
        why = (
            "its addresses are too costly to compute twice"
            if fitting >= 2
            else f"{target.name} has no shared memory for two buffers of its loads"
        )
        note(loop, f"not pipelined: {why}")
        return False
    if fitting < slots:
        note(loop, f"pipelined {fitting} deep instead of {stages}, for want of shared memory")
    loop.attributes[SLOTS] = fitting
    loop.attributes[FORM] = form
    if form == REGISTERS:
        loop.attributes[DISTANCE] = distance = _distance(loop, loads, stages - 1, target, options)
        if distance == 1 and target.resources.few_registers:
            spare_registers(loop, loads, _register_budget(loop, target, options), target)
        if distance < stages - 1:
            note(loop, f"pipelined {distance + 1} deep instead of {stages}, for want of registers")
        matmul = stepped_matmul(loop, loads, target)
        if (
            matmul is not None
            and distance >= _ALTERNATING - 1
            and _alternates(loop, loads, matmul, distance, target, options)
        ):
            matmul.attributes[STEPS] = ALTERNATING
    elif (
        form == BARRIER
        and target.warp_specialization is not None
        and (_asks_for_parts(loop, options) or _is_register_chain(loop, target))
    ):
        if not is_separable(loop):
            note(
                loop, "not divided among warps: what it loads depends on what the program computes"
            )
        elif (writer := _writer_of(loads)) is not None:
            note(
                loop,
                f"not divided among warps: {writer.name} at {writer.location} may change what it loads",
            )
        elif (
            target.resources.warp_size * (warps_of(loop) + target.warp_specialization.warp_multiple)
            > target.resources.max_threads
        ):
            note(
                loop,
                f"not divided among warps: beside {warps_of(loop)} there are none left for loads",
            )
        elif is_chain(loop, target) and not any(
            other.attributes.get(FORM) == PARTS for other in function_of(loop).walk()
        ):
            loop.attributes[FORM] = CHAIN
        elif not any(
            other.attributes.get(FORM) in (PARTS, CHAIN)
            for other in function_of(loop).walk()
            if other is not loop
        ):
            loop.attributes[FORM] = PARTS
    elif form == GROUPS:
        matmul = stepped_matmul(loop, loads, target)
        if (
            matmul is not None
            and fitting >= _ALTERNATING
            and _alternates(loop, loads, matmul, 0, target, options)
        ):
            matmul.attributes[STEPS] = ALTERNATING
        elif matmul is not None:
            early = _words_in_steps(loop, loads, matmul, target) <= _register_budget(
                loop, target, options
            )
            matmul.attributes[STEPS] = EARLY if early else LATE
    return True


def _read_ahead(loads: Sequence[Ahead], part: Slice | None) -> frozenset[Value | None]:
    """Return the memory that later iterations load from.

    It is the memory of the loads themselves, and of the loads that their addresses are computed
    from.
    """
    readers = (
        [
            *loads,
            *(reader.operation for reader in part.operations if isinstance(reader.operation, Load)),
        ]
        if part is not None
        else loads
    )
    return frozenset(
        root_of(operand)
        for load in readers
        for operand in load.operands
        if is_address(operand.type)
    )


def _asks_for_parts(loop: For, options: Mapping[str, Any]) -> bool:
    """Return whether the loop, a loop around it or the options request warp specialization.

    A loop around it that is to be flattened (``flatten``) requests it too: a producer warp
    continues its loads across the ends of the inner loop, as the flattened loop would.
    """
    outer = [operation for operation in loop.ancestors() if isinstance(operation, For)]
    asked = any(one.warp_specialize for one in (loop, *outer)) or any(one.flatten for one in outer)
    return asked or bool(options.get("warp_specialize"))


def _writer_of(loads: Sequence[Ahead]) -> Operation | None:
    """Return an operation of the program that may write to the tensors of TMA loads, if any.

    A producer warp's loads are not ordered with it.
    """
    descriptors = [load.descriptor for load in loads if isinstance(load, DescriptorLoad)]
    roots = {root_of(descriptor) for descriptor in descriptors}
    made = any(isinstance(descriptor.definition, MakeDescriptor) for descriptor in descriptors)

    def changes(written: Value | None) -> bool:
        return written in roots or (made and (written is None or None in roots))

    return next(
        (
            operation
            for operation in function_of(loads[0]).walk()
            if any(map(changes, reached(operation, Effect.WRITE)))
        ),
        None,
    )


def _is_register_chain(loop: For, target: SimtTarget) -> bool:
    """Return whether a loop has back-to-back matmuls without a barrier between them.

    The operands of the later matmuls stay in registers, or their accumulators are in tensor memory,
    so that only the copies need synchronization.
    """
    (body,) = loop.regions
    matmuls = asynchronous_matmuls(body, target)
    late = late_half(body, matmuls)
    return late is not None and all(
        held_by(matmul, target) or accumulator_of(matmul, target) is not None
        for matmul in matmuls
        if matmul in late
    )


def _form(loop: For, target: SimtTarget) -> str:
    """Return the form of a loop, by the completion kind of the loads with the most bytes.

    Loads of another kind are not pipelined.
    """
    moved: dict[str, int] = {}
    for load in selected(loop):
        kind = target.async_copy.mechanism(load.attributes[BY]).completes
        moved[kind] = moved.get(kind, 0) + slot_bytes(load)
    form = max(moved, key=moved.__getitem__)
    for load in selected(loop):
        by = load.attributes[BY]
        if target.async_copy.mechanism(by).completes != form:
            deselect(load)
            note(
                load,
                f"{load.name} is not pipelined: most of what the loop loads is copied in another way than by {by!r}",
            )
    return form


def _register_budget(loop: For, target: SimtTarget, options: Mapping[str, Any]) -> int:
    """Return the registers that a thread's tiles and addresses may take."""
    sizes = target.resources
    limit = min(
        sizes.registers,
        sizes.register_file // (sizes.warp_size * warps_of(loop)),
        options.get("maxnreg") or sizes.registers,
    )
    return limit - target.costs.other_registers


def _distance(
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
    left = _register_budget(loop, target, options) - peak_words_in(loop.regions[0])
    return max(1, min(most, left // ahead))


def _alternates(
    loop: For,
    loads: list[Ahead],
    matmul: PlannedDot,
    distance: int,
    target: SimtTarget,
    options: Mapping[str, Any],
) -> bool:
    """Return whether a loop is written as ping-pong between two halves of the warps.

    The target has to want it, and there must be registers for all fragments of an iteration. Loads
    start ``distance`` iterations ahead in registers (0: not in registers).
    """
    if not can_alternate(loop, matmul, target):
        return False
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
    return words <= _register_budget(loop, target, options)


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


def _words_in_steps(loop: For, loads: list[Ahead], matmul: PlannedDot, target: SimtTarget) -> int:
    """Estimate a thread's live registers where ``matmul`` is computed step by step along K.

    They hold the loop-carried values, the fragments of two steps, and pointers for the copies.
    """
    words = sum(map(words_of, _carried_tiles(loop)))
    for position, operand in enumerate((matmul.a, matmul.b)):
        type_, layout = fragment(
            plan_of(matmul, target), position, element_type(operand.type), warps_of(matmul), target
        )
        words += 2 * -(-layout.register_count * bit_width(type_.element) // 32)
    return words + sum(
        2 * layout_of(load.pointer).register_count // int(load.attributes[WIDTH])
        for load in _by_pointers(loads)
    )
