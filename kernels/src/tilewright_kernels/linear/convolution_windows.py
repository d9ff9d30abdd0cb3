"""Windows of convolutions: which pixels an output reads, and the shapes that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: One number for both axes of images, or one for each.
Pair = int | Sequence[int]


@dataclass(frozen=True)
class Window:
    """Distances in pixels along the rows and the columns of images.

    Attributes:
        stride: from one output to the next.
        padding: zeros before the first and after the last pixel.
        dilation: from one tap to the next.
    """

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @classmethod
    def of(cls, stride: Pair, padding: Pair, dilation: Pair) -> Window:
        """Return the window of a call's arguments.

        Raises:
            TypeError: an argument is neither an integer nor a pair of them.
            ValueError: a distance is too small.
        """
        window = cls(
            _pair("stride", stride), _pair("padding", padding), _pair("dilation", dilation)
        )
        if min(window.stride) < 1 or min(window.dilation) < 1 or min(window.padding) < 0:
            raise ValueError(
                f"stride {stride} and dilation {dilation} must be at least 1, and padding "
                f"{padding} at least 0"
            )
        return window

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> Window:
        """Return the window of :attr:`numbers`."""
        a, b, c, d, e, f = numbers
        return cls((a, b), (c, d), (e, f))

    @property
    def numbers(self) -> list[int]:
        """Stride, padding and dilation, along rows before columns."""
        return [*self.stride, *self.padding, *self.dilation]

    def is_point(self, taps: Sequence[int]) -> bool:
        """Return whether each output reads the one pixel at its own place."""
        return tuple(taps) == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)

    def outputs(self, extents: Sequence[int], taps: Sequence[int]) -> tuple[int, int]:
        """Return the rows and columns of the result, of images and filters of these extents."""
        rows, columns = (
            (extent + 2 * padding - dilation * (count - 1) - 1) // stride + 1
            for extent, count, stride, padding, dilation in zip(
                extents, taps, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return rows, columns


def _pair(name: str, value: Pair) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if len(value) != 2 or not all(isinstance(each, int) for each in value):
        raise TypeError(f"{name} must be an integer or two of them, not {value!r}")
    return value[0], value[1]
