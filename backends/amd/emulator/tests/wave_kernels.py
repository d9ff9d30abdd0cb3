"""Kernels for the emulator: LLVM IR compiled for a target, and single instructions between loads
and stores of registers."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tilewright_amd_emulator import Arena, Coverage, load, run

Array = np.ndarray[Any, Any]

WAVE64 = ("gfx90a", "gfx942", "gfx950")
WAVE32 = ("gfx1100", "gfx1151", "gfx1201")
TARGETS = WAVE64 + WAVE32
SCHEDULES = ("lockstep", "random")

_HEAD = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare void @llvm.amdgcn.s.barrier()
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""
BARRIER = """  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
"""


def lanes(target: str) -> int:
    return 64 if target in WAVE64 else 32


def kernel(
    body: str, arguments: str, declarations: str = "", threads: int = 64, attributes: str = ""
) -> str:
    """The IR of a kernel k; %t is the work-item."""
    flags = (
        f'"amdgpu-flat-work-group-size"="{threads},{threads}" "uniform-work-group-size"="true" '
        f"{attributes}"
    )
    return f"""{_HEAD}{declarations}
define amdgpu_kernel void @k({arguments}) {flags} {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{body}
  ret void
}}
"""


@functools.cache
def compiled(ir: str, target: str) -> str:
    """The assembly text of IR, optimized."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    module.verify()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(
        cpu=target, opt=2, reloc="pic"
    )
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    return str(machine.emit_assembly(module))


def launch(
    text: str,
    arrays: Sequence[Array],
    scalars: bytes = b"",
    grid: tuple[int, int, int] = (1, 1, 1),
    threads: int = 64,
    dynamic_lds: int = 0,
    schedule: str = "lockstep",
    seed: int = 0,
    limit: int = 1 << 24,
) -> tuple[list[Array], Coverage]:
    """Run kernel k of a text on copies of arrays, whose addresses come before ``scalars``; the
    arrays afterwards."""
    arena = Arena(1 << 24)
    addresses = [arena.put(array) for array in arrays]
    arguments = struct.pack(f"<{len(addresses)}Q", *addresses) + scalars
    covered = run(
        load(text),
        "k",
        grid=grid,
        threads=threads,
        arguments=arguments,
        dynamic_lds=dynamic_lds,
        arena=arena,
        schedule=schedule,
        seed=seed,
        limit=limit,
    )
    return [
        arena.get(address, array.dtype, array.shape)
        for address, array in zip(addresses, arrays, strict=True)
    ], covered


def _notation(target: str) -> dict[str, str]:
    """The instructions of a template in the notation of a target."""
    if target in WAVE64:
        return {
            "pair": "s_load_dwordx4",
            "load": "global_load_dword",
            "store": "global_store_dword",
            "scalars": "s_waitcnt lgkmcnt(0)",
            "loads": "s_waitcnt vmcnt(0)",
            "locals": "s_waitcnt lgkmcnt(0)",
        }
    twelve = target == "gfx1201"
    return {
        "pair": "s_load_b128",
        "load": "global_load_b32",
        "store": "global_store_b32",
        "scalars": "s_wait_kmcnt 0x0" if twelve else "s_waitcnt lgkmcnt(0)",
        "loads": "s_wait_loadcnt 0x0" if twelve else "s_waitcnt vmcnt(0)",
        "locals": "s_wait_dscnt 0x0" if twelve else "s_waitcnt lgkmcnt(0)",
    }


def wait_for_local(target: str) -> str:
    return _notation(target)["locals"]


def execute(
    target: str,
    lines: str,
    inputs: Mapping[int, Array],
    outputs: Sequence[int | str],
    threads: int | None = None,
    lds: int = 0,
    **directives: int,
) -> list[Array]:
    """Run ``lines`` in one wave: vector registers hold ``inputs`` (32 bits for each lane), and the
    ``outputs`` (numbers, or names of scalar registers) are what registers hold afterwards, uint32
    [lanes] each. s[8:9] and higher are free, v200 and higher are not."""
    n, width = _notation(target), lanes(target)
    text = [
        f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"',
        ".text",
        "k:",
        f"{n['pair']} s[4:7], s[0:1], 0x0",
        "v_lshlrev_b32_e32 v200, 2, v0",
        n["scalars"],
    ]
    text += [
        f"{n['load']} v{register}, v200, s[4:5] offset:{4 * width * place}"
        for place, register in enumerate(inputs)
    ]
    text += [n["loads"], lines]
    for place, output in enumerate(outputs):
        if isinstance(output, str):
            text += [f"v_mov_b32_e32 v201, {output}"]
        register = 201 if isinstance(output, str) else output
        text += [f"{n['store']} v200, v{register}, s[6:7] offset:{4 * width * place}"]
    settings = {
        "user_sgpr_count": 2,
        "user_sgpr_kernarg_segment_ptr": 1,
        "kernarg_size": 16,
        "group_segment_fixed_size": lds,
        "dx10_clamp": 1,
    } | directives
    text += [
        "s_endpgm",
        ".amdhsa_kernel k",
        *(f".amdhsa_{name} {value}" for name, value in settings.items()),
        ".end_amdhsa_kernel",
    ]
    words = [
        np.broadcast_to(np.ascontiguousarray(array), (width,)).view(np.uint32)
        for array in inputs.values()
    ]
    given = np.stack(words) if words else np.zeros((1, width), np.uint32)
    (_, out), _ = launch(
        "\n".join(text),
        [given, np.zeros((len(outputs), width), np.uint32)],
        threads=threads or width,
    )
    return list(out)
