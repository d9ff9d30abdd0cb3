"""Copies of arrays that lie in memory of random payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.runtime.exact.payloads import draw, float_type, is_tensor

#: Elements before and behind an array: a multiple of 16 bytes of every type.
MARGIN = 64


@dataclass
class Surrounded:
    """An array, and the memory around it.

    Attributes:
        flat: all of the memory.
        shape, strides: of the array, in elements, which begins behind the margin.
    """

    flat: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any, contents: Any, rng: Any) -> Surrounded:
        """Lay an array of ``contents`` out with another's shape and strides.

        Strides are positive ones of it, or those of a contiguous copy. Around an array of floats,
        and in its gaps, are drawn payloads; around others a copy of their first element.
        """
        shape, strides = tuple(array.shape), _strides_of(array)
        extent = _extent(shape, strides)
        if not _is_copied_as_laid_out(shape, strides):
            strides, extent = _contiguous(shape)
        flat = _flat(array, extent + 2 * MARGIN, rng)
        found = cls(flat, shape, strides)
        found.array[...] = contents
        return found

    @property
    def array(self) -> Any:
        """The array, which shares the memory."""
        if is_tensor(self.flat):
            return self.flat.as_strided(self.shape, self.strides, MARGIN)
        import numpy as np

        size = self.flat.itemsize
        strides = tuple(stride * size for stride in self.strides)
        return np.ndarray(self.shape, self.flat.dtype, self.flat, MARGIN * size, strides)

    @property
    def size(self) -> int:
        """The number of elements, surroundings included."""
        return int(self.flat.shape[0])

    @property
    def is_element(self) -> Any:
        """For each place of the memory, whether an element of the array lies there."""
        import numpy as np

        found = np.zeros(self.size, np.bool_)
        np.ndarray(self.shape, np.bool_, found, MARGIN, self.strides)[...] = True
        return found

    def copy(self) -> Surrounded:
        """Return a copy of array and surroundings."""
        copied = self.flat.clone() if is_tensor(self.flat) else self.flat.copy()
        return Surrounded(copied, self.shape, self.strides)

    def index(self, place: int) -> tuple[int, ...]:
        """The coordinates of an element of the memory; one number outside of the array."""
        offset = place - MARGIN
        if offset < 0:
            return (offset,)
        rest, found = offset, dict.fromkeys(range(len(self.shape)), 0)
        long = [axis for axis, extent in enumerate(self.shape) if extent > 1]
        for axis in sorted(long, key=lambda axis: -self.strides[axis]):
            found[axis] = min(rest // self.strides[axis], self.shape[axis] - 1)
            rest -= found[axis] * self.strides[axis]
        return (offset,) if rest else tuple(found[axis] for axis in range(len(self.shape)))


def holds(array: Any, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether a copy of an array holds, at the same places, a tensor that begins with it."""
    own, own_strides = tuple(array.shape), _strides_of(array)
    return _is_copied_as_laid_out(own, own_strides) and _extent(shape, strides) <= _extent(
        own, own_strides
    )


def _strides_of(array: Any) -> tuple[int, ...]:
    """The strides of an array, in elements."""
    if is_tensor(array):
        return tuple(array.stride())
    return tuple(stride // array.itemsize for stride in array.strides)


def _extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first of a tensor to its last, gaps included."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _is_copied_as_laid_out(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether an array has elements, none of which its strides repeat or reverse."""
    return 0 not in shape and all(s > 0 for n, s in zip(shape, strides, strict=True) if n > 1)


def _contiguous(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides)), size


def _flat(array: Any, size: int, rng: Any) -> Any:
    if is_tensor(array):
        line = array.new_zeros((size,))
    else:
        import numpy as np

        # aligned as large arrays are, whatever the allocator does with small ones
        raw = np.zeros(size * array.itemsize + 64, np.uint8)
        start = -raw.ctypes.data % 64
        line = raw[start : start + size * array.itemsize].view(array.dtype)
    if float_type(array) is not None:
        line[...] = draw(line, rng)
    elif size > 2 * MARGIN:
        line[...] = array.reshape(-1)[0]
    return line
