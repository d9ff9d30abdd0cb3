"""Differences between the arrays that two exact launches left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tilewright.passes.exact.report import Uninterpreted
from tilewright.passes.exact.ring import ring_of
from tilewright.runtime.exact.payloads import agree, bits_of, float_type, fraction, is_tensor
from tilewright.runtime.exact.surroundings import Surrounded


@dataclass(frozen=True)
class Difference:
    """Elements of one argument in which two kernels differ.

    Attributes:
        argument: the argument's name, or its position.
        index: the first element that differs. If no element differs, the first place outside of the
            array that does: one number, counted in elements from the array's first element.
        a, b: what the kernels left there: fractions, or the names of codes.
        count, size: the number of the array's elements that differ, and of all its elements.
        behind: operations of which only the operands are known, that stores to the argument depend
            on.
        outside: the number of places that differ in the memory around the array and in the gaps
            between its elements, to which no kernel should write.
    """

    argument: str
    index: tuple[int, ...]
    a: Fraction | str | int
    b: Fraction | str | int
    count: int
    size: int
    behind: tuple[Uninterpreted, ...] = ()
    outside: int = 0

    def __str__(self) -> str:
        return f"{self.place} is {self.a} and {self.b}; {self.counts}"

    @property
    def place(self) -> str:
        """The argument and the index, as text."""
        return f"argument {self.argument}[{', '.join(map(str, self.index))}]"

    @property
    def counts(self) -> str:
        """The numbers of elements, and of places outside of the array, that differ, as text."""
        found = f"{self.count} of {self.size} elements differ"
        if self.outside:
            found += f", and {self.outside} outside of the array"
        return found


def difference(
    name: str,
    a: Surrounded,
    b: Surrounded,
    digits: int,
    behind: Iterable[Uninterpreted] = (),
) -> Difference | None:
    """Return where two arrays, or what lies around them, differ; None where they do not.

    Args:
        behind: the operations of which only the operands are known, behind both.
    """
    import numpy as np

    type_ = float_type(a.flat)
    if type_ is not None:
        same = agree(a.flat, b.flat, digits)
        left, right = bits_of(a.flat), bits_of(b.flat)
    else:
        left, right = (x.cpu().numpy() if is_tensor(x) else x for x in (a.flat, b.flat))
        same = left == right
    wrong = np.flatnonzero(~same)
    if not wrong.size:
        return None
    is_element = a.is_element
    elements = wrong[is_element[wrong]]
    place = int(elements[0] if elements.size else wrong[0])

    def value(bits: Any) -> Fraction | str | int:
        found = int(bits[place])
        return found if type_ is None else fraction(ring_of(type_), found)

    return Difference(
        name,
        a.index(place),
        value(left),
        value(right),
        int(elements.size),
        int(is_element.sum()),
        tuple(sorted(behind, key=str)),
        int(wrong.size - elements.size),
    )
