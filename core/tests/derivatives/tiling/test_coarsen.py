"""Coarsening: sums of many places in registers, added atomically or in a fixed order."""

from __future__ import annotations

from pathlib import Path

import adjoint_kernels as kernels
import numpy as np
import pytest
import tiling_cases as cases
from tiling_cases import Case, count

from tilewright.derivatives.tiling.coarsen import coarsen
from tilewright.derivatives.tiling.kernel_memory import NoTilingError


@pytest.mark.parametrize("programs", [1, 3, 11, 16])
def test_any_number_of_programs_takes_all_places(tmp_path: Path, programs: int) -> None:
    case = cases.norm(tmp_path)
    made = coarsen(case.module, 0)
    case.run(made.module, (programs,), **{made.places: 11})
    case.check()
    (loop,) = (op for op in made.module.walk() if op.name == "for")
    assert not any(op.name == "atomic_rmw" for op in loop.walk())
    assert made.combine is None


@pytest.mark.parametrize("mode", ["store", "atomic"])
def test_partial_sums_are_added_in_a_fixed_order(tmp_path: Path, mode: str) -> None:
    case = cases.norm(tmp_path)
    made = coarsen(case.module, 0, partial=True, mode=mode)
    assert made.combine is not None
    assert count(made.module, "atomic_rmw") == 0
    assert count(made.combine, "atomic_rmw") == (mode == "atomic")
    (tile,) = made.partials
    case.named[tile.name] = np.full(3 * tile.elements, np.nan, np.float32)
    case.run(made.module, (3,), **{made.places: 11})
    case.run(made.combine, (1,), **{made.parts: 3})
    case.check()


#: Columns by blocks along axis 0, rows along axis 1: the sums of a column go over rows.
COLUMN_SUMS = (
    kernels.HEADER
    + """
def adjoint(d_y_ptr, d_b_ptr, d_w_ptr, n, N: tl.constexpr):
    columns = tl.program_id(0) * N + tl.arange(0, N)
    row, rows = tl.program_id(1), tl.num_programs(1)
    inside = columns < n
    d = tl.load(d_y_ptr + row * n + columns, mask=inside, other=0.0)
    tl.atomic_add(d_b_ptr + columns, d, mask=inside, sem="relaxed")
    tl.atomic_add(d_w_ptr + columns + rows - 7, d * d / rows, mask=inside, sem="relaxed")
"""
)


def test_other_axes_and_extents_stay(tmp_path: Path) -> None:
    """The extent along the axis is the parameter; partial sums are numbered over the grid."""
    module = cases.kernel_of(tmp_path, COLUMN_SUMS, N=4)
    d_y = np.random.default_rng(5).standard_normal((7, 13)).astype(np.float32)
    gradients = {"d_b_ptr": d_y.sum(0), "d_w_ptr": (d_y * d_y).mean(0)}
    case = Case(module, {"d_y_ptr": d_y, "n": 13}, (4, 7), gradients)
    made = coarsen(module, 1)
    case.run(made.module, (4, 2), **{made.places: 7})
    case.check()
    made = coarsen(module, 1, partial=True, mode="store")
    assert made.combine is not None
    for tile in made.partials:
        case.named[tile.name] = np.full(4 * 2 * tile.elements, np.nan, np.float32)
    case.run(made.module, (4, 2), **{made.places: 7})
    case.clear()
    case.run(made.combine, (4, 1), **{made.parts: 2})
    case.check()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            ("d_w_ptr + columns", "d_w_ptr + at"),
            "nothing is added to addresses that do not depend on program_id(0)",
        ),
        (
            ("tl.load(w_ptr + columns", "tl.load(d_w_ptr + columns"),
            "it reads d_w_ptr, to which it adds",
        ),
        (
            ("tl.load(w_ptr + columns", "tl.load(d_x_ptr + columns"),
            "all places read d_x_ptr, to which it writes",
        ),
        (("tl.program_id(0) * n", "n * 0"), "it does not read program_id(0)"),
    ],
    ids=["own addresses", "reads its sum", "reads in all places", "no place"],
)
def test_refusals(tmp_path: Path, change: tuple[str, str], reason: str) -> None:
    source = kernels.NORM_ADJOINT.replace(*change)
    assert source != kernels.NORM_ADJOINT
    with pytest.raises(NoTilingError) as error:
        coarsen(cases.kernel_of(tmp_path, source, BLOCK=16), 0)
    assert error.value.reason == reason
