"""Integer functions for grids and block sizes, on the host and on constants in kernels."""

from __future__ import annotations

from typing import Any

from tilewright.language.definitions.callable import ConstexprFunction


class IntegerFunction(ConstexprFunction):
    """A constexpr function of integers.

    Grids call it at every launch, so plain integers go straight to the Python function.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            for value in args:
                if type(value) is not int:
                    break
            else:
                return self.fn(*args)
        return super().__call__(*args, **kwargs)


@IntegerFunction
def cdiv(x: int, y: int) -> int:
    """Return ``x / y`` rounded up: how many blocks of ``y`` elements cover ``x`` elements."""
    return (x + y - 1) // y


@IntegerFunction
def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least ``n``; if ``n`` is 0 or less, return 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0
