"""``tl.extra.hip``: the functions are operations of the IR, for the target that a kernel is compiled for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tilewright.language as tl
from tilewright import ir
from tilewright.language.extra import hip
from tilewright.language.options import Options
from tilewright.language.semantic import Semantic
from tilewright.plugins.manifest import Target


def test_its_functions_are_operations_of_the_ir() -> None:
    module = ir.Module()
    function = module.add(ir.Function("f", ()))
    semantic = Semantic(ir.Builder.at_end(function.body), Options(target=Target("amd", "gfx942", warp_size=64, kind="hip"), num_warps=8))
    assert hip.num_warps(_semantic=semantic).value == 8
    assert hip.memrealtime(_semantic=semantic).type is tl.int64
    semantic.builder.return_([])
    ir.verify(module)
    assert "s_memrealtime" in str(module)


@pytest.mark.parametrize("path", ["tilewright.language.extra.hip", "tilewright.language.extra.hip.libdevice", "tilewright_amd.language"])
def test_it_is_a_module_under_each_name(path: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {path} as found; import tilewright.language as tl; assert tl.extra.hip.libdevice"], check=True)
