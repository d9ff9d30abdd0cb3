"""``triton.backends.driver``: each installed Tilewright backend's devices as a Triton driver."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tilewright.compat.triton.backends.launcher import Launcher
from tilewright.compat.triton.backends.targets import GPUTarget, target_of
from tilewright.compat.triton.backends.torch_devices import current_device, interface, torch_kind
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.errors import BackendError
from tilewright.plugins.manifest import CodeObject, Device, Target
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.devices import device_registry

#: Bytes that a benchmark writes to push everything else out of a cache.
_CACHE_BYTES = 256 << 20

#: Signature text -> C type.
C_TYPES = {
    "u1": "int8_t",
    "i1": "int8_t",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "fp16": "double",
    "bf16": "double",
    "fp32": "double",
    "f32": "double",
    "fp64": "double",
}


#: Kind of device -> C type of a pointer.
_POINTERS = {"cuda": "CUdeviceptr", "hip": "hipDeviceptr_t"}


class Benchmarker(Protocol):
    """Times a call: milliseconds, one per quantile."""

    def __call__(
        self, kernel_call: Callable[[], Any], *, quantiles: list[float], **kwargs: Any
    ) -> Sequence[float]: ...


class DriverBase(metaclass=ABCMeta):
    """The devices of one backend."""

    def __init__(self) -> None:  # noqa: B027 (subclasses need not call it)
        pass

    @classmethod
    @abstractmethod
    def is_active(cls) -> bool:
        """Return whether kernels run there by default."""

    @abstractmethod
    def map_python_to_cpp_type(self, ty: str) -> str:
        """The C type of an argument's signature text."""

    @abstractmethod
    def get_current_target(self) -> GPUTarget:
        """The target of the current device."""

    @abstractmethod
    def get_active_torch_device(self) -> Any:
        """The current device as PyTorch's."""

    @abstractmethod
    def get_benchmarker(self) -> Benchmarker:
        """Return the function that times calls."""

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> Any:
        """Memory for an instrumented kernel.

        Raises:
            OutsideNameError: kernels of Tilewright are not instrumented by Triton's profiler.
        """
        raise OutsideNameError(
            "no kernel of Tilewright needs profile scratch: Triton's instrumentation is not "
            "part of it"
        )


class GPUDriver(DriverBase):
    """The devices of a backend, with the current device and stream that PyTorch has."""

    def get_device_interface(self) -> Any:
        """PyTorch's module for the kind of device: ``torch.cuda``, ``torch.cpu``."""
        raise NotImplementedError(f"{type(self).__name__} must define get_device_interface()")

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        found: tuple[int, int] = self.get_device_interface().get_device_capability(device)
        return found

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args


class Utilities:
    """``driver.active.utils``: loading code, and facts of a device."""

    def __init__(self, driver: TilewrightDriver) -> None:
        self._driver = driver

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: int
    ) -> tuple[Any, Any, int, int, int]:
        """Load a kernel's code, ``compiled.kernel``.

        The result is (module, function, registers, spills, most threads).
        """
        code = CodeObject(name, kernel, {}, {"kernel": name, "shared": shared, "num_warps": 1})
        module = self._driver.backend().require(
            "tilewright_load", code=code, device=self._driver.device(device)
        )
        facts = [
            int(getattr(module, fact, 0) or 0) for fact in ("n_regs", "n_spills", "n_max_threads")
        ]
        return module, getattr(module, "function", module), facts[0], facts[1], facts[2]

    def unload_module(self, module: Any) -> None:
        """Loaded code is unloaded when nothing refers to it any more."""

    def set_printf_fifo_size(self, size: int) -> None:
        """Do nothing: output of kernels is passed on as they run; there is no queue to size."""

    def get_device_properties(self, device: int) -> dict[str, Any]:
        """Return facts of a device; those that the hardware's driver does not report are 0.

        Clock rates are in kHz, the bus width in bits.
        """
        return dict(_properties(self._driver, device))


