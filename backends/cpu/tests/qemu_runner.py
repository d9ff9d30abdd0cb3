"""Kernels for processors that are not this machine's, run by QEMU's user-mode emulation through a
small C program.

A batch of kernels is compiled for one target, linked into one static executable with Debian's cross
compiler, and every launch goes through its standard input and output: arrays with guards around
them, argument slots, and the status block that comes back.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir import Module
from tilewright.ir.types import DescriptorType, FloatType, IntType, PointerType, Type
from tilewright.plugins.manifest import Target
from tilewright.reference import interpreter
from tilewright.reference.numerics import encode, numpy_dtype
from tilewright_cpu.lower import lower

#: Bytes in front of and behind every array, which no kernel may touch.
GUARD = 128

_MAIN = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void kernel_t(const uint64_t *words, int64_t first, int64_t last, void *memory);
extern kernel_t *const kernels[];
extern const uint64_t memory[][2];                           /* bytes that a kernel is given, and how many of them are zero */
void tilewright_print(void) { exit(4); }
static void take(void *to, size_t size) { if (fread(to, 1, size, stdin) != size) exit(3); }
static void give(const void *from, size_t size) { if (fwrite(from, 1, size, stdout) != size) exit(3); }
int main(void) {
    uint64_t launches;
    take(&launches, sizeof launches);
    while (launches--) {
        uint64_t head[6], words[256], sizes[64];
        char *blocks[64];
        int32_t status[16] = {0};
        take(head, sizeof head);                                 /* kernel, grid, slots, blocks */
        if (head[4] > 251 || head[5] > 64) return 2;
        for (uint64_t b = 0; b < head[5]; ++b) {
            take(&sizes[b], sizeof sizes[b]);
            blocks[b] = aligned_alloc(64, (sizes[b] + 63) / 64 * 64);
            take(blocks[b], sizes[b]);
        }
        words[0] = head[1], words[1] = head[2], words[2] = head[3], words[3] = (uint64_t)(uintptr_t)status, words[4] = 0;
        for (uint64_t s = 0; s < head[4]; ++s) {
            uint64_t slot[2];                                    /* 0 and a value, or the number of a block from 1 on and an offset */
            take(slot, sizeof slot);
            words[5 + s] = slot[0] ? (uint64_t)(uintptr_t)(blocks[slot[0] - 1] + slot[1]) : slot[1];
        }
        uint64_t bytes = (memory[head[0]][0] + 63) / 64 * 64;
        char *room = bytes ? aligned_alloc(64, bytes) : 0;
        if (bytes) memset(room, 0xA5, bytes), memset(room, 0, memory[head[0]][1]);
        kernels[head[0]](words, 0, (int64_t)(head[1] * head[2] * head[3]), room);
        free(room);
        give(status, 5 * sizeof *status);
        for (uint64_t b = 0; b < head[5]; ++b) give(blocks[b], sizes[b]), free(blocks[b]);
        fflush(stdout);
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Toolchain:
    """Tools of an architecture: names of a C compiler and of QEMU's emulator, and its processor."""

    compiler: str
    emulator: str
    processor: str

    def missing(self) -> str:
        """The commands that this system lacks, as one reason to skip a test; empty where all are
        there."""
        return ", ".join(
            name
            for name, path in (
                (self.compiler, shutil.which(self.compiler)),
                (self.emulator, self._emulator()),
            )
            if path is None
        )

    def _emulator(self) -> str | None:
        return shutil.which(f"{self.emulator}-static") or shutil.which(self.emulator)

    def command(self, program: Path) -> list[str]:
        return [str(self._emulator()), "-cpu", self.processor, str(program)]


TOOLCHAINS = {
    "aarch64": Toolchain("aarch64-linux-gnu-gcc", "qemu-aarch64", "max"),
    "riscv64": Toolchain(
        "riscv64-linux-gnu-gcc", "qemu-riscv64", "rv64,v=true,vlen=128,vext_spec=v1.0"
    ),
}


@dataclass(frozen=True)
class Launch:
    """One launch of a module's kernel."""

    module: Module
    arguments: Sequence[Any]
    grid: tuple[int, int, int]


