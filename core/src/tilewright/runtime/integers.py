"""Integer functions for grids and block sizes, usable on the host and, on constants, in kernels."""

from __future__ import annotations

from tilewright.language.callable import constexpr_function


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """``x / y`` rounded up: how many blocks of ``y`` cover ``x``."""
    return (x + y - 1) // y


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not less than ``n``; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0
