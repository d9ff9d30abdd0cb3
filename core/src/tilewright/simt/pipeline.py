"""Software pipelining: loads that feed matrix products in a loop are copied to shared memory some iterations before they are needed.

A loop of n iterations with S stages becomes

    ring of S buffers for each load
    for s in 0 .. S-2:              start copying what iteration s reads, where s < n, into buffer s; commit
    for each iteration i:
        wait until S-2 groups are under way: the copies for i have arrived
        start copying what iteration i+S-1 reads, where i+S-1 < n, into the buffer of iteration i-1; commit
        ... the body, which reads buffer i mod S
    wait for all

The addresses of iteration i+S-1 are those of the body, computed a second time with loop-carried values that are S-1 iterations ahead (:func:`slice_of`).
Copies past the end are masked off, so that each iteration ends one group, whatever n is. All of that is arithmetic modulo the width of the loop's
counter; whether a copy is past the end is decided by the number of iterations, which fits the counter's unsigned type, and not by the counter.

What barriers are needed follows from the operations (:mod:`.barriers`): an asynchronous copy writes when it is waited for, so one barrier comes between the
wait and the first read; and the buffer that is filled in an iteration was read in the one before, so one comes between: the same one, before the first copy.

Where a matrix product is the last to read the buffers, and takes its operands from them alone, it is written step by step along K, so that neither the
wait nor the loads of fragments from shared memory nor the start of copies keep the matrix instructions waiting:

    load the fragments of step 0 from buffer 0
    for each iteration i:
        for each step but the last:     load the fragments of the next step; start copies (their share); multiply
        wait until S-2 groups are under way: the copies for i+1 have arrived; barrier
        load the fragments of step 0 from the buffer of iteration i+1; multiply the last step

There, all fragments of buffer i-1 are loaded before the barrier of iteration i-1, and the copies into it start after: they are marked as ordered. Where
registers are short, nothing is loaded for the next iteration: wait, barrier and the load of step 0 come first in each.

A loop that writes to memory stays as it is: a later iteration may load what an earlier one stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.types import I1, I32, IntType, PointerType, TileType, Type, bit_width, element_type
from tilewright.passes.axis import axis_info
from tilewright.passes.clone import clone_operation
from tilewright.passes.dce import dce_function
from tilewright.passes.effects import clobbers_memory
from tilewright.simt.assignment import Assignment
from tilewright.simt.carried import operations_of_program
from tilewright.simt.lowering.dot import fragment, staged_bytes
from tilewright.simt.ops import SIMT_TABLE
from tilewright.simt.pipeline_loads import AheadLoad, Slice, loads_ahead, sink_conversions, slice_of, stepped_product, views_of
from tilewright.simt.shared_memory import scratch_sizes
from tilewright.simt.target import SimtTarget


def pipeline(function: Function, target: SimtTarget, assignment: Assignment, options: Mapping[str, Any]) -> None:
    """Pipeline the innermost ``for`` loops of a function whose tiles have layouts, ``num_stages`` deep: the loop's own number, or that of the options."""
    if not target.copy_widths:
        return
    axes = None
    changed = False
    for loop in operations_of_program(function.body):
        stages = (loop.attribute("num_stages") or options.get("num_stages", 0)) if loop.name == "for" else 0
        if stages < 2 or not any(operation.name == "dot" for operation in loop.regions[0]):
            continue
        if any(inner.name in ("for", "while") for inner in loop.regions[0].walk()):
            continue
        sink_conversions(loop.regions[0], assignment)
        axes = axes or axis_info(function)
        loads = loads_ahead(loop, target, assignment, axes)
        if not loads:
            continue
        (body,) = loop.regions
        writer = next((operation for operation in body if clobbers_memory(operation)), None)
        if writer is not None:
            assignment.notes.append((loop, f"not pipelined: {writer.name} in the loop may change what later iterations load"))
            continue
        part = slice_of(body, [load.operation for load in loads], assignment, target)
        fitting = _fitting_stages(loop, loads, stages, target, assignment)
        if part is None or fitting < 2:
            why = "its addresses are too costly to compute twice" if part is None else f"{target.name} has no shared memory for two buffers of its loads"
            assignment.notes.append((loop, f"not pipelined: {why}"))
            continue
        if fitting < stages:
            assignment.notes.append((loop, f"pipelined {fitting} deep instead of {stages}, for want of shared memory"))
        product = stepped_product(loop, loads, assignment)
        early = product is not None and _words_in_steps(loop, loads, product, target, assignment) <= _register_budget(target, assignment, options)
        _Pipeliner(loop, loads, part, fitting, target, assignment, product, early).run()
        changed = True
    if changed:
        dce_function(function)


