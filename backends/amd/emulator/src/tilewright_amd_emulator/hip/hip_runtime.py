"""A mock HIP runtime with an emulated device, for unmodified hip-python or the mock's bindings.

Its C half, ``hip_runtime.c``, forwards each call to :class:`EmulatedDevice`.

    os.environ["ROCM_PATH"] = str(build(folder))      # before anything asks for the runtime
    device = EmulatedDevice("gfx942", listings)
    ...                                               # launches through hip-python
    device.error, device.covered

The memory of the device is checked; a kernel that fails leaves the device unusable, as hardware
does. The code that runs is the assembly text of the code object that was loaded, found in the
folder ``listings`` under the SHA-256 of its bytes, or the bytes themselves where AMD's disassembler
is installed.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal

from tilewright_amd_emulator.code.assembly import load
from tilewright_amd_emulator.code.disassembly import disassembled
from tilewright_amd_emulator.code.program import Program
from tilewright_amd_emulator.engine.coverage import Coverage
from tilewright_amd_emulator.engine.kernel_arguments import packed, sizes_of_arguments
from tilewright_amd_emulator.engine.launch import run
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.hip import hip_bindings
from tilewright_amd_emulator.instructions.lds import lds_limit
from tilewright_amd_emulator.memory.arena import Arena
from tilewright_amd_emulator.memory.host_arena import HostArena

#: bytes of the device's memory; pages that nothing uses are not there
MEMORY = 1 << 30
#: the architectures whose waves have 64 lanes
_WIDE = ("gfx90a", "gfx942", "gfx950")
#: what the runtime says of a kernel that accessed what it must not, and of one that stopped itself
_ILLEGAL_ADDRESS, _LAUNCH_FAILURE = 700, 719

_CALLBACKS: dict[str, tuple[Any, ...]] = {
    "attribute": (ctypes.c_int, ctypes.c_int, ctypes.c_int),
    "properties": (None, ctypes.c_void_p, ctypes.c_int),
    "load": (ctypes.c_uint64, ctypes.c_void_p),
    "unload": (None, ctypes.c_uint64),
    "function": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p),
    "function_attribute": (ctypes.c_int, ctypes.c_int, ctypes.c_uint64),
    "allocate": (ctypes.c_uint64, ctypes.c_uint64),
    "release": (None, ctypes.c_uint64),
    "launch": (
        ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32,
        ctypes.c_uint32, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_int,
    ),
    "explain": (ctypes.c_void_p, ctypes.c_int),
}  # fmt: skip

#: Devices of this process: the library calls the last one to the end, and nothing else may keep it.
_DEVICES: list[EmulatedDevice] = []


class _Callbacks(ctypes.Structure):
    _fields_ = [(name, ctypes.CFUNCTYPE(*types)) for name, types in _CALLBACKS.items()]


def build(folder: Path) -> Path:
    """Compile the library into ``folder/lib`` and return ``folder``, for ROCM_PATH.

    Raises:
        WaveError: there is no C compiler (``cc``), or it fails.
    """
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    library = folder / "lib" / "libamdhip64.so"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / library.name
        command = [
            "cc",
            "-shared",
            "-pthread",
            "-fPIC",
            "-O1",
            "-o",
            str(made),
            str(Path(__file__).with_suffix(".c")),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise WaveError(
                "the stand-in of the HIP runtime is made by a C compiler, and there is no cc on "
                "this machine"
            ) from None
        except subprocess.CalledProcessError as error:
            raise WaveError(
                f"the stand-in of the HIP runtime cannot be compiled: {error.stderr}"
            ) from None
        os.replace(made, library)
    return folder


class EmulatedDevice:
    """The device of the stand-in that ROCM_PATH names, in this process.

    Args:
        target: the architecture it is of.
        listings: folder of assembly texts.
        schedule, seed: which waves run when; see :func:`tilewright_amd_emulator.engine.launch.run`.
        Each launch has a seed of its own. shared: its memory is the host's, of which kernels access
        what :meth:`share` registered too. limit: instructions that the waves of a batch may
        execute before their kernel counts as one that does not end, an error.

    Attributes:
        launches: (symbol, grid, threads, bytes of LDS, stream) of each launch.
        error: what an emulated kernel did wrong, if one did.
        covered: the mnemonics that were executed.
    """

    def __init__(
        self,
        target: str,
        listings: Path,
        schedule: Literal["lockstep", "random"] = "random",
        seed: int = 0,
        shared: bool = False,
        limit: int = 1 << 28,
    ) -> None:
        self.target, self.listings, self.schedule, self.seed, self.limit = (
            target,
            listings,
            schedule,
            seed,
            limit,
        )
        self.lanes = 64 if target in _WIDE else 32
        self.covered = Coverage()
        # the runtime of AMD has its devices access words at any address
        self.arena = HostArena(unaligned=True) if shared else Arena(MEMORY, unaligned=True)
        self.launches: list[tuple[str, tuple[int, ...], int, int, int]] = []
        self.error: WaveError | None = None
        self._lock = threading.RLock()
        self._text = ctypes.create_string_buffer(b"what the runtime says")
        self._modules: dict[int, tuple[str, Program]] = {}
        self._functions: list[tuple[int, str]] = []
        self._callbacks = _Callbacks(
            **{
                name: ctypes.CFUNCTYPE(*types)(getattr(self, f"_{name}"))
                for name, types in _CALLBACKS.items()
            }
        )
        library = ctypes.CDLL(str(Path(os.environ["ROCM_PATH"]) / "lib" / "libamdhip64.so"))
        self._library = library
        library.stand_in(ctypes.byref(self._callbacks))
        _DEVICES.append(self)

    def share(self, address: int, size: int) -> None:
        """Let kernels access memory of the host.

        Raises:
            WaveError: the device has memory of its own.
        """
        if not isinstance(self.arena, HostArena):
            raise WaveError("the emulated device has memory of its own: make it with shared=True")
        # atomics of two bytes are of the word that they lie in
        self.arena.share(address, -(-size // 4) * 4)

    def end_process_on_fault(self) -> None:
        """End the process by SIGABRT if a kernel fails, as HSA does.

        The host does not learn of the failure.
        """
        self._library.stand_in_aborts(1)

    def recover(self) -> None:
        """Let the device be used again after a kernel that failed, as no hardware would."""
        self.error = None
        self._library.stand_in_recover()

    def _attribute(self, number: int, device: int) -> int:
        attribute = hip_bindings.hipDeviceAttribute_t
        values = {
            int(attribute.hipDeviceAttributeWarpSize): self.lanes,
            int(attribute.hipDeviceAttributeMaxSharedMemoryPerBlock): lds_limit(self.target),
            int(attribute.hipDeviceAttributeMultiprocessorCount): 4,
            int(attribute.hipDeviceAttributeMaxThreadsPerMultiProcessor): 2048,
        }
        return values.get(number, 1 << 16)

    def _properties(self, place: int, device: int) -> None:
        found = hip_bindings.hipDeviceProp_t.from_address(place)
        found.gcnArchName = f"{self.target}:sramecc+:xnack-".encode()

    def _load(self, image: int) -> int:
        headers = int.from_bytes(ctypes.string_at(image + 40, 8), "little")
        count = int.from_bytes(ctypes.string_at(image + 60, 2), "little")
        try:
            listing = self._listing(ctypes.string_at(image, headers + 64 * count))
            program = load(listing)
        except WaveError as error:
            self.error = error
            return 0
        number = max(self._modules, default=0) + 1
        self._modules[number] = listing, program
        return number

    def _listing(self, binary: bytes) -> str:
        with contextlib.suppress(OSError):
            return (self.listings / hashlib.sha256(binary).hexdigest()).read_text()
        return disassembled(binary)

    def _unload(self, module: int) -> None:
        self._modules.pop(module, None)

    def _function(self, module: int, name: bytes) -> int:
        if module not in self._modules or name.decode() not in self._modules[module][1].kernels:
            return 0
        self._functions.append((module, name.decode()))
        return len(self._functions)

    def _function_attribute(self, number: int, function: int) -> int:
        attribute = hip_bindings.hipFunction_attribute
        return 1024 if number == attribute.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK else 0

    def _allocate(self, size: int) -> int:
        # atomics of two bytes are of the word that they lie in, which an allocation has
        try:
            return int(self.arena.allocate(-(-size // 4) * 4))
        except WaveError:
            return 0

    def _release(self, address: int) -> None:
        self.arena.release(address)

    def _launch(
        self,
        function: int,
        grid: Any,
        threads: int,
        shared: int,
        stream: int,
        arguments: Any,
        cooperative: int,
    ) -> int:
        with self._lock:
            return self._run(
                function,
                (grid[0], grid[1], grid[2]),
                threads,
                shared,
                stream,
                arguments,
                bool(cooperative),
            )

    def _run(
        self,
        function: int,
        groups: tuple[int, int, int],
        threads: int,
        shared: int,
        stream: int,
        arguments: Any,
        cooperative: bool,
    ) -> int:
        module, symbol = self._functions[function - 1]
        listing, program = self._modules[module]
        self.launches.append((symbol, groups, threads, shared, stream))
        try:
            values: list[bytes | int] = [
                ctypes.string_at(arguments[i], size)
                for i, size in enumerate(sizes_of_arguments(listing))
            ]
            self.covered += run(
                program, symbol, grid=groups, threads=threads,
                arguments=packed(listing, values, groups), dynamic_lds=shared, arena=self.arena,
                schedule=self.schedule, seed=self.seed + len(self.launches), limit=self.limit,
                together=cooperative,
            )  # fmt: skip
        except WaveError as error:
            self.error = error
            return _LAUNCH_FAILURE if "s_trap" in str(error) else _ILLEGAL_ADDRESS
        except Exception as error:
            # ctypes drops exceptions of callbacks, and the launch would seem to have succeeded.
            self.error = WaveError(f"the emulator failed: {type(error).__name__}: {error}")
            return _LAUNCH_FAILURE
        return 0

    def _explain(self, code: int) -> int:
        if self.error is not None:
            self._text = ctypes.create_string_buffer(str(self.error).encode())
        return ctypes.addressof(self._text)
