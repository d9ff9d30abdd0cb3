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
    return len(addresses) == 1 or _span_apart(addresses) or _interleave(addresses)


def _span_apart(addresses: list[DigitAddress]) -> bool:
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


def _interleave(addresses: list[DigitAddress]) -> bool:
    """Return whether accesses with the same digits are proven never to meet at one element.

    Their offsets are a digit of their own, above some of the others: halves of rows, whose lanes
    are below the offset of the second half, and the rows above.
    """
    first = addresses[0]
    offsets = []
    for address in addresses:
        offset = address.rest.minus(first.rest).constant
        if offset is None or address.programs != first.programs:
            return False
        offsets.append(offset)
    offsets.sort()
    found = [_constant_digits(address) for address in addresses]
    digits = found[0]
    if digits is None or any(other != digits for other in found):
        return False
    span = 1  # of the digits so far
    for step, reach in [*digits, (None, None)]:
        is_spaced = all(low + span <= high for low, high in pairwise(offsets))
        if is_spaced and (step is None or offsets[-1] - offsets[0] + span <= step):
            return True
        if step is None or reach is None:
            return False
        span += step * (reach - 1)
    return False


def _constant_digits(address: DigitAddress) -> list[tuple[int, int | None]] | None:
    """Return the steps and reaches of an address, the smallest step first; None where one is
    not known."""
    found = []
    for digit in address.digits:
        step = digit.step.constant
        if step is None or step <= 0:
            return None
        found.append((step, None if digit.reach is None else digit.reach.constant))
    return sorted(found, key=lambda digit: digit[0])


__all__ = ["repeated_outputs"]
