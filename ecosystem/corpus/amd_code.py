"""Figures of the assembly text of a kernel for AMD GPUs, with the metadata that ends it."""

from __future__ import annotations

import re

from corpus.control_flow import Instruction
from corpus.figures import Effect, Figures, count, main_loop
from tilewright.simt.host.resources import occupancy
from tilewright_amd.architectures import ARCHITECTURES
from tilewright_amd.resources import processor, usage_of

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
#: Hints to the hardware and fillers, which do nothing of their own.
_HINTS = {"s_delay_alu", "s_clause", "s_code_end", "s_nop", "s_set_gpr_idx_off"}


def figures_of(listing: str, shared: int) -> Figures:
    """Figures of the one kernel of an assembly text.

    Args:
        shared: bytes of LDS that a launch asks for, those that the code declares included.
    """
    arch = re.search(r'^\s*\.amdgcn_target\s+"[^"]*--(gfx\w+)', listing, re.M)
    name = re.search(r"^\s+\.symbol:\s+'?([\w$.]+)\.kd'?$", listing, re.M)
    threads = re.search(r"^\s+\.max_flat_workgroup_size:\s+(\d+)$", listing, re.M)
    fixed = re.search(r"^\s+(?:- )?\.group_segment_fixed_size:\s+(\d+)$", listing, re.M)
    assert arch is not None and name is not None and threads is not None, "the text has no kernel"
    usage = usage_of(listing)
    taken = max(shared, int(fixed[1]) if fixed else 0)
    room = occupancy(processor(arch[1]), usage.registers, taken, int(threads[1]))
    code = parse(listing, name[1])
    return Figures(
        registers=usage.registers,
        spilled=4 * usage.spilled,
        stack=usage.private,
        shared=taken,
        threads=int(threads[1]),
        ctas=room.programs,
        limit=room.limit,
        code=count(code, effect),
        loop=main_loop(code, effect),
    )


def shared_limit(target: str) -> int:
    """Bytes of LDS that a workgroup may have."""
    return ARCHITECTURES[target].shared_memory


def parse(listing: str, kernel: str) -> list[Instruction]:
    """The instructions of a kernel in an assembly text, without hints to the hardware."""
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


def effect(instruction: Instruction) -> Effect | None:
    """What an instruction counts as."""
    name = instruction.mnemonic
    if name.startswith(("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")):
        shape = _SHAPE.search(name)
        assert shape is not None, name
        rows, columns, depth = map(int, shape.groups())
        return Effect("mma", name=name.removeprefix("v_"), work=rows * columns * depth)
    if name.startswith(("global_", "buffer_", "flat_")):
        return _access(name, instruction.text)
    if name.startswith("scratch_"):
        return Effect("local")
    if name.startswith(("ds_read", "ds_write", "ds_load", "ds_store", "ds_add", "ds_cmpst")):
        return Effect("shared")
    if name in ("s_barrier", "s_barrier_wait"):
        return Effect("barrier")
    return None


def _access(name: str, text: str) -> Effect | None:
    family, _, rest = name.partition("_")
    if rest.startswith("atomic"):
        return Effect("atomic")
    if not rest.startswith(("load", "store")):
        return None  # cache controls
    bare = rest.replace("load_lds", "load")
    width = next((width for ending, width in _WIDTHS if ending.search(bare)), 0)
    assert width, f"the width of {name} is not known"
    if rest.startswith("load_lds") or (family == "buffer" and re.search(r"\blds\b", text)):
        return Effect("copy", width, f"{family}_load_lds")
    return Effect("load" if rest.startswith("load") else "store", width)
