"""Pipelined matmuls of rows that an index names: addresses come from other lanes, and no wait for
them is missing."""

from __future__ import annotations

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import example, forget, listed, waits_that_are_too_short

from tilewright.plugins.manifest import CodeObject
from tilewright_amd.codegen import cross_lane
from tilewright_amd_emulator import WaveError
from tilewright_conformance.cases.matmul.dots.kernels import gathered

#: (M, N, whether rows are loaded for each factor, stages, warps, type of the index)
CONFIGURATIONS = ((16, 32, False, 2, 4, "i64"), (16, 32, True, 3, 4, "i32"))
#: Those of gfx950 besides, the target that copies straight to LDS.
MORE = (
    (16, 64, True, 3, 4, "i32"),
    (64, 32, True, 2, 4, "i64"),
    (64, 64, False, 3, 4, "i64"),
    (16, 32, True, 2, 8, "i64"),
)
DEPTH = 64
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
CASES = [
    (arch, one) for arch in ARCHS for one in (*CONFIGURATIONS, *(MORE if arch == "gfx950" else ()))
]


def code_of(
    arch: str, m: int, n: int, twice: bool, stages: int, warps: int, index: str
) -> CodeObject:
    signature = (
        f"q_ptr=*fp32:16, rows_ptr=*fp32:16, index_ptr=*{index}:16, out_ptr=*fp32:16, n=i32, "
        "stride=i32:16"
    )
    constants = {"M": m, "N": n, "D": DEPTH, "TWICE": twice}
    return listed(gathered, signature, arch, constants, num_warps=warps, num_stages=stages)


def is_right(code: CodeObject, m: int, n: int, index: str, schedule: str) -> bool:
    rng = np.random.default_rng(m + n)
    q, table = (rng.integers(-2, 3, (rows, DEPTH)).astype(np.float32) for rows in (m, 4 * n))
    rows, count = rng.permutation(4 * n), 3 * n - 5
    k, found = table[rows[:count]], np.full((m, DEPTH), np.nan, np.float32)
    launched(
        code,
        [q, table, rows.astype(f"{index[0]}{int(index[1:]) // 8}"), found, count, DEPTH],
        schedule=schedule,
    )
    return bool(np.array_equal(found, (q @ k.T) @ k))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("arch", "configuration"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)
def test_products_of_gathered_rows(
    arch: str, configuration: tuple[int, int, bool, int, int, str]
) -> None:
    m, n, _, stages, _, index = configuration
    code = code_of(arch, *configuration)
    assert is_right(code, m, n, index, "lockstep" if stages == 2 else "random")
    listing = str(code.stages["amdgcn"])
    assert ("global_load_lds" in listing) == (arch == "gfx950")
    assert not waits_that_are_too_short(listing)


def test_permutes_that_are_not_pinned_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cross_lane, "pinned", lambda w, values, permute: [permute(value) for value in values]
    )
    forget()
    try:
        code = code_of("gfx950", 64, 64, True, 3, 4, "i64")
        with pytest.raises(
            WaveError,
            match=(
                r"which line \d+ \(ds_bpermute_b32 .*\) has not loaded yet: a wait for its "
                r"counter is missing"
            ),
        ):
            is_right(code, 64, 64, "i64", "lockstep")
        assert waits_that_are_too_short(str(code.stages["amdgcn"]))
    finally:
        forget()


def test_lanes_of_other_rows_are_exchanged_without_lds() -> None:
    """gfx950 has instructions for it, and copies straight to LDS, which would have to wait for
    permutes of LDS."""
    signature = (
        "x_ptr=*fp32:16, out_ptr=*fp32:16, x_stride=i32:16, out_stride=i32:16, n_columns=i32"
    )
    code = listed(example("softmax").softmax_kernel, signature, "gfx950", {"BLOCK": 1024})
    listing = str(code.stages["amdgcn"])
    assert "v_permlane16_swap" in listing and "v_permlane32_swap" in listing
    assert "ds_bpermute" not in listing and "ds_swizzle" not in listing
