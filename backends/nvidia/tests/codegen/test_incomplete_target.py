"""Targets made by hand that lack what code generation needs are refused before LLVM aborts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from nvidia_support import module_of

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.plugins.manifest import PORTABLE_OPTIONS, Target
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import OPTIONS

WHOLE = target_of(ARCHITECTURES["sm_90a"])


@tw.jit
def row_sum(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK)), axis=0))


def lowered(target: Target) -> str:
    module = module_of(row_sum, {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 64})
    return str(lower(module, target, {**PORTABLE_OPTIONS, **OPTIONS}).stages["ptx"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"features": ()}, r"feature \+ptx84"),
        ({"features": ("+ptx78",)}, r"feature \+ptx84"),
        ({"cpu": ""}, "cpu 'sm_90a', not ''"),
        ({"warp_size": 1}, "warp_size 32, not 1"),
        ({"limits": {}}, "limit shared_memory, limit registers"),
        ({"arch": "sm_91"}, "no code for 'sm_91'; targets are sm_75"),
    ],
)
def test_an_incomplete_target_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(LoweringError, match=reason):
        lowered(dataclasses.replace(WHOLE, **change))


def test_the_remedy_names_the_function_that_makes_a_target() -> None:
    with pytest.raises(
        LoweringError, match=r"named_target\(registry\(\).get\('nvidia'\), 'sm_90a'\)"
    ):
        lowered(Target("nvidia", "sm_90a", kind="cuda", warp_size=32))


def test_a_complete_target_with_another_version_of_ptx_is_accepted() -> None:
    assert "shfl.sync.bfly" in lowered(dataclasses.replace(WHOLE, features=("+ptx85",)))
