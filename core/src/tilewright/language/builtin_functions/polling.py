"""Polling of memory for a value, in the language itself."""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from tilewright.language.builtin_functions import atomics
from tilewright.language.builtin_functions.reduction import reduce
from tilewright.language.definitions.callable import device_function
from tilewright.language.value_types.dtypes import uint64
from tilewright.language.value_types.values import constexpr


@device_function
def _both(a, b):
    return a & b


@device_function
def _everywhere(found):
    """Return whether a boolean, or every element of a tensor of them, holds."""
    if len(found.shape) == 0:
        return found
    else:
        return reduce(found, None, _both)


@device_function
def poll(pointer, expected, timeout, timed: constexpr, sem: constexpr, scope: constexpr):
    """Read until every element had its expected value, or ``timeout`` nanoseconds have passed.

    The result says which elements had it.
    """
    found = atomics.atomic_load(pointer, sem=sem, scope=scope) == expected
    if timed:
        start = atomics.clock()
        now = start
        # The time is carried from turn to turn: an interpreter can then tell this loop from one in
        # which nothing changes.
        while ~_everywhere(found) & ((now - start).to(uint64) < timeout):
            found = found | (atomics.atomic_load(pointer, sem=sem, scope=scope) == expected)
            now = atomics.clock()
    else:
        while ~_everywhere(found):
            found = found | (atomics.atomic_load(pointer, sem=sem, scope=scope) == expected)
    return found
