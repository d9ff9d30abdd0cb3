"""A HIP runtime for programs of tests: the library of ``stand_in_hip.c``, whose device is one of emulated waves, and which hip-python loads unmodified.

ROCM_PATH=folder python program.py        # in it: emulate("gfx942")
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
from pathlib import Path
from typing import Any

from amd_emulated import packed

from tilewright_conformance.waves import Arena, WaveError, load, run

_CALLBACKS = {
    "attribute": (ctypes.c_int, ctypes.c_int, ctypes.c_int),
    "properties": (None, ctypes.c_void_p, ctypes.c_int),
    "load": (ctypes.c_uint64, ctypes.c_void_p),
    "function": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p),
    "function_attribute": (ctypes.c_int, ctypes.c_int, ctypes.c_uint64),
    "allocate": (ctypes.c_uint64, ctypes.c_uint64),
    "release": (None, ctypes.c_uint64),
    "launch": (
        ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p),
    ),
}  # fmt: skip


class _Device(ctypes.Structure):
    _fields_ = [(name, ctypes.CFUNCTYPE(*types)) for name, types in _CALLBACKS.items()]


def build(folder: Path) -> None:
    """Compile the library into ``folder/lib``, for ROCM_PATH to name ``folder``."""
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "lib" / "libamdhip64.so"), str(source)], check=True)


@functools.cache
def _place_of_name() -> int:
    """Where in the structure of a device's properties the name of its architecture is: the bindings read it, from words that say where they are."""
    from rocm.bindings import hip

    words = ctypes.create_string_buffer("".join(f"{place:04d}" for place in range(1000)).encode() + bytes(4000))
    return 4 * int(hip.hipDeviceProp_t.fromObj(ctypes.addressof(words)).gcnArchName[:4])


class StandIn:
    """The device.

    Attributes:
        arch: what it says it is.
        launches: (symbol, grid, threads, bytes of LDS, stream) of each launch.
        error: what an emulated kernel did wrong.
    """

    def __init__(self, arch: str, lanes: int) -> None:
        from tilewright_amd import lower as lowering
        from tilewright_amd.driver import library

        self.arch, self.lanes, self.arena = arch, lanes, Arena()
        self.launches: list[tuple[str, tuple[int, ...], int, int, int]] = []
        self.error: WaveError | None = None
        self._listings: dict[bytes, str] = {}
        self._modules: list[bytes] = []
        lower = lowering.lower

        def kept(*arguments: Any) -> Any:
            """What was compiled: the emulator takes the assembly of the code that is loaded."""
            code = lower(*arguments)
            self._listings[code.binary] = code.stages["amdgcn"]
            return code

        lowering.lower = kept
        self._table = _Device(**{name: ctypes.CFUNCTYPE(*types)(getattr(self, f"_{name}")) for name, types in _CALLBACKS.items()})
        library().stand_in(ctypes.byref(self._table))

    def _attribute(self, number: int, device: int) -> int:
        from rocm.bindings import hip

        values = {"WarpSize": self.lanes, "MaxSharedMemoryPerBlock": 64 << 10, "MultiprocessorCount": 4, "MaxThreadsPerMultiProcessor": 2048}
        name = hip.hipDeviceAttribute_t(number).name.removeprefix("hipDeviceAttribute")
        return values.get(name, 1 << 16)

    def _properties(self, place: int, device: int) -> None:
        name = f"{self.arch}:sramecc+:xnack-".encode()
        ctypes.memmove(place + _place_of_name(), name + b"\0", len(name) + 1)

    def _load(self, image: int) -> int:
        headers = int.from_bytes(ctypes.string_at(image + 40, 8), "little")
        count = int.from_bytes(ctypes.string_at(image + 60, 2), "little")
        binary = ctypes.string_at(image, headers + 64 * count)
        if binary not in self._listings:
            return 0
        self._modules.append(binary)
        return len(self._modules)

    def _function(self, module: int, name: bytes) -> int:
        return module if f".amdhsa_kernel {name.decode()}\n" in self._listings[self._modules[module - 1]] else 0

    def _function_attribute(self, number: int, function: int) -> int:
        from rocm.bindings import hip

        return 1024 if hip.hipFunction_attribute(number).name.endswith("MAX_THREADS_PER_BLOCK") else 0

    def _allocate(self, size: int) -> int:
        return int(self.arena.allocate(size))

    def _release(self, address: int) -> None:
        self.arena.release(address)

    def _launch(self, function: int, grid: Any, threads: int, shared: int, stream: int, arguments: Any) -> int:
        listing = self._listings[self._modules[function - 1]]
        (symbol,) = re.findall(r"\.amdhsa_kernel (\w+)", listing)
        metadata = listing[listing.index("amdhsa.kernels:") :]
        found = re.findall(r"\.size: +(\d+)\n +\.value_kind: +(?:by_value|global_buffer)", metadata)
        values: list[bytes | int] = [ctypes.string_at(arguments[i], int(size)) for i, size in enumerate(found)]
        x, y, z = grid[0], grid[1], grid[2]
        self.launches.append((symbol, (x, y, z), threads, shared, stream))
        try:
            run(
                load(listing), symbol, grid=(x, y, z), threads=threads, arguments=packed(listing, values, (x, y, z)), dynamic_lds=shared,
                arena=self.arena, schedule="random", seed=len(self.launches),
            )  # fmt: skip
        except WaveError as error:
            self.error = error
            return 719 if "s_trap" in str(error) else 700
        return 0
