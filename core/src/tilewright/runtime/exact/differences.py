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
        index: the first element that differs; of the memory around the array, one negative number,
            or one beyond its size.
        a, b: what the kernels left there: fractions, or the names of codes.
        count, size: the number of elements that differ, and of all.
        behind: operations of which only the operands are known, that stores to the argument depend
            on.
    """

    argument: str
    index: tuple[int, ...]
    a: Fraction | str | int
    b: Fraction | str | int
    count: int
    size: int
    behind: tuple[Uninterpreted, ...] = ()

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return (
            f"argument {self.argument}[{place}] is {self.a} and {self.b}; "
            f"{self.count} of {self.size} elements differ"
        )


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
    place = int(wrong[0])

    def value(bits: Any) -> Fraction | str | int:
        found = int(bits[place])
        return found if type_ is None else fraction(ring_of(type_), found)

    return Difference(
        name,
        a.index(place),
        value(left),
        value(right),
        int(wrong.size),
        a.size,
        tuple(sorted(behind, key=str)),
    )
