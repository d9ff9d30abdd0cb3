"""Branches by a lane's own number: no ``s_barrier`` stands in one."""

from __future__ import annotations

import pytest

from tilewright.errors import LoweringError
from tilewright.plugins.registry import registry
from tilewright.runtime.devices.device_registry import named_target
from tilewright.simt.compile import compile_kernel
from tilewright.testing.stage_text import read
from tilewright_amd.target import GcnTarget

TEXT = """
kernel @k(%p: ptr<i64>, %n: i32) {{
  %tid = inline_asm {{assembly = "v_mov_b32 $0, v0", constraints = "=v"}} : i32
  %c = cmp %tid, %n {{predicate = lt}} : i1
  %at = arange {{start = 0, end = 256}} : tile<256xi32>
  %base = splat %p : tile<256xptr<i64>>
  %where = addptr %base, %at : tile<256xptr<i64>>
  %to = load %where : tile<256xi64>
  if %c then {{
    {inside}
    yield
  }} else {{
    yield
  }}
  %again = load %where : tile<256xi64>
  %more = add %again, %to : tile<256xi64>
  store %where, %more
  return
}}
"""
SEND = """%a = inline_asm %to {assembly = "global_store_dword $1, $0, off", constraints = "=v,v", pure = false} : tile<256xi32>
    %b = inline_asm %to {assembly = "global_load_dword $0, $1, off", constraints = "=v,v", pure = false} : tile<256xi32>"""
OPTIONS = {"num_warps": 4, "num_stages": 1, "enable_fp_fusion": False}


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_barriers_stand_before_and_behind_a_branch(arch: str) -> None:
    target = GcnTarget(named_target(registry().get("amd"), arch))
    text = compile_kernel(read(TEXT.format(inside=SEND), target), target, OPTIONS)
    order = [
        name
        for line in text.splitlines()
        for name in ("barrier", "br i1", "global_store", "join")
        if name in line and not line.startswith("declare")
    ]
    first = order.index("br i1")
    assert order[:first].count("barrier") and "barrier" in order[order.index("global_store") :]
    then = text.partition("\nthen")[2].partition("\njoin")[0]
    assert "global_store_dword" in then and "global_load_dword" in then and "barrier" not in then


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_barrier_in_a_branch_is_refused(arch: str) -> None:
    target = GcnTarget(named_target(registry().get("amd"), arch))
    with pytest.raises(
        LoweringError, match=r"^barrier at .* is inside of the if at .* inline assembly at"
    ):
        compile_kernel(read(TEXT.format(inside="barrier"), target), target, OPTIONS)
