"""A driver in Python: as much of ``cuda.bindings.driver`` as the backend calls, over host memory, that keeps what it was told."""

from __future__ import annotations

import ctypes
import enum
from typing import Any


class CUresult(int):
    pass


def _enum(name: str, *members: str) -> Any:
    return enum.IntEnum(name, {member: i for i, member in enumerate(members)})


class Settings:
    """What the device is like; tests change it."""

    def __init__(self) -> None:
        self.attributes = {
            "COMPUTE_CAPABILITY_MAJOR": 9,
            "COMPUTE_CAPABILITY_MINOR": 0,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
            "MULTIPROCESSOR_COUNT": 132,
            "L2_CACHE_SIZE": 50 << 20,
            "MAX_REGISTERS_PER_BLOCK": 65536,
            "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
        }
        self.function_attributes = {"NUM_REGS": 32, "LOCAL_SIZE_BYTES": 0, "MAX_THREADS_PER_BLOCK": 1024}
        self.devices = 2
        #: function -> status it fails with
        self.failures: dict[str, int] = {}
        self.log = "ptxas info    : 0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads"
        self.error_log = ""


class FakeBindings:
    """The module ``cuda.bindings.driver``."""

    CUresult = CUresult
    CUcontext = CUfunction = CUstream = int
    CUlaunchAttributeID = _enum("CUlaunchAttributeID", "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION")
    CUjitInputType = _enum("CUjitInputType", "CU_JIT_INPUT_PTX")
    CUjit_option = _enum(
        "CUjit_option",
        "CU_JIT_INFO_LOG_BUFFER",
        "CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES",
        "CU_JIT_ERROR_LOG_BUFFER",
        "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES",
        "CU_JIT_LOG_VERBOSE",
    )

    class CUlaunchConfig:
        pass

    class CUlaunchAttribute:
        def __init__(self) -> None:
            self.value = type("Value", (), {})()

    def __init__(self) -> None:
        self.settings = Settings()
        self.CUdevice_attribute = _enum("CUdevice_attribute", *(f"CU_DEVICE_ATTRIBUTE_{name}" for name in self.settings.attributes))
        self.CUfunction_attribute = _enum(
            "CUfunction_attribute",
            *(f"CU_FUNC_ATTRIBUTE_{name}" for name in self.settings.function_attributes),
            "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        )
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.contexts: list[int] = []
        self.launches: list[tuple[Any, list[int]]] = []
        self.memory: dict[int, Any] = {}
        #: how many words a launch's parameters are read as
        self.words = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            status = self.settings.failures.get(name, 0)
            if status:
                return CUresult(status), *([None] if name not in _NOTHING else [])
            result = getattr(self, f"_{name}", lambda *_: ())(*arguments)
            return CUresult(0), *result

        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]

    def _cuGetErrorName(self, code: int) -> tuple[bytes]:
        return ({700: b"CUDA_ERROR_ILLEGAL_ADDRESS", 701: b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 2: b"CUDA_ERROR_OUT_OF_MEMORY"}.get(code, b"CUDA_ERROR_X"),)

    def _cuGetErrorString(self, code: int) -> tuple[bytes]:
        return (b"what the driver says",)

    def _cuDeviceGetCount(self) -> tuple[int]:
        return (self.settings.devices,)

    def _cuDeviceGet(self, index: int) -> tuple[int]:
        return (index,)

    def _cuDeviceGetName(self, length: int, device: int) -> tuple[bytes]:
        return (b"Stand-in GPU\0\0\0",)

    def _cuDeviceTotalMem(self, device: int) -> tuple[int]:
        return (80 << 30,)

    def _cuDeviceGetAttribute(self, attribute: Any, device: int) -> tuple[int]:
        return (self.settings.attributes[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")],)

    def _cuFuncGetAttribute(self, attribute: Any, function: int) -> tuple[int]:
        return (self.settings.function_attributes[attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")],)

    def _cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int]:
        return (1000 + device,)

    def _cuCtxGetCurrent(self) -> tuple[int]:
        return (self.contexts[-1] if self.contexts else 0,)

    def _cuCtxPushCurrent(self, context: int) -> tuple[()]:
        self.contexts.append(context)
        return ()

    def _cuCtxPopCurrent(self) -> tuple[int]:
        return (self.contexts.pop(),)

    def _cuLinkCreate(self, count: int, options: Any, values: Any) -> tuple[int]:
        self._buffers = values[0], values[2]
        return (1,)

    def _cuLinkComplete(self, state: int) -> tuple[int, int]:
        for buffer, text in zip(self._buffers, (self.settings.log, self.settings.error_log), strict=True):
            buffer[: len(text)] = text.encode()
        self._cubin = ctypes.create_string_buffer(b"device code")
        return ctypes.addressof(self._cubin), 11

    def _cuModuleLoadData(self, image: bytes) -> tuple[int]:
        return (7,)

    def _cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int]:
        return (77,)

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> tuple[int]:
        return (8,)

    def _cuMemAlloc(self, size: int) -> tuple[int]:
        buffer = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(buffer)] = buffer
        return (ctypes.addressof(buffer),)

    def _cuMemFree(self, address: int) -> tuple[()]:
        del self.memory[address]
        return ()

    def _cuMemcpyHtoD(self, to: int, source: int, size: int) -> tuple[()]:
        ctypes.memmove(to, source, size)
        return ()

    _cuMemcpyDtoH = _cuMemcpyHtoD

    def _cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: int) -> tuple[()]:
        addresses = (ctypes.c_uint64 * self.words).from_address(parameters)
        self.launches.append((config, [ctypes.c_uint64.from_address(address).value for address in addresses]))
        return ()

    def _cuEventCreate(self, flags: int) -> tuple[int]:
        return (5,)

    def _cuEventElapsedTime(self, start: int, end: int) -> tuple[float]:
        return (0.25,)


_NOTHING = frozenset({"cuLaunchKernelEx", "cuCtxSynchronize", "cuLinkAddData"})
