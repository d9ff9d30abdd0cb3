"""A program as users write it, on a stand-in HIP runtime; see ``test_hip_launch.py``. The argument is the architecture."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import amd_kernels as kernels
from amd_support import example

from tilewright.errors import KernelError
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import registry
from tilewright.simt.host import launch
from tilewright_conformance.emulation import emulate

arch = sys.argv[1]
in_python = launch.PythonLauncher.__call__
if os.environ["TILEWRIGHT_AMD_LAUNCHER"] == "native":
    # machine code launches, and leaves nothing to Python but kernels with assertions
    launch.PythonLauncher.__call__ = None  # type: ignore[method-assign]
lanes = 64 if arch in ("gfx90a", "gfx942", "gfx950") else 32
stand_in = emulate("amd", arch)
backend = registry().get("amd")
assert backend.manifest.status == "", backend.manifest.status
(device,) = backend.call("tilewright_devices")
assert isinstance(device, Device) and (device.name, device.properties["arch"]) == ("emulated waves", arch)
memory = backend.call("tilewright_memory", device=device)


class Array:
    """An array of the device, as another library would bring it."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.dtype, self.shape, self.device = data.dtype, data.shape, "hip:0"
        self.buffer = memory.allocate(data.nbytes, 256)
        memory.copy_to_device(self.buffer, memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8)))

    def data_ptr(self) -> int:
        return int(self.buffer.data_ptr())

    def numpy(self) -> np.ndarray[Any, Any]:
        memory.synchronize()
        found = np.empty(self.shape, self.dtype)
        memory.copy_to_host(self.buffer, memoryview(found.reshape(-1).view(np.uint8)))
        return found


rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, 3000)).astype(np.float32)
left, right, out = Array(x), Array(y), Array(np.zeros_like(x))
kernels.add[(3,)](left, right, out, 3000, BLOCK=1024)
np.testing.assert_array_equal(out.numpy(), x + y)
kernels.add[(3,)](out, right, out, 3000, BLOCK=1024)
np.testing.assert_array_equal(out.numpy(), x + y + y)
assert [launch[:4] for launch in stand_in.launches] == [("add", (3, 1, 1), 4 * lanes, 0)] * 2

places = Array(np.zeros(24, np.int32))
kernels.where_programs_are[(2, 3, 4)](places)
np.testing.assert_array_equal(places.numpy(), np.arange(24))

a, b = rng.integers(-3, 4, (64, 96)).astype(np.float16), rng.integers(-3, 4, (96, 64)).astype(np.float16)
product = Array(np.zeros((64, 64), np.float16))
example("matmul").matmul(Array(a), Array(b), product, block=(64, 64, 32))
np.testing.assert_array_equal(product.numpy(), a.astype(np.float32) @ b.astype(np.float32))

timer = backend.call("tilewright_timer", device=device)
assert min(timer.measure(lambda: kernels.where_programs_are[(2, 3, 4)](places), 2)) > 0

launch.PythonLauncher.__call__ = in_python  # type: ignore[method-assign]
try:
    kernels.checks[(1,)](Array(np.array([7], np.int32)), 7, debug=True)
    memory.synchronize()
except KernelError as error:
    assert "an assertion failed: too great (" in str(error) and "amd_kernels.py:" in str(error) and "s_trap" in str(stand_in.error), (error, stand_in.error)
else:
    raise AssertionError("a failed assertion went unseen")

for name, value, message in (("limit", 100, "the kernel seems not to end"), ("seed", None, "the emulator failed: TypeError")):
    stand_in.recover()
    good = getattr(stand_in, name)
    setattr(stand_in, name, value)
    try:
        kernels.add[(3,)](left, right, out, 3000, BLOCK=1024)
        memory.synchronize()
    except KernelError as error:
        assert message in str(stand_in.error), (error, stand_in.error)
    else:
        raise AssertionError(f"a launch that failed went unseen: {message}")
    setattr(stand_in, name, good)
print("all right")
