"""Kernels of several loops as one kernel for each, and compositions of passes."""

from __future__ import annotations

from pathlib import Path

import adjoint_kernels as kernels
import numpy as np
import pytest
import tiling_cases as cases
from tiling_cases import Case, count

from tilewright.derivatives.tiling.coarsen import coarsen
from tilewright.derivatives.tiling.interchange import interchange
from tilewright.derivatives.tiling.iteration_counts import iteration_counts
from tilewright.derivatives.tiling.kernel_memory import NoTilingError
from tilewright.derivatives.tiling.materialize import materialize
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.derivatives.tiling.scalar_slice import evaluate_slice
from tilewright.derivatives.tiling.split_writes import split_writes
from tilewright.ir.core import Module

SCALARS = {"scale": 0.5, "length": 37}


def run_first(case: Case, module: Module) -> Module:
    """Run the first kernel of a kernel in two, and return the rest."""
    found = materialize(module)
    assert found.first is not None
    for tile in found.scratch:
        case.named[tile.name] = np.full(6 * tile.elements, np.nan, np.float32)
    case.run(found.first, case.grid)
    return found.rest


def test_attention_in_two_loops_is_split(tmp_path: Path) -> None:
    """The keys left of the diagonal are interchanged; then those on it are added."""
    source = kernels.TWO_LOOPS_ADJOINT
    assert source.count("for start in") == 2
    case = cases.attention(tmp_path, causal=True, source=source)
    left, diagonal = split_writes(restrict_writes(case.module, ["d_k_ptr", "d_v_ptr"]))
    assert count(left, "for") == count(diagonal, "for") == 1
    case.run(diagonal, case.grid)
    counts = evaluate_slice(iteration_counts(left), 1, (3, 2, 1), SCALARS)
    assert counts.ravel().tolist() == [0, 2, 4] * 2
    made = interchange(run_first(case, left), 0, "add")
    assert count(made.module, "atomic_rmw") == 0
    case.run(made.module, (4, 2), **{made.programs: 3})
    case.check("d_k_ptr", "d_v_ptr")


def test_writes_beside_a_loop_are_a_kernel(tmp_path: Path) -> None:
    case = cases.attention(tmp_path, causal=False)
    loop, rest = split_writes(case.module)
    assert count(loop, "atomic_rmw") == 2
    assert count(rest, "atomic_rmw") == 1
    assert loop.kernel.name != rest.kernel.name
    case.run(loop, case.grid)
    case.run(rest, case.grid)
    case.check()


def test_a_kernel_of_one_loop_is_not_split(tmp_path: Path) -> None:
    case = cases.matmul(tmp_path)
    (only,) = split_writes(case.module)
    assert count(only, "atomic_rmw") == count(case.module, "atomic_rmw")


def test_stores_in_two_loops_are_refused(tmp_path: Path) -> None:
    """The second loop's are those that stay."""
    loop = "    for i in range(n):\n        tl.store(d_x_ptr + i, i * 1.0)\n"
    source = f"{kernels.HEADER}def adjoint(d_x_ptr, n):\n{loop}{loop.replace('i * 1', 'i * 2')}"
    with pytest.raises(NoTilingError, match="d_x_ptr: it is stored in several loops"):
        split_writes(cases.kernel_of(tmp_path, source))


@pytest.mark.parametrize("partial", [False, True])
def test_keys_of_all_heads_are_summed_over_two_axes(tmp_path: Path, partial: bool) -> None:
    """Interchanged with the queries' axis, coarsened along that of the heads."""
    case = cases.attention(tmp_path, causal=True, source=kernels.MULTI_QUERY_ADJOINT)
    names = ("d_k_ptr", "d_v_ptr")
    case.run(case.module, case.grid)
    expected = {name: case.named[name] for name in names}
    case.clear()
    rest = run_first(case, restrict_writes(case.module, names))
    rows = interchange(rest, 0, "atomic")
    made = coarsen(rows.module, 1, partial=partial, mode="store")
    case.named[rows.programs] = 3
    for tile in made.partials:
        case.named[tile.name] = np.full(10 * tile.elements, np.nan, np.float32)
    case.run(made.module, (5, 2), **{made.places: 2})
    if made.combine is not None:
        assert count(made.combine, "atomic_rmw") == count(made.module, "atomic_rmw") == 0
        case.run(made.combine, (5, 1), **{made.parts: 2})
    for name in names:
        np.testing.assert_allclose(case.named[name], expected[name], rtol=2e-5, atol=2e-6)
