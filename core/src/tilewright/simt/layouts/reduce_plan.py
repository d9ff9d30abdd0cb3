"""Reductions along an axis of any linear layout, planned by linear algebra.

A register, lane or warp bit moves an element along the axis, off it, or both ways. Write P for the
part of an image off the axis and A for the part on it.

1. Registers whose images agree in P hold elements of one result: they are combined in the thread.
   The register combinations with P = 0 form a space K.
2. Two threads whose numbers differ by d hold parts of the same results where P(d) is in the span of
   the registers' P: the register that meets a register j is j ^ (the combination that yields P(d)).
   Along the axis their parts are c(d) apart, modulo A(K). As many lane differences with independent
   c as there are, and no more, are one exchange each.
3. What lanes do not reach, warps do: each (result, rest of the axis) is written to shared memory
   once, and every thread gets the combination of all rests of its results in one order. Lanes that
   hold the same results load a share each, and exchange what they make of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.simt.layouts.f2 import annihilators, parity, separator
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, axis_shifts, combine, log2


@dataclass(frozen=True, slots=True)
class Exchange:
    """Shuffle between lanes.

    Attributes:
        lanes: the XOR of the partner's lane index.
        registers: the XOR of the partner's register index of a result.
        order: a mask of lanes: the right operand is the partner whose lane index has an odd number
            of these bits set.
    """

    lanes: int
    registers: int
    order: int


@dataclass(frozen=True, slots=True)
class ReducePlan:
    """Steps of a reduction.

    Attributes:
        result: the layout of the result; of shape ``()`` for a scalar.
        pairs: for each step within a thread, (register kept, register combined into it).
        kept: after these steps, the register that holds each register of the result.
        exchanges: the shuffles between lanes.
        partials: the layout of partial results after the shuffles, which go through shared memory
            if necessary: a tile of the result's shape with a last axis of the parts of a result.
        any_order: whether threads that hold the same result have the same bits even if swapping
            operands changes bits.
    """

    result: LinearLayout
    pairs: tuple[tuple[tuple[int, int], ...], ...]
    kept: tuple[int, ...]
    exchanges: tuple[Exchange, ...]
    partials: LinearLayout
    any_order: bool

    @property
    def parts(self) -> int:
        """Number of parts of a result after the shuffles."""
        return self.partials.shape[-1]

    def through_memory(self, symmetric: bool) -> bool:
        """Return whether results go through shared memory.

        ``symmetric``: swapping the operands of the combination does not change bits.
        """
        return self.parts > 1 or not (symmetric or self.any_order)

    def sharing(self, most: int) -> tuple[Exchange, ...]:
        """The exchanges by which lanes that hold the same results combine their shares of the
        parts, so that none has more than ``most`` of them, or as few as there are such lanes for.
        Shares are of consecutive parts, and neighbours are combined first: the order is that of one
        thread which has all."""
        free = [bit for bit, image in enumerate(self.result.lanes) if image == 0]
        steps = min(len(free), max(0, log2(self.parts) - log2(most)))
        return tuple(Exchange(1 << bit, 0, 1 << bit) for bit in free[:steps])


def scratch_position(number: int, size: int) -> int:
    """Return the position of a partial result in shared memory, for elements of ``size`` bytes.

    Lanes have results whose parts are a power of two apart, which would be in one bank. Within
    each 128 bytes the 16-byte units are permuted by the bits above. The map is linear over F2.
    """
    unit = max(0, 4 - log2(size))
    upper, folded = number >> unit + 3, 0
    while upper:
        folded ^= upper & 7
        upper >>= 3
    return number ^ folded << unit


@functools.lru_cache(maxsize=1024)
def plan_reduction(layout: LinearLayout, axis: int) -> ReducePlan:
    """Plan the reduction of a tile in ``layout`` along ``axis``."""
    shift, extent = axis_shifts(layout.shape)[axis], log2(layout.shape[axis])
    result = layout.without_axis(axis)

    def on(image: int) -> int:
        """The coordinate along the axis."""
        return image >> shift & ((1 << extent) - 1)

    def off(image: int) -> int:
        """The row-major number without that coordinate."""
        return image & ((1 << shift) - 1) | image >> (shift + extent) << shift

    # Registers: bits that lead to other results, and combinations that stay in one.
    spans, leading, along = Basis(), [], []
    for bit, image in enumerate(layout.registers):
        solved = spans.solve(off(image))
        if solved is None:
            spans.add(off(image))
            leading.append(bit)
        else:
            along.append(1 << bit | _spread(solved, leading))
    alive = list(range(layout.register_count))
    pairs = []
    for combination in along:
        top = 1 << (combination.bit_length() - 1)
        alive = [register for register in alive if not register & top]
        pairs.append(tuple((register, register ^ combination) for register in alive))
    kept = tuple(_spread(register, leading) for register in range(result.register_count))

    # Lanes and warps: differences between threads that hold parts of the same results.
    threads, lane_bits = (*layout.lanes, *layout.warps), len(layout.lanes)
    reached = Basis(on(combine(layout.registers, combination)) for combination in along)
    exchanges: list[tuple[int, int]] = []
    same: list[int] = []
    spreading: list[int] = []
    for bit, image in enumerate(threads):
        solved = spans.solve(off(image))
        if solved is None:
            spans.add(off(image))
            spreading.append(bit)
            continue
        difference = 1 << bit | _spread(solved >> len(leading), spreading)
        registers = solved & ((1 << len(leading)) - 1)
        moved = on(combine(threads, difference) ^ combine(layout.registers, kept[registers]))
        known = reached.solve(moved)
        if known is not None:
            steps = known >> len(along)
            same.append(difference ^ combine([lanes for lanes, _ in exchanges], steps))
        elif bit < lane_bits:
            reached.add(moved)
            exchanges.append((difference, registers))

    lanes_mask = (1 << lane_bits) - 1
    orders = _orders(
        [lanes for lanes, _ in exchanges],
        [difference & lanes_mask for difference in same],
        lane_bits,
    )
    any_order = orders is not None and all(combine(threads, difference) == 0 for difference in same)
    steps_ = tuple(
        Exchange(*step, order)
        for step, order in zip(
            exchanges, orders or [lanes & -lanes for lanes, _ in exchanges], strict=True
        )
    )

    # What is left of the axis.
    vectors = [on(combine(layout.registers, combination)) for combination in along]
    vectors += [
        on(combine(layout.lanes, lanes) ^ combine(layout.registers, kept[registers]))
        for lanes, registers in exchanges
    ]
    linear_forms = annihilators(vectors, extent)

    def part(image: int) -> int:
        coordinate = on(image)
        return off(image) << len(linear_forms) | sum(
            parity(coordinate & linear_form) << i for i, linear_form in enumerate(linear_forms)
        )

    partials = LinearLayout(
        (*result.shape, 1 << len(linear_forms)),
        tuple(part(layout.registers[bit]) for bit in leading),
        tuple(map(part, layout.lanes)),
        tuple(map(part, layout.warps)),
    )
    return ReducePlan(result, tuple(pairs), kept, steps_, partials, any_order)


def _spread(value: int, positions: Sequence[int]) -> int:
    """Return the number whose bits at ``positions`` are the bits of ``value``."""
    return sum(1 << position for i, position in enumerate(positions) if value >> i & 1)


def _orders(exchanges: list[int], same: list[int], width: int) -> list[int] | None:
    """For each exchange a mask of lanes whose parity it changes, and neither the other exchanges
    nor the differences ``same`` change.

    None where there are no such masks, since a difference of ``same`` is made of exchanges as far
    as lanes are concerned.
    """
    if not exchanges:
        return []
    vectors, basis = list(exchanges), Basis(exchanges)
    for difference in same:
        solved = basis.solve(difference)
        if solved is None:
            basis.add(difference)
            vectors.append(difference)
        elif solved & ((1 << len(exchanges)) - 1):
            return None
    return [separator(vectors, number, width) for number in range(len(exchanges))]
