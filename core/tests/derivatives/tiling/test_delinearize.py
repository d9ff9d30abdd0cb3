"""Grids of one axis as grids of the coordinates that programs compute."""

from __future__ import annotations

from pathlib import Path

import adjoint_kernels as kernels
import numpy as np
import pytest
import tiling_cases as cases
from tiling_cases import count, tiles

from tilewright.derivatives.tiling.delinearize import coordinate_box, delinearize
from tilewright.derivatives.tiling.interchange import interchange
from tilewright.derivatives.tiling.kernel_memory import NoTilingError
from tilewright.derivatives.tiling.materialize import materialize
from tilewright.derivatives.tiling.restrict_writes import restrict_writes

SCALARS = {"m": 37, "n": 21, "k": 19}


@pytest.mark.parametrize("group", [1, 2, 5])
def test_a_grouped_matmul_is_a_grid_of_tiles(tmp_path: Path, group: int) -> None:
    case = cases.matmul(tmp_path, group=group)
    found = delinearize(case.module)
    assert found.rank == 2
    assert coordinate_box(found, 9, SCALARS) == (3, 3)
    case.run(found.module, (3, 3))
    case.check()


def test_a_grid_that_is_no_box_is_refused(tmp_path: Path) -> None:
    found = delinearize(cases.matmul(tmp_path, group=2).module)
    assert coordinate_box(found, 10, SCALARS) is None
    assert coordinate_box(found, 8, SCALARS) is None
    assert coordinate_box(found, 0, SCALARS) is None
    assert coordinate_box(found, 12, {**SCALARS, "m": 49}) == (4, 3)


@pytest.mark.parametrize(("name", "axis"), [("d_a_ptr", 1), ("d_b_ptr", 0)])
def test_a_grouped_matmul_is_interchanged(tmp_path: Path, name: str, axis: int) -> None:
    case = cases.matmul(tmp_path, group=2)
    grid = [3, 3]
    found = materialize(restrict_writes(delinearize(case.module).module, [name]))
    assert found.first is not None
    for tile in found.scratch:
        case.named[tile.name] = np.full(9 * tile.elements, np.nan, np.float32)
    case.run(found.first, grid)
    made = interchange(found.rest, axis, "store")
    grid[axis] = tiles(19, 8)
    case.run(made.module, grid, **{made.programs: 3})
    case.check(name)
    assert count(made.module, "atomic_rmw") == 0


BODY = """
def adjoint(x_ptr, d_x_ptr, n, m):
    pid = tl.program_id(0)
    row, column = pid // n, pid % n
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "    tl.store(d_x_ptr + row * n + column, tl.program_id(1) * 1.0)\n",
            "its grid has more than one axis",
        ),
        (
            "    tl.store(d_x_ptr + pid, 1.0)\n",
            "it uses program_id(0) through 1 scalars, not 2 or 3",
        ),
        (
            "    tl.store(d_x_ptr + row * n + column, pid + n % m * (row - column * 2.0))\n"
            "    tl.store(x_ptr + (pid ^ m), 1.0)\n",
            "it uses program_id(0) through 4 scalars, not 2 or 3",
        ),
        (
            "    if pid < n * m:\n        tl.store(d_x_ptr + row * n, column * 1.0)\n",
            "is no i32 of its outermost level",
        ),
        (
            "    row = tl.load(x_ptr).to(tl.int32) + row\n"
            "    tl.store(d_x_ptr + row * n, column + tl.num_programs(0) * 1.0)\n",
            "it uses num_programs beside its coordinates",
        ),
    ],
    ids=["two axes", "one", "four", "condition", "extent"],
)
def test_refusals(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(NoTilingError) as error:
        delinearize(cases.kernel_of(tmp_path, kernels.HEADER + BODY + body))
    assert reason in error.value.reason


def test_coordinates_that_memory_decides_are_refused(tmp_path: Path) -> None:
    """They are known when the kernel runs, and no launch may look there."""
    body = BODY.replace("pid // n", "pid // tl.load(x_ptr).to(tl.int32)")
    source = kernels.HEADER + body + "    tl.store(d_x_ptr + row * m, column * 1.0)\n"
    with pytest.raises(NoTilingError, match="scalars of the grid are read from memory"):
        delinearize(cases.kernel_of(tmp_path, source))
