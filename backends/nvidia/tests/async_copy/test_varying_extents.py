"""Descriptors that differ in an extent alone, as PTX: maps of the launch, of two more axes."""

from __future__ import annotations

import re

import pytest
from hopper_support import ASYNCHRONOUS, TARGET
from varying_extent_kernels import multiplied_along_rows

from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright_nvidia.lower import lower
from tilewright_nvidia.toolchain.linking import assemble


@pytest.mark.parametrize("assumes", [True, False])
def test_groups_of_rows_share_a_map_of_the_launch(assumes: bool) -> None:
    signature = {"ends": "*i32", "groups": "i32", "M": "i32", "N": "i32"}
    constants = {"B_M": 128, "B_N": 128, "B_K": 64, "PROGRAMS": 132, "ASSUMES": assumes}
    module = compile_function(
        device_function(multiplied_along_rows),
        {**dict.fromkeys("abc", "*bf16"), **signature},
        constants,
        {name: {"divisibility": 16} for name in (*"abc", "M", "N")},
    )
    pipeline.run(module)
    code = lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 4})
    ptx = str(code.stages["ptx"])
    assert ("tensormap.replace" in ptx) != assumes
    assert len(code.metadata["tensor_maps"]) == (3 if assumes else 1)
    rank = 4 if assumes else 2
    assert f"cp.async.bulk.tensor.{rank}d.shared::cluster" in ptx
    assert "wgmma.mma_async" in ptx and "setmaxnreg.inc" in ptx
    linked = assemble(ptx, "sm_90a")
    assert linked.spills == 0 and not re.search(r"\bwarning\b|C75\d\d", linked.log, re.I)