class TilewrightDriver(GPUDriver):
    """The devices of one backend of Tilewright. Subclasses name it."""

    backend_name = ""
    launcher_cls: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.utils = Utilities(self)
        self.launcher_cls = Launcher

    @classmethod
    def backend(cls) -> Backend:
        return registry().get(cls.backend_name)

    @classmethod
    def has_devices(cls) -> bool:
        """Return whether kernels can run on this backend at all."""
        try:
            return _has_devices(cls.backend())
        except BackendError:
            return False

    @classmethod
    def is_active(cls) -> bool:
        """Return whether this is the backend that the environment names, or else the first usable.

        The variables are ``TRITON_DEFAULT_BACKEND`` and ``TRITON_CPU_BACKEND=1``; the first usable
        one has a device.
        """
        return cls.backend_name == active_backend_name()

    @classmethod
    def kind(cls) -> str:
        """The kind of the devices."""
        return cls.backend().manifest.device_kinds[0]

    def device(self, index: int | None = None) -> Device:
        """The device of an index; the current one for None."""
        return device_registry.find(
            self.backend(), (self.kind(), self.get_current_device() if index is None else index)
        )

    def target(self, index: int | None = None) -> Target:
        return device_registry.target_of(self.backend(), self.device(index))

    def get_current_target(self) -> GPUTarget:
        return target_of(self.target())

    # -- as PyTorch has it

    def get_device_interface(self) -> Any:
        import torch

        return getattr(torch, torch_kind(self.kind()))

    def get_current_device(self) -> int:
        return current_device(self.kind())

    def set_current_device(self, device: int) -> None:
        module = interface(self.kind())
        if module is not None:
            module.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        module = interface(self.kind())
        return 0 if module is None else int(module.current_stream(device).cuda_stream)

    def get_active_torch_device(self) -> Any:
        import torch

        kind = torch_kind(self.kind())
        return (
            torch.device(kind) if kind == "cpu" else torch.device(kind, self.get_current_device())
        )

    def map_python_to_cpp_type(self, ty: str) -> str:
        if ty.startswith("*"):
            return _POINTERS.get(self.kind(), "void*")
        if ty.startswith("tensordesc"):
            return "void*"
        return C_TYPES[ty]

    # -- benchmarks

    def get_benchmarker(self) -> Benchmarker:
        from tilewright.compat.triton.timing import do_bench

        return do_bench  # type: ignore[return-value]

    def get_empty_cache_for_benchmark(self) -> Any:
        """Memory larger than the device's caches; :meth:`clear_cache` overwrites it."""
        import torch

        return torch.empty(
            _CACHE_BYTES // 4, dtype=torch.int32, device=self.get_active_torch_device()
        )

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()


@functools.cache
def _properties(driver: TilewrightDriver, index: int) -> tuple[tuple[str, Any], ...]:
    device, target = driver.device(index), driver.target(index)
    facts, limits = device.properties, target.limits
    own = {
        "max_shared_mem": facts.get("shared_memory", limits.get("shared_memory", 0)),
        "multiprocessor_count": facts.get(
            "multiprocessors", facts.get("cores", os.cpu_count() or 1)
        ),
        "warpSize": target.warp_size,
        "max_num_regs": limits.get("registers", 0),
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }
    module = interface(driver.kind())
    if module is not None:
        known = module.get_device_properties(index)
        for name, theirs in (
            ("sm_clock_rate", "clock_rate"),
            ("mem_clock_rate", "memory_clock_rate"),
            ("mem_bus_width", "memory_bus_width"),
        ):
            own[name] = int(getattr(known, theirs, 0) or 0)
    return tuple(own.items())


def active_backend_name() -> str | None:
    """Return the default backend of kernels; None where none has a device.

    It counts where neither their arguments nor the program name one.

    ``TRITON_DEFAULT_BACKEND`` names it (a backend or a kind of target); ``TRITON_CPU_BACKEND=1`` is
    the CPU; else the first by priority that has a device.
    """
    named = os.environ.get("TRITON_DEFAULT_BACKEND") or (
        "cpu" if os.environ.get("TRITON_CPU_BACKEND") == "1" else ""
    )
    if named:
        return backend_called(named)
    for backend in registry().backends():
        if _has_devices(backend):
            return backend.name
    return None


def _has_devices(backend: Backend) -> bool:
    """Return whether a backend can run kernels here, or could but for a fork.

    The driver does not start anew in a process forked from one that uses the devices: such a
    process compiles for its parent, and PyTorch knows of the devices without the driver.
    """
    if backend.manifest.status:
        return False
    with contextlib.suppress(BackendError):
        if device_registry.devices(backend):
            return True
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    kind = "hip" if getattr(torch.version, "hip", None) else "cuda"
    return kind in backend.manifest.device_kinds and bool(torch.cuda.is_available())


def backend_called(name: str) -> str:
    """The name of a backend, from that or from the kind of devices that it is the default for."""
    if name in registry().names():
        return name
    return next((backend.name for backend in registry().for_device_kind(name)), name)


_NAMES_OUTSIDE = ("decompose_descriptor", "expand_signature", "wrap_handle_tensordesc_impl")


def __getattr__(name: str) -> Any:
    if name in _NAMES_OUTSIDE:
        raise OutsideNameError(
            f"triton.backends.driver.{name} belongs to Triton's launchers, which take descriptors "
            "apart; a launcher of Tilewright takes them whole"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Benchmarker", "DriverBase", "GPUDriver"]
