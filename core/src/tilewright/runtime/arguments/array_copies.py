"""Zeroing, copying and restoring of any library's arrays, for measured runs."""

from __future__ import annotations

from typing import Any

from tilewright.runtime.arguments.array_protocols import is_array, is_numpy_array
from tilewright.runtime.arguments.device_bytes import SavedBytes, memory_of, view_of


def set_to_zero(array: Any) -> None:
    """Set all elements to 0.

    Raises:
        TypeError: it is no array, or neither its library nor a backend can write to it.
    """
    if hasattr(array, "zero_"):
        array.zero_()
        return
    if hasattr(array, "__setitem__"):
        array[...] = 0
        return
    if not is_array(array):
        _need_array(array, "reset_to_zero")
    view = view_of(array)
    memory = None if view is None else memory_of(view.device)
    if view is None or memory is None:
        raise TypeError(f"a {type(array).__name__} has no way to set its elements to zero")
    SavedBytes(view, memory).zeroed().write()  # what lies between strided elements stays


def clone(array: Any) -> Any:
    """Copy an array, for :func:`copy_into`, with its strides where its elements fill the memory.

    Raises:
        TypeError: it is no array, or neither its library nor a backend can copy it.
    """
    if hasattr(array, "clone") and hasattr(array, "copy_"):
        return (array.detach() if hasattr(array, "detach") else array).clone()
    if hasattr(array, "copy") and hasattr(array, "__setitem__"):
        return array.copy(order="K") if is_numpy_array(array) else array.copy()
    if not is_array(array):
        _need_array(array, "restore_value")
    view = view_of(array)
    memory = None if view is None else memory_of(view.device)
    if view is None or memory is None:
        raise TypeError(f"a {type(array).__name__} has no way to copy it and to take values back")
    return SavedBytes(view, memory)


def copy_into(array: Any, saved: Any) -> None:
    """Restore an array to the values of a :func:`clone`, without recording it in autograd."""
    if isinstance(saved, SavedBytes):
        saved.write()
    elif hasattr(array, "copy_"):
        plain = getattr(array, "data", array)
        (plain if hasattr(plain, "copy_") else array).copy_(saved)
    else:
        array[...] = saved


def _need_array(array: Any, option: str) -> None:
    if not (hasattr(array, "zero_") or hasattr(array, "__setitem__")):
        raise TypeError(
            f"{option} of autotune names arrays, and one of its arguments is a "
            f"{type(array).__name__}"
        )
