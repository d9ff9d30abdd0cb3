"""Array protocols: element type, device, address and alignment of any library's array.

Understood are NumPy arrays, objects with ``data_ptr()`` and ``dtype`` (PyTorch tensors and what
imitates them), and the protocols ``__cuda_array_interface__``, ``__array_interface__`` and
``__dlpack__``. :func:`array_kind` is on the launch path: it returns an interned :class:`ArrayKind`,
found by one dictionary lookup per type of object.

Launchers get NumPy arrays and objects with ``data_ptr()`` as they are; every other object as an
:class:`ArrayView` of it. :func:`address_of` returns the address of any of them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.errors import LaunchError
from tilewright.runtime.arguments.dtypes import (
    FROM_DLPACK,
    FROM_TYPESTR,
    ITEM_SIZE,
    NUMPY_STORAGE,
    dtype_text,
)

#: Alignment in bytes on which kernels specialize.
ALIGNMENT = 16


class ArgumentError(LaunchError, TypeError):
    """An argument of a kernel is of a kind that kernels cannot take."""


class ArrayKind:
    """Specialization key of an array argument.

    Interned: equal kinds are the same object, so they hash and compare by identity.


    Attributes:
        dtype: element type as signature text.
        divisible: the address is a multiple of :data:`ALIGNMENT`.
        device: (kind, index), or None for a mock without memory.
        convert: converts the caller's object to the launcher's value; None where it is the object
            itself.
    """

    __slots__ = ("convert", "device", "divisible", "dtype")
    _interned: dict[tuple[Any, ...], ArrayKind] = {}  # noqa: RUF012 (the table of all instances)

    dtype: str
    divisible: bool
    device: tuple[str, int] | None
    convert: Callable[[Any], Any] | None

    def __new__(
        cls,
        dtype: str,
        divisible: bool,
        device: tuple[str, int] | None,
        convert: Callable[[Any], Any] | None = None,
    ) -> ArrayKind:
        key = (dtype, divisible, device, convert)
        self = cls._interned.get(key)
        if self is None:
            self = object.__new__(cls)
            self.dtype, self.divisible, self.device, self.convert = key
            self = cls._interned.setdefault(key, self)
        return self

    def __repr__(self) -> str:
        where = "nowhere" if self.device is None else f"{self.device[0]}:{self.device[1]}"
        return f"<array of {self.dtype} on {where}{', aligned' if self.divisible else ''}>"


class ArrayView:
    """Memory of another library's array, kept alive by ``owner``.

    ``strides`` count elements; ``dtype`` is signature text; ``readonly`` memory must not be stored
    to.
    """

    __slots__ = ("device", "dtype", "owner", "pointer", "readonly", "shape", "strides")

    def __init__(
        self,
        owner: object,
        pointer: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        device: tuple[str, int],
        readonly: bool = False,
    ) -> None:
        self.owner, self.pointer, self.dtype, self.shape, self.strides, self.device = (
            owner,
            pointer,
            dtype,
            shape,
            strides,
            device,
        )
        self.readonly = readonly

    def data_ptr(self) -> int:
        return self.pointer

    def element_size(self) -> int:
        return ITEM_SIZE[self.dtype]

    def stride(self, dim: int | None = None) -> Any:
        """Return the strides in elements, or one of them."""
        return self.strides if dim is None else self.strides[dim]

    @property
    def nbytes(self) -> int:
        """Number of bytes from the first element to the end of the last, for positive strides."""
        if 0 in self.shape:
            return 0
        return ITEM_SIZE[self.dtype] * (
            1
            + sum(
                (extent - 1) * stride
                for extent, stride in zip(self.shape, self.strides, strict=True)
            )
        )

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device[0] != "cpu":
            raise AttributeError("the memory is not the host's")
        import numpy as np

        size = ITEM_SIZE[self.dtype]
        strides = tuple(stride * size for stride in self.strides)
        return {
            "version": 3,
            "shape": self.shape,
            "strides": strides,
            "typestr": np.dtype(NUMPY_STORAGE[self.dtype]).str,
            "data": (self.pointer, self.readonly),
        }


def array_kind(value: Any) -> ArrayKind:
    """Return the kind of an array.

    Raises:
        ArgumentError: it is no array that kernels can read; says why and what can be passed.
    """
    return describers[type(value)](value)


def is_array_type(type_: type) -> bool:
    """Return whether objects of a type are passed to kernels as pointers."""
    return _find_describer(type_) is not None


def is_array(value: Any) -> bool:
    """Return whether an object is passed to kernels as a pointer.

    Either its type or the object itself must implement an array protocol.
    """
    return is_array_type(type(value)) or _instance_describer(value) is not None


def launch_value(value: Any) -> Any:
    """Return the launcher's value for an array: the array itself, or an :class:`ArrayView`."""
    convert = array_kind(value).convert
    return value if convert is None else convert(value)


