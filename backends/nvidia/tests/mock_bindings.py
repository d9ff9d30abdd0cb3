"""Mock of ``cuda.bindings.driver``: the toolkit's mock driver, with CUDA's names and types."""

from __future__ import annotations

import enum
from typing import Any

from tilewright.testing.stand_in_driver import StandInBindings
from tilewright_nvidia.host.driver_table import TABLE


def _enum(name: str, *members: str) -> Any:
    return enum.IntEnum(name, {member: i for i, member in enumerate(members)})


class FakeBindings(StandInBindings):
    """An H100 or two. ``log`` and ``error_log`` are what the compiler says."""

    CUresult = CUcontext = CUfunction = CUstream = CUlaunchAttributeID = CUstreamCaptureMode = int
    CUjitInputType = _enum("CUjitInputType", "CU_JIT_INPUT_PTX")
    CUjit_option = _enum(
        "CUjit_option",
        "CU_JIT_INFO_LOG_BUFFER",
        "CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES",
        "CU_JIT_ERROR_LOG_BUFFER",
        "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES",
        "CU_JIT_LOG_VERBOSE",
        "CU_JIT_GENERATE_LINE_INFO",
    )

    class CUlaunchConfig:
        pass

    class CUlaunchAttribute:
        def __init__(self) -> None:
            self.value = type("Value", (), {})()

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = "dynamic"
        self.settings.attributes.update(
            capability_major=9,
            capability_minor=0,
            shared_memory=227 << 10,
            processors=132,
            cache_bytes=50 << 20,
        )
        self.log = "ptxas info    : 0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads"
        self.error_log = ""

    def _cuGetErrorName(self, code: int) -> bytes:
        return {
            700: b"CUDA_ERROR_ILLEGAL_ADDRESS",
            701: b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            2: b"CUDA_ERROR_OUT_OF_MEMORY",
        }.get(code, b"CUDA_ERROR_X")

    def _cuGetErrorString(self, code: int) -> bytes:
        return b"what the driver says"

    def _cuModuleLoadDataEx(self, image: bytes, count: int, options: Any, values: Any) -> int:
        assert count == len(options) == len(values)
        given = dict(zip(options, values, strict=True))
        for option, text in (
            (self.CUjit_option.CU_JIT_INFO_LOG_BUFFER, self.log),
            (self.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, self.error_log),
        ):
            if option in given:
                given[option][: len(text)] = text.encode()
        return self.module_load(image)

    def _cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: int) -> None:
        self.started(config, parameters)
