"""Linear forms over F2.

A linear_form is a mask: its value at a vector is the parity of the bits they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def parity(value: int) -> int:
    """Return the parity of the number of set bits."""
    return value.bit_count() & 1


def _reduced(rows: Iterable[int]) -> dict[int, int]:
    """The reduced echelon form of independent or dependent rows, by leading bit: each leading bit
    is in its own row only."""
    form: dict[int, int] = {}
    for row in rows:
        for pivot, other in form.items():
            if row >> pivot & 1:
                row ^= other
        if not row:
            continue
        pivot = row.bit_length() - 1
        for key, other in form.items():
            if other >> pivot & 1:
                form[key] = other ^ row
        form[pivot] = row
    return form


def annihilators(vectors: Iterable[int], width: int) -> list[int]:
    """Return independent linear forms on ``width`` bits that vanish exactly on the span."""
    form = _reduced(vectors)
    return [
        1 << bit | sum(1 << pivot for pivot, row in form.items() if row >> bit & 1)
        for bit in range(width)
        if bit not in form
    ]


def separator(vectors: Sequence[int], number: int, width: int) -> int:
    """A linear form that is 1 at vector ``number`` and 0 at the others, which are independent.

    It has one bit where there is such a bit.
    """
    for bit in range(width):
        if all((vector >> bit & 1) == (i == number) for i, vector in enumerate(vectors)):
            return 1 << bit
    form = _reduced(vector << 1 | (i == number) for i, vector in enumerate(vectors))
    return sum(1 << (pivot - 1) for pivot, row in form.items() if row & 1)