def address_of(value: Any) -> int:
    """Return the address of an array's first element.

    Raises:
        ArgumentError: see :func:`array_kind`.
    """
    data_ptr = getattr(value, "data_ptr", None)
    if data_ptr is not None:
        return int(data_ptr())
    if is_numpy_array(value):
        return _numpy_address(value)
    converted = launch_value(value)
    return _numpy_address(converted) if converted is value else int(converted.data_ptr())


# ---- NumPy

_numpy: Any = None
_c_pointer = ctypes.c_void_p


def is_numpy_array(value: Any) -> bool:
    """Return whether a value is a NumPy array; does not import NumPy."""
    return _numpy is not None and isinstance(value, _numpy.ndarray)


def _numpy_address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _header_address(array: Any) -> int:
    # PyArrayObject_fields of NumPy's stable C ABI: the object header, then the data pointer. Seven
    # times faster than __array_interface__.
    return _c_pointer.from_address(id(array) + _HEADER).value or 0


_HEADER = object.__basicsize__


def numpy_address(array: Any) -> int:
    """Return the address of the first element of a NumPy array."""
    return _numpy_address(array)


def _numpy_describer() -> Callable[[Any], ArrayKind]:
    """Return the describer of NumPy arrays; imports NumPy."""
    global _numpy, _numpy_address
    import numpy

    _numpy = numpy
    if sys.implementation.name == "cpython":
        probes = [numpy.empty(5, numpy.int8)[offset:] for offset in range(3)]
        if all(_header_address(probe) == probe.__array_interface__["data"][0] for probe in probes):
            _numpy_address = _header_address
    kinds: dict[Any, tuple[ArrayKind, ArrayKind]] = {}
    address_of_array = _numpy_address
    mask = ALIGNMENT - 1

    def describe_numpy(array: Any) -> ArrayKind:
        found = kinds.get(array.dtype)
        if found is None:
            found = kinds[array.dtype] = _both(_element(array, array.dtype), ("cpu", 0))
        return found[0] if address_of_array(array) & mask else found[1]

    return describe_numpy


# ---- objects with data_ptr()


def _pointer_describer() -> Callable[[Any], ArrayKind]:
    kinds: dict[Any, tuple[ArrayKind, ArrayKind]] = {}
    mask = ALIGNMENT - 1

    def describe_pointer(value: Any) -> ArrayKind:
        try:
            device = getattr(value, "device", _UNSTATED)
            if device is _UNSTATED:
                device = _place_of(value)
            try:
                found = kinds.get((value.dtype, device))
                if found is None:
                    found = kinds[value.dtype, device] = _both(
                        _element(value, value.dtype), _device(device)
                    )
            except TypeError as error:
                if "unhashable" not in str(error):
                    raise
                found = _both(_element(value, value.dtype), _device(device))
            address = value.data_ptr()
            if not address and found[1].device is not None:
                _refuse_no_memory(value)
            return found[0] if address & mask else found[1]
        except ArgumentError:
            raise
        except Exception as error:
            raise _unreadable(value, error) from error

    return describe_pointer


#: Sentinel for the device of an object that does not name its device.
_UNSTATED = object()


def _place_of(value: Any) -> tuple[str, int]:
    """Return the device of an object's memory as the drivers report it.

    Raises:
        ArgumentError: no driver can be asked.
    """
    from tilewright.runtime.arguments.pointer_device import place_of

    found = place_of(int(value.data_ptr()))
    if found is None:
        name = type(value).__name__
        raise ArgumentError(
            f"cannot pass this {name} to a kernel: it has data_ptr() and dtype but does not say "
            f"where its memory lies, and there is no device whose driver could tell. Give {name} "
            "an attribute `device`, such as 'cpu' or 'cuda:0'"
        )
    return found


def _refuse_no_memory(value: Any) -> None:
    """Refuse an array at address 0 unless it is empty."""
    count = getattr(value, "numel", None) or getattr(value, "size", None)
    if callable(count):
        count = count()
    if count != 0:
        raise _no_memory(value)


def _no_memory(value: Any) -> ArgumentError:
    """Make the error for elements at address 0."""
    return ArgumentError(
        f"cannot pass this {type(value).__name__} to a kernel: it has no memory (a tensor that is "
        "only traced, or on the meta device)"
    )


