"""Atomic sums: pairs of f16 and bf16 by one instruction, one fence for all updates of a thread,
each lane another element; run on emulated waves."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import amd_kernels as kernels
import ml_dtypes
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import listed

TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
#: Types of which an architecture's instruction adds two at once.
PACKED = {
    "gfx90a": ("fp16",),
    "gfx942": ("fp16", "bf16"),
    "gfx950": ("fp16", "bf16"),
    "gfx1100": (),
    "gfx1201": ("fp16", "bf16"),
}


def counted(text: Any, pattern: str) -> Counter[str]:
    return Counter(re.findall(rf"^\t({pattern})", str(text), re.M))


def whole(rng: np.random.Generator, type_: str, *shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(-3, 4, shape).astype(TYPES[type_])


def raw(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of an array of bf16, which NumPy does not know."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


@pytest.mark.each_value
@pytest.mark.parametrize("arch", PACKED)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize(("aligned", "n"), [(True, 496), (False, 500), (False, 333)])
def test_sums_of_rows(arch: str, type_: str, aligned: bool, n: int) -> None:
    """512 elements for one wave; the mask ends at a multiple of 16, or anywhere."""
    rng, of = np.random.default_rng(n), 16 if aligned else 1
    code = listed(
        kernels.row_sums,
        f"x=*{type_}:16, z=*{type_}:16, n=i32:{of}",
        arch,
        {"BLOCK": 512},
        num_warps=1,
    )
    each = 512 // (32 if arch.startswith("gfx1") else 64)
    sums = counted(code.stages["amdgcn"], r"global_atomic_(?:pk_)?add_\w+")
    if type_ == "fp32" and arch != "gfx90a":  # whose instruction takes subnormal numbers for zero
        assert sums == {"global_atomic_add_f32": each}
    elif aligned and type_ in PACKED[arch]:
        assert sums == {f"global_atomic_pk_add_{'f16' if type_ == 'fp16' else 'bf16'}": each // 2}
    else:
        assert not sums  # compares and exchanges
    x, z = whole(rng, type_, 3, 512), whole(rng, type_, 512)
    expected = z.astype(np.float64)
    expected[:n] += x.astype(np.float64).sum(0)[:n]
    launched(code, [raw(x), raw(z), n], (3,))
    np.testing.assert_array_equal(z.astype(np.float64), expected)


@pytest.mark.parametrize(
    ("arch", "type_"), [(arch, type_) for arch, types in PACKED.items() for type_ in types]
)
def test_old_values_of_pairs(arch: str, type_: str) -> None:
    code = listed(
        kernels.row_sums_with_old,
        f"x=*{type_}:16, z=*{type_}:16, old=*{type_}:16, n=i32:16",
        arch,
        {"BLOCK": 512},
        num_warps=1,
    )
    assert counted(code.stages["amdgcn"], r"global_atomic_pk_add_\w+")
    rng = np.random.default_rng(0)
    x, z, old = (whole(rng, type_, 512) for _ in range(3))
    expected_old, expected = old.copy(), z.astype(np.float64)
    expected_old[:496] = z[:496]
    expected[:496] += x[:496].astype(np.float64)
    launched(code, [raw(x), raw(z), raw(old), 496])
    np.testing.assert_array_equal(z.astype(np.float64), expected)
    np.testing.assert_array_equal(raw(old), raw(expected_old))


@pytest.mark.each_value
@pytest.mark.parametrize("arch", PACKED)
@pytest.mark.parametrize("stride", [1, 3])
def test_each_lane_adds_the_sum_of_another_row(arch: str, stride: int) -> None:
    code = listed(
        kernels.tile_sums,
        "x=*fp32:16, z=*fp32:16, m=i32",
        arch,
        {"ROWS": 32, "COLUMNS": 256, "STRIDE": stride},
    )
    swap = "global_atomic_cmpswap"
    assert counted(code.stages["amdgcn"], r"global_atomic_\w+") == {
        swap if arch == "gfx90a" else "global_atomic_add_f32": 1
    }
    x, z = whole(np.random.default_rng(0), "fp32", 32, 256), np.zeros(32 * stride, np.float32)
    launched(code, [x, z, 29])
    expected = np.zeros((32, stride), np.float32)
    expected[:29, 0] = x.sum(1)[:29]
    np.testing.assert_array_equal(z.reshape(32, stride), expected)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_one_release_serves_all_updates_of_a_thread(arch: str) -> None:
    """Each update releases; the caches are written back once."""
    code = listed(
        kernels.row_sums, "x=*fp32:16, z=*fp32:16, n=i32:16", arch, {"BLOCK": 512}, num_warps=1
    )
    assert counted(code.stages["amdgcn"], r"buffer_wbl2|buffer_inv") == {"buffer_wbl2": 1}
