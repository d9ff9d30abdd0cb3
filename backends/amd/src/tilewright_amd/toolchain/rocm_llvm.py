"""Code generation by AMD's own LLVM, for kernels with inline assembly."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.errors import LoweringError
from tilewright.gpu_host.driver import missing_module

REMEDY: Final = "install AMD's LLVM, which has an assembler: pip install rocm-bindings-compiler"
_PACKAGE: Final = "rocm.bindings.llvm"
#: Compression libraries that the library links with for debug information; no code calls them here.
_COMPRESSION: Final = ("librocm_sysdeps_z.so.1", "librocm_sysdeps_zstd.so.1")
_FORMS: Final = {"assembly": 0, "object": 1}
_ERROR: Final = 0
_PIC: Final = 2


def missing() -> str:
    """Return how to install the assembler for inline assembly; empty if it is installed."""
    return missing_module(_PACKAGE, REMEDY)


def generate(
    bitcode: bytes,
    forms: Sequence[str],
    triple: str,
    cpu: str,
    features: str,
    level: int,
    options: Sequence[str],
) -> list[bytes]:
    """Generate assembly, object code or both from a module's bitcode.

    Raises:
        LoweringError: the assembler or the code generator rejects the module; the message has all
            diagnostics.
    """
    llvm = _Library(_loaded())
    arguments = [b"tilewright", *(option.encode() for option in options)]
    llvm.call(
        "LLVMParseCommandLineOptions",
        None,
        len(arguments),
        (ctypes.c_char_p * len(arguments))(*arguments),
        None,
    )
    said: list[str] = []

    def diagnosed(address: int, _: int | None) -> None:
        diagnostic = ctypes.c_void_p(address)
        if llvm.call("LLVMGetDiagInfoSeverity", ctypes.c_int, diagnostic) == _ERROR:
            said.append(
                llvm.call("LLVMGetDiagInfoDescription", ctypes.c_char_p, diagnostic)
                .decode(errors="replace")
                .strip()
            )

    context = llvm.handle("LLVMContextCreate")
    handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(diagnosed)
    llvm.call("LLVMContextSetDiagnosticHandler", None, context, handler, None)
    machine = _machine(llvm, triple, cpu, features, level)
    module = ctypes.c_void_p()
    buffer = llvm.handle(
        "LLVMCreateMemoryBufferWithMemoryRangeCopy",
        bitcode,
        ctypes.c_size_t(len(bitcode)),
        b"kernel",
    )
    if llvm.call("LLVMParseBitcodeInContext2", ctypes.c_int, context, buffer, ctypes.byref(module)):
        raise LoweringError(f"AMD's LLVM does not read what llvmlite's wrote: {'; '.join(said)}")
    llvm.call("LLVMSetTarget", None, module, triple.encode())
    llvm.call(
        "LLVMSetModuleDataLayout", None, module, llvm.handle("LLVMCreateTargetDataLayout", machine)
    )
    made = []
    for form in forms:
        out, reason = ctypes.c_void_p(), ctypes.c_char_p()
        copy = llvm.handle("LLVMCloneModule", module)  # generating code changes a module
        emit = "LLVMTargetMachineEmitToMemoryBuffer"
        failed = llvm.call(
            emit, ctypes.c_int, machine, copy, _FORMS[form], ctypes.byref(reason), ctypes.byref(out)
        )
        if failed or said:
            raise LoweringError(
                "\n".join(dict.fromkeys(said)) or (reason.value or b"").decode(errors="replace")
            )
        size = llvm.call("LLVMGetBufferSize", ctypes.c_size_t, out)
        made.append(ctypes.string_at(llvm.handle("LLVMGetBufferStart", out), size))
    return made


def _machine(llvm: _Library, triple: str, cpu: str, features: str, level: int) -> ctypes.c_void_p:
    for part in ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"):
        llvm.call(f"LLVMInitializeAMDGPU{part}", None)
    target, reason = ctypes.c_void_p(), ctypes.c_char_p()
    if llvm.call(
        "LLVMGetTargetFromTriple",
        ctypes.c_int,
        triple.encode(),
        ctypes.byref(target),
        ctypes.byref(reason),
    ):
        raise LoweringError(
            f"AMD's LLVM generates no code for {triple!r}: "
            f"{(reason.value or b'').decode(errors='replace')}"
        )
    return llvm.handle(
        "LLVMCreateTargetMachine",
        target,
        triple.encode(),
        cpu.encode(),
        features.encode(),
        level,
        _PIC,
        0,
    )


class _Library:
    """Functions of LLVM's C interface.

    Nothing is freed: the process that loads the library ends with its answer.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, name)
        function.restype = result
        return function(*arguments)

    def handle(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        found = self.call(name, ctypes.c_void_p, *arguments)
        if not found:
            raise LoweringError(f"AMD's LLVM: {name} fails")
        return ctypes.c_void_p(found)


@functools.cache
def _loaded() -> ctypes.CDLL:
    spec = importlib.util.find_spec(_PACKAGE)
    folder = next(iter(spec.submodule_search_locations or []), None) if spec is not None else None
    if folder is None:
        raise LoweringError(REMEDY)
    path = str(Path(folder) / "libLLVM.so")
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        if "librocm_sysdeps" not in str(error):
            raise LoweringError(f"AMD's LLVM cannot be loaded: {error}") from None
    with tempfile.TemporaryDirectory() as scratch:
        for name in _COMPRESSION:
            file = Path(scratch) / name
            file.write_bytes(empty_library(name))
            ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)
        return _lazily(path)


def _lazily(path: str) -> ctypes.CDLL:
    """Load a library with lazy binding; ctypes itself always binds all functions."""
    loader = ctypes.CDLL(None)
    loader.dlopen.restype, loader.dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    loader.dlerror.restype = ctypes.c_char_p
    handle = loader.dlopen(os.fsencode(path), os.RTLD_LAZY)
    if not handle:
        raise LoweringError(f"AMD's LLVM cannot be loaded: {(loader.dlerror() or b'').decode()}")
    return ctypes.CDLL(path, handle=handle)


def empty_library(name: str) -> bytes:
    """Build an empty x86-64 shared object with the given ``SONAME``.

    It replaces a library whose functions are never called.
    """
    names = b"\0" + name.encode() + b"\0"
    header, program, programs = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), 2
    symbols = header.size + programs * program.size
    table = symbols + 24 + 16  # one null symbol; a hash table of one bucket, one chain
    dynamic = -(-(table + len(names)) // 8) * 8
    entries = [
        (14, 1),
        (4, symbols + 24),
        (5, table),
        (6, symbols),
        (10, len(names)),
        (11, 24),
        (0, 0),
    ]
    end = dynamic + 16 * len(entries)
    out = header.pack(
        b"\x7fELF\x02\x01\x01" + bytes(9),
        3,
        62,
        1,
        0,
        header.size,
        0,
        0,
        header.size,
        program.size,
        programs,
        64,
        0,
        0,
    )
    out += program.pack(1, 6, 0, 0, 0, end, end, 4096)
    out += program.pack(2, 6, dynamic, dynamic, dynamic, end - dynamic, end - dynamic, 8)
    out += bytes(24) + struct.pack("<4I", 1, 1, 0, 0) + names
    return out.ljust(dynamic, b"\0") + b"".join(struct.pack("<QQ", *entry) for entry in entries)
