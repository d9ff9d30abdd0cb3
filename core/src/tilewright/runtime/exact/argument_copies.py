"""Copies of a launch's arguments, for launches on other numbers than the program's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tilewright.errors import LaunchError
from tilewright.runtime.arguments.array_protocols import is_array, is_numpy_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.exact.payloads import embed, float_type
from tilewright.runtime.exact.surroundings import Surrounded, holds


class ArgumentCopies:
    """Copies of a launch's arguments, whose arrays have drawn payloads around them."""

    #: Subject of the error that an array cannot be copied.
    copier = "this launch"

    def __init__(self, seed: int = 0) -> None:
        import numpy as np

        self.rng = np.random.default_rng(seed)
        self._contents: dict[int, Any] = {}

    def contents(self, array: Any) -> Any:
        """Return the elements of the copies of an array."""
        return array

    def foreign(self, name: str, array: Any) -> Any:
        """Return the initial copy of an array that is neither NumPy's nor PyTorch's.

        Raises:
            LaunchError: it cannot be copied.
        """
        raise LaunchError(
            f"{self.copier} copies arrays of NumPy and PyTorch, and argument {name} is a "
            f"{type(array).__name__}"
        )

    def copies(self, named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Copy arguments by name; return the copies, and the arrays among them by name.

        Arrays that are one object have one copy, by the first name. Those of NumPy and PyTorch are
        each a :class:`Surrounded`.

        Raises:
            LaunchError: see :meth:`copied`.
        """
        made: dict[int, tuple[str, Any]] = {}
        copied = {name: self.copied(name, value, made) for name, value in named.items()}
        return copied, dict(made.values())

    def copied(self, name: str, value: Any, made: dict[int, tuple[str, Any]]) -> Any:
        """Return a copy of one argument.

        Args:
            made: by the identity of each array that is copied so far, its first name and its copy;
                grows.

        Raises:
            LaunchError: an array is neither NumPy's nor PyTorch's; a descriptor is of memory
                outside of its array.
        """
        if isinstance(value, TensorDescriptor):
            descriptor = copy.copy(value)
            descriptor.base = self.copied(name, value.base, made)
            if isinstance(made[id(value.base)][1], Surrounded) and not holds(
                value.base, value.shape, value.strides
            ):
                raise LaunchError(
                    f"{self.copier} copies the array of descriptor {name}, but a tensor of shape "
                    f"{value.shape} and strides {value.strides} does not lie within this array; "
                    "make the descriptor from a whole array that repeats no elements"
                )
            return descriptor
        if isinstance(value, tuple):
            items = [
                self.copied(f"{name}[{number}]", item, made) for number, item in enumerate(value)
            ]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if not is_array(value):
            return value
        if id(value) not in made:
            made[id(value)] = name, self._initial(name, value).copy()
        return made[id(value)][1].array

    def _initial(self, name: str, array: Any) -> Any:
        found = self._contents.get(id(array))
        if found is None:
            if is_numpy_array(array) or hasattr(array, "as_strided"):
                found = Surrounded.of(array, self.contents(array), self.rng)
            else:
                found = self.foreign(name, array)
            self._contents[id(array)] = found
        return found


class EmbeddedArguments(ArgumentCopies):
    """Copies that hold payloads of the arrays' numbers.

    Drawn payloads surround each array, so that a read past its end is seen.
    """

    copier = "exact mode"

    def __init__(self, *, holds_payloads: bool) -> None:
        """Begin.

        Args:
            holds_payloads: whether the arrays hold payloads already.
        """
        super().__init__()
        self._holds_payloads = holds_payloads

    def contents(self, array: Any) -> Any:
        return embed(array) if float_type(array) is not None and not self._holds_payloads else array
