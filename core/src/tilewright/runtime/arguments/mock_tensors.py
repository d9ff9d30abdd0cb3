"""Mock tensors without memory for ahead-of-time compilation, and reinterpreted tensors."""

from __future__ import annotations

import math
from typing import Any

from tilewright.runtime.arguments.array_protocols import address_of
from tilewright.runtime.arguments.dlpack import contiguous_strides
from tilewright.runtime.arguments.dtypes import ITEM_SIZE, dtype_text
from tilewright.runtime.arguments.writability import is_writable


class MockTensor:
    """A mock of a tensor; pass it as an argument to compile a kernel without running it.

    Example: ``kernel.warmup(MockTensor(tl.float32), 128, grid=(1,))``.

    A mock has no memory. The compiler assumes that the mock's address is a multiple of 16, and that
    the mock is on the device that the kernel is compiled for.

    Args:
        dtype: an element type of any library, or its name.
        shape: the shape, which is needed only for a descriptor of the mock.
    """

    device = None
    #: the element type that was passed in place of a tensor; None where a mock was passed
    given: Any = None

    def __init__(self, dtype: Any, shape: tuple[int, ...] | None = None) -> None:
        self.dtype = dtype
        self.shape = (1,) if shape is None else tuple(shape)

    @staticmethod
    def wrap_dtype(value: Any) -> Any:
        """Wrap a bare element type in a mock; return anything else unchanged."""
        if not _ARE_DTYPES[type(value)] and not (
            isinstance(value, type) and value.__module__ in ("numpy", "ml_dtypes")
        ):
            return value
        found = MockTensor(value)
        found.given = value
        return found

    def data_ptr(self) -> int:
        return 0

    def ptr_range(self) -> int:
        return 0

    def element_size(self) -> int:
        return ITEM_SIZE[dtype_text(self.dtype)]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.element_size()

    def stride(self, dim: int | None = None) -> Any:
        """Return the row-major strides in elements."""
        strides = contiguous_strides(self.shape)
        return strides if dim is None else strides[dim]

    def __repr__(self) -> str:
        return f"MockTensor({self.dtype}, {self.shape})"


class _AreDtypes(dict[type, bool]):
    """Cache of whether the instances of a type are element types, of any library."""

    def __missing__(self, type_: type) -> bool:
        found = self[type_] = any(base.__name__ == "dtype" for base in type_.__mro__)
        return found


_ARE_DTYPES = _AreDtypes()


class TensorWrapper:
    """A view of a tensor whose elements are reinterpreted as another type of the same size.

    The function :func:`reinterpret` creates a view of this class. The view has the memory, the
    shape, the strides and the device of the original tensor, which is its attribute ``base``.
    """

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base = base
        self.dtype = dtype

    @property
    def device(self) -> Any:
        """The base's; an AttributeError where that does not say where it lies."""
        if hasattr(self.base, "data_ptr"):
            return self.base.device
        return getattr(self.base, "device", "cpu")

    @property
    def shape(self) -> Any:
        return self.base.shape

    @property
    def data(self) -> Any:
        """The base's ``data``, unless another was set, which changes nothing else."""
        return self.__dict__.get("_data", self.base.data)

    @data.setter
    def data(self, value: Any) -> None:
        self.__dict__["_data"] = value

    @property
    def nbytes(self) -> int:
        return int(self.base.nbytes)

    @property
    def readonly(self) -> bool:
        return not is_writable(self.base)

    def data_ptr(self) -> int:
        return address_of(self.base)

    def ptr_range(self) -> int:
        """Return the size in bytes of the storage behind the tensor."""
        return int(self.base.ptr_range()) if hasattr(self.base, "ptr_range") else self.nbytes

    def stride(self, *args: Any) -> Any:
        """Strides in elements."""
        if hasattr(self.base, "stride"):
            return self.base.stride(*args)
        strides = tuple(stride // self.base.itemsize for stride in self.base.strides)
        return strides[args[0]] if args else strides

    def element_size(self) -> int:
        return (
            int(self.base.element_size())
            if hasattr(self.base, "element_size")
            else int(self.base.itemsize)
        )

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(
            self.base.cpu() if hasattr(self.base, "cpu") else self.base, self.dtype
        )

    def copy_(self, other: TensorWrapper) -> TensorWrapper:
        """Copy the other tensor's contents into this one."""
        if hasattr(self.base, "copy_"):
            self.base.copy_(other.base)
        else:
            self.base[...] = other.base
        return self

    def clone(self) -> TensorWrapper:
        return TensorWrapper(
            self.base.clone() if hasattr(self.base, "clone") else self.base.copy(), self.dtype
        )

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, sizes: Any) -> TensorWrapper:
        """Allocate an uninitialized tensor of this element type on the same device."""
        if hasattr(self.base, "new_empty"):
            return TensorWrapper(self.base.new_empty(sizes), self.dtype)
        import numpy as np

        return TensorWrapper(np.empty(sizes, self.base.dtype), self.dtype)

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """Reinterpret the elements of ``tensor`` as another type of the same size.

    The argument ``dtype`` may be an element type of Tilewright, NumPy, PyTorch or another array
    library. If the tensor already has the type ``dtype``, the function returns the tensor itself.
    Otherwise, the function returns a :class:`TensorWrapper` that shares the memory of ``tensor``.

    Raises:
        TypeError: ``tensor`` is not an array, or the sizes differ.
    """
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not hasattr(base, "dtype") or not (
        hasattr(base, "data_ptr") or hasattr(base, "__array_interface__")
    ):
        raise TypeError(f"Cannot reinterpret a {type(tensor)}.")
    wanted = dtype_text(dtype)
    size = int(base.element_size()) if hasattr(base, "element_size") else int(base.itemsize)
    if ITEM_SIZE[wanted] != size:
        raise TypeError(
            f"cannot reinterpret elements of {size} bytes as {wanted}, which takes "
            f"{ITEM_SIZE[wanted]}"
        )
    try:
        own = dtype_text(base.dtype)
    except TypeError:  # a base of a type kernels do not know, which is why it is reinterpreted
        own = ""
    return base if own == wanted else TensorWrapper(base, dtype)
