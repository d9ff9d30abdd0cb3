"""Buffers behind a kernel's arguments, as array protocols describe them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import LaunchError


@dataclass(frozen=True, slots=True)
class ArgumentBuffer:
    """Memory of one argument. Ranges are ``[low, high)`` in bytes.

    ``address`` is that of the first element, ``own`` spans the argument's elements, ``allocation``
    all the memory it is part of.
    """

    address: int
    own: tuple[int, int]
    allocation: tuple[int, int]
    writeable: bool
    owner: object


def describe(value: object) -> ArgumentBuffer:
    """Return the memory behind an argument.

    The argument is a NumPy array, anything with ``__array_interface__`` or ``__dlpack__`` on the
    CPU, or an object with ``data_ptr()`` such as a torch tensor. An integer is an address of memory
    nothing is known about, None the null pointer.

    Raises:
        LaunchError: the argument is none of these.
    """
    if value is None:
        return ArgumentBuffer(0, (0, 0), (0, 0), True, None)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return ArgumentBuffer(int(value), (0, 0), (0, 0), True, None)
    if isinstance(value, np.ndarray):
        return _of_array(value)
    if callable(getattr(value, "data_ptr", None)):
        return _of_tensor(value)
    if hasattr(value, "__array_interface__"):
        array = np.asarray(_Interface(value.__array_interface__, value))
        return ArgumentBuffer(
            _address(array),
            byte_bounds(array),
            byte_bounds(array),
            bool(array.flags.writeable),
            value,
        )
    if hasattr(value, "__dlpack__"):
        buffer = _of_array(np.from_dlpack(value))
        return ArgumentBuffer(
            buffer.address,
            buffer.own,
            buffer.allocation,
            buffer.writeable,
            value,
        )
    known = "NumPy, torch on the CPU, anything with __array_interface__, __dlpack__ or data_ptr()"
    raise LaunchError(f"a pointer argument must be an array ({known}), not {type(value).__name__}")


class _Interface:
    """Carries an ``__array_interface__`` and keeps alive what it describes."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def bytes_at(low: int, high: int, writeable: bool, owner: object) -> NDArray[np.uint8]:
    """The bytes of ``[low, high)`` as an array that keeps ``owner`` alive."""
    if high <= low:
        return np.empty(0, dtype=np.uint8)
    return np.asarray(
        _Interface(
            {"data": (low, not writeable), "shape": (high - low,), "typestr": "|u1", "version": 3},
            owner,
        )
    )


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def strided_bounds(
    address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, int]:
    """Return ``[low, high)`` of a strided array that begins at ``address``; strides in bytes."""
    if math.prod(shape) == 0:
        return address, address
    reaches = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return address + sum(r for r in reaches if r < 0), address + sum(
        r for r in reaches if r > 0
    ) + itemsize


def byte_bounds(array: NDArray[Any]) -> tuple[int, int]:
    """``[low, high)`` of an array's elements."""
    return strided_bounds(_address(array), array.shape, array.strides, array.itemsize)


def _of_array(array: NDArray[Any]) -> ArgumentBuffer:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    own, whole = byte_bounds(array), byte_bounds(root)
    # A view made by stride tricks may reach past the array it names as its base.
    return ArgumentBuffer(
        _address(array),
        own,
        (min(own[0], whole[0]), max(own[1], whole[1])),
        bool(array.flags.writeable),
        array,
    )


def _of_tensor(tensor: Any) -> ArgumentBuffer:
    """Return the memory of an object with ``data_ptr()``, in torch's terms where it knows them.

    They are strides in elements, and ``untyped_storage()`` for the allocation.
    """
    device = getattr(tensor, "device", None)
    kind = device[0] if isinstance(device, tuple) and device else getattr(device, "type", "cpu")
    if kind != "cpu":
        raise LaunchError(f"the reference runs on the CPU's memory; the argument is on {device}")
    address = int(tensor.data_ptr())
    if hasattr(tensor, "element_size") and hasattr(tensor, "stride") and hasattr(tensor, "shape"):
        itemsize = int(tensor.element_size())
        own = strided_bounds(
            address,
            tuple(tensor.shape),
            [int(stride) * itemsize for stride in tensor.stride()],
            itemsize,
        )
    elif hasattr(tensor, "nbytes"):
        own = (address, address + int(tensor.nbytes))
    elif hasattr(tensor, "base"):
        inner = describe(tensor.base)
        return ArgumentBuffer(address, inner.own, inner.allocation, inner.writeable, tensor)
    else:
        raise LaunchError(
            "an argument with data_ptr() must also have nbytes or element_size(), shape and "
            f"stride(): {type(tensor).__name__} has not"
        )
    allocation = own
    if callable(getattr(tensor, "untyped_storage", None)):
        storage = tensor.untyped_storage()
        low = int(storage.data_ptr())
        allocation = (min(own[0], low), max(own[1], low + int(storage.nbytes())))
    return ArgumentBuffer(address, own, allocation, not getattr(tensor, "readonly", False), tensor)
