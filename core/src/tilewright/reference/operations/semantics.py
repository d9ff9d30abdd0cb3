"""The meaning of every operation of the table, by name.

A meaning is ``(frame, operation, *operands)``, an operand for each group of the op table: an array,
None for an optional one that is absent, a list for a variadic one. It returns the result, a tuple
of results, or None. Operations with regions, calls and terminators are not here: they are what the
interpreter does (``regions``).
"""

from __future__ import annotations

from tilewright.ir.table import merged
from tilewright.reference.operations import access, arithmetic, breakpoints, debug, linear, shape
from tilewright.reference.operations.arithmetic import Meaning

MEANINGS: dict[str, Meaning] = merged(
    *(module.MEANINGS for module in (arithmetic, shape, access, linear, debug, breakpoints))
)
