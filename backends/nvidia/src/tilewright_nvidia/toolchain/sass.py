"""Parser and instruction classifier for SASS, as ``nvdisasm`` prints it."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tilewright.errors import BackendError
from tilewright.gpu_host.code_counts import CountedEffect
from tilewright.gpu_host.control_flow import Instruction

_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?(U?P\w+)\s+)?(.*?)\s*;")
_LABEL = re.compile(r"^(\.L_\w+|\$\w[\w$]*):")
_TARGET = re.compile(r"`\((\.L_\w+|\$\w[\w$]*)\)")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "96": 12, "128": 16, "256": 32}
#: SASS mnemonic of an asynchronous copy -> its PTX spelling.
_COPIES = {
    "LDGSTS": "cp.async",
    "UTMALDG": "cp.async.bulk.tensor load",
    "UTMASTG": "cp.async.bulk.tensor store",
    "UTMAREDG": "cp.reduce.async.bulk.tensor",
    "UBLKCP": "cp.async.bulk",
    "UBLKRED": "cp.reduce.async.bulk",
}
_ATOMICS = {"ATOM", "ATOMG", "RED", "REDG", "REDUX_G"}
_SHARED = {"LDS", "STS", "LDSM", "STSM", "ATOMS"}
#: SASS shape of a warp's matrix instruction -> rows, columns and depth.
_SHAPES = {
    "884": (8, 8, 4),
    "1684": (16, 8, 4),
    "1688": (16, 8, 8),
    "16816": (16, 8, 16),
    "16832": (16, 8, 32),
    "16864": (16, 8, 64),
    "168128": (16, 8, 128),
    "168256": (16, 8, 256),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
}


def parse(sass: str, entry: str) -> list[Instruction]:
    """Return the instructions of a kernel in the output of ``nvdisasm -c``, without NOPs."""
    code: list[Instruction] = []
    labels: list[str] = []
    inside = False
    for line in sass.splitlines():
        if line.split()[:1] == [".section"]:
            inside = f".text.{entry}," in line
        elif not inside:
            continue
        elif label := _LABEL.match(line):
            labels.append(label[1])
        elif found := _LINE.match(line):
            predicate, text = found[1], found[2]
            mnemonic = text.split()[0]
            base = mnemonic.partition(".")[0]
            if base == "NOP":
                continue
            # ptxas repeats an instruction for each value of an operand that must be uniform; the
            # loop's branch ELECT … BRA.U.ANY is none of the kernel's loops
            jumps = base in ("BRA", "CALL", "BRX", "JMP") and mnemonic != "BRA.U.ANY"
            target = _TARGET.search(text) if jumps else None
            # a branch may be conditional by its operands too: BRA.U UP0, BRA.DIV, BRA P1
            conditional = predicate is not None or "," in text or base == "CALL"
            leaves = base in ("EXIT", "RET") or (jumps and base != "CALL")
            code.append(
                Instruction(
                    mnemonic,
                    text,
                    tuple(labels),
                    target[1] if target else "",
                    conditional or not leaves,
                )
            )
            labels = []
    return code


def effect(instruction: Instruction) -> CountedEffect | None:
    """Classify a SASS instruction; None if no class counts it."""
    base, *parts = instruction.mnemonic.split(".")
    if base in ("LDG", "LD"):
        return CountedEffect("load", _width(parts))
    if base in ("STG", "ST"):
        return CountedEffect("store", _width(parts))
    if base in _COPIES:
        return CountedEffect("copy", _width(parts) if base == "LDGSTS" else 0, _COPIES[base])
    if base in ("LDL", "STL"):
        return CountedEffect("local")
    if base in _SHARED:
        return CountedEffect("shared")
    if base in _ATOMICS:
        return CountedEffect("atomic")
    if (base == "BAR" and parts[0] in ("SYNC", "SYNCALL", "RED")) or base == "UCGABAR_WAIT":
        return CountedEffect("barrier")
    if base.startswith("UTC") and base.endswith("MMA"):
        return CountedEffect("mma", name=base)
    if base.endswith("GMMA"):
        rows, columns, depth = map(int, parts[0].split("x"))
        return CountedEffect("mma", name=f"{base}.{parts[0]}", work=rows * columns * depth // 4)
    if base.endswith("MMA") and base[:-3] in ("H", "I", "D", "Q", "O", "B"):
        shape = next((part for part in parts if part in _SHAPES), "")
        rows, columns, depth = _SHAPES.get(shape, (0, 0, 0))
        return CountedEffect("mma", name=f"{base}.{shape}", work=rows * columns * depth)
    return None


def _width(parts: list[str]) -> int:
    return next((_WIDTHS[part] for part in parts if part in _WIDTHS), 4)


def disassemble(cubin: bytes) -> str:
    """Disassemble device code.

    Raises:
        BackendError: there is no nvdisasm, or it does not read the code.
    """
    program = find_nvdisasm()
    if program is None:
        raise BackendError("nvdisasm was not found: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(program), "-c", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"nvdisasm does not read the code: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def find_nvdisasm() -> Path | None:
    """Find ``nvdisasm`` in the wheel nvidia-cuda-nvdisasm, in Triton's wheel, or on the PATH."""
    for name in ("nvidia-cuda-nvdisasm", "triton"):
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name in ("nvdisasm", "nvdisasm.exe"):
                return Path(str(file.locate()))
    found = shutil.which("nvdisasm")
    return Path(found) if found else None


__all__ = ["disassemble", "effect", "find_nvdisasm", "parse"]
