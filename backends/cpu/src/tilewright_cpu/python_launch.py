"""The Python launcher, which takes every kind of argument and reports every error."""

from __future__ import annotations

import ctypes
import struct
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import LaunchError, ResidencyError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import DescriptorType, IntType, PointerType, Type
from tilewright.plugins.manifest import Parameter
from tilewright.runtime.arguments.argument_words import MISFITS, misfit, slot_codec
from tilewright.runtime.arguments.array_protocols import address_of
from tilewright.runtime.arguments.bounds_check import memory_of
from tilewright.runtime.arguments.writability import write_guard
from tilewright_cpu.prepack import packed_list
from tilewright_cpu.runtime import PRINTED, LoadedKernel
from tilewright_cpu.status import STATUS_WORDS
from tilewright_cpu.threading.pool import RESIDENT, Pool, TooFewThreadsError

#: Words before the arguments: the grid, the addresses of the status block and of the list of packed
#: operands.
HEADER = "qqqQQ"

Grid = tuple[int, int, int]

_address = ctypes.addressof


def _address_of(value: Any) -> int:
    """The address of an array, or the number that is one."""
    return value if type(value) is int else address_of(value)


def _bounds_of(array: Any) -> tuple[int, int]:
    """Start of the memory that an array is a view of, and its bytes; all memory where not known."""
    memory = memory_of(array)
    return (memory[0], memory[1] - memory[0]) if memory is not None else (0, 2**63 - 1)


def make_packer(
    types: Sequence[Type], bounded: Sequence[int] = ()
) -> Callable[[int, int, int, int, int, tuple[Any, ...]], bytes]:
    """Generate a function that packs a launch's values into the kernel's slots.

    Its parameters are x, y, z, the address of the status block, that of the list of packed
    operands, and the values. Behind the values are the bounds of the arguments at the positions
    ``bounded``. It raises what ``struct.pack`` or an encoder raises where a value does not fit, and
    ValueError for another number of values.
    """
    names: dict[str, Any] = {"address_of": address_of}
    codes, words = [HEADER], ["x", "y", "z", "status", "packed"]
    for position, type_ in enumerate(types):
        code, encode = slot_codec(type_, _address_of)
        codes.append(code)
        value = f"a{position}"
        if isinstance(type_, IntType) and type_.bits > 1:
            words.append(value)
        elif isinstance(type_, PointerType):
            words.append(f"{value} if type({value}) is int else address_of({value})")
        else:
            names[f"encode{position}"] = encode
            words.append(f"*encode{position}({value})")
    for position in bounded:
        names["bounds_of"] = _bounds_of
        codes.append("QQ")
        base = ".base" if isinstance(types[position], DescriptorType) else ""
        words.append(f"*bounds_of(a{position}{base})")
    names["pack"] = struct.Struct("<" + "".join(codes)).pack
    unpacked = "".join(f"a{position}, " for position in range(len(types)))
    body = f"({unpacked}) = values" if types else "() = values"
    source = (
        f"def packer(x, y, z, status, packed, values):\n    {body}\n    return "
        f"pack({', '.join(words)})\n"
    )
    exec(compile(source, "<packer of a kernel's arguments>", "exec"), names)
    packer: Callable[[int, int, int, int, int, tuple[Any, ...]], bytes] = names["packer"]
    return packer


class PythonLauncher:
    """Launcher in Python.

    Every launch has its own slots, so launches from several threads do not meet.
    """

    def __init__(
        self, loaded: LoadedKernel, parameters: Sequence[Parameter], threads: Pool
    ) -> None:
        self.loaded, self.parameters, self.pool = loaded, tuple(parameters), threads
        self._pack = make_packer(
            [parse_type(parameter.type) for parameter in parameters],
            loaded.metadata.get("bounds", ()),
        )
        self._guard = write_guard(loaded.name, parameters)
        self._record = ctypes.addressof(loaded.record)
        self._cooperative = bool(loaded.metadata.get("cooperative"))
        self._run: Callable[[int, bytes, int], None] = (
            self._run_waiting if "waits" in loaded.metadata else threads.run
        )
        self._prepackable = bool(loaded.metadata.get("prepackable"))

    def __call__(self, grid: Grid, stream: Any, values: tuple[Any, ...]) -> None:
        """Run the kernel on ``grid`` and wait for it.

        Raises:
            LaunchError: the values do not fit the kernel's parameters, or one that the kernel may
            store to is read-only. ResidencyError: the launch is cooperative, and has more programs
            than the process can have threads. KernelError: an assertion of the kernel failed, or,
            where it is compiled with ``debug``, an access was outside an argument's memory.
            KeyboardInterrupt: or what else a signal's handler raised meanwhile; the programs that
            had not begun are omitted.
        """
        x, y, z = grid
        programs = x * y * z
        if programs <= 0 or x < 0 or y < 0:
            if min(grid) < 0:
                raise LaunchError(
                    f"{self.loaded.name}: a grid's extents are not negative, but this one is {grid}"
                )
            return
        status = (ctypes.c_int32 * STATUS_WORDS)()
        try:
            packed = packed_list(values) if self._prepackable else None
            slots = self._pack(
                x, y, z, _address(status), 0 if packed is None else _address(packed), values
            )
        except MISFITS as error:
            name = self.loaded.name
            raise misfit(name, self.parameters, values, _address_of) or LaunchError(
                f"{name}: the grid {error} does not fit 64 bits"
            ) from error
        self._guard(values)
        if self._cooperative:
            self._run_at_once(grid, slots, programs)
        else:
            self._run(self._record, slots, programs)
        if self.loaded.prints:
            PRINTED.flush()
        if status[0]:
            self.loaded.raise_failure(*status)

    def _run_at_once(self, grid: Grid, slots: bytes, programs: int) -> None:
        try:
            self.pool.run_at_once(self._record, slots, programs)
        except TooFewThreadsError as error:
            why = (
                "each runs on a thread of its own, and the process can start no more of them "
                f"({error}; ulimit -u and the control group's pids.max bound them)"
            )
            raise ResidencyError(self.loaded.name, grid, error.started, why) from error

    def _run_waiting(self, record: int, slots: bytes, programs: int) -> None:
        self.pool.run_waiting(record, slots, programs, self._warn_stuck)

    def _warn_stuck(self, running: int, left: int) -> None:
        text = (
            f"kernel {self.loaded.name}: {running} programs have been running for long, {left} "
            "have not begun, and more do not run at once. Where the former wait for the latter, in "
            f"the loop at {self.loaded.metadata['waits']}, the launch does not end: interrupt it, "
            f"and take a grid of at most {RESIDENT} programs"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=2)
