"""Arrays that a measured run changes: set to zero, copied, and given their values back, whichever library made them."""

from __future__ import annotations

from typing import Any


def set_to_zero(array: Any) -> None:
    """Set all elements to 0.

    Raises:
        TypeError: it is no array.
    """
    _need_array(array, "reset_to_zero")
    if hasattr(array, "zero_"):
        array.zero_()
    else:
        array[...] = 0


def clone(array: Any) -> Any:
    """A copy of an array, for :func:`copy_into`.

    Raises:
        TypeError: it is no array.
    """
    _need_array(array, "restore_value")
    return array.clone() if hasattr(array, "clone") else array.copy()


def copy_into(array: Any, saved: Any) -> None:
    """Give an array the values of a :func:`clone`."""
    if hasattr(array, "copy_"):
        array.copy_(saved)
    else:
        array[...] = saved


def _need_array(array: Any, option: str) -> None:
    if not (hasattr(array, "zero_") or hasattr(array, "__setitem__")):
        raise TypeError(f"{option} of autotune names arrays, and one of its arguments is a {type(array).__name__}")
