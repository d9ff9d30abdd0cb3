"""Parser and instruction classifier for AMDGPU assembly, as LLVM prints it."""

from __future__ import annotations

import re

from tilewright.gpu_host.code_counts import CountedEffect
from tilewright.gpu_host.control_flow import Instruction

_LABEL = re.compile(r"^(\.?[\w$.]+):")
_WIDTHS = (
    (re.compile(r"_(?:dwordx4|b128)$"), 16),
    (re.compile(r"_(?:dwordx3|b96)$"), 12),
    (re.compile(r"_(?:dwordx2|b64)$"), 8),
    (re.compile(r"_(?:dword|b32)$"), 4),
    (re.compile(r"_(?:[us]short|short|[ui]16|b16)(?:_d16)?(?:_hi)?$"), 2),
    (re.compile(r"_(?:[us]byte|byte|[ui]8|b8)(?:_d16)?(?:_hi)?$"), 1),
)
_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)")
#: Hints and padding instructions, which compute nothing.
_HINTS = {"s_delay_alu", "s_clause", "s_code_end", "s_nop", "s_set_gpr_idx_off"}


def parse(listing: str, kernel: str) -> list[Instruction]:
    """Return the instructions of a kernel in an assembly text, without hints."""
    code: list[Instruction] = []
    labels: list[str] = []
    inside = False
    for line in listing.splitlines():
        text = re.split(r";|//", line, maxsplit=1)[0].strip()
        if label := _LABEL.match(text):
            if label[1] == kernel:
                inside = True
            elif inside and label[1].startswith(".Lfunc_end"):
                break
            labels.append(label[1])
            text = text[label.end() :].strip()
        if not inside or not text or text.startswith("."):
            continue
        mnemonic = re.sub(r"_(?:e32|e64|dpp|sdwa|e64_dpp)$", "", text.split()[0])
        if mnemonic in _HINTS:
            continue
        branches = mnemonic.startswith(("s_branch", "s_cbranch"))
        target = text.split()[1] if branches else ""
        leaves = mnemonic in ("s_branch", "s_endpgm", "s_setpc_b64")
        code.append(Instruction(mnemonic, text, tuple(labels), target, not leaves))
        labels = []
    return code


def effect(instruction: Instruction) -> CountedEffect | None:
    """Classify an instruction; None if no class counts it."""
    name = instruction.mnemonic
    if name.startswith(("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")):
        shape = _SHAPE.search(name)
        assert shape is not None, name
        rows, columns, depth = map(int, shape.groups())
        return CountedEffect("mma", name=name.removeprefix("v_"), work=rows * columns * depth)
    if name.startswith(("global_", "buffer_", "flat_")):
        return _access(name, instruction.text)
    if name.startswith("scratch_"):
        return CountedEffect("local")
    if name.startswith(("ds_read", "ds_write", "ds_load", "ds_store", "ds_add", "ds_cmpst")):
        return CountedEffect("shared")
    if name in ("s_barrier", "s_barrier_wait"):
        return CountedEffect("barrier")
    return None


def _access(name: str, text: str) -> CountedEffect | None:
    family, _, rest = name.partition("_")
    if rest.startswith("atomic"):
        return CountedEffect("atomic")
    if not rest.startswith(("load", "store")):
        return None  # cache controls
    bare = rest.replace("load_lds", "load")
    width = next((width for ending, width in _WIDTHS if ending.search(bare)), 0)
    if rest.startswith("load_lds") or (family == "buffer" and re.search(r"\blds\b", text)):
        return CountedEffect("copy", width, f"{family}_load_lds")
    return CountedEffect("load" if rest.startswith("load") else "store", width)


__all__ = ["effect", "parse"]
