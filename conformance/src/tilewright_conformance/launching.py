"""Launching a kernel on the reference and on a device, and comparing what the two leave in the arrays.

The arrays are NumPy's. On the device ``cpu`` the kernel works on them in place; on ``cuda`` it works on copies, tensors of PyTorch, that are copied back.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.errors import TilewrightError

#: Options that keep a device to functions as exact as the shared ones.
_EXACT = {"cpu": {}, "cuda": {"math": "strict"}}


class Addresses:
    """An argument that is a table of pointers (64-bit integers) to arrays, wherever these lie when the kernel runs."""

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        self.arrays = tuple(arrays)


class _Memory:
    """The arrays of one launch, placed where the kernel runs. An array given twice lies at one place."""

    def __init__(self) -> None:
        self.placed: dict[int, tuple[np.ndarray[Any, Any], Any]] = {}

    def place(self, value: Any) -> Any:
        """What the kernel is given for an argument."""
        if isinstance(value, Addresses):
            return self.table(np.array([self.address(self.place(array)) for array in value.arrays], np.int64))
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in self.placed:
            self.placed[id(value)] = value, self.put(value)
        return self.placed[id(value)][1]

    def results(self) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Every array that was given, with what it holds after the launch."""
        return [(array, self.get(array, placed)) for array, placed in self.placed.values()]

    def table(self, addresses: np.ndarray[Any, Any]) -> Any:
        return addresses

    def address(self, placed: Any) -> int:
        return int(placed.ctypes.data)

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        return array

    def get(self, array: np.ndarray[Any, Any], placed: Any) -> np.ndarray[Any, Any]:
        return np.asarray(placed)


class _Copies(_Memory):
    def put(self, array: np.ndarray[Any, Any]) -> Any:
        return array.copy()


class _Tensors(_Memory):
    """PyTorch's tensors on a GPU. Formats that NumPy lacks travel as their bits."""

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        import torch

        bits = torch.from_numpy(np.ascontiguousarray(array).view(_bits(array.dtype))).to("cuda")
        return bits if bits.dtype == _torch_dtype(array.dtype) else bits.view(_torch_dtype(array.dtype))

    def get(self, array: np.ndarray[Any, Any], placed: Any) -> np.ndarray[Any, Any]:
        import torch

        bits = placed.view(getattr(torch, _bits(array.dtype).name)).cpu().numpy()
        return np.asarray(bits.view(array.dtype))

    def table(self, addresses: np.ndarray[Any, Any]) -> Any:
        return self.put(addresses)

    def address(self, placed: Any) -> int:
        return int(placed.data_ptr())


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype itself where PyTorch and NumPy share it, else integers of its size."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"i{dtype.itemsize}")


def _torch_dtype(dtype: np.dtype[Any]) -> Any:
    import torch

    return getattr(torch, "bool" if dtype.kind == "b" else dtype.name)


class Launch:
    """``launch(kernel, grid, *args, **options)``: runs on copies with the reference, then on the device, which changes the arrays themselves.

    Args:
        device: ``"cpu"``, or ``"cuda"`` for the first NVIDIA GPU.
    """

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self, kernel: Any, grid: tuple[int, ...], *args: Any, rtol: float = 1e-5, atol: float = 1e-5, exact: bool = False, **options: Any) -> None:
        """Launch twice and compare.

        Args:
            rtol, atol: how far the floats of the two may be apart; everything else is equal.
            exact: the device's functions may not be less accurate than the shared ones.

        Raises:
            AssertionError: an array differs; says which.
        """
        reference, device = _Copies(), _Tensors() if self.device == "cuda" else _Memory()
        with tw.backend("reference"), np.errstate(all="ignore"):
            kernel[grid](*map(reference.place, args), **options)
        self._run(kernel, grid, tuple(map(device.place, args)), {**options, **(_EXACT[self.device] if exact else {})})
        for position, ((array, expected), (_, found)) in enumerate(zip(reference.results(), device.results(), strict=True)):
            if found is not array:
                array[...] = found
            message = f"array {position} of the arguments: {self.device} and reference differ"
            if array.dtype.kind == "f":
                np.testing.assert_allclose(array, expected, rtol=rtol, atol=atol, err_msg=message)
            elif array.dtype.isbuiltin == 2:  # a float that NumPy does not know as one: its NaN would not equal itself
                np.testing.assert_array_equal(array.astype(np.float64), expected.astype(np.float64), err_msg=message)
            else:
                np.testing.assert_array_equal(array, expected, err_msg=message)

    def _run(self, kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if self.device == "cpu":
            with tw.backend("cpu"):
                kernel[grid](*args, **options)
        else:  # the device is that of the tensors
            kernel[grid](*args, **options)


def gpu_is_there() -> bool:
    """Whether there is a GPU of NVIDIA, the backend for it, and PyTorch to hold the arrays."""
    from tilewright.plugins.registry import registry

    if importlib.util.find_spec("torch") is None:
        return False
    try:
        found = registry().get("nvidia")
        if found.manifest.status or not found.call("tilewright_devices"):
            return False
    except TilewrightError:
        return False
    import torch

    return bool(torch.cuda.is_available())
