"""Host arrays as arrays of an emulated device that shares the host's memory.

    with host_arrays(emulate("gfx942", shared=True)):
        program(torch.randn(100))           # its kernels run on the emulated device

What a kernel is given, what ``torch.empty`` and ``torch.zeros`` allocate, and every tensor whose
address a program asks for (:meth:`torch.Tensor.data_ptr`), is shared with the device as a whole
allocation.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.runtime.arguments.array_protocols import ArrayKind, ArrayView, describers

if TYPE_CHECKING:
    from tilewright_amd_emulator.hip.hip_runtime import EmulatedDevice

_PLACE = ("hip", 0)


@contextlib.contextmanager
def host_arrays(device: EmulatedDevice) -> Iterator[None]:
    """Use NumPy arrays, and CPU tensors of PyTorch if it is imported, as arrays of ``device``.

    The device's memory must be shared. Enter the context before the first launch."""
    share = device.share
    torch = sys.modules.get("torch")
    types: list[tuple[type, Callable[[Any], tuple[int, int]]]] = [(np.ndarray, _of_array)]
    if torch is not None:
        types += [(torch.Tensor, _of_tensor), (torch.nn.Parameter, _of_tensor)]
    before = {type_: describers[type_] for type_, _ in types}
    for type_, extent in types:
        describers[type_] = _describer(before[type_], extent, share)
    try:
        with _addresses(torch, share) if torch is not None else contextlib.nullcontext():
            yield
    finally:
        describers.update(before)


def _describer(
    describe: Callable[[Any], ArrayKind],
    extent: Callable[[Any], tuple[int, int]],
    share: Callable[[int, int], None],
) -> Callable[[Any], ArrayKind]:
    """``describe``, with the device in the host's place."""

    @functools.cache
    def view(dtype: str) -> Callable[[Any], ArrayView]:
        def shared(value: Any) -> ArrayView:
            share(*extent(value))
            strides = (
                tuple(step // value.itemsize for step in value.strides)
                if isinstance(value, np.ndarray)
                else tuple(value.stride())
            )
            pointer = value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()
            readonly = isinstance(value, np.ndarray) and not value.flags.writeable
            return ArrayView(value, pointer, dtype, tuple(value.shape), strides, _PLACE, readonly)

        return shared

    def kind(value: Any) -> ArrayKind:
        found = describe(value)
        if found.device != ("cpu", 0):
            return found
        share(*extent(value))
        return ArrayKind(found.dtype, found.divisible, _PLACE, view(found.dtype))

    return kind


def _of_array(value: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Address and bytes of all memory that an array is a view of."""
    while isinstance(value.base, np.ndarray):
        value = value.base
    low, high = np.lib.array_utils.byte_bounds(value)
    return low, high - low


def _of_tensor(value: Any) -> tuple[int, int]:
    storage = value.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


@contextlib.contextmanager
def _addresses(torch: Any, share: Callable[[int, int], None]) -> Iterator[None]:
    """Share the tensors whose address a program reads, and those that it allocates.

    The program may store the address in another tensor, for its kernels to read. Launchers read
    addresses of scratch memory themselves.
    """
    plain = torch._C.TensorBase.data_ptr
    allocators = {name: getattr(torch, name) for name in ("empty", "zeros")}

    def sharing(allocate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(allocate)
        def allocated(*sizes: Any, **options: Any) -> Any:
            tensor = allocate(*sizes, **options)
            if tensor.device.type == "cpu":
                share(*_of_tensor(tensor))
            return tensor

        return allocated

    def data_ptr(self: Any) -> int:
        if self.device.type == "cpu":
            share(*_of_tensor(self))
        return int(plain(self))

    torch.Tensor.data_ptr = data_ptr
    for name, allocate in allocators.items():
        setattr(torch, name, sharing(allocate))
    try:
        yield
    finally:
        del torch.Tensor.data_ptr
        for name, allocate in allocators.items():
            setattr(torch, name, allocate)
