"""The CUDA driver, through cuda-python. Nothing is imported or initialised before it is asked for.

:class:`Driver` turns status codes into :class:`CudaError`; everything else in this backend talks to it, so that tests can put another one in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.errors import BackendError, KernelError
from tilewright_nvidia.architectures import OLDEST_DRIVER

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

#: Status codes that are told apart.
OUT_OF_MEMORY, NO_DEVICE, INVALID_IMAGE, INVALID_PTX, NO_BINARY, OUT_OF_LAUNCH_RESOURCES, ASSERT, ILLEGAL_ADDRESS, MISALIGNED = (
    2,
    100,
    200,
    218,
    209,
    701,
    710,
    700,
    716,
)
#: What kernels did wrong, by status. After these the context is of no more use: every call gives the error again until the process ends.
FAULTS: Mapping[int, str] = {
    ILLEGAL_ADDRESS: "a kernel accessed memory that is not the device's (an illegal address: check masks and the sizes of arrays)",
    ASSERT: "a device-side assertion of a kernel failed; the driver printed which",
    MISALIGNED: "a kernel accessed memory at an address that is not a multiple of the access's size",
    714: "a kernel failed in the device's hardware stack",
    715: "a kernel executed an illegal instruction",
    717: "a kernel accessed an address that the instruction cannot reach",
    718: "a kernel's program counter left its code",
    719: "a kernel failed on the device",
}


class CudaError(BackendError):
    """A call of the driver failed.

    Attributes:
        call: the function.
        code: its status, as ``CUresult`` numbers it.
        name: the status's name.
    """

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call} failed: {name} ({code}): {text}")
        self.call, self.code, self.name, self.text = call, code, name, text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.call, self.code, self.name, self.text)


class DeviceFaultError(CudaError, KernelError):
    """A kernel failed on the device. Any later call of the driver, for whatever purpose, may be the one that tells."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(call, code, name, text)
        told = f"{FAULTS[code]}. It was the kernel launched last, or one before it. The device's context cannot be used any more: restart the process"
        self.args = (f"{told} ({name} from {call})",)


class Driver:
    """Calls of ``cuda.bindings.driver``. ``driver("cuDeviceGet", 0)`` gives the result: nothing, one value, or a tuple."""

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings
        self._lock = threading.Lock()
        self._contexts: dict[int, int] = {}

    def __call__(self, name: str, *arguments: Any) -> Any:
        status, *results = getattr(self.bindings, name)(*arguments)
        code = int(status)
        if code:
            raise self.error(name, code)
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    def error(self, call: str, code: int) -> CudaError:
        """The error of a status code."""
        texts = []
        for function, fallback in (("cuGetErrorName", f"CUDA error {code}"), ("cuGetErrorString", "unknown")):
            try:
                status, text = getattr(self.bindings, function)(self.bindings.CUresult(code))
                texts.append(text.decode() if not int(status) and text else fallback)
            except ValueError:
                texts.append(fallback)
        return (DeviceFaultError if code in FAULTS else CudaError)(call, code, *texts)

    def attribute(self, device: int, name: str) -> int:
        """``CU_DEVICE_ATTRIBUTE_`` + name."""
        return int(self("cuDeviceGetAttribute", getattr(self.bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), self("cuDeviceGet", device)))

    def function_attribute(self, function: Any, name: str) -> int:
        """``CU_FUNC_ATTRIBUTE_`` + name."""
        return int(self("cuFuncGetAttribute", getattr(self.bindings.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}"), function))

    def context(self, device: int) -> int:
        """The device's primary context, which all libraries of a process share; it is kept."""
        with self._lock:
            if device not in self._contexts:
                self._contexts[device] = int(self("cuDevicePrimaryCtxRetain", self("cuDeviceGet", device)))
            return self._contexts[device]

    @contextlib.contextmanager
    def use(self, device: int) -> Iterator[None]:
        """Make the device's primary context current for the length of a ``with`` block."""
        context = self.context(device)
        if int(self("cuCtxGetCurrent")) == context:
            yield
            return
        self("cuCtxPushCurrent", self.bindings.CUcontext(context))
        try:
            yield
        finally:
            self("cuCtxPopCurrent")


@functools.cache
def library() -> Any:
    """The driver's library, not initialised; None where there is no driver."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None


@functools.cache
def driver_version() -> int:
    """What CUDA version the driver is of, 1000 * major + 10 * minor; 0 where there is no driver. Does not initialise it."""
    found = ctypes.c_int()
    loaded = library()
    if loaded is None or loaded.cuDriverGetVersion(ctypes.byref(found)):
        return 0
    return found.value


def bindings_missing() -> str:
    """What is to be installed for the driver to be reached; empty where nothing is."""
    import importlib.util

    try:
        found = importlib.util.find_spec("cuda.bindings")
    except (ImportError, ValueError):
        found = None
    return "" if found is not None else "cuda-bindings is not installed: pip install tilewright[nvidia]"


def why_not() -> str:
    """Why no kernel can run here; empty where nothing speaks against it. Cheap: the driver is not initialised."""
    version = driver_version()
    if not version:
        return f"no NVIDIA driver was found ({LIBRARY} cannot be loaded)"
    if version < OLDEST_DRIVER:
        return (
            f"the NVIDIA driver is too old: it supports CUDA {version_text(version)}, and CUDA {version_text(OLDEST_DRIVER)} is needed; "
            "install driver 525 or newer"
        )
    return bindings_missing()


def version_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


@functools.cache
def driver() -> Driver:
    """The driver, initialised.

    Raises:
        BackendError: there is none, or it is too old, or cuda-python is missing.
        CudaError: it does not start, for example in a process forked from one that used it.
    """
    reason = why_not()
    if reason:
        raise BackendError(f"NVIDIA GPUs cannot be used: {reason}")
    from cuda.bindings import driver as bindings

    made = Driver(bindings)
    made("cuInit", 0)
    return made
