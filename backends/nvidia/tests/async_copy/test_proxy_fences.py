"""Proxy fences in the code of kernels that load several tiles into the same shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import fused_kernels
import pytest

from tilewright.frontend.compile import compile_function
from tilewright.passes import pipeline
from tilewright.plugins.manifest import PORTABLE_OPTIONS
from tilewright.simt.passes.check_proxies import ProxyError
from tilewright.simt.passes.insert_membar import insert_barriers
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.toolchain.linking import assemble

TILE, LEFT, RIGHT = "bf16[64,64]", "bf16[64,32]", "bf16[32,64]"
#: kernel -> (descriptors, integers, proxy fences: of mbarriers, of reads, of what is stored)
KERNELS: Mapping[str, tuple[dict[str, str], tuple[str, ...], tuple[int, int, int]]] = {
    "gated": (dict.fromkeys("abc", TILE), (), (1, 1, 1)),
    "fused": ({"p": LEFT, "q": RIGHT, **dict.fromkeys("abc", TILE)}, ("depth",), (2, 1, 1)),
    "branching": (dict.fromkeys("abc", TILE), (), (1, 1, 1)),
    "summed": (dict.fromkeys("abc", TILE), ("width",), (1, 2, 1)),
    # the fence for what threads store in each iteration serves what they read as well
    "dequantized": ({"p": LEFT, "q": "i8[32,64]", "a": TILE, "c": TILE}, ("depth",), (2, 0, 2)),
    "exact": (
        {"p": "fp32[64,32]", "q": "fp32[32,64]", **dict.fromkeys("abc", "fp32[64,64]")},
        ("depth",),
        (2, 2, 1),
    ),
}
#: In order: what threads load and store in shared memory, copies to it and from it, what orders
#: them.
_INSTRUCTIONS = re.compile(
    r"^\s*(ld\.shared|st\.shared|bar\.sync|mbarrier\.arrive\.release"
    r"|fence\.mbarrier_init|fence\.proxy\.async"
    r"|cp\.async\.bulk\.tensor\S*\.(?:global|shared::cta))",
    re.MULTILINE,
)


def ptx_of(name: str, arch: str, **options: Any) -> str:
    kernel, (descriptors, integers, _) = getattr(fused_kernels, name), KERNELS[name]
    constants = {"BM": 64, "BN": 64, "BK": 32}
    constants = {key: value for key, value in constants.items() if key in kernel.arg_names}
    types = {one: f"tensordesc<{block}>" for one, block in descriptors.items()}
    types |= dict.fromkeys(integers, "i32")
    facts = {one: {"divisibility": 16, "extent_divisibility": 16} for one in types}
    ordered = {one: types.get(one, "constexpr") for one in kernel.arg_names}
    module = compile_function(kernel, ordered, constants, facts)
    pipeline.run(module, pipeline.STANDARD)
    resolved = {**PORTABLE_OPTIONS, **OPTIONS, "num_stages": 2, **options}
    text = lower(module, target_of(ARCHITECTURES[arch]), resolved).stages["ptx"]
    assert isinstance(text, str)
    assemble(text, arch)
    return text


@pytest.mark.parametrize("name", KERNELS)
def test_fences_are_those_that_are_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    assert ptx_of(name, "sm_90a").count("fence.proxy.async") == sum(KERNELS[name][2])


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["dequantized", "exact"])
@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a"])
def test_operands_that_threads_store_and_load_need_no_fence(name: str, arch: str) -> None:
    """There the async proxy copies rows that an index names, and nothing else: ``ldmatrix`` reads
    by the generic proxy."""
    assert "fence.proxy.async" not in ptx_of(name, arch)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_a_fence_and_a_barrier_are_between_two_loads_into_the_same_bytes(arch: str) -> None:
    found = [one.rsplit(".", 1)[-1] for one in _INSTRUCTIONS.findall(ptx_of("gated", arch))]
    copies = [number for number, one in enumerate(found) if one == "global"]
    between = found[copies[0] + 1 : copies[1]]
    assert "shared" in between and between[-2:] == ["async", "sync"]


@pytest.mark.each_value
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_check_passes(
    name: str, arch: str, warps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    ptx_of(name, arch, num_warps=warps)


def test_the_check_finds_what_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(function: Any, target: Any) -> None:
        insert_barriers(function, target)
        for operation in list(function.walk()):
            if operation.name == "simt.publish":
                operation.erase()

    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    monkeypatch.setattr("tilewright.simt.compile.STAGES", _with_barriers(without))
    with pytest.raises(ProxyError, match=r"simt.load at .* read through the generic proxy"):
        ptx_of("gated", "sm_90a")


def _with_barriers(insert: Any) -> Any:
    import dataclasses

    from tilewright.simt.compile import STAGES, kernel_of

    def run(module: Any, target: Any, options: Any) -> None:
        insert(kernel_of(module), target)

    return tuple(
        dataclasses.replace(stage, run=run) if stage.name == "barriers" else stage
        for stage in STAGES
    )
