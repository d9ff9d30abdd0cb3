"""Layout of the memory that an instrumented kernel writes its records to.

A record is :data:`WORDS` integers of 64 bits, one a field of :class:`Field`, and one f32 in a
second array, the sum of the finite elements.
"""

from __future__ import annotations

import enum
from typing import Final

import numpy as np

from tilewright.ir.types import F64, Type

#: Largest and smallest i64: what the minimum and the maximum of no element are.
LARGEST: Final = 2**63 - 1
SMALLEST: Final = -(2**63)


class Field(enum.IntEnum):
    """The position of a field in a record.

    ``COUNT`` elements were recorded, ``NAN`` and ``INF`` of them not finite. ``NAN_ORIGINS`` counts
    executions whose result has a NaN while no operand has one, ``NAN_FROM_INF`` those of them with
    an operand that has an infinity, ``INF_ORIGINS`` executions in which infinities begin.
    ``FIRST_NAN`` and ``FIRST_INF`` are the smallest ``program << 32 | element``. ``MINIMUM`` and
    ``MAXIMUM`` are those of the finite elements' bits in the order of the floats.
    """

    COUNT = 0
    NAN = 1
    INF = 2
    NAN_ORIGINS = 3
    NAN_FROM_INF = 4
    INF_ORIGINS = 5
    FIRST_NAN = 6
    FIRST_INF = 7
    MINIMUM = 8
    MAXIMUM = 9


#: Words of a record.
WORDS: Final = len(Field)


def empty(records: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Make the records of values that have not been computed yet, [records, WORDS]."""
    found = np.zeros((records, WORDS), np.int64)
    found[:, [Field.FIRST_NAN, Field.FIRST_INF, Field.MINIMUM]] = LARGEST
    found[:, Field.MAXIMUM] = SMALLEST
    return found


def number_of(ordered: int, type_: Type) -> float:
    """Return the float whose bits, in the order of the floats, are an integer.

    Args:
        ordered: bits of an f64 for values of that type, of an f32 for all others; negative numbers
            have all bits but the sign inverted.
    """
    wide = type_ is F64
    bits = ordered if ordered >= 0 else ordered ^ (LARGEST if wide else 2**31 - 1)
    return float(
        np.array(bits, np.int64).view(np.float64)
        if wide
        else np.array(bits, np.int32).view(np.float32)
    )
