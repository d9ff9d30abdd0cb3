"""Ping-pong of eight waves: correct in any order of the waves, and mutants are detected."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import SCHEDULES, all_barriers_but, example, listed, listing_of, loop_of

from tilewright.plugins.manifest import CodeObject
from tilewright_amd.async_copy import global_load_lds
from tilewright_amd.codegen.thread_hierarchy import GcnThreads
from tilewright_amd_emulator import WaveError

SIDE = 128


def matmul(
    arch: str, stages: int = 3, *, warps: int = 8, side: int = SIDE, depth: int = 32
) -> CodeObject:
    sizes = ", ".join(
        f"{name}=i32:16" for name in ("M", "N", "K", "stride_am", "stride_bk", "stride_cm")
    )
    blocks = {"BLOCK_M": side, "BLOCK_N": side, "BLOCK_K": depth, "GROUP_M": 1, "ACTIVATION": ""}
    constants = {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1, **blocks}
    types = "a_ptr=*fp16:16, b_ptr=*fp16:16, c_ptr=*fp16:16"
    return listed(
        example("matmul").matmul_kernel,
        f"{types}, {sizes}",
        arch,
        constants,
        num_stages=stages,
        num_warps=warps,
    )


def is_right(code: CodeObject, size: tuple[int, int, int], schedule: str, seed: int = 0) -> bool:
    m, n, k = size
    rng = np.random.default_rng(seed)
    a, b = (
        rng.integers(-3, 4, (m, k)).astype(np.float16),
        rng.integers(-3, 4, (k, n)).astype(np.float16),
    )
    c = np.full((m, n), np.nan, np.float16)
    try:
        launched(
            code,
            [a, b, c, m, n, k, k, n, n],
            (-(-m // SIDE) * -(-n // SIDE),),
            schedule=schedule,
            seed=seed,
        )
    except WaveError:
        return False
    return bool(np.array_equal(c, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16)))


@pytest.mark.each_value
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", [3, 4])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_products_by_turns(arch: str, stages: int, schedule: str) -> None:
    code = matmul(arch, stages)
    assert "s_setprio" in loop_of(code)
    # many iterations, parts of blocks, one iteration, none
    for size in ((128, 128, 256), (144, 48, 112), (32, 16, 16), (16, 16, 0)):
        assert is_right(code, size, schedule), size


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_wave_that_multiplies_does_nothing_else(arch: str) -> None:
    loop = loop_of(matmul(arch, depth=64))
    reading, multiplying = loop.split("s_setprio 1")
    inside, rest = multiplying.split("s_setprio 0")
    assert not re.search(r"v_mfma", reading + rest) and loop.count("s_barrier") == 2
    assert (
        set(re.findall(r"^\t(\w+?)_", inside, re.M)) <= {"v", "s"} and inside.count("v_mfma") >= 4
    )
    behind = reading.partition("s_barrier")[2]
    assert not re.search(r"^\t(ds|global)_", behind + rest, re.M) and "s_barrier" in rest


@pytest.mark.parametrize(
    "options",
    [
        {"arch": "gfx90a"},
        {"arch": "gfx950", "stages": 2},
        {"arch": "gfx942", "warps": 4},
        {"arch": "gfx950", "side": 64, "depth": 64},
        {"arch": "gfx1100"},
    ],
    ids=str,
)
def test_other_loops_have_one_stream(options: dict[str, Any]) -> None:
    assert "s_setprio" not in listing_of(matmul(**options))


# ---- what is missing is found


def _one_more_under_way(w: Any, pending: int) -> None:
    _WAIT(w, pending + 1)


_WAIT = global_load_lds.wait


@pytest.mark.parametrize(
    ("arch", "owner", "attribute", "value"),
    [
        ("gfx950", global_load_lds, "wait", _one_more_under_way),
        ("gfx950", GcnThreads, "barrier", all_barriers_but(0)),
        ("gfx942", GcnThreads, "barrier", all_barriers_but(0)),
        ("gfx950", GcnThreads, "barrier", all_barriers_but(2)),
        ("gfx942", GcnThreads, "barrier", all_barriers_but(2)),
    ],
    ids=[
        "a wait for one copy too few",
        "the first barrier",
        "the first barrier, through registers",
        "a barrier of the loop",
        "the same, through registers",
    ],
)
def test_a_mutant_is_found(
    arch: str, owner: Any, attribute: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, value)
    code = matmul(arch)
    assert not all(
        is_right(code, (128, 128, 160), schedule, seed) for schedule in SCHEDULES for seed in (0, 1)
    )
