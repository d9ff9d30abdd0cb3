"""The frameworks whose arrays operations take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.runtime.arguments.array_protocols import numpy_address


class Framework(Protocol):
    """Memory of a framework."""

    name: str

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of arbitrary elements on the device of ``beside``.

        ``dtype`` is a name of the language, such as ``"float32"``, or the ``dtype`` of an array.
        """

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of zeros on the device of ``beside``."""

    def array_type(self) -> type:
        """Return the type of arrays."""

    def dtype(self, dtype: Any) -> Any:
        """Return the framework's element type of a name, or of its own."""

    def is_contiguous(self, array: Any) -> bool:
        """Return whether the elements of an array lie row by row without gaps."""

    def converted(self, array: Any, dtype: Any) -> Any:
        """Return an array, or a number of its library, as an array of an element type."""

    def copy(self, target: Any, source: Any) -> None:
        """Copy the elements of an array to another one.

        Raises:
            TypeError: arrays do not change.
        """

    def fill(self, array: Any, value: Any) -> None:
        """Set all elements of an array."""

    def memory(self, array: Any) -> tuple[int, int]:
        """Return the addresses of the memory that an array is a view of: first, and past it."""

    def address(self, array: Any) -> int:
        """Return the address of the first element."""

    def mark_changed(self, arrays: Sequence[Any]) -> None:
        """Tell the framework that a kernel has changed arrays."""

    def why_no_result(self, array: Any) -> str | None:
        """Return the reason why results cannot be stored to an array; None if they can."""


class NumPyFramework:
    """NumPy's arrays."""

    name = "numpy"

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of arbitrary elements."""
        return np.empty(shape, self.dtype(dtype))

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of zeros."""
        return np.zeros(shape, self.dtype(dtype))

    def allocator(self, shape: Sequence[int], dtype: Any, beside: Any) -> Callable[[Any], Any]:
        """Return a function that does what :meth:`empty` does for arrays like ``beside``."""
        shape, dtype = tuple(shape), self.dtype(dtype)
        return lambda beside: np.empty(shape, dtype)

    def array_type(self) -> type:
        """Return the type of arrays."""
        return np.ndarray

    def dtype(self, dtype: Any) -> Any:
        """Return NumPy's element type of a name, or of its own."""
        if isinstance(dtype, str) and (dtype == "bfloat16" or dtype.startswith("float8")):
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, dtype))
        return np.dtype(dtype)

    def is_contiguous(self, array: Any) -> bool:
        """Return whether the elements of an array lie row by row without gaps."""
        return bool(array.flags.c_contiguous)

    def converted(self, array: Any, dtype: Any) -> Any:
        """Return an array or a number of NumPy as an array of an element type."""
        return np.asarray(array).astype(self.dtype(dtype), copy=False)

    def copy(self, target: Any, source: Any) -> None:
        """Copy the elements of an array to another one."""
        target[...] = source

    def fill(self, array: Any, value: Any) -> None:
        """Set all elements of an array."""
        array.fill(value)

    def memory(self, array: Any) -> tuple[int, int]:
        """Return the addresses of the memory that an array is a view of: first, and past it."""
        while isinstance(array.base, np.ndarray):
            array = array.base
        return np.lib.array_utils.byte_bounds(array)

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        return numpy_address(array)

    def mark_changed(self, arrays: Sequence[Any]) -> None:
        """Do nothing: NumPy does not track changes."""

    def why_no_result(self, array: Any) -> str | None:
        """Return the reason why results cannot be stored to an array; None if they can."""
        return None if array.flags.writeable else "is read-only: pass a writable array, or a copy"


class TorchFramework:
    """PyTorch's tensors."""

    name = "torch"

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return a tensor of arbitrary elements on the device of ``beside``."""
        return self.allocator(shape, dtype, beside)(beside)

    def allocator(self, shape: Sequence[int], dtype: Any, beside: Any) -> Callable[[Any], Any]:
        """Return a function that does what :meth:`empty` does, in little time.

        It takes tensors of the device, element type, shape and strides of ``beside``.
        """
        shape, dtype = tuple(shape), self.dtype(dtype)
        if dtype is not beside.dtype:
            return lambda beside: beside.new_empty(shape, dtype=dtype)
        if shape == beside.shape and beside.is_contiguous():
            empty_like: Callable[[Any], Any] = sys.modules["torch"].empty_like
            return empty_like
        return lambda beside: beside.new_empty(shape)

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return a tensor of zeros on the device of ``beside``."""
        return beside.new_zeros(shape, dtype=self.dtype(dtype))

    def array_type(self) -> type:
        """Return the type of tensors."""
        found: type = sys.modules["torch"].Tensor
        return found

    def dtype(self, dtype: Any) -> Any:
        """Return PyTorch's element type of a name, or of its own."""
        return getattr(sys.modules["torch"], dtype) if isinstance(dtype, str) else dtype

    def is_contiguous(self, array: Any) -> bool:
        """Return whether the elements of a tensor lie row by row without gaps."""
        return bool(array.is_contiguous())

    def converted(self, array: Any, dtype: Any) -> Any:
        """Return a tensor as one of an element type."""
        return array.to(self.dtype(dtype))

    def copy(self, target: Any, source: Any) -> None:
        """Copy the elements of a tensor to another one."""
        target.copy_(source)

    def fill(self, array: Any, value: Any) -> None:
        """Set all elements of a tensor."""
        array.fill_(value)

    def memory(self, array: Any) -> tuple[int, int]:
        """Return the addresses of the storage of a tensor: first, and past it."""
        storage = array.untyped_storage()
        first = storage.data_ptr()
        return first, first + storage.nbytes()

    def address(self, array: Any) -> int:
        """Return the address of the first element."""
        return int(array.data_ptr())

    def mark_changed(self, arrays: Sequence[Any]) -> None:
        """Count a change, by which autograd finds saved tensors that are no longer what was saved.

        Tensors of inference mode have no count.
        """
        tracked = [each for each in arrays if not each.is_inference()]
        if tracked:
            sys.modules["torch"].autograd.graph.increment_version(tracked)

    def why_no_result(self, array: Any) -> str | None:
        """Return the reason why results cannot be stored to a tensor; None if they can."""
        if array.requires_grad and sys.modules["torch"].is_grad_enabled():
            return (
                "requires a gradient, and out= does not support automatic differentiation: call "
                "the operation within torch.no_grad(), or without out="
            )
        return None


