"""Adjoints that are derived, re-tiled: no atomics, and the gradients of the derivation."""

from __future__ import annotations

from pathlib import Path

import adjoint_kernels
import numpy as np
import online_softmax_kernels as kernels
import tiling_cases as cases
from tiling_cases import Case, count, tiles

from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.derivatives.tiling.coarsen import coarsen
from tilewright.derivatives.tiling.delinearize import delinearize
from tilewright.derivatives.tiling.hoist_transposes import hoist_transposes
from tilewright.derivatives.tiling.interchange import interchange
from tilewright.derivatives.tiling.materialize import materialize
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.ir.core import Module


def expect_gradients(case: Case) -> None:
    """Take what the derived kernel adds for the gradients."""
    case.run(case.module, case.grid)
    case.gradients = {name: case.named[name] for name in case.gradients}
    case.clear()


def run_by_iterations(case: Case, names: list[str], axis: int, iterations: int) -> Module:
    """Run a case's kernel materialized and interchanged along an axis, check and return it."""
    found = materialize(restrict_writes(case.module, names))
    for tile in found.scratch:
        programs = int(np.prod(case.grid))
        case.named[tile.name] = np.full(programs * tile.elements, np.nan, np.float32)
    if found.first is not None:
        case.run(found.first, case.grid)
    made = interchange(found.rest, axis, "store")
    module = hoist_transposes(made.module)
    assert count(module, "atomic_rmw") == 0
    grid = list(case.grid)
    grid[axis] = iterations
    case.run(module, grid, **{made.programs: case.grid[axis]})
    case.check(*names)
    return module


def test_flash_attention(tmp_path: Path) -> None:
    """From the forward kernel alone: the row sums are a kernel, and four matmuls remain."""
    constants = {"M": 16, "N": 16, "D": 8}
    forward = kernels.module_of(tmp_path, kernels.ATTENTION, kernels.ATTENTION_TYPES, constants)
    rng = np.random.default_rng(0)
    named = {f"{name}_ptr": rng.standard_normal((37, 8)) for name in ("q", "k", "v", "d_out")}
    named |= {"out_ptr": np.zeros((37, 8)), "lse_ptr": np.zeros(37), "extra_ptr": np.zeros(1)}
    request = AdjointRequest(("out_ptr",), ("q_ptr", "k_ptr", "v_ptr"), ("out_ptr", "lse_ptr"))
    adjoint = vjp(forward, request)
    gradients = {f"d_{name}_ptr": np.zeros((37, 8)) for name in "qkv"}
    case = Case(adjoint, {**named, "scale": 0.5, "length": 37}, (3,), gradients)
    case.run(forward, (3,))
    case.named["d_out_ptr"] = named["d_out_ptr"].astype(np.float32)
    expect_gradients(case)
    module = run_by_iterations(case, ["d_k_ptr", "d_v_ptr"], 0, tiles(37, 16))
    assert count(module, "dot") == 4
    assert count(module, "exp2") == 1


#: a b in groups of rows of tiles.
GROUPED_MATMUL = (
    adjoint_kernels.GROUPED_ADJOINT.split("    s = 1 /")[0]
    .replace("def adjoint(", "def matmul(")
    .replace("d_c_ptr, d_a_ptr, d_b_ptr", "c_ptr")
    + """    tl.store(
        c_ptr + rows[:, None] * n + columns[None, :],
        acc * tl.sigmoid(acc),
        mask=(rows < m)[:, None] & (columns < n)[None, :],
    )
"""
)


def test_a_grouped_matmul(tmp_path: Path) -> None:
    """A grid of one axis: delinearized before it is differentiated."""
    hand = cases.matmul(tmp_path, group=2)
    types = {**adjoint_kernels.ADJOINT_TYPES, "c_ptr": "*fp32"}
    constants = {"GROUP": 2, "M": 16, "N": 8, "K": 8}
    forward = kernels.module_of(tmp_path, GROUPED_MATMUL, types, constants)
    adjoint = vjp(delinearize(forward).module, AdjointRequest(("c_ptr",), ("a_ptr", "b_ptr")))
    named = {**hand.named, "c_ptr": np.zeros((37, 21))}
    named["d_c_ptr"] = hand.named["d_c_ptr"]
    case = Case(adjoint, named, (3, 3), hand.gradients)
    for name, axis in (("d_a_ptr", 1), ("d_b_ptr", 0)):
        run_by_iterations(case, [name], axis, tiles(19, 8))


NORM = (
    kernels.HEADER
    + """
def norm(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + columns
    inside = columns < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    w = tl.load(w_ptr + columns, mask=inside, other=0.0)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + 1e-5)
    tl.store(y_ptr + at, x * rstd * w, mask=inside)
"""
)


def test_a_norm(tmp_path: Path) -> None:
    """One kernel: rows store their own gradients, and weights are summed over them."""
    hand = cases.norm(tmp_path)
    types = {**adjoint_kernels.ADJOINT_TYPES, "y_ptr": "*fp32"}
    forward = kernels.module_of(tmp_path, NORM, types, {"BLOCK": 16})
    request = AdjointRequest(("y_ptr",), ("x_ptr", "w_ptr"), modes={"x_ptr": "store"})
    adjoint = vjp(forward, request)
    named = {**hand.named, "y_ptr": np.zeros((11, 13))}
    case = Case(adjoint, named, hand.grid, hand.gradients)
    made = coarsen(adjoint, 0, partial=True, mode="store")
    assert made.combine is not None
    assert count(made.module, "atomic_rmw") == count(made.combine, "atomic_rmw") == 0
    (tile,) = made.partials
    case.named[tile.name] = np.full(4 * tile.elements, np.nan, np.float32)
    case.run(made.module, (4,), **{made.places: 11})
    case.run(made.combine, (1,), **{made.parts: 4})
    case.check()
