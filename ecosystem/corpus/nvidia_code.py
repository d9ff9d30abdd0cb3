"""Figures of PTX: by ``ptxas``, as the driver compiles it, and of the SASS that it makes, by ``nvdisasm``."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from corpus.control_flow import Instruction
from corpus.figures import Effect, Figures, count, main_loop
from tilewright.simt.host.resources import occupancy
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.linking import assemble
from tilewright_nvidia.resources import processor, usage_of

_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?(U?P\w+)\s+)?(.*?)\s*;")
_LABEL = re.compile(r"^(\.L_\w+|\$\w[\w$]*):")
_TARGET = re.compile(r"`\((\.L_\w+|\$\w[\w$]*)\)")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "96": 12, "128": 16, "256": 32}
#: The instructions that copy asynchronously, and how PTX spells what they do.
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
#: Rows, columns and depth of the matrix instructions of a warp, as SASS writes them.
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


def figures_of(ptx: str, shared: int) -> Figures:
    """Figures of the one kernel of a PTX text.

    Args:
        shared: bytes of shared memory that a launch asks for besides the kernel's own.

    Raises:
        BackendError: there is no ptxas.
        FileNotFoundError: there is no nvdisasm.
        LoweringError: ptxas rejects the PTX.
    """
    arch = re.search(r"^\.target\s+(sm_\w+)", ptx, re.M)
    entry = re.search(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", ptx, re.M)
    threads = re.search(r"^\s*\.(?:reqntid|maxntid)\s+(\d+)", ptx, re.M)
    assert arch is not None and entry is not None and threads is not None, "the PTX has no kernel"
    linked = assemble(ptx, arch[1])
    usage = usage_of(linked.log, "ptxas")
    assert usage is not None, "ptxas does not say what registers it took"
    static = re.search(r"(\d+) bytes smem", linked.log)
    taken = shared + (int(static[1]) if static else 0)
    code = parse(disassemble(linked.binary), entry[1])
    room = occupancy(processor(arch[1]), usage.registers, taken, int(threads[1]))
    return Figures(
        registers=usage.registers,
        spilled=usage.stored + usage.loaded,
        stack=usage.stack or 0,
        shared=taken,
        threads=int(threads[1]),
        ctas=room.programs,
        limit=room.limit,
        code=count(code, effect),
        loop=main_loop(code, effect),
    )


def shared_limit(target: str) -> int:
    """Bytes of shared memory that a CTA may have."""
    return ARCHITECTURES[target].shared_memory


def parse(sass: str, entry: str) -> list[Instruction]:
    """The instructions of a kernel in what ``nvdisasm -c`` writes, without NOPs."""
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
            # ptxas repeats an instruction for each value of an operand that it makes uniform, and there
            # is one: ELECT … BRA.U.ANY is no loop of the kernel's
            jumps = base in ("BRA", "CALL", "BRX", "JMP") and mnemonic != "BRA.U.ANY"
            target = _TARGET.search(text) if jumps else None
            # a branch is conditional by its own operands too: BRA.U UP0, BRA.DIV, BRA P1
            conditional = predicate is not None or "," in text or base == "CALL"
            leaves = base in ("EXIT", "RET") or (jumps and base != "CALL")
            code.append(Instruction(mnemonic, text, tuple(labels), target[1] if target else "", conditional or not leaves))
            labels = []
    return code


def effect(instruction: Instruction) -> Effect | None:
    """What an instruction of SASS counts as."""
    base, *parts = instruction.mnemonic.split(".")
    if base in ("LDG", "LD"):
        return Effect("load", _width(parts))
    if base in ("STG", "ST"):
        return Effect("store", _width(parts))
    if base in _COPIES:
        return Effect("copy", _width(parts) if base == "LDGSTS" else 0, _COPIES[base])
    if base in ("LDL", "STL"):
        return Effect("local")
    if base in _SHARED:
        return Effect("shared")
    if base in _ATOMICS:
        return Effect("atomic")
    if (base == "BAR" and parts[0] in ("SYNC", "SYNCALL", "RED")) or base == "UCGABAR_WAIT":
        return Effect("barrier")
    if base.startswith("UTC") and base.endswith("MMA"):
        return Effect("mma", name=base)
    if base.endswith("GMMA"):
        rows, columns, depth = map(int, parts[0].split("x"))
        return Effect("mma", name=f"{base}.{parts[0]}", work=rows * columns * depth // 4)
    if base.endswith("MMA") and base[:-3] in ("H", "I", "D", "Q", "O", "B"):
        shape = next((part for part in parts if part in _SHAPES), "")
        rows, columns, depth = _SHAPES.get(shape, (0, 0, 0))
        return Effect("mma", name=f"{base}.{shape}", work=rows * columns * depth)
    return None


def _width(parts: list[str]) -> int:
    return next((_WIDTHS[part] for part in parts if part in _WIDTHS), 4)


def disassemble(cubin: bytes) -> str:
    """The SASS of device code.

    Raises:
        FileNotFoundError: there is no nvdisasm.
    """
    program = find_nvdisasm()
    if program is None:
        raise FileNotFoundError("nvdisasm was not found: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(program), "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@functools.cache
def find_nvdisasm() -> Path | None:
    """``nvdisasm``: of the wheel nvidia-cuda-nvdisasm, of Triton's, of the PATH."""
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
