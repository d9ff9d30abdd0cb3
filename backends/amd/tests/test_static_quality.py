"""Hot loops of compiled kernels: registers, and single moves of each element."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "amd"))
from amd_emulated import launched
from amd_kernels import from_zero, widened
from amd_support import compiled
from listings import Figures, figures, hot_loop, instructions
from static_quality import kernels, ours

from tilewright.reference.numerics import decode

NAMES = list(kernels("gfx942"))
#: Those that need most registers.
PRODUCTS = ["matmul f16", "matmul fp8", "attention"]


@functools.cache
def counted(arch: str, name: str) -> tuple[Figures, list[str]]:
    """Return the statistics of a kernel, and the instructions of its hot loop."""
    with tempfile.TemporaryDirectory() as folder:
        found = ours(arch, name, Path(folder))
        (listing,) = Path(folder).iterdir()
        return found, hot_loop(instructions(listing.read_text()))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("arch", "name"),
    [
        *(("gfx942", name) for name in NAMES),
        *((arch, name) for arch in ("gfx950", "gfx1100", "gfx1201") for name in PRODUCTS),
    ],
)
def test_nothing_spills(arch: str, name: str) -> None:
    one, _ = counted(arch, name)
    assert one.spilled == 0 and one.loop > 0
    assert (one.matrix > 0) == (name.startswith("matmul") or name == "attention")


@pytest.mark.parametrize(("arch", "moves"), [("gfx942", 16), ("gfx1100", 32)])
def test_elements_of_a_product_are_turned_once(arch: str, moves: int) -> None:
    """The threads that load an operand transpose it, two elements per move.

    The waves that read it do not.
    """
    counts = Counter(counted(arch, "matmul f16")[1])
    assert counts["v_perm_b32"] == moves
    assert not any(name.startswith(("ds_read_u16", "ds_load_u16", "v_mov_b16")) for name in counts)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_rows_of_attention_stay_in_their_wave(arch: str) -> None:
    """Waves meet once an iteration, for the keys and values: neither for what a row's elements have
    in common nor for the weights."""
    counts = Counter(counted(arch, "attention")[1])
    assert counts["s_barrier"] + counts["s_barrier_wait"] == 1


@pytest.mark.each_value
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_loads_in_turn_have_products_to_arrive_in(arch: str, name: str) -> None:
    """Each load is in flight during half of the matmuls.

    It starts early enough, and no matmul is deferred to its store.
    """
    letters = {
        "global_load_b128": "g",
        "ds_store_b128": "s",
        "ds_store_b32": "s",
        "ds_store_b64": "s",
    }
    done = "".join(
        "w" if one.startswith("v_wmma") else letters.get(one, "") for one in counted(arch, name)[1]
    )
    parts = re.fullmatch("(g+)(w+)(?:(?:s+)(g+)|(g+)(?:s+))(w+)s+", done)
    assert parts is not None and len(parts[2]) == len(parts[5]) == 32


@pytest.mark.parametrize("kind", ["fp8e5", "fp8e4nv", "fp8e4b8"])
@pytest.mark.parametrize("result", ["fp16", "fp32"])
def test_every_fp8_number_is_widened(kind: str, result: str) -> None:
    """Without an instruction for it, by the bits."""
    code = compiled(widened, f"x=*{kind}:16, out=*{result}:16", "gfx1100", {"N": 256})
    x = np.arange(256, dtype=np.uint8)
    out = np.zeros(256, {"fp16": np.float16, "fp32": np.float32}[result])
    launched(code, [x, out])
    from tilewright.ir.types import F8E4M3FN, F8E4M3FNUZ, F8E5M2

    expected = decode(x, {"fp8e5": F8E5M2, "fp8e4nv": F8E4M3FN, "fp8e4b8": F8E4M3FNUZ}[kind])
    np.testing.assert_array_equal(out, expected.astype(out.dtype))
    finite = np.isfinite(expected)
    assert (np.signbit(out) == np.signbit(expected))[finite].all()


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["fp16", "bf16", "fp32", "fp64"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100"])
@pytest.mark.parametrize(
    "form", ["difference", "sum", "sum from zero", "product", "fused", "fused with one"]
)
def test_zero_less_zero_is_zero(form: str, arch: str, kind: str) -> None:
    """The code generator would negate: the sign of a zero would be another."""
    code = compiled(
        from_zero,
        f"x=*{kind}:16, out=*{kind}:16",
        arch,
        {"N": 64, "FORM": form},
        enable_fp_fusion=False,
    )
    numbers = np.resize(np.array([0.0, -0.0, 1.5, -2.0, np.inf], np.float32), 64)
    x = (
        (numbers.view(np.uint32) >> 16).astype(np.uint16)
        if kind == "bf16"
        else numbers.astype(f"f{int(kind[2:]) // 8}")
    )
    out = np.zeros_like(x)
    launched(code, [x, out])
    found = (out.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else out
    expected = (0 - numbers) * 3
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_figures_of_a_listing() -> None:
    text = """k:
	s_mov_b32 s0, 8
.LBB0_1:
	global_load_dwordx4 v[0:3], v4, s[2:3]
	v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]
	s_cbranch_scc1 .LBB0_1
.LBB0_2:
	s_endpgm
.LBB0_3:
	s_nop 0
	s_branch .LBB0_2
	.section	.rodata
    .vgpr_count:     20
    .vgpr_spill_count: 3
"""
    one = figures(text, 64)
    assert (one.loop, one.matrix, one.work, one.vector, one.spilled, one.lds) == (
        3,
        1,
        32 * 32 * 8,
        20,
        3,
        64,
    )
