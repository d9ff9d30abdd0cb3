"""A user's program on a mock HIP runtime; see ``host/test_hip_launch.py``.

The argument is the architecture.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import amd_kernels as kernels
from amd_support import example

from tilewright.errors import KernelError, LaunchError, ResidencyError
from tilewright.gpu_host import launch
from tilewright.gpu_host.table import DriverCall
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import registry
from tilewright_amd.codegen import prints
from tilewright_amd_emulator.hip.emulation import emulate

arch = sys.argv[1]
in_python = launch.PythonLauncher.__call__
if os.environ["TILEWRIGHT_AMD_LAUNCHER"] == "native":
    # machine code launches, and leaves nothing to Python but kernels with assertions and prints
    launch.PythonLauncher.__call__ = None  # type: ignore[method-assign]
lanes = 64 if arch in ("gfx90a", "gfx942", "gfx950") else 32
stand_in = emulate(arch)
backend = registry().get("amd")
assert backend.manifest.status == "", backend.manifest.status
(device,) = backend.call("tilewright_devices")
assert isinstance(device, Device) and (device.name, device.properties["arch"]) == (
    "emulated waves",
    arch,
)
memory = backend.call("tilewright_memory", device=device)


class Array:
    """An array of the device, as another library would bring it."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.dtype, self.shape, self.device = data.dtype, data.shape, "hip:0"
        self.buffer = memory.allocate(data.nbytes, 256)
        memory.copy_to_device(
            self.buffer, memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8))
        )

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

count, met = Array(np.zeros(1, np.int32)), Array(np.full(8, -1, np.int32))
kernels.meets[(4, 2)](count, met, cooperative=True)
np.testing.assert_array_equal(met.numpy(), np.full(8, 8))

places = Array(np.zeros(24, np.int32))
kernels.where_programs_are[(2, 3, 4)](places)
np.testing.assert_array_equal(places.numpy(), np.arange(24))

a, b = (
    rng.integers(-3, 4, (64, 96)).astype(np.float16),
    rng.integers(-3, 4, (96, 64)).astype(np.float16),
)
product = Array(np.zeros((64, 64), np.float16))
example("matmul").matmul(Array(a), Array(b), product, block=(64, 64, 32))
np.testing.assert_array_equal(product.numpy(), a.astype(np.float32) @ b.astype(np.float32))

timer = backend.call("tilewright_timer", device=device)
assert min(timer.measure(lambda: kernels.where_programs_are[(2, 3, 4)](places), 2)) > 0

launch.PythonLauncher.__call__ = in_python  # type: ignore[method-assign]

for launcher in (kernels.meets[(9,)], kernels.meets[(3, 3)]):
    try:
        launcher(count, met, cooperative=True)
    except ResidencyError as error:
        assert "8 fit: 2 on each of the 4 SMs (compute units) of hip:0" in str(error), error
    else:
        raise AssertionError("more programs than run at once were launched")
memory.synchronize()


def printed(grid: tuple[int, ...], value: int, limit: int, **options: Any) -> list[str]:
    """The lines of a launch that prints, also if it fails."""
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(KernelError):
        kernels.says_and_checks[grid](Array(np.array([value], np.int32)), limit, **options)
    return text.getvalue().splitlines()


assert sorted(printed((2,), 5, 9)) == [
    "pid (0, 0, 0) idx () found: 5",
    "pid (1, 0, 0) idx () found: 5",
]
with patch.object(prints, "BYTES", 3 * 5 * 8 + 8):  # three records of five words
    lines = printed((7,), 6, 9)
    assert len(set(lines[:3])) == 3 and all(
        line.endswith("idx () found: 6") for line in lines[:3]
    ), lines
    assert lines[3:] == [
        (
            "4 lines that kernel says_and_checks printed are lost: 3 fit. Print in fewer "
            "programs, or fewer elements"
        )
    ], lines
assert printed((1,), -5, 9) == ["pid (0, 0, 0) idx () found: -5"], "the lost lines come after"
with patch.object(prints, "_CAPTURING", DriverCall("capturing", lambda hip, stream: (0, 1))):
    try:
        printed((1,), 5, 9)
    except LaunchError as error:
        assert "it prints, for which its launch waits" in str(error), error
    else:
        raise AssertionError("a launch that prints was captured")
assert printed((1,), 50, 9, debug=True, num_warps=1) == ["pid (0, 0, 0) idx () found: 50"], (
    "what a failed kernel printed is lost"
)
stand_in.recover()
try:
    kernels.checks[(1,)](Array(np.array([7], np.int32)), 7, debug=True)
    memory.synchronize()
except KernelError as error:
    assert (
        "an assertion failed: too great (" in str(error)
        and "amd_kernels.py:" in str(error)
        and "s_trap" in str(stand_in.error)
    ), (error, stand_in.error)
else:
    raise AssertionError("a failed assertion went unseen")

for name, value, message in (
    ("limit", 100, "the kernel seems not to end"),
    ("seed", None, "the emulator failed: TypeError"),
):
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
