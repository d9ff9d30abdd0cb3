"""Bindings of the mock HIP runtime with hip-python's conventions, where hip-python is missing.

A call returns a tuple of a status and its results. The module has the functions and the members of
enumerations that Tilewright's amd backend uses; their values are those of HIP.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

hipError_t = enum.IntEnum(
    "hipError_t",
    {
        "hipSuccess": 0,
        "hipErrorOutOfMemory": 2,
        "hipErrorNoBinaryForGpu": 209,
        "hipErrorNotFound": 500,
        "hipErrorIllegalAddress": 700,
        "hipErrorLaunchFailure": 719,
        "hipErrorCooperativeLaunchTooLarge": 720,
        "hipErrorUnknown": 999,
    },
)
hipDeviceAttribute_t = enum.IntEnum(
    "hipDeviceAttribute_t",
    {
        "hipDeviceAttributeClockRate": 5,
        "hipDeviceAttributeCooperativeLaunch": 10,
        "hipDeviceAttributeL2CacheSize": 19,
        "hipDeviceAttributeMaxThreadsPerMultiProcessor": 57,
        "hipDeviceAttributeMultiprocessorCount": 63,
        "hipDeviceAttributeMaxRegistersPerBlock": 71,
        "hipDeviceAttributeMaxSharedMemoryPerBlock": 74,
        "hipDeviceAttributeWarpSize": 87,
    },
)
hipFunction_attribute = enum.IntEnum(
    "hipFunction_attribute",
    {
        "HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 0,
        "HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": 3,
        "HIP_FUNC_ATTRIBUTE_NUM_REGS": 4,
    },
)


class hipDeviceProp_t(ctypes.Structure):
    """``hipDeviceProp_tR0600``, of which only the architecture's name has a field."""

    _fields_ = (
        ("_before", ctypes.c_char * 1160),
        ("gcnArchName", ctypes.c_char * 256),
        ("_after", ctypes.c_char * 56),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(os.environ["ROCM_PATH"]) / "lib" / "libamdhip64.so"))


def _function(
    name: str, inputs: tuple[Any, ...], result: Any = None, symbol: str = ""
) -> Callable[..., tuple[Any, ...]]:
    """Bind a function that writes its result, of the type ``result``, through its first operand."""

    def call(*arguments: Any) -> tuple[Any, ...]:
        function = getattr(_library(), symbol or name)
        if result is None:
            function.argtypes = inputs
            return (function(*arguments),)
        function.argtypes = (ctypes.POINTER(result), *inputs)
        found = result()
        status = function(ctypes.byref(found), *arguments)
        return status, found.value if hasattr(found, "value") else found

    call.__name__ = call.__qualname__ = name
    return call


_INT, _UNSIGNED, _SIZE, _FLOAT = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_float
#: addresses and handles
_WORD = ctypes.c_uint64
#: the extents of a grid and of a program's threads, bytes of shared memory, stream, arguments
_LAUNCH = (_WORD, *(_UNSIGNED,) * 7, _WORD, _WORD)

hipInit = _function("hipInit", (_UNSIGNED,))
hipGetDeviceCount = _function("hipGetDeviceCount", (), _INT)
hipDeviceGet = _function("hipDeviceGet", (_INT,), _INT)
hipDeviceTotalMem = _function("hipDeviceTotalMem", (_INT,), _SIZE)
hipDeviceGetAttribute = _function("hipDeviceGetAttribute", (_INT, _INT), _INT)
hipGetDeviceProperties = _function(
    "hipGetDeviceProperties", (_INT,), hipDeviceProp_t, "hipGetDevicePropertiesR0600"
)
hipGetDevice = _function("hipGetDevice", (), _INT)
hipSetDevice = _function("hipSetDevice", (_INT,))
hipModuleLoadData = _function("hipModuleLoadData", (ctypes.c_char_p,), _WORD)
hipModuleUnload = _function("hipModuleUnload", (_WORD,))
hipModuleGetFunction = _function("hipModuleGetFunction", (_WORD, ctypes.c_char_p), _WORD)
hipFuncGetAttribute = _function("hipFuncGetAttribute", (_INT, _WORD), _INT)
hipModuleOccupancyMaxActiveBlocksPerMultiprocessor = _function(
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", (_WORD, _INT, _SIZE), _INT
)
hipModuleLaunchKernel = _function("hipModuleLaunchKernel", (*_LAUNCH, ctypes.c_void_p))
hipModuleLaunchCooperativeKernel = _function("hipModuleLaunchCooperativeKernel", _LAUNCH)
hipMalloc = _function("hipMalloc", (_SIZE,), _WORD)
hipHostMalloc = _function("hipHostMalloc", (_SIZE, _UNSIGNED), _WORD)
hipFree = _function("hipFree", (_WORD,))
hipMemcpyHtoD = _function("hipMemcpyHtoD", (_WORD, _WORD, _SIZE))
hipMemcpyDtoH = _function("hipMemcpyDtoH", (_WORD, _WORD, _SIZE))
hipMemsetAsync = _function("hipMemsetAsync", (_WORD, _INT, _SIZE, _WORD))
hipDeviceSynchronize = _function("hipDeviceSynchronize", ())
hipStreamSynchronize = _function("hipStreamSynchronize", (_WORD,))
hipEventCreate = _function("hipEventCreate", (), _WORD)
hipEventRecord = _function("hipEventRecord", (_WORD, _WORD))
hipEventSynchronize = _function("hipEventSynchronize", (_WORD,))
hipEventElapsedTime = _function("hipEventElapsedTime", (_WORD, _WORD), _FLOAT)
hipEventDestroy = _function("hipEventDestroy", (_WORD,))


def hipStreamIsCapturing(stream: int) -> tuple[int, int]:
    """Return a status and the state of a stream's capture."""
    state, function = _INT(), _library().hipStreamIsCapturing
    function.argtypes = (_WORD, ctypes.POINTER(_INT))
    return int(function(stream, ctypes.byref(state))), state.value


def hipDeviceGetName(length: int, device: int) -> tuple[int, int]:
    """Return a status and the address of a device's name."""
    name = _name_buffer(length)
    return int(_library().hipDeviceGetName(name, length, device)), ctypes.addressof(name)


@functools.cache
def _name_buffer(length: int) -> ctypes.Array[ctypes.c_char]:
    """Return a buffer that outlives the call whose result is its address."""
    return ctypes.create_string_buffer(length)


def hipGetErrorString(error: int) -> tuple[int, int]:
    """Return success and the address of the description of an error."""
    function = _library().hipGetErrorString
    function.argtypes, function.restype = (_INT,), _WORD
    return 0, function(error)
