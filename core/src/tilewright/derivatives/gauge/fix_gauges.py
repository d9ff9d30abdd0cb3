"""Gauge fixing: references of the online softmax become constants, its loops plain sums.

Where nothing that a kernel writes depends on a reference (:mod:`.gauge_weights`), the derivative by
it is zero in all, so that it may be taken as a constant: no argument of a maximum, no ties.

A loop that rescales its states (:mod:`.rescaled_loops`) may then be run again in any one gauge M,
as ``a' = a + F(M)``: a plain sum, whose iterations have no order. M is the loop's last reference,
in which the sums are the loop's own results; or the stored logarithm of a sum, in which that sum
is 1. So the backward pass of attention recomputes the weights from the log-sum-exp.

The pass adds to the kernel and replaces readers. It leaves the loops as they were in place: what is
read of them is what :class:`FixedGauges` names, and the rest is dead code.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tilewright.derivatives.gauge.gauge_weights import (
    GaugeWeights,
    NoGaugeError,
    Weight,
    place_of,
)
from tilewright.derivatives.gauge.rescaled_loops import (
    RescaledLoop,
    RescaledState,
    find_rescaled_loop,
    following_loop,
)
from tilewright.derivatives.gauge.row_gauges import RowGauges, fix_row_gauges
from tilewright.derivatives.gauge.stored_normalizers import (
    copies,
    sole_stores,
    stored_logarithm,
)
from tilewright.ir.builder import Builder
from tilewright.ir.core import Location, Module, Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.debug import Assume
from tilewright.ir.ops.memory import Store
from tilewright.ir.table import Effect
from tilewright.ir.types import FloatType, Type, element_type
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import effects_of, is_removable
from tilewright.passes.rewriter import constant_of


@dataclass(frozen=True, slots=True)
class GaugeRemark:
    """A line of a report.

    Attributes:
        subject: ``loop`` or ``row maximum``.
        location: its place in the kernel's source.
        fixed: whether its gauge is fixed.
        text: how, or why not.
    """

    subject: str
    location: Location | None
    fixed: bool
    text: str

    def __str__(self) -> str:
        passed = "" if self.fixed else "missed: "
        return f"{passed}{self.subject} at {place_of(self.location)}: {self.text}"


@dataclass(slots=True)
class FixedGauges:
    """Facts of the rewritten kernel.

    Attributes:
        constants: values whose derivative is zero.
        values: values -> others that equal them, and are cheaper or exact.
        undefined: values that have no meaning in the gauge that was chosen: a derivative that reads
            one of them is wrong.
        remarks: a line for each loop and row maximum.
        normalizers: stored logarithms of sums, in whose gauge loops run: weights are at most 1.
    """

    constants: set[Value] = field(default_factory=set)
    values: dict[Value, Value] = field(default_factory=dict)
    undefined: set[Value] = field(default_factory=set)
    remarks: list[GaugeRemark] = field(default_factory=list)
    normalizers: set[Value] = field(default_factory=set)


def fix_gauges(module: Module, saved: Collection[str] = ()) -> FixedGauges:
    """Fix the gauges of a kernel without calls, in place.

    Args:
        saved: arguments whose memory holds what the kernel wrote when the result runs.
    """
    found = FixedGauges()
    stores = sole_stores(module, saved)
    seen: set[Operation] = set()
    loops = [operation for operation in module.kernel.walk() if isinstance(operation, For)]
    for loop in loops:
        first = None if loop in seen else find_rescaled_loop(loop)
        if first is None:
            continue
        chain = [first]
        while (after := following_loop(chain[-1])) is not None and after.loop not in seen:
            chain.append(after)
        seen.update(link.loop for link in chain)
        try:
            text, is_fixed = _fix_loops(chain, stores, found), True
        except NoGaugeError as error:
            text, is_fixed = error.reason, False
        found.remarks.append(GaugeRemark("loop", loop.location, is_fixed, text))
    rows = fix_row_gauges(module, stores, _replaced(seen, found))
    _add_rows(found, rows)
    return found


def _replaced(loops: set[Operation], found: FixedGauges) -> set[Operation]:
    """Return the loops that were run again in one gauge."""
    return {loop for loop in loops if found.constants.intersection(loop.results)}


def _add_rows(found: FixedGauges, rows: RowGauges) -> None:
    found.constants |= rows.constants
    found.values.update(rows.values)
    found.undefined |= rows.undefined
    for maximum, fixed, text in rows.remarks:
        found.remarks.append(GaugeRemark("row maximum", maximum.location, fixed, text))


# ---- legality


def _fix_loops(chain: list[RescaledLoop], stores: list[Store], found: FixedGauges) -> str:
    """Run loops in a row again in one gauge.

    Raises:
        NoGaugeError: they have none.
    """
    last = chain[-1]
    weights = _check(chain)
    b = Builder.at(_after(last.loop))
    stored = stored_logarithm(last, stores, weights.effects)
    readers = {value: list(value.uses) for value in last.loop.results}
    gauge, normalized = _gauge(b, last, stored.store if stored is not None else None)
    if normalized:
        found.normalizers.add(gauge)
    sums: dict[Value, Value] = {}  # results of the loops as they were -> those of the new ones
    for link in chain:
        new = _in_one_gauge(b, link, gauge, _inits(b, link, sums, gauge))
        kept = [j for j in range(len(link.loop.results)) if j != link.position]
        sums.update(zip((link.loop.results[j] for j in kept), new.results, strict=True))
        found.constants.update(link.loop.results)
    one = stored.state if stored is not None and normalized else None
    for old in last.loop.results:
        new_value = gauge if old is last.result else sums[old]
        for reader in readers[old] if new_value is not old else ():
            _replace(reader, old, new_value)
        if new_value is gauge:
            continue
        if not normalized:
            found.values[new_value] = old
        elif old is last.loop.results[one or 0] and one is not None:
            found.values[new_value] = _one(b, new_value)
    gauge_text = "the stored logarithm of a sum" if normalized else "its last reference"
    loops = f", {len(chain)} loops in a row" if len(chain) > 1 else ""
    return f"runs again in one gauge, {gauge_text}: {len(last.states)} plain sums{loops}"


def _check(chain: list[RescaledLoop]) -> GaugeWeights:
    """Find the weights of all that the loops and what follows them compute.

    Raises:
        NoGaugeError: something depends on the reference itself.
    """
    weights = GaugeWeights(chain[0].correction.name, chain[0].reference.name)
    links = {link.loop: link for link in chain}
    operation: Operation | None = chain[0].loop
    while operation is not chain[-1].loop.next:
        assert operation is not None
        link = links.get(operation)  # type: ignore[call-overload]
        if link is None:
            weights.follow(operation)
        else:
            _check_loop(link, weights, is_first=link is chain[0])
        operation = operation.next
    weights.follow_to_end(chain[-1].loop.next)
    return weights


def _check_loop(link: RescaledLoop, weights: GaugeWeights, *, is_first: bool) -> None:
    loop, body, name = link.loop, link.loop.body, weights.reference
    if any(_has_effect(inner) for inner in loop.walk() if not inner.regions):
        raise NoGaugeError("it has effects beside its results, which would happen twice")
    rank = len(link.states[0].axes)
    identity = tuple(range(rank))
    kept = [j for j in range(len(loop.results)) if j != link.position and j not in link.positions]
    outer = [loop.lower, loop.upper, loop.step, *(loop.inits[j] for j in kept)]
    if is_first:
        outer += [loop.inits[j] for j in (link.position, *link.positions)]
    if not all(map(weights.is_invariant, outer)):
        raise NoGaugeError(f"what it begins with depends on the reference {name}")
    weights.set(link.reference, None)  # an iteration may read the new reference only
    weights.set(link.correction.result, None)
    weights.set(link.following, Weight(0, 1, identity))
    for state in link.states:
        weights.set(state.rescaling.result, Weight(-1, 0, state.axes))
    for operation in body:
        if not operation.spec.terminator:
            weights.follow(operation)
    for state in link.states:
        if weights.of.get(link.yielded(state.position)) != Weight(-1, 0, state.axes):
            raise NoGaugeError(
                f"what it carries as {_name(link, state.position)} is not scaled by the "
                f"reference {name}"
            )
        weights.set(loop.results[state.position], Weight(-1, 0, state.axes))
    for j in kept:
        if not weights.is_invariant(link.yielded(j)):
            raise NoGaugeError(
                f"what it carries as {_name(link, j)} depends on the reference {name}"
            )
        if link.yielded(j) in weights.of:
            weights.set(loop.results[j], Weight(0, 0, None))
    weights.set(link.result, Weight(0, 1, identity))


def _has_effect(operation: Operation) -> bool:
    """Return whether an operation may not be repeated."""
    effects = effects_of(operation) & (Effect.WRITE | Effect.ORDER)
    return bool(effects) and not isinstance(operation, Assume)


def _name(link: RescaledLoop, position: int) -> str:
    return link.loop.body.arguments[1 + position].name or f"value {position}"


# ---- the loops in one gauge


def _after(loop: For) -> Operation:
    assert loop.next is not None
    return loop.next


def _gauge(b: Builder, last: RescaledLoop, store: Store | None) -> tuple[Value, bool]:
    """Return the gauge, and whether it is a stored logarithm."""
    if store is None:
        return last.result, False
    needed = [store.pointer, *([store.mask] if store.mask is not None else [])]
    copied = copies(needed, b)
    if copied is None:
        return last.result, False
    pointer, *mask = copied
    if not mask:
        return b.load(pointer), True
    # weights of masked-off lanes are exponentials less this number: zero
    other = b.constant_like(store.value.type, _large(store.value.type))
    return b.load(pointer, mask=mask[0], other=other), True


def _large(type_: Type) -> float:
    """Return a finite number near the largest of a type of floats."""
    element = element_type(type_)
    assert isinstance(element, FloatType)
    return float(2.0 ** (element.bias - 1))


def _inits(b: Builder, link: RescaledLoop, sums: dict[Value, Value], gauge: Value) -> list[Value]:
    """Return what the new loop begins with."""
    states = {state.position: state for state in link.states}
    first = link.loop.inits[link.position]
    found = []
    for j, init in enumerate(link.loop.inits):
        if j == link.position:
            continue
        if init in sums:
            init = sums[init]
        elif j in states:
            init = _brought_to_gauge(b, init, first, gauge, states[j], link.correction.name)
        found.append(init)
    return found


def _brought_to_gauge(
    b: Builder, init: Value, first: Value, gauge: Value, state: RescaledState, base: str
) -> Value:
    """Rescale what a state begins with from the first reference to the gauge."""
    if constant_of(init) == 0.0:
        return init
    equal = b.cmp(first, gauge, predicate="eq")  # both may be infinite
    one = b.constant_like(gauge.type, 1.0)
    factor = b.select(equal, one, getattr(b, base)(b.sub(first, gauge)))
    for move in state.moves:
        mapping = {move.operands[0]: factor}
        factor = b.insert(clone_operation(move, mapping)).result
    scaled: Value = b.mul(init, factor)
    return scaled


def _in_one_gauge(b: Builder, link: RescaledLoop, gauge: Value, inits: list[Value]) -> For:
    """Append a loop again, with the gauge in place of each reference."""
    loop, body = link.loop, link.loop.body
    kept = [j for j in range(len(inits) + 1) if j != link.position]
    arguments = [body.arguments[0], *(body.arguments[1 + j] for j in kept)]
    inner = Region([value.type for value in arguments], [value.name for value in arguments])
    mapping = dict(zip(arguments, inner.arguments, strict=True))
    mapping[link.reference] = mapping[link.following] = gauge
    rescalings = {state.rescaling: state for state in link.states}
    with b.at_region(inner):
        for operation in body:
            state = rescalings.get(operation)
            if state is not None:  # the correction is 1
                mapping[operation.result] = mapping[body.arguments[1 + state.position]]
            elif operation is link.correction:
                mapping[operation.result] = b.constant_like(operation.result.type, 1.0)
            elif link.following in operation.results:
                if len(operation.results) > 1:
                    b.insert(clone_operation(operation, mapping))
                mapping[link.following] = gauge
            elif not operation.spec.terminator:
                b.insert(clone_operation(operation, mapping))
        b.yield_([mapping[link.yielded(j)] for j in kept])
    for operation in reversed(list(inner)):
        if not any(result.uses for result in operation.results) and is_removable(operation):
            operation.erase()
    new = b.region_op(
        "for", loop.lower, loop.upper, loop.step, inits, regions=[inner], **loop.attributes
    )
    assert isinstance(new, For)
    return new


def _replace(reader: Operation, old: Value, new: Value) -> None:
    for position, operand in enumerate(reader.operands):
        if operand is old:
            reader.set_operand(position, new)


def _one(b: Builder, value: Value) -> Value:
    """Append a 1 before the operation that defines a value."""
    assert value.definition is not None
    at = Builder.at(value.definition)
    one: Value = at.constant_like(value.type, 1.0)
    return one


__all__ = ["FixedGauges", "GaugeRemark", "fix_gauges"]
