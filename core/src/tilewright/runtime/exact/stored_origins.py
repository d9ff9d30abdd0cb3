"""Operations without algebra behind what exact launches left in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.passes.exact.dependences import StoreDependences
from tilewright.passes.exact.report import ExactReport, Uninterpreted
from tilewright.runtime.arguments.array_protocols import address_of, is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor

Operations = frozenset[Uninterpreted]
#: The types of most arguments that are no arrays.
_NUMBERS = frozenset((int, float, bool))


class _Range(NamedTuple):
    """The addresses of an array, from its first element to its last."""

    start: int
    end: int

    def overlaps(self, other: _Range) -> bool:
        return self.start < other.end and other.start < self.end


def _range_of(array: Any) -> _Range:
    start = address_of(array)
    shape = tuple(getattr(array, "shape", ()))
    if callable(getattr(array, "stride", None)):
        size = int(array.element_size())
        strides = [size * int(one) for one in array.stride()]
    elif hasattr(array, "strides"):
        size, strides = int(array.itemsize), [int(one) for one in array.strides]
    else:
        return _Range(start, start + int(getattr(array, "nbytes", 1)))
    if 0 in shape:
        return _Range(start, start)
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    first = sum(step for step in steps if step < 0)
    last = sum(step for step in steps if step > 0)
    return _Range(start + first, start + last + size)


class LaunchReports(list[ExactReport]):
    """A report for each exact launch, and the origins of what the launches stored.

    Memory that no launch stored to, and that is none of the arrays given in the beginning, was
    written by somebody else, perhaps from results: all operations so far count as behind it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stored: dict[_Range, Operations] = {}
        self._initial: list[_Range] = []
        self._has_operations = False

    def begin_with(self, arrays: Sequence[Any]) -> None:
        """Add arrays whose contents depend on no launch."""
        self._initial += map(_range_of, arrays)

    def behind(self, array: Any) -> Operations:
        """Return the operations behind an array that launches stored to."""
        return self._behind(_range_of(array), is_read=False)

    def launched(
        self,
        report: ExactReport,
        dependences: Mapping[int, StoreDependences],
        values: Sequence[Any],
    ) -> None:
        """Add a launch with arguments ``values``."""
        arrays = {
            position: array
            for position, value in enumerate(values)
            if type(value) not in _NUMBERS
            and is_array(array := value.base if isinstance(value, TensorDescriptor) else value)
        }
        self._has_operations |= bool(report.uninterpreted)
        if not self._has_operations:
            self.append(report)
            for position in dependences:
                if position in arrays:
                    self._stored.setdefault(_range_of(arrays[position]), frozenset())
            return
        ranges = {position: _range_of(array) for position, array in arrays.items()}
        loaded = {position: self._behind(own, is_read=True) for position, own in ranges.items()}
        stored = {position: found.operations for position, found in dependences.items()}
        # arguments that overlap are one memory, of which the kernel's analysis does not know
        while True:
            after = dict(stored)
            for position, found in dependences.items():
                for read in found.arguments:
                    after[position] |= loaded.get(read, frozenset())
                    for other in self._overlapping(ranges, read):
                        after[position] |= stored.get(other, frozenset())
            if after == stored:
                break
            stored = after
        self.append(report)
        for position, operations in stored.items():
            if position in ranges:
                before = self._stored.get(ranges[position], frozenset())
                self._stored[ranges[position]] = before | operations

    @staticmethod
    def _overlapping(ranges: Mapping[int, _Range], position: int) -> list[int]:
        own = ranges.get(position)
        if own is None:
            return []
        return [other for other, one in ranges.items() if one.overlaps(own)]

    def _behind(self, own: _Range, *, is_read: bool) -> Operations:
        found = [operations for one, operations in self._stored.items() if one.overlaps(own)]
        is_known = bool(found) or (is_read and any(one.overlaps(own) for one in self._initial))
        if not is_known:
            found = [frozenset(report.uninterpreted) for report in self]
        return frozenset[Uninterpreted]().union(*found)
