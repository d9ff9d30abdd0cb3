"""The HIP runtime's functions by role, as :mod:`tilewright.gpu_host` calls them."""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.table import (
    DriverCall,
    DriverTable,
    Entries,
    Enumeration,
    Image,
    LaunchParameters,
    NativeEntries,
    Statuses,
    StreamNames,
)
from tilewright.plugins.manifest import CodeObject
from tilewright_amd.architectures import architecture
from tilewright_amd.codegen import assertions, prints
from tilewright_amd.codegen.assertions import message_of
from tilewright_amd.host.devices import architecture_name
from tilewright_amd.host.driver import library

#: The device kind of this backend, as argument protocols spell it.
KIND = "hip"


def _launch(hip: Any, launch: LaunchParameters) -> tuple[Any, ...]:
    given = (
        launch.function,
        *launch.grid,
        launch.threads,
        1,
        1,
        launch.shared,
        launch.stream,
        launch.addresses,
    )
    status: tuple[Any, ...] = (
        hip.hipModuleLaunchCooperativeKernel(*given)
        if launch.cooperative
        else hip.hipModuleLaunchKernel(*given, None)
    )
    return status


def _exchange_mode(hip: Any, mode: int) -> tuple[Any, ...]:
    """Call the library's function directly: the bindings' function takes no mode."""
    held = ctypes.c_int(mode)
    return library().hipThreadExchangeStreamCaptureMode(ctypes.byref(held)), held.value


def _name(hip: Any, device: int) -> tuple[Any, ...]:
    status, text = hip.hipDeviceGetName(128, device)
    return status, ctypes.string_at(int(text)).decode(errors="replace")


def _pointer_device(hip: Any, address: int) -> tuple[Any, ...]:
    """Return the device that owns an address, or -1 for host memory.

    The runtime does not know pageable host memory. It reports such an address as an invalid value
    or as unregistered memory.
    """
    status, found = hip.hipPointerGetAttributes(address)
    if int(status) == 1:
        return 0, -1
    kinds = hip.hipMemoryType
    ours = not int(status) and int(found.type) in (
        int(kinds.hipMemoryTypeDevice),
        int(kinds.hipMemoryTypeManaged),
        int(kinds.hipMemoryTypeUnified),
    )
    return status, int(found.device) if ours else -1


def _texts(hip: Any, code: int) -> tuple[str, str]:
    try:
        error = hip.hipError_t(code)
    except ValueError:  # an error code unknown to the bindings
        return f"HIP error {code}", "unknown"
    _, text = hip.hipGetErrorString(error)
    return error.name, ctypes.string_at(int(text)).decode(
        errors="replace"
    ) if text is not None else "unknown"


def image(hip: Driver, device: int, code: CodeObject) -> Image:
    """Return the loadable image of a code object."""
    metadata = code.metadata
    opaque = (
        [assertions.argument(hip, code.name, metadata["assertions"])]
        if metadata.get("assertions")
        else []
    )
    said = metadata.get("prints")
    if said:
        opaque.append(prints.argument(hip, device))
    wave = architecture(architecture_name(hip, device)).wave
    return Image(
        binary=lambda: code.binary,
        symbol=str(metadata["kernel"]),
        threads=wave * int(metadata["num_warps"]),
        shared=int(metadata["shared"]),
        cooperative=bool(metadata.get("cooperative")),
        spills=4 * int(metadata["n_spills"]),
        opaque=tuple(opaque),
        around=prints.around(hip, device, code.name, said) if said else None,
    )


ENTRIES = Entries(
    initialize=DriverCall("hipInit", lambda hip: hip.hipInit(0)),
    device_count="hipGetDeviceCount",
    device="hipDeviceGet",
    device_name=DriverCall("hipDeviceGetName", _name),
    device_memory="hipDeviceTotalMem",
    device_attribute="hipDeviceGetAttribute",
    # a thread's device is its context
    context=DriverCall("hipDeviceGet", lambda hip, device: (0, device)),
    context_current="hipGetDevice",
    context_enter="hipSetDevice",
    context_leave="hipSetDevice",
    module_load="hipModuleLoadData",
    module_unload="hipModuleUnload",
    module_function="hipModuleGetFunction",
    function_attribute="hipFuncGetAttribute",
    function_allow_shared=None,
    occupancy="hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
    launch=DriverCall("hipModuleLaunchKernel", _launch),
    memory_allocate="hipMalloc",
    memory_free="hipFree",
    memory_to_device="hipMemcpyHtoD",
    memory_to_host="hipMemcpyDtoH",
    memory_fill="hipMemsetAsync",
    pointer_device=DriverCall("hipPointerGetAttributes", _pointer_device),
    peer_possible="hipDeviceCanAccessPeer",
    peer_enable=DriverCall(
        "hipDeviceEnablePeerAccess", lambda hip, device: hip.hipDeviceEnablePeerAccess(device, 0)
    ),
    synchronize="hipDeviceSynchronize",
    event_create="hipEventCreate",
    event_record="hipEventRecord",
    event_wait="hipEventSynchronize",
    event_milliseconds="hipEventElapsedTime",
    event_destroy="hipEventDestroy",
    capture_mode=DriverCall("hipThreadExchangeStreamCaptureMode", _exchange_mode),
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
        710: "a device-side assertion of a kernel failed",
        719: (
            "a kernel failed on the device: an assertion of it, or an access that the "
            "device refuses"
        ),
    },
    capture=frozenset(range(900, 909)),
    texts=_texts,
    messages=message_of,
)


#: Operands of the launch functions.
_OPERANDS = (
    "function",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "shared",
    "stream",
    "addresses",
)

TABLE = DriverTable(
    backend="amd",
    kind=KIND,
    entries=ENTRIES,
    statuses=STATUSES,
    native=NativeEntries(
        launch="hipModuleLaunchKernel", current="hipGetDevice", operands=(*_OPERANDS, "null")
    ),
    cooperative_native=NativeEntries(
        launch="hipModuleLaunchCooperativeKernel", current="hipGetDevice", operands=_OPERANDS
    ),
    streams=StreamNames(
        torch="cuda",
        attributes=("cuda_stream", "ptr", "handle"),
        protocol="__cuda_stream__",
        libraries="PyTorch, CuPy or hip-python",
    ),
    device_attributes=Enumeration.prefixed(
        "hipDeviceAttribute_t",
        "hipDeviceAttribute",
        shared_memory="MaxSharedMemoryPerBlock",
        processors="MultiprocessorCount",
        processor_threads="MaxThreadsPerMultiProcessor",
        registers="MaxRegistersPerBlock",
        cache_bytes="L2CacheSize",
        lanes="WarpSize",
        cooperative="CooperativeLaunch",
        clock_khz="ClockRate",
    ),
    function_attributes=Enumeration.prefixed(
        "hipFunction_attribute",
        "HIP_FUNC_ATTRIBUTE_",
        registers="NUM_REGS",
        local_bytes="LOCAL_SIZE_BYTES",
        max_threads="MAX_THREADS_PER_BLOCK",
    ),
    library=library,
    image=image,
    architecture=lambda hip, device: architecture_name(hip, device),
    # along each axis, programs times threads are less than 2**32
    grid_limits=((1 << 32) // 1024 - 1, 65535, 65535),
    free_shared=64 << 10,
    alignment=256,
    flushed_bytes=512 << 20,
    array_protocol="__cuda_array_interface__",
)