def _unreadable(value: Any, error: Exception) -> ArgumentError:
    """Make the error for an array whose own attributes raise."""
    layout = getattr(value, "layout", None)
    hint = (
        f"; its layout is {layout}: pass its parts (indices, values), or a dense copy"
        if "sparse" in str(layout) or "mkldnn" in str(layout)
        else ""
    )
    return ArgumentError(
        f"cannot pass this {type(value).__name__} to a kernel: it does not tell where its memory "
        f"is ({type(error).__name__}: {error}){hint}"
    )


def _both(dtype: str, device: tuple[str, int] | None) -> tuple[ArrayKind, ArrayKind]:
    return ArrayKind(dtype, False, device), ArrayKind(dtype, True, device)


def _element(value: Any, dtype: Any) -> str:
    try:
        return dtype_text(dtype)
    except TypeError as error:
        raise ArgumentError(
            f"cannot pass this {type(value).__name__} to a kernel: {error}"
        ) from None


def _device(device: Any) -> tuple[str, int] | None:
    """Convert a ``device`` attribute to (kind, index).

    It is None, text such as ``"cuda:1"``, or an object with ``type`` and ``index``.
    """
    if device is None:
        return None
    if isinstance(device, tuple):
        return device
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        return _torch_kind(kind), int(index or 0)
    return _torch_kind(str(getattr(device, "type", device))), int(
        getattr(device, "index", None) or 0
    )


def _torch_kind(kind: str) -> str:
    """Return the device kind of a PyTorch device type; its ROCm build says ``cuda`` too."""
    if kind == "cuda":
        version = getattr(sys.modules.get("torch"), "version", None)
        if getattr(version, "hip", None):
            return "hip"
    return kind


# ---- the interfaces and DLPack
# vendors: DLPack, PyTorch and JAX name kinds of devices after them

#: DLDeviceType -> device kind; pinned host memory is the host's, managed memory the device's
_DLPACK_KINDS = {
    1: "cpu",
    2: "cuda",
    3: "cpu",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "hip",
    11: "cpu",
    13: "cuda",
    14: "oneapi",
}
#: Device kind -> (the platform that XLA has functions for it under, what the version of its client
#: says: nothing of CPUs)
XLA_PLATFORMS = {"cpu": ("cpu", ""), "cuda": ("CUDA", "cuda"), "hip": ("ROCM", "rocm")}


