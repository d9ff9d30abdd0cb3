"""The module constants that kernels were compiled with, and their check before a launch."""

from __future__ import annotations

import copy
import weakref
from typing import Any

from tilewright.language.core import constexpr
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.definitions.dependencies import dependencies

#: Function -> the globals it was first compiled with: (name, id of the namespace) -> (value,
#: namespace).
_first_seen: weakref.WeakKeyDictionary[
    JitCallable, dict[tuple[str, int], tuple[Any, dict[str, Any]]]
] = weakref.WeakKeyDictionary()


class GlobalValues:
    """The constants that one kernel was compiled with.

    Attributes:
        mutable: (name, the constexpr, its value when the kernel was compiled) of every constexpr
            that the kernel reads; their value can be set.
    """

    def __init__(self) -> None:
        self.mutable: list[tuple[str, constexpr, Any]] = []

    def record(self, kernel: JitCallable) -> None:
        """Remember the values of a compilation of the kernel.

        Raises:
            RuntimeError: a function that the kernel calls was compiled before with another value of
                a global that both read.
        """
        mutable: list[tuple[str, constexpr, Any]] = []
        seen: set[int] = set()
        pending: list[JitCallable] = [kernel]
        while pending:
            function = pending.pop()
            if id(function) in seen or function.fn is None:
                continue
            seen.add(id(function))
            found = dependencies(function)
            pending.extend(found.callees)
            first = _first_seen.setdefault(function, found.globals)
            if function is not kernel:
                _check_same(kernel, function, first, found.globals)
            read = [
                *((name, value) for (name, _), (value, _) in found.globals.items()),
                *function.nonlocals.items(),
            ]
            mutable += [
                (name, value, copy.copy(value.value))
                for name, value in read
                if isinstance(value, constexpr)
            ]
        self.mutable[:] = mutable  # the same list: launches look at it

    def check(self) -> None:
        """Raise RuntimeError if a constexpr has another value than the kernel was compiled with."""
        for name, holder, value in self.mutable:
            if holder.value is not value and holder.value != value:
                raise RuntimeError(
                    f"Global variable {name} has changed since we compiled this kernel, from "
                    f"{constexpr(value)!r} to {holder!r}"
                )


def _check_same(
    kernel: JitCallable,
    function: JitCallable,
    first: dict[tuple[str, int], Any],
    now: dict[tuple[str, int], Any],
) -> None:
    for key in first.keys() & now.keys():
        before, value = first[key][0], now[key][0]
        if before is not value and bool(before != value):
            raise RuntimeError(
                f"Global variable {key[0]} has value {value!r} when compiling {kernel.__name__}, "
                f"but inner kernel {function.__name__} has conflicting value {before!r} from when "
                "it was first compiled. This is not allowed"
            )
