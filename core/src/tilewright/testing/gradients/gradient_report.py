"""Results of a check of derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Elements that a report lists.
LISTED = 4


@dataclass(frozen=True)
class Blame:
    """A wrong partial derivative.

    Attributes:
        mode: the mode that is wrong, ``"forward"`` or ``"reverse"``.
        input: the parameter by which the derivative is taken.
        index: of the element of the input; empty for a number.
        output: the parameter, and the index of the element, whose derivative it is; None in reverse
            mode, where all outputs are summed with random cotangents.
        found: the derivative of the mode that is wrong.
        expected: by central differences for forward mode; by forward mode for reverse mode.
    """

    mode: Literal["forward", "reverse"]
    input: str
    index: tuple[int, ...]
    output: tuple[str, tuple[int, ...]] | None
    found: float
    expected: float

    def __str__(self) -> str:
        source = _element(self.input, self.index)
        if self.output is not None:
            return (
                f"d {_element(*self.output)} / d {source} is {self.found:.6g} in forward mode, and "
                f"{self.expected:.6g} by central differences"
            )
        return (
            f"the cotangent of {source} is {self.found:.6g} in reverse mode, and "
            f"{self.expected:.6g} in forward mode"
        )


@dataclass(frozen=True)
class GradientCheck:
    """The result of :func:`gradcheck`.

    Attributes:
        wrong: wrong partial derivatives, at most a few of each input.
        difference: the largest error of forward mode, relative to the largest tangent of the array.
        dot: the largest error of reverse mode, relative to the sum of the products' magnitudes.
        type: the narrowest type of floats that depend on an input, which sets the tolerances.
    """

    wrong: tuple[Blame, ...]
    difference: float
    dot: float
    type: str

    def __bool__(self) -> bool:
        """Return whether both modes are right."""
        return not self.wrong

    def __str__(self) -> str:
        verdict = "wrong derivatives" if self.wrong else "right"
        summary = (
            f"{verdict}: forward mode from central differences within {self.difference:.1e}, "
            f"reverse from forward mode within {self.dot:.1e}, in {self.type}"
        )
        return "\n  ".join([summary, *map(str, self.wrong)])


def _element(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
