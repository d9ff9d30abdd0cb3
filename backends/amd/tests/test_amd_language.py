"""``tl.extra.hip``: the functions are operations of the IR, for the target that a kernel is
compiled for."""

from __future__ import annotations

import subprocess
import sys

import amd_kernels as kernels
import numpy as np
import pytest
from amd_support import compiled

import tilewright.language as tl
from tilewright import ir
from tilewright.errors import CompilationError
from tilewright.language.extra import hip
from tilewright.language.options import Options
from tilewright.language.semantic import Semantic
from tilewright.plugins.manifest import Target


def test_its_functions_are_operations_of_the_ir() -> None:
    module = ir.Module()
    function = module.add(ir.Function("f", ()))
    semantic = Semantic(
        ir.Builder.at_end(function.body),
        Options(target=Target("amd", "gfx942", warp_size=64, kind="hip"), num_warps=8),
    )
    assert hip.num_warps(_semantic=semantic).value == 8
    assert hip.memrealtime(_semantic=semantic).type is tl.int64
    semantic.builder.return_([])
    ir.verify(module)
    assert "clock" in str(module) and "inline_asm" not in str(module)


@pytest.mark.parametrize(
    ("arch", "instruction"),
    [
        ("gfx942", "s_memrealtime"),
        ("gfx1100", "s_sendmsg_rtn_b64"),
        ("gfx1201", "s_sendmsg_rtn_b64"),
    ],
)
def test_the_clock_is_one_instruction_on_every_target(arch: str, instruction: str) -> None:
    listing = compiled(kernels.ticks, "*i64", arch).stages["amdgcn"]
    assert isinstance(listing, str) and listing.count(instruction) == 1


def test_the_clock_of_an_amd_gpu_is_for_amd_gpus() -> None:
    with pytest.raises(
        CompilationError, match=r"reads a clock of AMD GPUs, and this kernel is compiled for cpu"
    ):
        kernels.ticks[(1,)](np.zeros(1, np.int64), backend="cpu")


@pytest.mark.parametrize(
    "path",
    [
        "tilewright.language.extra.hip",
        "tilewright.language.extra.hip.libdevice",
        "tilewright_amd.language",
    ],
)
def test_it_is_a_module_under_each_name(path: str) -> None:
    subprocess.run(
        [
            sys.executable,
            "-c",
            (
                f"import {path} as found; import tilewright.language as tl; assert "
                "tl.extra.hip.libdevice"
            ),
        ],
        check=True,
    )