_NO_CHANGES = "arrays of JAX do not change: call functions that return new arrays, without out="


class JaxFramework:
    """JAX's arrays, traced or not: shapes stand for memory."""

    name = "jax"

    def empty(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return the shape and the element type of an array that a kernel will make."""
        import jax

        return jax.ShapeDtypeStruct(tuple(shape), self.dtype(dtype))

    def zeros(self, shape: Sequence[int], dtype: Any, beside: Any) -> Any:
        """Return an array of zeros."""
        import jax.numpy as jnp

        return jnp.zeros(tuple(shape), self.dtype(dtype))

    def dtype(self, dtype: Any) -> Any:
        """Return JAX's element type of a name, or of its own: of 32 bits where it has no others."""
        import jax

        return jax.dtypes.canonicalize_dtype(dtype)

    def converted(self, array: Any, dtype: Any) -> Any:
        """Return an array as one of an element type."""
        return array.astype(self.dtype(dtype))

    def copy(self, target: Any, source: Any) -> None:
        """Refuse: arrays do not change.

        Raises:
            TypeError: always.
        """
        raise TypeError(_NO_CHANGES)

    def fill(self, array: Any, value: Any) -> None:
        """Refuse: arrays do not change.

        Raises:
            TypeError: always.
        """
        raise TypeError(_NO_CHANGES)


NUMPY, TORCH, JAX = NumPyFramework(), TorchFramework(), JaxFramework()


def _numpy_signature(array: Any) -> tuple[Any, ...]:
    return array.shape, array.strides, array.dtype, numpy_address(array)


def _torch_signature(array: Any) -> tuple[Any, ...]:
    return (
        array.shape,
        array.stride(),
        array.dtype,
        array.device,
        array.requires_grad,
        array.data_ptr(),
    )


#: Exact type of an array -> all that launches depend on about one, last the address of its first
#: element. Subclasses of tensors are not among them, for they may stand for anything.
SIGNATURES: dict[type, Callable[[Any], tuple[Any, ...]]] = {np.ndarray: _numpy_signature}


def framework_of(array: Any) -> Any:
    """Return the framework that an array is of: :data:`NUMPY`, :data:`TORCH` or :data:`JAX`.

    Raises:
        TypeError: it is of none.
    """
    if isinstance(array, np.ndarray):
        return NUMPY
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if torch.Tensor not in SIGNATURES and not torch.compiler.is_compiling():
            SIGNATURES.update(dict.fromkeys((torch.Tensor, torch.nn.Parameter), _torch_signature))
        return TORCH
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.Array):
        return JAX
    raise TypeError(
        f"operations take tensors of PyTorch, and arrays of NumPy and JAX, not a "
        f"{type(array).__module__}.{type(array).__qualname__}: convert it, for example with "
        "numpy.asarray"
    )


def dtype_name(dtype: Any) -> str:
    """Return the name of an element type of any framework, such as ``"float32"``.

    Raises:
        TypeError: it is no element type.
    """
    if isinstance(dtype, str):
        return dtype
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    try:
        return np.dtype(dtype).name
    except TypeError:
        raise TypeError(
            f"an element type is a name such as 'float32', or a dtype of NumPy, PyTorch or JAX, "
            f"not {dtype!r}"
        ) from None


def strides(array: Any) -> tuple[int, ...]:
    """Return the strides of an array in elements."""
    stride = getattr(array, "stride", None)
    if stride is not None:
        return tuple(stride())
    if isinstance(array, np.ndarray):
        return tuple(each // array.itemsize for each in array.strides)
    found: list[int] = []
    step = 1
    for extent in reversed(array.shape):
        found.append(step)
        step *= extent
    return tuple(reversed(found))
