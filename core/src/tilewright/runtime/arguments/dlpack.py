"""DLPack capsules, read without an array library.

Source: the DLPack 1.1 header, ``dlpack.h``: ``DLManagedTensor`` (capsule name ``dltensor``) and
``DLManagedTensorVersioned`` (``dltensor_versioned``). The capsule is not consumed but kept: while
it lives the producer keeps the memory, and when it is dropped unconsumed its own destructor returns
the memory to the producer.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


#: DLPACK_FLAG_BITMASK_READ_ONLY
_READ_ONLY = 1

_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True)
class Exported:
    """The tensor that a capsule describes.

    ``device_type`` is a DLDeviceType; ``strides`` count elements; ``owner`` must live as long as
    the memory is used.

    ``readonly`` memory must not be written; capsules of versions before 1.0 cannot say so.
    """

    owner: object
    address: int
    device_type: int
    device_index: int
    type_code: int
    bits: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool = False


def read(value: Any) -> Exported:
    """Export ``value`` through ``__dlpack__`` and read the capsule.

    Raises:
        TypeError: the capsule is of an unknown version or kind, or its elements are vectors.
    """
    try:
        capsule = value.__dlpack__(max_version=(1, 1))
    except TypeError:  # producers of DLPack before 1.0 know no max_version
        capsule = value.__dlpack__()
    name, readonly = _get_name(capsule), False
    if name == b"dltensor_versioned":
        versioned = _Versioned.from_address(_get_pointer(capsule, name))
        if versioned.major > 1:
            raise TypeError(
                f"{type(value).__name__} exports DLPack {versioned.major}.{versioned.minor}; "
                "versions up to 1 are understood"
            )
        tensor, readonly = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    elif name == b"dltensor":
        tensor = _Tensor.from_address(_get_pointer(capsule, name))
    else:
        raise TypeError(
            f"__dlpack__ of {type(value).__name__} returned a capsule named {name!r}, which is no "
            "DLPack tensor"
        )
    if tensor.dtype.lanes != 1:
        raise TypeError(
            f"{type(value).__name__} exports vectors of {tensor.dtype.lanes} elements through "
            "DLPack; kernels read plain elements"
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = contiguous_strides(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Exported(
        capsule,
        address,
        tensor.device.type,
        tensor.device.index,
        tensor.dtype.code,
        tensor.dtype.bits,
        shape,
        strides,
        readonly,
    )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major array."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
