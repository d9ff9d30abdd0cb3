"""Shapes, axes and extents, worked out while compiling."""

from __future__ import annotations

from typing import Any

from tilewright.language.definitions.callable import constexpr_function


@constexpr_function
def log2(n: Any) -> Any:
    """The exponent of a power of two."""
    return n.bit_length() - 1


@constexpr_function
def is_power_of_two(n: Any) -> Any:
    return n > 0 and n & (n - 1) == 0


@constexpr_function
def normal_axis(axis: Any, rank: Any) -> Any:
    """An axis counted from the front.

    Raises:
        ValueError: it is out of range.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"invalid axis {axis}. Expected {-rank} <= axis < {rank}")
    return axis % rank


@constexpr_function
def last_axis(axis: Any, rank: Any, name: Any) -> Any:
    """Check that ``axis`` is the last one, or None.

    Raises:
        ValueError: it is another.
    """
    if rank == 0:
        raise ValueError(f"{name} takes a tensor of rank 1 or more")
    if axis is not None and axis not in (rank - 1, -1):
        raise ValueError(
            f"{name}: only the last dimension is currently supported, got axis {axis} of {rank}"
        )
    return rank - 1


@constexpr_function
def without(shape: Any, axis: Any) -> Any:
    """``shape`` without one axis."""
    return [extent for i, extent in enumerate(shape) if i != axis]


@constexpr_function
def with_axes(shape: Any, axis: Any, extents: Any) -> Any:
    """``shape`` with one axis replaced by any number of axes."""
    return [*shape[:axis], *extents, *shape[axis + 1 :]]


@constexpr_function
def interleaved(shape: Any) -> Any:
    """The shape whose last two axes are one."""
    return [*shape[:-2], shape[-2] * shape[-1]]


@constexpr_function
def only_on(rank: Any, axis: Any, extent: Any) -> Any:
    """A shape of ones but for ``extent`` on one axis."""
    return [extent if i == axis else 1 for i in range(rank)]
