"""OpenCL as the runtime needs it: a processor, programs built for it, launches.

A processor's memory is the host's, so addresses are given to kernels as they are.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from tilewright.errors import LoweringError
from tilewright.plugins.manifest import CodeObject, Launcher, Parameter
from tilewright.runtime.arguments.argument_words import word_launcher
from tilewright_opencl.lower import SYMBOL

#: Numbers as IEEE has them. Optimising costs more than it gains here.
OPTIONS = ["-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt", "-cl-opt-disable", "-w"]

# The core keeps programs. In pocl's own cache one process finds what another one is still writing,
# and is ended by an assertion.
os.environ.setdefault("POCL_KERNEL_CACHE", "0")


@functools.cache
def processor() -> Any:
    """Return the first OpenCL processor that supports f64, or None."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # no platform is installed
        return None
    devices = [
        device
        for platform in platforms
        for device in platform.get_devices()
        if device.type & cl.device_type.CPU
    ]
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
            f"{processor().name} refused the code of {name}, which is a defect of the OpenCL "
            f"backend or of the device's compiler:\n{error}"
        ) from error
    binaries: Any = program.get_info(cl.program_info.BINARIES)
    return bytes(binaries[0])


def launcher(code: CodeObject, parameters: Sequence[Parameter]) -> Launcher:
    """What starts a kernel: as many work-items as the processor has units, or programs if these are
    fewer.
    """
    context, queue = _queue()
    kernel = cl.Kernel(cl.Program(context, [processor()], [code.binary]).build(), SYMBOL)
    one_at_a_time, units, each = (
        threading.Lock(),
        processor().max_compute_units,
        code.metadata["memory"],
    )

    def start(grid: tuple[int, int, int], words: bytes, stream: Any) -> None:
        items = min(units, grid[0] * grid[1] * grid[2])
        given, memory = np.frombuffer(words + bytes(8), np.uint64), np.empty(items * each, np.uint8)
        with one_at_a_time:  # arguments belong to the kernel
            kernel.set_args(
                *(np.uint32(extent) for extent in grid),
                np.uint64(memory.ctypes.data),
                np.uint64(given.ctypes.data),
            )
            event = cl.enqueue_nd_range_kernel(queue, kernel, (items,), (1,))
        event.wait()

    return word_launcher(code.name, parameters, start)
