"""What is counted in assembly text for AMD GPUs, on pieces of what LLVM writes."""

from __future__ import annotations

import pytest
from corpus.amd_code import effect, figures_of, parse

from tilewright.gpu_host.code_counts import CountedEffect, Counts
from tilewright.gpu_host.control_flow import Instruction

TEXT = """
	.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
	.text
	.globl	kernel
kernel:                                 ; @kernel
.Lfunc_begin0:
	.loc	1 5 0
; %bb.0:
	s_load_dwordx4 s[0:3], s[0:1], 0x0  ; scalar loads are no accesses of threads
	buffer_load_dwordx4 v3, s[8:11], 0 offen lds
	s_nop 0
.LBB0_1:                                ; %body
                                        ; =>This Inner Loop Header: Depth=1
	global_load_ushort v4, v[0:1], off
	global_load_dwordx2 v[6:7], v[0:1], off offset:16
	global_load_lds_dwordx4 v[0:1], off
	s_waitcnt vmcnt(0)
	s_barrier
	ds_read_b128 v[8:11], v3
	v_mfma_f32_32x32x16_bf16 a[0:15], v[8:11], v[8:11], a[0:15]
	s_cbranch_scc1 .LBB0_1
; %bb.2:
	scratch_store_dword off, v1, off offset:4
	global_atomic_add_f32 v[0:1], v2, off
	global_store_dwordx4 v[0:1], v[8:11], off
	s_endpgm
.Lfunc_end0:
	.size	kernel, .Lfunc_end0-kernel
other:
	global_load_dword v4, v[0:1], off
	s_endpgm
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     16
    .args:
      - .name:           x
        .offset:         0
    .group_segment_fixed_size: 65536
    .max_flat_workgroup_size: 256
    .name:           kernel
    .private_segment_fixed_size: 8
    .sgpr_count:     30
    .sgpr_spill_count: 0
    .symbol:         kernel.kd
    .vgpr_count:     140
    .vgpr_spill_count: 3
...
	.end_amdgpu_metadata
"""


def test_a_kernel_is_counted() -> None:
    found = figures_of(TEXT, 0)
    assert found.code == Counts(
        instructions=14,
        loads={"2": 1, "8": 1},
        stores={"16": 1},
        copies={"buffer_load_lds:16": 1, "global_load_lds:16": 1},
        mma={"mfma_f32_32x32x16_bf16": 1},
        barriers=1,
        shared=1,
        local=1,
        atomics=1,
        work=32 * 32 * 16,
    )
    assert found.loop is not None
    assert (found.loop.instructions, found.loop.loaded) == (8, 2 + 8 + 16)
    assert (found.loop.stores, found.loop.barriers) == ({}, 1)


def test_registers_spills_and_occupancy_are_of_the_metadata() -> None:
    found = figures_of(TEXT, 0)
    assert (found.registers, found.spilled, found.stack, found.threads) == (140, 12, 8, 256)
    # 163840 bytes of LDS hold two CTAs of 65536; 512 registers of a lane hold three waves of 144
    assert (found.shared, found.ctas, found.limit) == (65536, 2, "shared memory")
    fewer = figures_of(TEXT.replace("size: 65536", "size: 0"), 0)
    assert (fewer.ctas, fewer.limit) == (3, "registers")
    assert figures_of(TEXT.replace("size: 65536", "size: 0"), 65536).ctas == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("global_load_b128 v[0:3], v[4:5], off", CountedEffect("load", 16)),
        ("global_load_d16_hi_b16 v0, v[4:5], off", CountedEffect("load", 2)),
        ("global_load_short_d16_hi v0, v[4:5], off", CountedEffect("load", 2)),
        ("global_load_d16_u8 v0, v[4:5], off", CountedEffect("load", 1)),
        ("global_load_ubyte v0, v[4:5], off", CountedEffect("load", 1)),
        ("buffer_load_b96 v[0:2], v4, s[0:3], 0 offen", CountedEffect("load", 12)),
        ("flat_load_dword v0, v[4:5]", CountedEffect("load", 4)),
        ("buffer_store_byte v0, v4, s[0:3], 0 offen", CountedEffect("store", 1)),
        ("global_store_d16_hi_b16 v[4:5], v0, off", CountedEffect("store", 2)),
        ("buffer_load_dword v4, s[0:3], 0 offen lds", CountedEffect("copy", 4, "buffer_load_lds")),
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[8:15], v[0:7]",
         CountedEffect("mma", 0, "wmma_f32_16x16x16_f16", 4096)),
        ("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[0:7], v[0:3], v1, v1",
         CountedEffect("mma", 0, "mfma_scale_f32_16x16x128_f8f6f4", 32768)),
        ("ds_store_b64 v0, v[2:3]", CountedEffect("shared")),
        ("ds_bpermute_b32 v0, v1, v2", None),
        ("s_barrier_signal -1", None),
        ("s_barrier_wait -1", CountedEffect("barrier")),
        ("buffer_wbl2 sc1", None),
        ("global_inv scope:SCOPE_DEV", None),
        ("v_add_f32_e32 v0, v0, v1", None),
    ],
)  # fmt: skip
def test_an_instruction_counts_as(text: str, expected: CountedEffect | None) -> None:
    (instruction,) = parse(f"kernel:\n\t{text}\n.Lfunc_end0:\n", "kernel")
    assert effect(instruction) == expected


def test_encodings_and_hints_are_no_part_of_the_code() -> None:
    code = parse(
        "kernel:\n\tv_add_f32_e64 v0, v0, v1\n\ts_delay_alu instid0(VALU_DEP_1)\n"
        "\ts_clause 0x1\n\ts_branch .LBB0_3\n.LBB0_3: // %tail\n\ts_endpgm\n.Lfunc_end0:\n",
        "kernel",
    )
    assert code[0].mnemonic == "v_add_f32"
    assert code[1] == Instruction("s_branch", "s_branch .LBB0_3", (), ".LBB0_3", falls=False)
    assert code[2] == Instruction("s_endpgm", "s_endpgm", (".LBB0_3",), falls=False)
    assert len(code) == 3
