"""Atomic updates in PTX: how many elements one takes, ``red`` and ``atom``, fences; ptxas takes all
of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import gpu_kernels as kernels
import pytest

Ptx = Callable[..., str]
ARCHITECTURES = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def atomics(text: str) -> Counter[str]:
    """Atomic updates and fences, and how many of each there are."""
    return Counter(re.findall(r"(?:^|\s)((?:atom|red|fence)\.[\w.]+)", text))


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("type_", "vector", "packed", "single"),
    [
        ("fp32", "v4.f32", "f32", "f32"),
        ("fp16", "noftz.v4.f16x2", "noftz.f16x2", "noftz.f16"),
        ("bf16", "noftz.v4.bf16x2", "", "noftz.bf16"),
        ("fp64", "f64", "f64", "f64"),
    ],
)
def test_consecutive_elements_are_added_by_one_instruction(
    ptx: Ptx, arch: str, type_: str, vector: str, packed: str, single: str
) -> None:
    """1,024 elements for 128 threads; the mask ends at a multiple of 16, or anywhere."""
    signature, constants = (
        {"x": f"*{type_}", "z": f"*{type_}", "n": "i32"},
        {"BLOCK": 1024, "ORDER": "relaxed", "SCOPE": "gpu"},
    )
    newest = arch in ("sm_90a", "sm_100a", "sm_120a")
    found = atomics(ptx(kernels.row_sums, signature, arch, constants=constants))
    if newest or packed:
        expected = vector if newest else packed
        width = {"v4.f32": 4, "noftz.v4.f16x2": 8, "noftz.v4.bf16x2": 8, "noftz.f16x2": 2}.get(
            expected, 1
        )
        assert found == {f"red.global.gpu.relaxed.add.{expected}": 8 // width}
    else:
        assert found == {"atom.global.gpu.relaxed.cas.b16": 8}
    found = atomics(ptx(kernels.row_sums, signature, arch, constants=constants, aligned=False))
    if newest or type_ != "bf16":
        assert found == {f"red.global.gpu.relaxed.add.{single}": 8}


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("type_", ["fp32", "fp16", "bf16"])
def test_old_values_of_vectors(ptx: Ptx, arch: str, type_: str) -> None:
    text = ptx(
        kernels.row_sums_with_old,
        {"x": f"*{type_}", "z": f"*{type_}", "old": f"*{type_}", "n": "i32"},
        arch,
        constants={"BLOCK": 1024},
    )
    found = {name for name in atomics(text) if "red" in name or "atom" in name}
    assert all(name.startswith("atom.global.gpu.") for name in found)
    if arch != "sm_80":
        (name,) = found
        assert ".v4." in name


@pytest.mark.each_value
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("relaxed", {"red.global.{}.relaxed.add.v4.f32": 4}),
        ("acquire", {"red.global.{}.relaxed.add.v4.f32": 4}),
        ("release", {"fence.acq_rel.{}": 1, "red.global.{}.relaxed.add.v4.f32": 4}),
        ("acq_rel", {"fence.acq_rel.{}": 1, "red.global.{}.relaxed.add.v4.f32": 4}),
    ],
)
def test_one_fence_serves_all_updates_of_a_thread(
    ptx: Ptx, order: str, scope: str, expected: dict[str, int]
) -> None:
    """They end the kernel: there is nothing that an acquire would order."""
    text = ptx(
        kernels.row_sums,
        {"x": "*fp32", "z": "*fp32", "n": "i32"},
        constants={"BLOCK": 2048, "ORDER": order, "SCOPE": scope},
    )
    assert atomics(text) == {name.format(scope): count for name, count in expected.items()}


def test_updates_that_others_follow_read_and_acquire(ptx: Ptx) -> None:
    """``red`` reads nothing for the memory model, so that no fence behind it makes it acquire."""
    signature = {"x": "*fp32", "z": "*fp32", "ready": "*i32", "seen": "*fp32", "n": "i32"}
    found = atomics(ptx(kernels.published_sums, signature, constants={"BLOCK": 1024}))
    assert found == {
        "fence.acq_rel.gpu": 2,
        "atom.global.gpu.relaxed.add.v4.f32": 2,
        "atom.global.gpu.acq_rel.add.u32": 1,
    }


@pytest.mark.parametrize("stride", [1, 4])
def test_each_lane_adds_the_sum_of_another_row(ptx: Ptx, stride: int) -> None:
    """A warp has the sums of eight rows, each in all of its lanes."""
    constants = {"ROWS": 32, "COLUMNS": 128, "STRIDE": stride}
    found = atomics(
        ptx(
            kernels.tile_sums,
            {"x": "*fp32", "z": "*fp32", "m": "i32", "n": "i32"},
            constants=constants,
        )
    )
    assert found == {"red.global.gpu.release.add.f32": 1}
