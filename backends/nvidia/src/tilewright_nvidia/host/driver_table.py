"""The CUDA driver's functions by role, as :mod:`tilewright.gpu_host` calls them."""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright.gpu_host.table import (
    DriverCall,
    DriverTable,
    Entries,
    Enumeration,
    LaunchParameters,
    NativeEntries,
    Statuses,
    StreamNames,
)
from tilewright_nvidia.architectures import capability_of
from tilewright_nvidia.host.image import KIND, image
from tilewright_nvidia.toolchain.installation import library
from tilewright_nvidia.toolchain.linking import says_lines


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (
        ("number", ctypes.c_int32),
        ("padding", ctypes.c_int32),
        ("value", ctypes.c_uint8 * 64),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint32),
    )


def _config(cuda: Any, launch: LaunchParameters) -> Any:
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
    config.sharedMemBytes = launch.shared
    config.hStream = cuda.CUstream(launch.stream)
    config.numAttrs = 0
    if launch.attributes:
        config.attrs, config.numAttrs = (
            [
                _attribute(cuda, given.number, given.member, *given.value)
                for given in launch.attributes
            ],
            len(launch.attributes),
        )
    return config


def _launch(cuda: Any, launch: LaunchParameters) -> tuple[Any, ...]:
    status: tuple[Any, ...] = cuda.cuLaunchKernelEx(
        _config(cuda, launch), cuda.CUfunction(launch.function), launch.addresses, 0
    )
    return status


def _cluster_occupancy(cuda: Any, launch: LaunchParameters) -> tuple[Any, ...]:
    status: tuple[Any, ...] = cuda.cuOccupancyMaxActiveClusters(
        cuda.CUfunction(launch.function), _config(cuda, launch)
    )
    return status


def _attribute(cuda: Any, number: int, member: str, value: int) -> Any:
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID(number)
    setattr(attribute.value, member, value)
    return attribute


def _load_module(cuda: Any, code: bytes) -> tuple[Any, ...]:
    """Load device code or PTX, with line information if the PTX has any."""
    if code.startswith(b"\x7fELF") or not says_lines(code):
        found: tuple[Any, ...] = cuda.cuModuleLoadData(code)
        return found
    found = cuda.cuModuleLoadDataEx(code, 1, [cuda.CUjit_option.CU_JIT_GENERATE_LINE_INFO], [1])
    return found


def _allow_shared(cuda: Any, function: Any, size: int) -> tuple[Any, ...]:
    status: tuple[Any, ...] = cuda.cuFuncSetAttribute(
        function, cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, size
    )
    return status


def _pointer_device(cuda: Any, address: int) -> tuple[Any, ...]:
    """Return the device that owns an address, or -1 for host memory.

    The driver does not know pageable host memory. It reports such an address, and before the first
    context any address, as an invalid value.
    """
    attributes, kinds = cuda.CUpointer_attribute, cuda.CUmemorytype
    status, kind = cuda.cuPointerGetAttribute(attributes.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    if int(status) in (1, 201):
        return 0, -1
    if int(status) or int(kind) not in (
        int(kinds.CU_MEMORYTYPE_DEVICE),
        int(kinds.CU_MEMORYTYPE_UNIFIED),
    ):
        return status, -1
    found: tuple[Any, ...] = cuda.cuPointerGetAttribute(
        attributes.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address
    )
    return found


def _texts(cuda: Any, code: int) -> tuple[str, str]:
    found = []
    for function, fallback in (
        (cuda.cuGetErrorName, f"CUDA error {code}"),
        (cuda.cuGetErrorString, "unknown"),
    ):
        try:
            status, text = function(cuda.CUresult(code))
            found.append(text.decode() if not int(status) and text else fallback)
        except ValueError:  # an error code unknown to the bindings
            found.append(fallback)
    return found[0], found[1]


ENTRIES = Entries(
    initialize=DriverCall("cuInit", lambda cuda: cuda.cuInit(0)),
    device_count="cuDeviceGetCount",
    device="cuDeviceGet",
    device_name=DriverCall(
        "cuDeviceGetName",
        lambda cuda, device: cuda.cuDeviceGetName(128, device),
    ),
    device_memory="cuDeviceTotalMem",
    device_attribute="cuDeviceGetAttribute",
    context="cuDevicePrimaryCtxRetain",
    context_current="cuCtxGetCurrent",
    context_enter=DriverCall(
        "cuCtxPushCurrent", lambda cuda, context: cuda.cuCtxPushCurrent(cuda.CUcontext(context))
    ),
    context_leave=DriverCall("cuCtxPopCurrent", lambda cuda, before: cuda.cuCtxPopCurrent()),
    module_load=DriverCall("cuModuleLoadData", _load_module),
    module_unload="cuModuleUnload",
    module_function="cuModuleGetFunction",
    function_attribute="cuFuncGetAttribute",
    function_allow_shared=DriverCall("cuFuncSetAttribute", _allow_shared),
    occupancy="cuOccupancyMaxActiveBlocksPerMultiprocessor",
    cluster_occupancy=DriverCall("cuOccupancyMaxActiveClusters", _cluster_occupancy),
    launch=DriverCall("cuLaunchKernelEx", _launch),
    memory_allocate="cuMemAlloc",
    memory_free="cuMemFree",
    memory_to_device="cuMemcpyHtoD",
    memory_to_host="cuMemcpyDtoH",
    memory_fill=DriverCall(
        "cuMemsetD8Async",
        lambda cuda, address, byte, size, stream: cuda.cuMemsetD8Async(
            address, byte, size, cuda.CUstream(stream)
        ),
    ),
    pointer_device=DriverCall("cuPointerGetAttribute", _pointer_device),
    peer_possible="cuDeviceCanAccessPeer",
    peer_enable=DriverCall(
        "cuCtxEnablePeerAccess",
        lambda cuda, context: cuda.cuCtxEnablePeerAccess(cuda.CUcontext(context), 0),
    ),
    synchronize="cuCtxSynchronize",
    event_create=DriverCall("cuEventCreate", lambda cuda: cuda.cuEventCreate(0)),
    event_record=DriverCall(
        "cuEventRecord",
        lambda cuda, event, stream: cuda.cuEventRecord(event, cuda.CUstream(stream)),
    ),
    event_wait="cuEventSynchronize",
    event_milliseconds="cuEventElapsedTime",
    event_destroy="cuEventDestroy",
    capture_mode=DriverCall(
        "cuThreadExchangeStreamCaptureMode",
        lambda cuda, mode: cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode(mode)),
    ),
)

