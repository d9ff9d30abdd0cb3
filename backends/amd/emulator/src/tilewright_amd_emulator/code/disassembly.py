"""Disassembly of code objects to text for :func:`load`, by LLVM of ``rocm-bindings-compiler``.

The emulator then runs the bytes that hardware would load, after the encoder and the linker.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilewright_amd_emulator.errors import WaveError

_TRIPLE = b"amdgcn-amd-amdhsa"
#: the low byte of e_flags -> processor
_MACHINES = {
    0x3F: "gfx90a",
    0x4C: "gfx942",
    0x4F: "gfx950",
    0x41: "gfx1100",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x43: "gfx1150",
    0x4A: "gfx1151",
}
_MACHINES |= {0x44: "gfx1103", 0x55: "gfx1152", 0x58: "gfx1153", 0x48: "gfx1200", 0x4E: "gfx1201"}
#: directive -> word of the descriptor (offset in bytes), first bit, bits
_FIELDS = {
    "group_segment_fixed_size": (0, 0, 32),
    "private_segment_fixed_size": (4, 0, 32),
    "kernarg_size": (8, 0, 32),
    "float_round_mode_32": (48, 12, 2),
    "float_round_mode_16_64": (48, 14, 2),
    "float_denorm_mode_32": (48, 16, 2),
    "float_denorm_mode_16_64": (48, 18, 2),
    "dx10_clamp": (48, 21, 1),
    "ieee_mode": (48, 23, 1),
    "workgroup_processor_mode": (48, 29, 1),
    "enable_private_segment": (52, 0, 1),
    "user_sgpr_count": (52, 1, 5),
    "system_sgpr_workgroup_id_x": (52, 7, 1),
    "system_sgpr_workgroup_id_y": (52, 8, 1),
    "system_sgpr_workgroup_id_z": (52, 9, 1),
    "system_sgpr_workgroup_info": (52, 10, 1),
    "user_sgpr_private_segment_buffer": (56, 0, 1),
    "user_sgpr_dispatch_ptr": (56, 1, 1),
    "user_sgpr_queue_ptr": (56, 2, 1),
    "user_sgpr_kernarg_segment_ptr": (56, 3, 1),
    "user_sgpr_dispatch_id": (56, 4, 1),
    "user_sgpr_flat_scratch_init": (56, 5, 1),
    "user_sgpr_private_segment_size": (56, 6, 1),
    "wavefront_size32": (56, 10, 1),
    "user_sgpr_kernarg_preload_length": (56, 16, 7),
    "user_sgpr_kernarg_preload_offset": (56, 23, 9),
}


@dataclass(frozen=True)
class _Section:
    address: int
    data: bytes
    executable: bool

    def holds(self, address: int) -> bool:
        return self.address <= address < self.address + len(self.data)


class _Image:
    """The parts of an ELF file that matter: sections that are loaded, and symbols."""

    def __init__(self, data: bytes) -> None:
        if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != 224:
            raise WaveError("the bytes are not a 64-bit ELF file for AMD's GPUs")
        machine = struct.unpack_from("<I", data, 48)[0] & 0xFF
        if machine not in _MACHINES:
            raise WaveError(
                f"code for machine {machine:#x} is not supported; it is for "
                f"{', '.join(sorted(_MACHINES.values()))}"
            )
        self.target = _MACHINES[machine]
        relocatable = struct.unpack_from("<H", data, 16)[0] == 1
        start, size, count = (
            struct.unpack_from("<Q", data, 40)[0],
            *struct.unpack_from("<HH", data, 58),
        )
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
        self.sections: dict[int, _Section] = {}
        place = 0
        for number, (_, kind, flags, address, offset, length, *_) in enumerate(headers):
            if (
                kind == 1 and flags & 2
            ):  # sections of a relocatable file have no addresses yet: one behind the other
                at = place if relocatable else address
                self.sections[number] = _Section(
                    at, data[offset : offset + length], bool(flags & 4)
                )
                place = -(-(at + length) // 4096) * 4096
        for _, kind, _, _, _, length, _, patched, *_ in headers:
            if (
                kind == 4
                and length
                and patched in self.sections
                and self.sections[patched].executable
            ):
                raise WaveError("the code has relocations; link it first")
        self.symbols: dict[str, int] = {}
        for _, kind, _, _, offset, length, link, *_ in headers:
            if kind != 2:
                continue
            names = headers[link][4]
            for entry in range(offset, offset + length, 24):
                name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, entry)
                text = data[names + name : data.index(b"\0", names + name)].decode()
                if text and section in self.sections:
                    self.symbols[text] = value + (
                        self.sections[section].address if relocatable else 0
                    )

    def section(self, address: int) -> _Section:
        for section in self.sections.values():
            if section.holds(address):
                return section
        raise WaveError(f"the code refers to {address:#x}, which is in no section")


@functools.cache
def _library() -> ctypes.CDLL:
    """AMD's LLVM of the wheel."""
    spec = (
        importlib.util.find_spec("rocm.bindings.llvm")
        if importlib.util.find_spec("rocm") and importlib.util.find_spec("rocm.bindings")
        else None
    )
    folder = next(iter(spec.submodule_search_locations or []), None) if spec is not None else None
    if folder is None or not (Path(folder) / "libLLVM.so").exists():
        raise WaveError(
            "disassembling needs the package rocm-bindings-compiler; install it, or run the "
            "assembly text instead"
        )
    path = str(Path(folder) / "libLLVM.so")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        _stand_in(str(error))
        library = _lazily(path)
    for part in ("TargetInfo", "TargetMC", "Disassembler"):
        getattr(library, f"LLVMInitializeAMDGPU{part}")()
    library.LLVMCreateDisasmCPUFeatures.restype = ctypes.c_void_p
    library.LLVMCreateDisasmCPUFeatures.argtypes = [ctypes.c_char_p] * 3 + [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    library.LLVMDisasmInstruction.restype = ctypes.c_size_t
    library.LLVMDisasmInstruction.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    library.LLVMDisasmDispose.argtypes = [ctypes.c_void_p]
    return library


def _lazily(path: str) -> ctypes.CDLL:
    """Load a library with lazy binding, which ctypes does not offer."""
    loader = ctypes.CDLL(None)
    loader.dlopen.restype, loader.dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    loader.dlerror.restype = ctypes.c_char_p
    handle = loader.dlopen(path.encode(), os.RTLD_LAZY)
    if not handle:
        raise WaveError(f"AMD's LLVM cannot be loaded: {(loader.dlerror() or b'').decode()}")
    return ctypes.CDLL(path, handle=handle)


def _stand_in(message: str) -> None:
    """Make empty stand-ins for the compression libraries that a library links without ROCm.

    The disassembler does not call them.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if "librocm_sysdeps" not in message or compiler is None:
        raise WaveError(
            f"AMD's LLVM cannot be loaded: {message}; install ROCm's system dependencies, or a C "
            "compiler to make stand-ins"
        )
    with tempfile.TemporaryDirectory() as folder:
        for name in ("librocm_sysdeps_z.so.1", "librocm_sysdeps_zstd.so.1"):
            path = f"{folder}/{name}"
            subprocess.run(
                [
                    compiler,
                    "-shared",
                    "-nostdlib",
                    "-x",
                    "c",
                    "/dev/null",
                    f"-Wl,-soname,{name}",
                    "-o",
                    path,
                ],
                check=True,
            )
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


def _instructions(target: str, code: bytes, address: int) -> list[tuple[int, int, str]]:
    """(address, bytes, text) of the instructions of a section."""
    library = _library()
    context = library.LLVMCreateDisasmCPUFeatures(
        _TRIPLE, target.encode(), b"", None, 0, None, None
    )
    if not context:
        raise WaveError(f"AMD's LLVM has no disassembler for {target}")
    out, place, text = [], 0, ctypes.create_string_buffer(512)
    try:
        while place < len(code):
            size = library.LLVMDisasmInstruction(
                context,
                code[place : place + 32],
                min(32, len(code) - place),
                address + place,
                text,
                len(text),
            )
            if not size:
                raise WaveError(
                    f"the bytes at {address + place:#x} ({code[place : place + 8].hex()}) are no "
                    f"instruction of {target}"
                )
            out.append((address + place, size, text.value.decode().strip()))
            place += size
    finally:
        library.LLVMDisasmDispose(context)
    return out


_BRANCH = re.compile(r"^(s_c?branch\w*) (-?\d+|0x[0-9a-f]+)$")


def disassembled(code_object: bytes) -> str:
    """Return the text of a code object, for :func:`load`.

    A relocatable object without relocations in its code is accepted too.
    """
    image = _Image(code_object)
    kernels = {
        name.removesuffix(".kd"): address
        for name, address in image.symbols.items()
        if name.endswith(".kd")
    }
    entries = {image.symbols[name]: name for name in kernels if name in image.symbols}
    lines, constants = (
        [f'.amdgcn_target "amdgcn-amd-amdhsa--{image.target}"', ".text"],
        dict[int, bytes](),
    )
    for section in image.sections.values():
        if section.executable:
            body = _trimmed(_instructions(image.target, section.data, section.address))
            lines += _labelled(body, entries, image, constants)
    lines.append(".section .rodata")
    for address, data in constants.items():
        lines += [f".Ldata_{address:x}:", f".byte {', '.join(map(str, data))}"]
    for name, address in kernels.items():
        descriptor = image.section(address)
        words = descriptor.data[address - descriptor.address :][:64]
        lines.append(f".amdhsa_kernel {name}")
        for directive, (offset, first, bits) in _FIELDS.items():
            lines.append(
                f".amdhsa_{directive} "
                f"{struct.unpack_from('<I', words, offset)[0] >> first & ((1 << bits) - 1)}"
            )
        registers = ((struct.unpack_from("<I", words, 48)[0] & 63) + 1) * 8
        lines += [f".amdhsa_next_free_vgpr {registers}", ".end_amdhsa_kernel"]
    return "\n".join(lines) + "\n"


def _trimmed(body: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Remove the padding at the end of the section.

    It follows the last instruction that ends the program or branches back into it.
    """
    last = max(
        (
            i
            for i, (_, _, text) in enumerate(body)
            if text.startswith(("s_endpgm", "s_branch", "s_setpc"))
        ),
        default=len(body) - 1,
    )
    return body[: last + 1]


def _labelled(
    body: list[tuple[int, int, str]],
    entries: dict[int, str],
    image: _Image,
    constants: dict[int, bytes],
) -> list[str]:
    """Add labels for entries and branch targets, and symbols for addresses of constants."""
    texts = [text for _, _, text in body]
    targets = set()
    for i, (address, size, text) in enumerate(body):
        if match := _BRANCH.match(text):
            distance = int(match.group(2), 0)
            target = address + size + 4 * (distance - 65536 if distance >= 32768 else distance)
            targets.add(target)
            texts[i] = f"{match.group(1)} .L_{target:x}"
        elif match := re.match(r"^s_getpc_b64 s\[(\d+):(\d+)\]$", text):
            _name_constant(texts, i, int(match.group(1)), address + size, image, constants)
    out = []
    for (address, _, _), text in zip(body, texts, strict=True):
        if address in entries:
            out.append(f"{entries[address]}:")
        if address in targets:
            out.append(f".L_{address:x}:")
        out.append(text)
    return out


def _name_constant(
    texts: list[str],
    start: int,
    register: int,
    base: int,
    image: _Image,
    constants: dict[int, bytes],
) -> None:
    """Replace both halves of the address that code computes after s_getpc by those of a symbol."""
    places: list[tuple[int, str]] = []
    words: list[int] = []
    for i in range(start + 1, min(start + 10, len(texts))):
        which = register + len(places)
        match = re.match(
            rf"^(s_add\w* s{which}, s{which}), (?:lit\()?(-?\d+|0x[0-9a-f]+)\)?$", texts[i]
        )
        if match:
            places.append((i, match.group(1)))
            words.append(int(match.group(2), 0) & 0xFFFFFFFF)
        if len(places) == 2:
            break
    if len(places) < 2:
        raise WaveError(
            f"what the code does with its own address is not understood: {texts[start]}"
        )
    address = (base + (words[0] | words[1] << 32)) & 0xFFFFFFFFFFFFFFFF
    section = image.section(address)
    constants[address] = section.data[address - section.address :]
    for (i, head), half in zip(places, ("lo", "hi"), strict=True):
        texts[i] = f"{head}, .Ldata_{address:x}@rel32@{half}"
