"""Outputs of which a program may store an element more than once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tilewright.derivatives.analysis.address_digits import (
    AddressDigits,
    DigitAddress,
    NotDigitsError,
    loops_around,
)
from tilewright.derivatives.analysis.memory_effects import MemoryEffects, adds
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import LOOPS, While
from tilewright.ir.ops.memory import Store


def repeated_outputs(
    kernel: Function, memory: MemoryEffects, outputs: Iterable[Value]
) -> frozenset[str]:
    """Return the outputs of which a program may store an element again, after another write.

    The later store is what remains, so the earlier has no cotangent.
    """
    digits = AddressDigits(kernel)
    return frozenset(
        output.name for output in outputs if _is_repeated(memory.written.get(output, []), digits)
    )


def _is_repeated(writes: list[Operation], digits: AddressDigits) -> bool:
    if all(map(adds, writes)):
        return False
    if len(writes) == 1 and not any(isinstance(op, LOOPS) for op in writes[0].ancestors()):
        return False
    try:
        return not _is_disjoint(writes, digits)
    except NotDigitsError:
        return True


def _is_disjoint(writes: list[Operation], digits: AddressDigits) -> bool:
    """Return whether a program's stores are proven to be to different elements."""
    addresses: list[DigitAddress] = []
    for write in writes:
        if not isinstance(write, Store) or any(isinstance(op, While) for op in write.ancestors()):
            return False
        address = digits.of(write, one_program=True)
        if any(("iteration", loop) not in address.variables for loop in loops_around(write)):
            return False
        if () not in digits.orders(address.digits):
            return False
        addresses.append(address)
    return len(addresses) == 1 or _are_apart(addresses)


def _are_apart(addresses: list[DigitAddress]) -> bool:
    """Return whether accesses span intervals that do not meet."""
    first = addresses[0]
    intervals = []
    for address in addresses:
        start = address.rest.minus(first.rest).constant
        if start is None or address.programs != first.programs:
            return False
        span = 0
        for digit in address.digits:
            step = digit.step.constant
            reach = None if digit.reach is None else digit.reach.constant
            if step is None or reach is None:
                return False
            span += step * (reach - 1)
        intervals.append((start, start + span))
    intervals.sort()
    return all(high < start for (_, high), (start, _) in pairwise(intervals))
