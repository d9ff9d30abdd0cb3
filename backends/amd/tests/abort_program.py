"""A process that the mock HIP runtime ends by SIGABRT; see ``codegen/test_abort_messages.py``.

The arguments are the architecture and the event.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import amd_kernels as kernels

from tilewright.plugins.registry import registry
from tilewright_amd.codegen import assertions
from tilewright_amd_emulator.hip.emulation import emulate

arch, what = sys.argv[1:]
stand_in = emulate(arch)
backend = registry().get("amd")
(device,) = backend.call("tilewright_devices")
memory = backend.call("tilewright_memory", device=device)


class Array:
    """One i32 of the device."""

    dtype, device = np.dtype(np.int32), "hip:0"

    def __init__(self, value: int) -> None:
        self.buffer = memory.allocate(4, 256)
        memory.copy_to_device(self.buffer, memoryview(np.array([value], np.int32).view(np.uint8)))

    def data_ptr(self) -> int:
        return int(self.buffer.data_ptr())


kernels.checks[(1,)](Array(5), 7, debug=True)
memory.synchronize()
if what == "handler after":
    faulthandler.enable()
if what == "child":
    # as where the kernel's number has arrived, and the runtime has not ended the process yet
    (place,) = assertions._places.values()
    ctypes.c_uint32.from_address(place).value = 1
    child = os.fork()
    if not child:
        os.abort()
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGABRT
    sys.exit(0)
if what == "other":
    os.abort()
stand_in.end_process_on_fault()
print("before", flush=True)
if what == "address":
    kernels.where_programs_are[(2, 3, 4)](Array(0))  # 24 numbers
else:
    kernels.checks[(1,)](Array(8), 7, debug=True)
memory.synchronize()
print("after")
