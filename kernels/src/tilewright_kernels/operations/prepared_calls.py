"""Prepared calls: the launches of an earlier call, which later calls of the same kind repeat.

A launch function computes shapes, strides, blocks and arguments in Python, which takes longer than
the launches. What it computes follows from the call's :func:`call_key`. So the first call of a kind
records its launches, with the places of arrays among the call's own and its scratch memory, and
later ones put their arrays there.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tilewright.language import dtype as element_type
from tilewright.runtime.launch.kernel_interface import KernelInterface
from tilewright_kernels.operations.frameworks import SIGNATURES, Framework

#: Kinds of calls of an operation that are remembered.
_MOST = 256
#: Types of arguments that are no arrays, beside functions.
_CONSTANTS = frozenset((int, bool, float, str, type(None)))
#: Types of constants of launches, which hold no arrays.
_HOLDS_NO_ARRAY = (int, float, str, type(None), element_type, KernelInterface)
#: Bytes that addresses are multiples of, or not, for launches to depend on that.
_ALIGNMENT = 16


@functools.cache
def _places_of_floats(kinds: tuple[type, ...]) -> tuple[int, ...] | None:
    """Return the places of floats among arguments of some types; None if launches may change."""
    if not all(kind in _CONSTANTS or issubclass(kind, KernelInterface) for kind in kinds):
        return None
    return tuple(place for place, kind in enumerate(kinds) if kind is float)


def call_key(arrays: Sequence[Any], others: Sequence[Any], device: Any) -> Any:
    """Return all that the launches of a call follow from; None if that is unknown.

    That is what the frameworks know about each array, the alignment, which of the arrays share
    their first byte, and the values of other arguments.

    Args:
        arrays: the arrays among the arguments, and those for the results; or None in their place.
        others: other arguments.
        device: the device that was chosen by name, or None.
    """
    key: list[Any] = [device]
    if others:
        kinds = tuple(map(type, others))
        floats = _places_of_floats(kinds)
        if floats is None:
            return None
        key += kinds
        key += others
        key += [str(others[each]) for each in floats if not others[each]]  # 0.0 and -0.0 are equal
    addresses: list[int] = []
    for each in arrays:
        if each is None:
            key.append(None)
            continue
        signature = SIGNATURES.get(type(each))
        if signature is None:
            return None
        key += signature(each)
        addresses.append(key[-1])
        key[-1] %= _ALIGNMENT
    if len(addresses) > 1 and len(set(addresses)) < len(addresses):
        key.append(tuple([addresses.index(each) for each in addresses]))
    return tuple(key)


class PreparedCall:
    """Launches to repeat.

    Attributes:
        framework: whose arrays they are on.
        made: shapes and element types of the results, as an operation describes them.
        allocators: functions that return memory for the results beside the first array; None for
            what is not made.
        first: the place of the first array among the operation's arguments.
        wants_gradient: whether an array had a gradient to be computed.
    """

    __slots__ = ("_scratch", "_steps", "allocators", "first", "framework", "made", "wants_gradient")

    def __init__(
        self,
        framework: Framework,
        made: Sequence[Any],
        scratch: Sequence[tuple[bool, Any, Any]],
        steps: Sequence[tuple[Any, Any, list[Any], dict[str, Any], list[tuple[Any, int]]]],
        arguments: Sequence[Any],
        first: int,
    ) -> None:
        self.framework, self.made, self.first = framework, made, first
        array = arguments[first]
        self.allocators = [
            None if each is None else framework.allocator(*each, array) for each in made
        ]
        self._scratch = [
            functools.partial(framework.zeros, shape, dtype)
            if is_zero
            else framework.allocator(shape, dtype, array)
            for is_zero, shape, dtype in scratch
        ]
        self._steps = steps
        self.wants_gradient = any(getattr(each, "requires_grad", False) for each in arguments)

    def launch(self, values: list[Any], first: Any) -> None:
        """Launch on the results and arguments in ``values``; ``first`` is an array of a device."""
        values += [allocate(first) for allocate in self._scratch]
        for kernel, grid, constants, named, places in self._steps:
            given = constants.copy()
            keywords = named
            for place, number in places:
                if type(place) is int:
                    given[place] = values[number]
                else:
                    keywords = {**keywords, place: values[number]}
            kernel[grid](*given, **keywords)


class PreparingLauncher:
    """Launches at once, and records what it launches.

    Args:
        framework: whose arrays they are.
        values: the results and arguments of the call.
        first: an array on the device.
    """

    def __init__(self, framework: Framework, values: Sequence[Any], first: Any) -> None:
        self._framework, self._first = framework, first
        self._array = framework.array_type()
        self._values, self._count = list(values), len(values)
        self._addresses = [
            framework.address(each) if isinstance(each, self._array) else None for each in values
        ]
        self._scratch: list[tuple[bool, Any, Any]] = []
        self._steps: list[Any] = []
        self._is_repeatable = True

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return scratch memory of arbitrary elements."""
        return self._allocated(shape, dtype, is_zero=False)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return scratch memory of zeros."""
        return self._allocated(shape, dtype, is_zero=True)

    def _allocated(self, shape: Sequence[int], dtype: Any, *, is_zero: bool) -> Any:
        allocate = self._framework.zeros if is_zero else self._framework.empty
        found = allocate(shape, dtype, self._first)
        self._scratch.append((is_zero, tuple(shape), dtype))
        self._values.append(found)
        self._addresses.append(self._framework.address(found))
        return found

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        """Launch a kernel."""
        kernel[grid](*arguments, **keywords)
        places: list[tuple[Any, int]] = []
        constants = [self._kept(place, each, places) for place, each in enumerate(arguments)]
        named = {name: self._kept(name, each, places) for name, each in keywords.items()}
        if not isinstance(grid, tuple) or not all(isinstance(each, int) for each in grid):
            self._is_repeatable = False
        self._steps.append((kernel, grid, constants, named, places))

    def _kept(self, place: Any, value: Any, places: list[tuple[Any, int]]) -> Any:
        """Return the value of an argument for all launches, or note which array it is."""
        if not isinstance(value, self._array):
            if not isinstance(value, _HOLDS_NO_ARRAY):
                self._is_repeatable = False
            return value
        number = self._number(value)
        if number is None:
            self._is_repeatable = False
        else:
            places.append((place, number))
        return None

    def _number(self, array: Any) -> int | None:
        """Return the number of an array, or of one that it is a view of; None for other memory."""
        for number, each in enumerate(self._values):
            if each is array:
                return number
        address = self._framework.address(array)
        for number, each in enumerate(self._values):
            if (
                self._addresses[number] == address
                and each.dtype == array.dtype
                and each.nbytes == array.nbytes
            ):
                return number
        return None

    def prepared(self, made: Sequence[Any]) -> PreparedCall | None:
        """Return the call with what was launched; None if it cannot be repeated."""
        arguments = self._values[len(made) : self._count]
        first = next(
            (place for place, each in enumerate(arguments) if isinstance(each, self._array)), None
        )
        if not self._is_repeatable or first is None:
            return None
        return PreparedCall(self._framework, made, self._scratch, self._steps, arguments, first)


class PreparedCalls:
    """The prepared calls of an operation; None for kinds of calls that cannot be repeated."""

    #: Those of all operations.
    _all: ClassVar[weakref.WeakSet[PreparedCalls]] = weakref.WeakSet()

    def __init__(self) -> None:
        self._calls: dict[Any, PreparedCall | None] = {}
        self.get = self._calls.get
        self._all.add(self)

    def __len__(self) -> int:
        return len(self._calls)

    def storing(self, key: Any) -> Callable[[PreparedCall | None], None] | None:
        """Return the function that remembers a call; None if it is known, or has no key.

        Known are calls that were found to be repeatable or not.
        """
        return None if key is None or key in self._calls else functools.partial(self._store, key)

    def _store(self, key: Any, call: PreparedCall | None) -> None:
        """Remember a call; all others are forgotten where there are many."""
        if len(self._calls) >= _MOST:
            self._calls.clear()
        self._calls[key] = call

    @classmethod
    def forget(cls) -> None:
        """Forget the calls of all operations, for whoever replaces what launch functions use."""
        for each in cls._all:
            each._calls.clear()