STATUSES = Statuses(
    out_of_memory=2,
    no_binary=209,
    out_of_launch_resources=701,
    too_many_programs=720,
    peer_enabled=704,
    faults={
        700: (
            "a kernel accessed memory that is not the device's (an illegal address: check "
            "masks and the sizes of arrays)"
        ),
        710: "a device-side assertion of a kernel failed; the driver printed which",
        714: "a kernel failed in the device's hardware stack",
        715: "a kernel executed an illegal instruction",
        716: "a kernel accessed memory at an address that is not a multiple of the access's size",
        717: "a kernel accessed an address that the instruction cannot reach",
        718: "a kernel's program counter left its code",
        719: (
            "a kernel failed on the device: by an assertion if the driver printed one (while "
            "other processes use the GPU, it reports some assertions so)"
        ),
    },
    capture=frozenset(range(900, 909)),
    texts=_texts,
)


TABLE = DriverTable(
    backend="nvidia",
    kind=KIND,
    entries=ENTRIES,
    statuses=STATUSES,
    native=NativeEntries(
        launch="cuLaunchKernelEx",
        current="cuCtxGetCurrent",
        operands=("config", "function", "addresses", "null"),
        config=LaunchConfig,
        attribute=LaunchAttribute,
    ),
    streams=StreamNames(
        torch="cuda",
        attributes=("cuda_stream", "ptr", "handle"),
        protocol="__cuda_stream__",
        libraries="PyTorch, CuPy or cuda-python",
    ),
    device_attributes=Enumeration.prefixed(
        "CUdevice_attribute",
        "CU_DEVICE_ATTRIBUTE_",
        shared_memory="MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
        processors="MULTIPROCESSOR_COUNT",
        processor_threads="MAX_THREADS_PER_MULTIPROCESSOR",
        registers="MAX_REGISTERS_PER_BLOCK",
        cache_bytes="L2_CACHE_SIZE",
        cooperative="COOPERATIVE_LAUNCH",
        clock_khz="CLOCK_RATE",
        memory_clock_khz="MEMORY_CLOCK_RATE",
        memory_bus_bits="GLOBAL_MEMORY_BUS_WIDTH",
        capability_major="COMPUTE_CAPABILITY_MAJOR",
        capability_minor="COMPUTE_CAPABILITY_MINOR",
    ),
    function_attributes=Enumeration.prefixed(
        "CUfunction_attribute",
        "CU_FUNC_ATTRIBUTE_",
        registers="NUM_REGS",
        local_bytes="LOCAL_SIZE_BYTES",
        max_threads="MAX_THREADS_PER_BLOCK",
    ),
    library=library,
    image=image,
    architecture=lambda cuda, device: str(capability_of(cuda, device) / 10),
    grid_limits=(2**31 - 1, 65535, 65535),
    free_shared=48 << 10,
    alignment=256,
    flushed_bytes=256 << 20,
    array_protocol="__cuda_array_interface__",
)