def _fitting_stages(loop: Operation, loads: list[AheadLoad], stages: int, target: SimtTarget, assignment: Assignment) -> int:
    """How many stages there is shared memory for, beside what operations of the loop need."""
    sizes = scratch_sizes()
    views = {view.value for load in loads for view in views_of(load.operation.results[0], assignment)}
    scratch = 0
    for operation in loop.regions[0]:
        if operation.name == "dot":
            scratch = max(scratch, staged_bytes(operation, assignment, lambda value: value in views))
        elif operation.name in sizes and not (operation.name == "simt.convert" and operation.operands[0] in views):
            scratch = max(scratch, sizes[operation.name](operation, assignment, target))
    return min(stages, max(0, target.shared_memory - scratch) // sum(load.bytes for load in loads))


#: Registers that a thread needs for all but tiles and the addresses of copies: masks, offsets of fragments, counters.
_OTHER_REGISTERS = 36


def _register_budget(target: SimtTarget, assignment: Assignment, options: Mapping[str, Any]) -> int:
    """Words that a thread's tiles and addresses may take."""
    limit = min(target.registers, target.register_file // (target.warp_size * assignment.num_warps), options.get("maxnreg") or target.registers)
    return limit - _OTHER_REGISTERS


def _words_in_steps(loop: Operation, loads: list[AheadLoad], product: Operation, target: SimtTarget, assignment: Assignment) -> int:
    """About how many words a thread holds where ``product`` is computed step by step: what the loop carries, fragments of two steps, a pointer a copy."""
    carried = [argument for argument in loop.regions[0].arguments if isinstance(argument.type, TileType) and not isinstance(argument.type.element, PointerType)]
    words = sum(-(-assignment.layouts[argument].register_count * bit_width(element_type(argument.type)) // 32) for argument in carried)
    for position, operand in enumerate(product.operands[:2]):
        type_, layout = fragment(assignment.dots[product], position, element_type(operand.type), assignment.num_warps, target)
        words += 2 * -(-layout.register_count * bit_width(type_.element) // 32)
    return words + sum(2 * load.copies for load in loads)


class _Pipeliner:
    """Rewrites one loop.

    Attributes:
        part: what is computed ahead.
        stepped: the product that is computed step by step, if there is one.
        early: whether the fragments of its first step are loaded in the iteration before.
    """

    def __init__(
        self,
        loop: Operation,
        loads: list[AheadLoad],
        part: Slice,
        stages: int,
        target: SimtTarget,
        assignment: Assignment,
        stepped: Operation | None,
        early: bool,
    ) -> None:
        self.early = early
        self.target, self.stepped = target, stepped
        self.loop, self.loads, self.part, self.stages, self.assignment = loop, loads, part, stages, assignment
        self.body: Region = loop.regions[0]
        last = self.body.terminator
        assert last is not None
        self.last = last
        counter = loop.operands[0].type
        assert isinstance(counter, IntType)
        #: the type that the number of iterations fits
        self.count_type = IntType(counter.bits, signed=False)

    def run(self) -> None:
        before = Builder.at(self.loop)
        rings = [self._create(before, "simt.shared_alloc", bytes=load.bytes * self.stages).results[0] for load in self.loads]
        lower, upper, step = self.loop.operands[:3]
        count = self._iterations(before, lower, upper, step)
        depth = self.stages - 1

        # the first copies
        ahead = {self.body.arguments[0]: lower}
        for index in self.part.carried:
            ahead[self.body.arguments[1 + index]] = self.loop.operands[3 + index]
        for stage in range(depth):
            live = before.cmp(count, self._number(before, stage, self.count_type), predicate="gt")
            mapping = self._copy(
                before, dict(ahead), live, [self._moved(before, ring, stage * load.bytes) for ring, load in zip(rings, self.loads, strict=True)]
            )
            ahead = self._advanced(before, mapping, ahead)
        rest = self._number(before, depth, self.count_type)
        more = before.cmp(count, rest, predicate="gt")
        left = before.select(more, before.sub(count, rest), self._number(before, 0, self.count_type))

        # what the loop carries besides: values ahead, the buffer that is read, how many iterations are still to be copied
        keys = [argument for argument in ahead if argument is not self.body.arguments[0] or self.part.counter]
        inits = [*(ahead[key] for key in keys), self._number(before, 0, I32), left]
        arguments = [self._carry(init) for init in inits]
        *values, slot, left = arguments

        top = Builder(self.body, self.body.first, self.loop.location)
        if not self.early:
            self._create(top, "simt.async_wait", pending=self.stages - 2)
            if self.stepped is not None:
                top.barrier()
        live = top.cmp(left, self._number(top, 0, self.count_type), predicate="gt")
        zero, one, final = (self._number(top, value, I32) for value in (0, 1, depth))
        previous = top.select(top.cmp(slot, zero, predicate="eq"), final, top.sub(slot, one))
        following = top.select(top.cmp(slot, final, predicate="eq"), zero, top.add(slot, one))
        one_less = top.sub(left, top.cast(live, result=self.count_type))
        ahead = dict(zip(keys, values, strict=True))
        free, filled = ([self._slot(top, ring, load, which) for ring, load in zip(rings, self.loads, strict=True)] for which in (previous, slot))
        if self.stepped is None:
            mapping = self._copy(top, dict(ahead), live, free)
            advanced = self._advanced(top, mapping, ahead)
            self._read(filled)
            fragments: list[Value] = []
        else:
            self._read(filled)
            next_filled = [self._slot(top, ring, load, following) for ring, load in zip(rings, self.loads, strict=True)]
            advanced, fragments = self._in_steps(self.stepped, before, rings, filled, next_filled, ahead, live, free)
        yields = [*self.last.operands, *(advanced[key] for key in keys), following, one_less, *fragments]
        self.last.replace_operands(yields, (len(yields),))
        after = Builder(self.loop.parent, self.loop.next, self.loop.location)
        self._create(after, "simt.async_wait", pending=0)

    def _in_steps(
        self,
        product: Operation,
        before: Builder,
        rings: list[Value],
        filled: list[Value],
        next_filled: list[Value],
        ahead: Mapping[Value, Value],
        live: Value,
        free: list[Value],
    ) -> tuple[dict[Value, Value], list[Value]]:
        """Compute the product step by step along K, the fragments of each step loaded while the one before is computed; copies start between the steps.
        The values of ``ahead`` one iteration later, and the fragments that the next iteration begins with."""
        builder = Builder.at(product)
        plan = self.assignment.dots[product]
        count = plan.a.shape[-1] // plan.k_step
        reads = [operand.definition for operand in product.operands[:2]]
        elements = [element_type(operand.type) for operand in product.operands[:2]]
        places = [filled.index(read.operands[0]) for read in reads if read is not None]

        def fragments(at: Builder, addresses: list[Value], step: int) -> list[Value]:
            return [self._fragment(at, addresses[place], product, position, step * plan.k_step) for position, place in enumerate(places)]

        if self.early:
            self._create(before, "simt.async_wait", pending=self.stages - 2)
            current = [self._carry(value) for value in fragments(before, rings, 0)]
        else:
            current = fragments(builder, filled, 0)
        mapping = dict(ahead)
        waiting = list(zip(self.loads, free, strict=True))
        accumulator = product.operands[2]
        for step in range(count):
            following: list[Value] = []
            if step + 1 < count:
                following = fragments(builder, filled, step + 1)
            elif self.early:
                self._create(builder, "simt.async_wait", pending=self.stages - 2)
                builder.barrier()
                following = fragments(builder, next_filled, 0)
            if step == 0:
                self._repeat(builder, mapping, live)
            # as many copies at each step but the last, after which nothing may be under way that was not counted
            share = -(-len(waiting) // max(1, count - 1 - step))
            for load, address in waiting[:share]:
                self._start(builder, load, address, mapping, live, ordered=True)
            if waiting and not waiting[share:]:
                self._create(builder, "simt.async_commit")
            del waiting[:share]
            made = self._create(builder, "simt.dot_step", *current, accumulator, a_element=elements[0], b_element=elements[1])
            self.assignment.dots[made] = plan
            accumulator = made.results[0]
            self.assignment.layouts[accumulator] = plan.c
            current = following
        advanced = self._advanced(builder, mapping, ahead)
        product.results[0].replace_all_uses(accumulator)
        product.erase()
        return advanced, current

    def _fragment(self, builder: Builder, address: Value, product: Operation, position: int, first: int) -> Value:
        """One step of an operand of the product."""
        plan, operand = self.assignment.dots[product], product.operands[position]
        assert operand.definition is not None
        element = element_type(operand.type)
        type_, layout = fragment(plan, position, element, self.assignment.num_warps, self.target)
        operation = self._create(builder, "simt.fragment_load", address, result=type_, operand=position, first=first, element=element)
        self.assignment.dots[operation] = plan
        self.assignment.shared[operation] = self.assignment.shared[operand.definition]
        self.assignment.layouts[operation.results[0]] = layout
        return operation.results[0]

    # ---- pieces

    def _create(self, builder: Builder, name: str, *operands: Value | None, result: Type | None = None, **attributes: Any) -> Operation:
        groups = [() if operand is None else (operand,) for operand in operands]
        return builder.create(SIMT_TABLE[name], groups, attributes, () if result is None else (result,))

    def _number(self, builder: Builder, value: int, type_: Type) -> Value:
        constant: Value = builder.constant(value=value, result=type_)
        return constant

    def _iterations(self, builder: Builder, lower: Value, upper: Value, step: Value) -> Value:
        """ceil((upper - lower) / step), or 0."""
        runs = builder.cmp(lower, upper, predicate="lt")
        low, high, by = (value if value.type is self.count_type else builder.cast(value, result=self.count_type) for value in (lower, upper, step))
        zero, one = (self._number(builder, value, self.count_type) for value in (0, 1))
        count = builder.sub(high, low)
        definition = step.definition
        if definition is None or definition.name != "constant" or definition.attributes["value"] != 1:
            # without iterations the difference may be anything, and so may the quotient, but nothing traps: a step is positive
            count = builder.add(builder.div(builder.sub(count, one), by), one)
        result: Value = builder.select(runs, count, zero)
        return result

    def _moved(self, builder: Builder, ring: Value, offset: int) -> Value:
        address: Value = builder.addptr(ring, self._number(builder, offset, I32)) if offset else ring
        return address

    def _slot(self, builder: Builder, ring: Value, load: AheadLoad, slot: Value) -> Value:
        """The address of a buffer in a ring."""
        address: Value = builder.addptr(ring, builder.mul(slot, self._number(builder, load.bytes, I32)))
        return address

    def _carry(self, init: Value) -> Value:
        """Let the loop carry one more value; its argument in the body. What it yields is added later."""
        loop = self.loop
        count = len(loop.operands) - 3 + 1
        loop.replace_operands([*loop.operands, init], (1, 1, 1, count))
        result = Value(init.type, loop)
        loop.results.append(result)
        argument = self.body.add_argument(init.type)
        layout = self.assignment.layouts.get(init)
        if layout is not None:
            self.assignment.layouts[argument] = self.assignment.layouts[result] = layout
        return argument

    def _advanced(self, builder: Builder, mapping: Mapping[Value, Value], ahead: Mapping[Value, Value]) -> dict[Value, Value]:
        """The values of ``ahead`` one iteration later; ``mapping`` has the copies of what the slice computes."""
        counter, *carried = self.body.arguments
        found = {}
        for argument, value in ahead.items():
            if argument is counter:
                found[argument] = builder.add(value, self.loop.operands[2])
            else:
                source = self.last.operands[carried.index(argument)]
                found[argument] = mapping.get(source, source)
        return found

    def _copy(self, builder: Builder, mapping: dict[Value, Value], live: Value, addresses: list[Value]) -> dict[Value, Value]:
        """Repeat the slice for another iteration and start its copies, where ``live`` holds."""
        self._repeat(builder, mapping, live)
        for load, address in zip(self.loads, addresses, strict=True):
            self._start(builder, load, address, mapping, live)
        self._create(builder, "simt.async_commit")
        return mapping

    def _repeat(self, builder: Builder, mapping: dict[Value, Value], live: Value) -> None:
        """Repeat the slice for another iteration."""
        layouts = self.assignment.layouts
        for operation in self.part.operations:
            if operation.name == "load":
                self._repeat_load(builder, operation, mapping, live)
            else:
                builder.insert(clone_operation(operation, mapping))
            for result in operation.results:
                if result in layouts:
                    layouts[mapping[result]] = layouts[result]

    def _start(self, builder: Builder, load: AheadLoad, address: Value, mapping: Mapping[Value, Value], live: Value, ordered: bool = False) -> None:
        """Start the copies of a load, where ``live`` holds."""
        operation = load.operation
        pointer, mask = operation.operand("pointer"), operation.operand("mask")
        assert pointer is not None
        pointer, mask = mapping.get(pointer, pointer), mapping.get(mask, mask) if mask is not None else None
        attributes = {"cache": operation.attribute("cache"), "eviction": operation.attribute("eviction"), "ordered": ordered}
        masked = self._masked(builder, pointer, mask, live)
        copy = self._create(builder, "simt.async_load", address, pointer, masked, **attributes)
        self.assignment.shared[copy] = load.shared

    def _masked(self, builder: Builder, pointer: Value, mask: Value | None, live: Value) -> Value:
        """``mask`` where ``live`` holds."""
        if isinstance(pointer.type, TileType):
            live = builder.splat(live, result=TileType(pointer.type.shape, I1))
            self.assignment.layouts[live] = self.assignment.layouts[pointer]
        if mask is None:
            return live
        both: Value = builder.and_(live, mask)
        if isinstance(pointer.type, TileType):
            self.assignment.layouts[both] = self.assignment.layouts[pointer]
        return both

    def _repeat_load(self, builder: Builder, load: Operation, mapping: dict[Value, Value], live: Value) -> None:
        """A load among the slice: only where its iteration will run."""
        pointer, mask, other = (mapping.get(value, value) if value is not None else None for value in map(load.operand, ("pointer", "mask", "other")))
        assert pointer is not None
        groups = [(pointer,), (self._masked(builder, pointer, mask, live),), () if other is None else (other,)]
        mapping[load.results[0]] = builder.create(TABLE["load"], groups, load.attributes).results[0]

    def _read(self, addresses: list[Value]) -> None:
        """Let the readers of the loads read shared memory: in their own layouts where they only convert."""
        for load, address in zip(self.loads, addresses, strict=True):
            result = load.operation.results[0]
            for view in list(views_of(result, self.assignment)):
                shared = view.shared(load.shared)
                for user in list(view.value.uses):
                    if user.name == "simt.convert":
                        self._load_at(user, user.results[0], address, shared)
                    elif user.name == "dot" and view.value is not result:
                        self._load_at(user, view.value, address, shared, only=user)
            if result.uses:
                self._load_at(load.operation, result, address, load.shared)

    def _load_at(self, place: Operation, value: Value, address: Value, shared: Any, only: Operation | None = None) -> None:
        """Read ``value`` from shared memory, before ``place``, or right before the product that alone reads it."""
        readers = [only] if only is not None else list(value.uses)
        if len(readers) == 1 and readers[0].name == "dot" and readers[0].parent is place.parent:
            place = readers[0]
        operation = self._create(Builder.at(place), "simt.shared_load", address, result=value.type)
        found = operation.results[0]
        self.assignment.layouts[found] = self.assignment.layouts[value]
        self.assignment.shared[operation] = shared
        if only is None:
            value.replace_all_uses(found)
            return
        for position, operand in enumerate(only.operands):
            if operand is value:
                only.set_operand(position, found)


__all__ = ["pipeline"]