def run_on(target: Target, launches: Sequence[Launch], directory: Path) -> list[list[Any]]:
    """Run each launch on an emulated processor; the arguments after it.

    Raises:
        AssertionError: a kernel failed an assertion, or wrote beside an array.
    """
    tools = TOOLCHAINS[target.arch]
    objects, table, memory = [], [], []
    for number, launch in enumerate(launches):
        renamed = launch.module.kernel.name
        launch.module.kernel.name = f"kernel_{number}"
        try:
            code = lower(launch.module, target, {})
        finally:
            launch.module.kernel.name = renamed
        path = directory / f"{number}.o"
        path.write_bytes(code.binary)
        objects.append(path.name)
        table.append(str(code.metadata["kernel"]))
        memory.append(f"{{{code.metadata['memory_bytes']}, {code.metadata['cleared_bytes']}}}")
    declared = "".join(f"extern kernel_t {name};\n" for name in table)
    type_ = (
        "#include <stdint.h>\ntypedef void kernel_t(const uint64_t *, int64_t, int64_t, void *);\n"
    )
    listed = (
        f"{type_}{declared}kernel_t *const kernels[] = {{{', '.join(table)}}};\n"
        f"const uint64_t memory[][2] = {{{', '.join(memory)}}};\n"
    )
    (directory / "main.c").write_text(_MAIN)
    (directory / "table.c").write_text(listed)
    (directory / "objects").write_text("\n".join(objects))
    link = [
        tools.compiler,
        "-static",
        "-O1",
        "main.c",
        "table.c",
        "@objects",
        "-lm",
        "-o",
        "kernels",
    ]
    linked = subprocess.run(link, cwd=directory, capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr[-4000:]
    packed = [_pack(number, launch) for number, launch in enumerate(launches)]
    request = struct.pack("<Q", len(launches)) + b"".join(data for data, _ in packed)
    done = subprocess.run(
        tools.command(directory / "kernels"), input=request, capture_output=True, check=False
    )
    reply, results = memoryview(done.stdout), []
    for launch, (_, sizes) in zip(launches, packed, strict=True):
        size = 20 + sum(sizes)
        assert len(reply) >= size, (
            f"{target.cpu}: launch {len(results)} ended the program with status "
            f"{done.returncode}: {done.stderr.decode()[-2000:]}"
        )
        results.append(_unpack(launch, sizes, reply[:size]))
        reply = reply[size:]
    return results


def _bare(value: Any) -> np.ndarray | None:
    base = value if isinstance(value, np.ndarray) else getattr(value, "base", None)
    return base if isinstance(base, np.ndarray) else None


def _pack(number: int, launch: Launch) -> tuple[bytes, list[int]]:
    """A launch as the program reads it, and the sizes of its blocks, guards included."""
    blocks: list[bytes] = []
    slots: list[tuple[int, int]] = []
    for value, argument in zip(launch.arguments, launch.module.kernel.arguments, strict=True):
        array = _bare(value)
        if array is None:
            slots.append((0, bits_of(value, argument.type)))
            continue
        blocks.append(b"\xa5" * GUARD + array.tobytes() + b"\xa5" * GUARD)
        slots.append((len(blocks), GUARD))
        if isinstance(argument.type, DescriptorType):
            slots += [(0, int(extent)) for extent in (*value.shape, *value.strides)]
        else:
            assert isinstance(argument.type, PointerType)
    data = struct.pack("<6Q", number, *launch.grid, len(slots), len(blocks))
    data += b"".join(struct.pack("<Q", len(block)) + block for block in blocks)
    data += b"".join(struct.pack("<QQ", kind, value & (2**64 - 1)) for kind, value in slots)
    return data, [len(block) for block in blocks]


def bits_of(value: Any, type_: Type) -> int:
    """Return the contents of a scalar argument's slot."""
    if isinstance(type_, IntType):
        return int(value)
    assert isinstance(type_, FloatType)
    bits = (
        encode(np.asarray([value], np.float64), type_)
        if numpy_dtype(type_).kind == "u"
        else np.array([value], numpy_dtype(type_))
    )
    return int(bits.view(f"u{type_.bits // 8}")[0])


def _unpack(launch: Launch, sizes: list[int], reply: memoryview) -> list[Any]:
    status = np.frombuffer(reply[:20], np.int32)
    assert not status[0], (
        f"assertion {status[1]} of kernel {launch.module.kernel.name} failed in program "
        f"{tuple(status[2:])}"
    )
    reply, found, remaining = reply[20:], [], iter(sizes)
    for value in launch.arguments:
        array = _bare(value)
        if array is None:
            found.append(value)
            continue
        size = next(remaining)
        memory = np.frombuffer(reply[:size], np.uint8)
        reply = reply[size:]
        assert (memory[:GUARD] == 0xA5).all() and (memory[size - GUARD :] == 0xA5).all(), (
            "the kernel wrote beside an array"
        )
        copy = memory[GUARD : size - GUARD].view(array.dtype).reshape(array.shape)
        found.append(
            copy
            if isinstance(value, np.ndarray)
            else interpreter.DescriptorValue(copy, value.shape, value.strides, value.padding)
        )
    return found
