"""Statistics of SASS, on pieces of nvdisasm's output for sm_80, sm_90a and sm_100a."""

from __future__ import annotations

import pytest

from tilewright.gpu_host.code_counts import CountedEffect, Counts, count, main_loop
from tilewright.gpu_host.control_flow import Instruction
from tilewright_nvidia.toolchain.sass import effect, parse

HEAD = """
	.target	sm_90a
//--------------------- .text.other --------------------------
	.section	.text.other,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=39"
other:
.text.other:
        /*0000*/                   LDG.E R3, desc[UR4][R2.64] ;
        /*0010*/                   EXIT ;
	.section	.text.kernel,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=39"
.text.kernel:
"""
#: a matmul by wgmma with TMA behind an mbarrier, its wait's slow path out of line
WGMMA = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.U16.CONSTANT R3, desc[UR4][R2.64] ;
.L_x_1:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R4 ;
        /*0030*/              @!P0 BRA `(.L_x_2) ;
.L_x_3:
        /*0040*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0050*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR12], R24, gsb0 ;
        /*0060*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*0070*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0080*/              @UP0 UTMALDG.2D [UR16], [UR4], desc[UR6] ;
        /*0090*/                   NOP ;
        /*00a0*/               @P1 BRA `(.L_x_1) ;
        /*00b0*/                   STG.E.128 desc[UR4][R2.64], R24 ;
        /*00c0*/                   EXIT ;
.L_x_2:
        /*00d0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R4 ;
        /*00e0*/              @!P0 BRA `(.L_x_2) ;
        /*00f0*/                   BRA `(.L_x_3) ;
.L_x_4:
        /*0100*/                   BRA `(.L_x_4) ;
"""


def test_only_the_kernel_is_read_and_fillers_are_left_out() -> None:
    code = parse(HEAD + WGMMA, "kernel")
    assert [each.mnemonic for each in code[:2]] == ["LDC", "LDG.E.U16.CONSTANT"]
    assert len(code) == 16
    assert "NOP" not in {each.mnemonic for each in code}


def test_a_kernel_is_counted() -> None:
    found = count(parse(HEAD + WGMMA, "kernel"), effect)
    assert found == Counts(
        instructions=16,
        loads={"2": 1},
        stores={"16": 1},
        copies={"cp.async.bulk.tensor load": 1},
        mma={"HGMMA.64x128x16": 2},
        barriers=1,
        work=2 * 64 * 128 * 16 // 4,
    )


def test_the_loop_has_the_slow_path_of_its_wait_and_the_wait_is_no_loop_within() -> None:
    found = main_loop(parse(HEAD + WGMMA, "kernel"), effect)
    assert found is not None
    assert (found.instructions, found.barriers, found.mma) == (11, 1, {"HGMMA.64x128x16": 2})
    assert (found.loads, found.copies) == ({}, {"cp.async.bulk.tensor load": 1})


@pytest.mark.parametrize(
    ("mnemonic", "expected"),
    [
        ("LDG.E", CountedEffect("load", 4)),
        ("LDG.E.S8", CountedEffect("load", 1)),
        ("LDG.E.64.STRONG.GPU", CountedEffect("load", 8)),
        ("LDG.E.LTC128B.128.CONSTANT", CountedEffect("load", 16)),
        ("LDG.E.ENL2.256", CountedEffect("load", 32)),
        ("STG.E.U16", CountedEffect("store", 2)),
        ("ST.E.64", CountedEffect("store", 8)),
        ("LDGSTS.E.BYPASS.LTC128B.128", CountedEffect("copy", 16, "cp.async")),
        ("LDGSTS.E", CountedEffect("copy", 4, "cp.async")),
        ("UTMASTG.3D", CountedEffect("copy", 0, "cp.async.bulk.tensor store")),
        ("UBLKCP.S.G", CountedEffect("copy", 0, "cp.async.bulk")),
        ("HMMA.16816.F32.BF16", CountedEffect("mma", 0, "HMMA.16816", 2048)),
        ("HMMA.1688.F32.TF32", CountedEffect("mma", 0, "HMMA.1688", 1024)),
        ("IMMA.16832.S8.S8", CountedEffect("mma", 0, "IMMA.16832", 4096)),
        ("QGMMA.64x256x32.F32.E4M3.E4M3", CountedEffect("mma", 0, "QGMMA.64x256x32", 131072)),
        ("UTCHMMA", CountedEffect("mma", 0, "UTCHMMA")),
        ("UTCQMMA.2CTA", CountedEffect("mma", 0, "UTCQMMA")),
        ("LDSM.16.M88.4", CountedEffect("shared")),
        ("STS.128", CountedEffect("shared")),
        ("STL.64", CountedEffect("local")),
        ("ATOMG.E.ADD.STRONG.GPU", CountedEffect("atomic")),
        ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", CountedEffect("atomic")),
        ("BAR.SYNC.DEFER_BLOCKING", CountedEffect("barrier")),
        ("BAR.RED.OR.DEFER_BLOCKING", CountedEffect("barrier")),
        ("BAR.ARV", None),
        ("IMAD.WIDE", None),
        ("FFMA", None),
    ],
)
def test_an_instruction_counts_as(mnemonic: str, expected: CountedEffect | None) -> None:
    assert effect(Instruction(mnemonic, mnemonic)) == expected


def test_what_ptxas_repeats_to_make_an_operand_uniform_is_no_loop() -> None:
    text = (
        HEAD
        + """
.L_x_0:
        /*0000*/                   LDS.128 R4, [R2] ;
.L_x_2:
        /*0010*/                   ELECT P3, URZ, PT ;
        /*0020*/               @P3 R2UR.OR P2, UR16, R6 ;
        /*0030*/              @!P2 UTMALDG.2D [UR16], [UR4] ;
        /*0040*/               @P3 PLOP3.LUT P2, PT, P2, PT, PT, 0x8, 0x0 ;
        /*0050*/              @P2 BRA.U.ANY `(.L_x_2) ;
        /*0060*/               @P0 BRA `(.L_x_0) ;
        /*0070*/                   EXIT ;
"""
    )
    found = main_loop(parse(text, "kernel"), effect)
    assert found is not None
    assert (found.instructions, found.shared) == (7, 1)


def test_branches_are_conditional_by_predicates_and_by_operands() -> None:
    text = (
        HEAD
        + """
.L_x_0:
        /*0000*/                   BSSY B0, `(.L_x_1) ;
        /*0010*/                   BRA.U UP0, `(.L_x_0) ;
        /*0020*/               @P0 BRA `(.L_x_1) ;
        /*0030*/               @P0 EXIT ;
.L_x_1:
        /*0040*/                   CALL.REL.NOINC `($kernel$__internal_0_$__cuda_sm3x_div) ;
        /*0050*/                   BRA `(.L_x_0) ;
$kernel$__internal_0_$__cuda_sm3x_div:
        /*0060*/                   RET.REL.NODEC R2 `(kernel) ;
"""
    )
    code = parse(text, "kernel")
    assert [(each.target, each.falls) for each in code] == [
        ("", True),
        (".L_x_0", True),
        (".L_x_1", True),
        ("", True),
        ("$kernel$__internal_0_$__cuda_sm3x_div", True),
        (".L_x_0", False),
        ("", False),
    ]
