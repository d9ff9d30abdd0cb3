"""Kernels for Windows and macOS, compiled to objects of their formats and linked, not run.

They need no more of the system than is known here.
"""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.llvm.codegen.compile import compile_to_object


@tw.jit
def product_kernel(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + i
        total = tl.dot(
            tl.load(a_ptr + i[:, None] * K + k[None, :]),
            tl.load(b_ptr + k[:, None] * BLOCK + i[None, :]),
            total,
        )
    tl.store(c_ptr + i[:, None] * BLOCK + i[None, :], tl.erf(total))


@tw.jit
def sorting_kernel(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(b_ptr + i, tl.sort(tl.load(a_ptr + i, mask=i < K)))


@tw.jit
def counting_kernel(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(c_ptr + tl.load(a_ptr + i, mask=i < K).to(tl.int32), tl.rand(7, i), mask=i < K)


KERNELS = (product_kernel, sorting_kernel, counting_kernel)
#: The triple of a system, what its objects begin with, and the target to compile for.
SYSTEMS = {
    "x86_64-pc-windows-msvc": (b"\x64\x86", "x86-64-v3"),
    "aarch64-pc-windows-msvc": (b"\x64\xaa", "aarch64"),
    "x86_64-apple-macosx11": (b"\xcf\xfa\xed\xfe", "x86-64-v3"),
    "arm64-apple-macosx11": (b"\xcf\xfa\xed\xfe", "apple-m1"),
}
#: What kernels call of Windows: the probe of stack memory, and a mark of programs that compute with
#: floats.
OF_WINDOWS = {"__chkstk", "_fltused"}

LINKING = """
import sys, ctypes
import llvmlite.binding as llvm
llvm.initialize_all_targets(); llvm.initialize_all_asmprinters()
triple, file, name = sys.argv[1:]
for symbol in ("__chkstk", "_fltused"):
    llvm.add_symbol(symbol, ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value)
engine = llvm.create_mcjit_compiler(llvm.parse_assembly(f'target triple = "{triple}"'), llvm.Target.from_triple(triple).create_target_machine())
engine.add_object_file(llvm.ObjectFileRef.from_path(file))
engine.finalize_object()
print("linked" if engine.get_function_address(name) else "not found")
"""


def object_of(kernel: Any, triple: str) -> bytes:
    found = tw.explain(
        kernel, "*fp32, *fp32, *fp32, i32", BLOCK=64, backend="cpu", arch=SYSTEMS[triple][1]
    )
    text = "\n".join(line.text for line in found.panes["llir"])
    cpu = SYSTEMS[triple][1]
    return compile_to_object(text, triple=triple, cpu="generic" if cpu == "aarch64" else cpu)


def undefined_symbols(binary: bytes) -> set[str]:
    """Return the undefined symbols of an object, from the symbol tables of COFF and of Mach-O."""

    def text(start: int) -> str:
        return binary[start : binary.index(b"\0", start)].decode()

    if binary[:4] == b"\xcf\xfa\xed\xfe":
        (commands,), offset = struct.unpack_from("<I", binary, 16), 32
        for _ in range(commands):
            command, size = struct.unpack_from("<II", binary, offset)
            if command == 2:  # LC_SYMTAB
                table, count, strings, _ = struct.unpack_from("<IIII", binary, offset + 8)
                symbols = [
                    struct.unpack_from("<IBBHQ", binary, table + 16 * index)
                    for index in range(count)
                ]
                return {
                    text(strings + name)
                    for name, kind, *_ in symbols
                    if kind & 0x0E == 0 and kind & 1
                }
            offset += size
        return set()
    table, count = struct.unpack_from("<II", binary, 8)
    found, index = set(), 0
    while index < count:
        name, _, section, _, storage, more = struct.unpack_from(
            "<8sIhHBB", binary, table + 18 * index
        )
        if section == 0 and storage == 2:
            found.add(
                text(table + 18 * count + struct.unpack("<I", name[4:])[0])
                if name[:4] == bytes(4)
                else name.rstrip(b"\0").decode()
            )
        index += 1 + more
    return found


@pytest.mark.parametrize("triple", SYSTEMS)
def test_objects_are_of_the_systems_format_and_need_nothing_unknown(triple: str) -> None:
    needed = set()
    for kernel in KERNELS:
        binary = object_of(kernel, triple)
        assert binary.startswith(SYSTEMS[triple][0])
        needed |= undefined_symbols(binary)
    if "windows" in triple:
        assert "__chkstk" in needed
        assert needed <= OF_WINDOWS
    else:
        assert needed == set()


@pytest.mark.skipif(sys.platform == "win32", reason="its own objects are linked by every test")
@pytest.mark.parametrize("triple", SYSTEMS)
def test_objects_for_this_processor_are_linked(triple: str, tmp_path: Path) -> None:
    here = {"AMD64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    if triple.partition("-")[0].replace("aarch64", "arm64") != here:
        pytest.skip("for another processor")
    for kernel in KERNELS:
        (tmp_path / "kernel.o").write_bytes(object_of(kernel, triple))
        done = subprocess.run(
            [sys.executable, "-c", LINKING, triple, str(tmp_path / "kernel.o"), kernel.__name__],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.stdout == "linked\n", done.stderr
