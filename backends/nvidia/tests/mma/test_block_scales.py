"""Loops of wgmma whose results are scaled: scales by cp.async, and warpgroups in turns."""

import re
from typing import Any

import pytest
from hopper_support import ASYNCHRONOUS, TARGET

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright_nvidia.lower import lower
from tilewright_nvidia.toolchain.linking import assemble


@device_function
def scaled(
    a, b, a_scale, b_scale, out, K, stride, step, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows = m + tl.arange(0, BM)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, 128, warp_specialize=True):
        of_rows = tl.load(a_scale + rows * stride + k // 128 * step)
        scale = of_rows[:, None] * tl.load(b_scale + k // 128)
        acc += tl.dot(a.load([m, k]), b.load([n, k]).T) * scale
    out.store([m, n], acc.to(tl.bfloat16))


def module_of(constants: dict[str, Any]) -> Any:
    blocks = {"a": f"tensordesc<fp8e4nv[{constants['BM']},128]>"}
    blocks["b"] = f"tensordesc<fp8e4nv[{constants['BN']},128]>"
    blocks["out"] = f"tensordesc<bf16[{constants['BM']},{constants['BN']}]>"
    numbers = {name: "i32" for name in ("K", "stride", "step") if name not in constants}
    signature = {
        **blocks,
        **dict.fromkeys(("a_scale", "b_scale"), "*fp32"),
        **numbers,
        **dict.fromkeys(constants, "constexpr"),
    }
    facts = {name: {"divisibility": 16} for name in (*blocks, "a_scale", "b_scale")}
    facts["out"] = {"divisibility": 16, "extent_divisibility": 8}
    module = compile_function(scaled, signature, constants, facts)
    pipeline.run(module)
    return module


@pytest.mark.parametrize("strides", [{}, {"stride": 1}, {"step": 1}], ids=str)
def test_scales_and_additions_overlap_with_the_next_matmul(strides: dict[str, int]) -> None:
    """Also where consecutive rows have consecutive scales: each thread loads those of its rows."""
    module = module_of({"BM": 128, "BN": 128, **strides})
    code = lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 4})
    ptx = str(code.stages["ptx"])
    first = ptx.index("wgmma.mma_async")
    loop = ptx[first : ptx.index("wgmma.wait_group.sync.aligned 0;", first)]
    order = re.findall(
        r"barrier\.cta|wgmma\.commit|cp\.async\.ca|cp\.async\.wait_group|wgmma\.wait_group\S* \d",
        loop,
    )
    scales = [*["cp.async.ca"] * 3, "cp.async.wait_group"]
    use = ["wgmma.wait_group.sync.aligned 1"] * 2
    started = ["wgmma.commit", *scales]
    assert order == [*started, *[*started, *use] * 3]
    linked = assemble(ptx, "sm_90a")
    assert "C75" not in linked.log and not linked.spills, linked.log
