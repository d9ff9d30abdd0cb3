"""Resources of a program on a CPU, read off the assembly: stack, vector registers, heap memory.

The stack frame of a function is what its first instructions push and what they take off the stack
pointer; tiles in stack memory and spilled values are both in it, and assembly does not tell them
apart. Where vector registers are all used, some of it is likely to be spills.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.plugins.manifest import CodeObject, Target

_FUNCTION = re.compile(r"^([A-Za-z_$][\w$.]*):", re.M)
_X86_PUSHED = re.compile(r"\bpushq\s+(%r\w+)")
_X86_TAKEN = re.compile(r"\bsubq\s+\$(\d+), %rsp")
_ARM_PUSHED = re.compile(r"\[sp, #-(\d+)\]!")
_ARM_TAKEN = re.compile(r"\bsub\s+(?:sp|x\d+), sp, #(\d+)(, lsl #12)?")
#: Vector registers by number, for the architectures whose frames are read off here.
_VECTORS = {
    "x86-64": re.compile(r"%[xyz]mm(\d+)"),
    "aarch64": re.compile(r"\b[vzqd](\d+)(?:\.\w+)?\b"),
}


def resources(code: CodeObject, target: Target) -> Mapping[str, Any]:
    """Resources of a code object whose stages were kept, by name.

    Those of the stack and of registers are omitted for architectures other than x86-64 and
    AArch64. A kernel that is cut into functions counts with the largest of those it calls.
    """
    from tilewright_cpu.lower import listing

    if "llir" not in code.stages:
        return {}
    text = str(code.stages["asm"]) if "asm" in code.stages else listing(code, target)
    facts: dict[str, Any] = {}
    if target.arch in _VECTORS:
        frames = {name: frame_bytes(body, target.arch) for name, body in functions(text)}
        own = frames.pop(str(code.metadata["kernel"]))
        facts["stack"] = f"{own + max(frames.values(), default=0)} bytes a thread"
        used = {number for number in _VECTORS[target.arch].findall(text) if int(number) < 32}
        few = target.arch == "x86-64" and "+avx512f" not in target.features
        facts["vector registers"] = f"{len(used)} of {16 if few else 32}"
    if code.metadata.get("arena_bytes"):
        facts["heap"] = f"{code.metadata['arena_bytes']} bytes a thread"
    return facts


def functions(text: str) -> Iterator[tuple[str, str]]:
    """The functions of an assembly listing with their text.

    Other labels come with the code after them, which takes no stack memory.
    """
    starts = list(_FUNCTION.finditer(text))
    for start, end in zip(
        starts, [*(found.start() for found in starts[1:]), len(text)], strict=True
    ):
        yield start[1].removeprefix("_"), text[start.start() : end]


def frame_bytes(body: str, arch: str) -> int:
    """Bytes of a function's stack frame, given its assembly, without those of dynamic alignment."""
    if arch == "x86-64":
        return 8 * len(set(_X86_PUSHED.findall(body))) + max(
            map(int, _X86_TAKEN.findall(body)), default=0
        )
    taken = {
        (int(number) << 12 if shifted else int(number))
        for number, shifted in _ARM_TAKEN.findall(body)
    }
    return max(map(int, _ARM_PUSHED.findall(body)), default=0) + sum(taken)
