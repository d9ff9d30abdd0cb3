"""Machines that probes launch on: a backend with a device, or a target to compile for.

``machine(kernel)[grid](*args, **keywords)`` is ``kernel[grid](*args, **keywords)`` on that machine.
Arrays are NumPy's, changed in place wherever the device is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

import tilewright as tw
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import registry
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.mock_tensors import TensorWrapper
from tilewright.runtime.devices import device_registry
from tilewright.runtime.devices.backend_choice import ANY_DEVICE

Launch = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


class Machine(Protocol):
    """A machine that runs a probe's kernels.

    Attributes:
        backend: the backend's name.
        kind: the kind of device, as kernels ask for it: ``"cuda"``, ``"hip"``, ``"cpu"`` …
        features: what the backend declares.
        runs: kernels run on the device of ``backend``; where it is False they are compiled for it,
            and run on the reference.
    """

    backend: str
    kind: str
    features: frozenset[str]
    runs: bool

    def __call__(self, kernel: Any) -> Any: ...


class _Launcher:
    """``kernel`` on a machine."""

    def __init__(self, launch: Launch, kernel: Any) -> None:
        self._launch, self._kernel = launch, kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **keywords: self._launch(self._kernel, grid, args, keywords)


class BackendMachine:
    """The first device of a backend."""

    runs = True

    def __init__(self, name: str) -> None:
        self.backend = name
        found = registry().get(name)
        self._device = device_registry.find(found, None)
        self.kind, self.features = _facts(device_registry.target_of(found, self._device))
        on_host = self._device.kind == "cpu" or ANY_DEVICE in self.features
        self._memory = None if on_host else found.require("tilewright_memory", device=self._device)

    def __call__(self, kernel: Any) -> _Launcher:
        return _Launcher(self._run, kernel)

    def _run(self, kernel: Any, grid: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self._memory is None:
            with tw.backend(self.backend):
                return kernel[grid](*args, **keywords)
        copies = _Copies(self._memory, self._device)
        placed = [copies.place(value) for value in args]
        with tw.backend(self.backend):
            compiled = kernel[grid](
                *placed, **{name: copies.place(value) for name, value in keywords.items()}
            )
        self._memory.synchronize()
        copies.give_back()
        return compiled


class TargetMachine:
    """A target without a device: kernels are compiled for it, and the reference runs them."""

    runs = False

    def __init__(self, name: str, arch: str) -> None:
        found = registry().get(name)
        self.backend = name
        self._backend = found
        self._target: Target = device_registry.named_target(found, arch)
        self.kind, self.features = _facts(self._target)
        self._reference = BackendMachine("reference")

    def __call__(self, kernel: Any) -> _Launcher:
        return _Launcher(self._run, kernel)

    def _run(self, kernel: Any, grid: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        self.compile(kernel, args, keywords)
        return self._reference(kernel)[grid](*args, **keywords)

    def compile(self, kernel: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The artifact of a kernel for the arguments of a launch."""
        from tilewright.runtime.compiler.compile import Specialization, compile_kernel
        from tilewright.runtime.compiler.specialize import Signature
        from tilewright.runtime.options import resolve

        plain = kernel
        while not hasattr(plain, "bind"):  # autotuners and heuristics stand around the kernel
            plain = plain.fn
        bound, kinds, options = plain.bind(*args, **keywords)
        signature = Signature.of(plain.params, kinds, bound)
        resolved = resolve(
            self._backend, plain.__name__, options, {"debug": True} if plain.debug else {}
        )
        return compile_kernel(
            Specialization(
                plain, signature.types, signature.constants, signature.attributes, resolved
            ),
            self._backend,
            self._target,
        )


def _facts(target: Target) -> tuple[str, frozenset[str]]:
    """The kind of device and the features that are declared for a target."""
    return target.kind, frozenset() if target.capabilities is None else target.capabilities.features


class _OnDevice:
    """The copy of a NumPy array on a device."""

    def __init__(self, buffer: Any, dtype: Any, device: str) -> None:
        self._buffer, self.dtype, self.device = buffer, dtype, device
        self.itemsize = dtype.itemsize

    def data_ptr(self) -> int:
        return int(self._buffer.data_ptr())


class _Copies:
    """The arrays of one launch on a device. An array that is given twice lies at one place."""

    def __init__(self, memory: Any, device: Device) -> None:
        self._memory, self._device = memory, device
        self._placed: dict[int, tuple[np.ndarray[Any, Any], Any, _OnDevice]] = {}

    def place(self, value: Any) -> Any:
        """Return a probe's argument as the kernel takes it, with its arrays on the machine."""
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, TensorWrapper):
            return tw.reinterpret(self._array(value.base), value.dtype)
        if isinstance(value, TensorDescriptor):
            return TensorDescriptor(
                self.place(value.base),
                list(value.shape),
                list(value.strides),
                list(value.block_shape),
                value.padding,
            )
        if isinstance(value, tuple):
            items = [self.place(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def _array(self, array: np.ndarray[Any, Any]) -> _OnDevice:
        found = self._placed.get(id(array))
        if found is None:
            buffer = self._memory.allocate(max(16, array.nbytes), 256)
            self._memory.copy_to_device(buffer, _bytes_of(np.ascontiguousarray(array)))
            found = self._placed[id(array)] = (
                array,
                buffer,
                _OnDevice(buffer, array.dtype, f"{self._device.kind}:{self._device.index}"),
            )
        return found[2]

    def give_back(self) -> None:
        """Copy what the kernel left to the arrays of the host."""
        for array, buffer, _ in self._placed.values():
            result = np.empty(array.shape, array.dtype)
            self._memory.copy_to_host(buffer, _bytes_of(result))
            if array.flags.writeable:
                array[...] = result


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
