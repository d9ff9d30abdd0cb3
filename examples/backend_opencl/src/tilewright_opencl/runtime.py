"""OpenCL as the runtime needs it: a processor, programs built for it, launches.

A processor's memory is the host's, so addresses are given to kernels as they are.
"""

from __future__ import annotations

import functools
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from tilewright.errors import LaunchError, LoweringError
from tilewright.ir.type_text import parse_type
from tilewright.plugins.manifest import CodeObject, Launcher, Parameter
from tilewright.runtime.arguments import address_of
from tilewright.runtime.slots import MISFITS, misfit, slot_codec
from tilewright.runtime.writability import write_guard
from tilewright_opencl.lower import SYMBOL

#: Numbers as IEEE has them. Optimising costs more than it gains here.
OPTIONS = ["-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt", "-cl-opt-disable", "-w"]


@functools.cache
def processor() -> Any:
    """The first processor among the devices of OpenCL that computes with f64; None where there is none."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # no platform is installed
        return None
    devices = [device for platform in platforms for device in platform.get_devices() if device.type & cl.device_type.CPU]
    return next((device for device in devices if device.double_fp_config), None)


@functools.cache
def _queue() -> tuple[Any, Any]:
    """The context of all kernels, and its queue."""
    context = cl.Context([processor()])
    return context, cl.CommandQueue(context)


def built(name: str, source: str) -> bytes:
    """The program of a source as OpenCL keeps it.

    Raises:
        LoweringError: the compiler refuses it.
    """
    context, _ = _queue()
    program = cl.Program(context, source)
    try:
        program.build(OPTIONS)
    except cl.Error as error:
        raise LoweringError(
            f"{processor().name} refused the code of {name}, which is a defect of the OpenCL backend or of the device's compiler:\n{error}"
        ) from error
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    return bytes(binaries[0])


def launcher(code: CodeObject, parameters: Sequence[Parameter]) -> Launcher:
    """What starts a kernel: as many work-items as the processor has units, or programs if these are fewer."""
    context, queue = _queue()
    kernel = cl.Kernel(cl.Program(context, [processor()], [code.binary]).build(), SYMBOL)
    codecs = [slot_codec(parse_type(parameter.type), _address) for parameter in parameters]
    pack = struct.Struct("<" + "".join(letters for letters, _ in codecs)).pack
    guard, one_at_a_time = write_guard(code.name, parameters), threading.Lock()
    units, each = processor().max_compute_units, code.metadata["memory"]

    def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        guard(values)
        if 0 in grid:
            return
        try:
            words = np.frombuffer(
                pack(*(number for (_, numbers), value in zip(codecs, values, strict=True) for number in numbers(value))) + bytes(8), np.uint64
            )
        except MISFITS as error:
            raise misfit(code.name, parameters, values, _address) or LaunchError(f"{code.name}: {error}") from error
        items = min(units, grid[0] * grid[1] * grid[2])
        memory = np.empty(items * each, np.uint8)
        with one_at_a_time:  # arguments belong to the kernel
            kernel.set_args(*(np.uint32(extent) for extent in grid), np.uint64(memory.ctypes.data), np.uint64(words.ctypes.data))
            event = cl.enqueue_nd_range_kernel(queue, kernel, (items,), (1,))
        event.wait()

    return launch


def _address(value: Any) -> int:
    """The address of an array, or the number that is one."""
    return value if type(value) is int else address_of(value)