def _interface_view(value: Any, interface: Mapping[str, Any], device: tuple[str, int]) -> ArrayView:
    typestr = str(interface["typestr"])
    native = "<" if sys.byteorder == "little" else ">"
    if typestr[0] not in (native, "|", "="):
        raise ArgumentError(
            f"cannot pass this {type(value).__name__} to a kernel: its elements ({typestr}) are "
            "not in the machine's byte order; convert it first"
        )
    dtype = FROM_TYPESTR.get(typestr[1:])
    if dtype is None:
        raise ArgumentError(
            f"cannot pass this {type(value).__name__} to a kernel: elements of type {typestr!r} "
            "have no counterpart in kernels"
        )
    shape = tuple(int(extent) for extent in interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        from tilewright.runtime.arguments.dlpack import contiguous_strides

        steps = contiguous_strides(shape)
    else:
        steps = tuple(int(stride) // ITEM_SIZE[dtype] for stride in strides)
    data = interface.get("data")
    if data is None:
        raise ArgumentError(
            f"cannot pass this {type(value).__name__} to a kernel: its array interface tells "
            "no address"
        )
    return ArrayView(
        value, int(data[0] or 0), dtype, shape, steps, device, len(data) > 1 and bool(data[1])
    )


def _host_view(value: Any) -> ArrayView:
    return _interface_view(value, value.__array_interface__, ("cpu", 0))


def _device_view(value: Any) -> ArrayView:
    """View an array whose type has the CUDA array interface.

    An array outside a GPU's memory, such as JAX's on the host, is described by DLPack.
    """
    place = ("cuda", 0)
    if hasattr(value, "__dlpack_device__"):
        code, index = (int(item) for item in value.__dlpack_device__())
        place = _dlpack_place(code, index)
        if place[0] == "cpu" or not hasattr(value, "__cuda_array_interface__"):
            return _dlpack_view(value)
    immutable = _is_immutable(value)
    if immutable and hasattr(value, "block_until_ready"):
        value.block_until_ready()  # it may be computed in a stream that launches do not wait for
    view = _interface_view(value, value.__cuda_array_interface__, place)
    view.readonly = view.readonly or immutable
    return view


def _dlpack_view(value: Any) -> ArrayView:
    from tilewright.runtime.arguments import dlpack

    try:
        exported = dlpack.read(value)
    except Exception as error:  # the protocol's own code may raise anything
        raise ArgumentError(
            f"cannot pass this {type(value).__name__} to a kernel: {error}"
        ) from error
    dtype = FROM_DLPACK.get((exported.type_code, exported.bits))
    if dtype is None:
        raise ArgumentError(
            f"cannot pass this {type(value).__name__} to a kernel: its DLPack elements, of code "
            f"{exported.type_code} and {exported.bits} bits, have no counterpart in kernels"
        )
    place = _dlpack_place(exported.device_type, exported.device_index)
    readonly = exported.readonly or _is_immutable(value)
    return ArrayView(
        (exported.owner, value),
        exported.address,
        dtype,
        exported.shape,
        exported.strides,
        place,
        readonly,
    )


def _is_immutable(value: Any) -> bool:
    """Return whether an array's library has immutable arrays that it exports as writable."""
    return type(value).__module__.partition(".")[0] in _IMMUTABLE


#: Libraries whose arrays are immutable.
_IMMUTABLE = frozenset(("jax", "jaxlib"))


def _dlpack_place(code: int, index: int) -> tuple[str, int]:
    kind = _DLPACK_KINDS.get(code, f"dlpack-{code}")
    return kind, 0 if kind == "cpu" else index


def _view_describer(convert: Callable[[Any], ArrayView]) -> Callable[[Any], ArrayKind]:
    def describe_view(value: Any) -> ArrayKind:
        try:
            view = convert(value)
        except ArgumentError:
            raise
        except Exception as error:
            raise _unreadable(value, error) from error
        if not view.pointer and 0 not in view.shape:
            raise _no_memory(value)
        return ArrayKind(view.dtype, view.pointer % ALIGNMENT == 0, view.device, convert)

    return describe_view


# ---- by type


#: Functions from a type to a describer of its objects, or None; consulted first.
finders: list[Callable[[type], Callable[[Any], ArrayKind] | None]] = []


def _find_describer(type_: type) -> Callable[[Any], ArrayKind] | None:
    """Find the describer of a type's objects; None where the type does not make them arrays."""
    for finder in finders:
        found = finder(type_)
        if found is not None:
            return found
    if type_.__module__.partition(".")[0] == "numpy" or any(
        base.__module__ == "numpy" for base in type_.__mro__[:-1]
    ):
        numpy_describer = _numpy_describer()
        if issubclass(type_, _numpy.ndarray):
            return numpy_describer
        if issubclass(type_, _numpy.generic):
            return None  # a scalar, though it has an array interface
    return _by_attributes(type_)


def _by_attributes(holder: Any) -> Callable[[Any], ArrayKind] | None:
    """Return the describer of the first protocol that a type or an object has."""
    if hasattr(holder, "data_ptr"):
        return _pointer_describer()
    for attribute, convert in (
        ("__cuda_array_interface__", _device_view),
        ("__array_interface__", _host_view),
        ("__dlpack__", _dlpack_view),
    ):
        if hasattr(holder, attribute):
            return _view_describer(convert)
    return None


def _instance_describer(value: Any) -> Callable[[Any], ArrayKind] | None:
    """Find the describer of an object that implements a protocol itself; None where it does not."""
    return (
        None
        if isinstance(value, type) or (_numpy is not None and isinstance(value, _numpy.generic))
        else _by_attributes(value)
    )


def describe_instance(value: Any) -> ArrayKind | None:
    """Return the kind of an object that implements a protocol itself, though its type does not.

    None where it implements none.
    """
    found = _instance_describer(value)
    return None if found is None else found(value)


def _describe_unknown(value: Any) -> ArrayKind:
    found = describe_instance(value)
    if found is None:
        type_ = type(value)
        name = (
            type_.__qualname__
            if type_.__module__ == "builtins"
            else f"{type_.__module__}.{type_.__qualname__}"
        )
        raise ArgumentError(
            f"cannot pass a {name} to a kernel as memory: pass a NumPy array, a PyTorch tensor, or "
            "an object with data_ptr() and dtype, __array_interface__, __cuda_array_interface__ "
            "or __dlpack__"
        )
    return found


class _Describers(dict[type, Callable[[Any], ArrayKind]]):
    def __missing__(self, type_: type) -> Callable[[Any], ArrayKind]:
        found = self[type_] = _find_describer(type_) or _describe_unknown
        return found


#: type of object -> describer, which returns its kind
describers = _Describers()
