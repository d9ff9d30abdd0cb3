"""Grid-loop interchange of adjoints: restricted, materialized, interchanged."""

from __future__ import annotations

from pathlib import Path

import adjoint_kernels as kernels
import numpy as np
import pytest
import tiling_cases as cases
from tiling_cases import Case, count, tiles

from tilewright.derivatives.tiling.interchange import interchange
from tilewright.derivatives.tiling.iteration_counts import iteration_counts
from tilewright.derivatives.tiling.kernel_memory import NoTilingError
from tilewright.derivatives.tiling.materialize import Materialized, materialize
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.derivatives.tiling.scalar_slice import evaluate_slice
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module


def run_materialized(case: Case, names: list[str]) -> Materialized:
    """Restrict a case's kernel to some outputs, run its first kernel, and return the two."""
    found = materialize(restrict_writes(case.module, names))
    programs = int(np.prod(case.grid))
    for tile in found.scratch:
        case.named[tile.name] = np.full(programs * tile.elements, np.nan, np.float32)
    if found.first is not None:
        case.run(found.first, case.grid)
    case.clear()
    return found


@pytest.mark.parametrize("mode", ["store", "atomic"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_sums_over_queries(tmp_path: Path, causal: bool, mode: str) -> None:
    """Keys and values of 8 columns a program; the row sums ``delta`` are materialized."""
    case = cases.attention(tmp_path, causal=causal)
    found = run_materialized(case, ["d_k_ptr", "d_v_ptr"])
    assert [str(tile.type) for tile in found.scratch] == ["tile<16xf32>"]
    made = interchange(found.rest, 0, mode)
    case.run(made.module, (tiles(37, 8), 2), **{made.programs: 3})
    case.check("d_k_ptr", "d_v_ptr")
    assert count(made.module, "atomic_rmw") == (2 if mode == "atomic" else 0)
    assert count(made.module, "if") == 0
    (first,) = (op for op in made.module.walk() if op.name == "for")
    lower = first.operands[0].definition
    assert lower is not None
    assert (lower.name == "constant") == (not causal)


@pytest.mark.parametrize(("name", "axis"), [("d_a_ptr", 1), ("d_b_ptr", 0)])
def test_a_matmul_sums_over_its_tiles(tmp_path: Path, name: str, axis: int) -> None:
    """Addresses that the loop carries get a closed form; the epilogue's derivative is kept."""
    case = cases.matmul(tmp_path)
    found = run_materialized(case, [name])
    assert [str(tile.type) for tile in found.scratch] == ["tile<16x8xf32>"]
    made = interchange(found.rest, axis, "store")
    grid = [tiles(19, 8) if other == axis else case.grid[other] for other in (0, 1)]
    case.run(made.module, grid, **{made.programs: case.grid[axis]})
    case.check(name)
    assert count(made.module, "dot") == 1
    assert count(made.module, "add") and not count(made.module, "atomic_rmw")


def test_a_bound_that_is_not_followed_is_asked_by_each_program(tmp_path: Path) -> None:
    source = kernels.ATTENTION_ADJOINT.replace(
        "end = tl.minimum(first + M, length) if CAUSAL else length",
        "end = tl.where(first + M < length, first + M, length)",
    )
    assert source != kernels.ATTENTION_ADJOINT
    case = cases.attention(tmp_path, causal=True, source=source)
    found = run_materialized(case, ["d_k_ptr", "d_v_ptr"])
    made = interchange(found.rest, 0, "store")
    assert count(made.module, "if") == 1
    case.run(made.module, (tiles(37, 8), 2), **{made.programs: 3})
    case.check("d_k_ptr", "d_v_ptr")


#: Row p of out, of lengths[b] columns in batch b, each column scaled by x[b, column].
RAGGED = (
    kernels.HEADER
    + """
def adjoint(x_ptr, lengths_ptr, d_out_ptr, d_x_ptr, m, n, N: tl.constexpr):
    row, batch = tl.program_id(0), tl.program_id(1)
    length = END
    for start in range(0, length, N):
        columns = start + tl.arange(0, N)
        inside = columns < length
        d = tl.load(d_out_ptr + (batch * m + row) * n + columns, mask=inside, other=0.0)
        tl.atomic_add(d_x_ptr + batch * n + columns, d * row, mask=inside, sem="relaxed")
"""
)


def test_programs_of_other_axes_may_have_fewer_iterations(tmp_path: Path) -> None:
    """The bound is one of the batch: a program beyond it neither reads nor writes."""
    source = RAGGED.replace("END", "n // (batch + 1)").replace("lengths_ptr, ", "")
    module = cases.kernel_of(tmp_path, source, N=4)
    d_out = np.random.default_rng(3).standard_normal((2, 5, 13)).astype(np.float32)
    gradient = np.einsum("bpn,p->bn", d_out, np.arange(5.0))
    gradient[1, 6:] = 0
    named = {"x_ptr": d_out, "d_out_ptr": d_out, "m": 5, "n": 13}
    case = Case(module, named, (5, 2), {"d_x_ptr": gradient})
    counts = evaluate_slice(iteration_counts(module), 1, (5, 2, 1), {"m": 5, "n": 13})
    assert counts.ravel().tolist() == [4] * 5 + [2] * 5
    made = interchange(module, 0, "store")
    assert count(made.module, "if") == 1
    case.clear()
    case.named["d_x_ptr"][1, 8:] = 7  # of programs without iterations
    case.run(made.module, (int(counts.max()), 2), **{made.programs: 5})
    case.gradients["d_x_ptr"][1, 8:] = 7
    case.check()


def test_the_iterations_of_programs_are_counted(tmp_path: Path) -> None:
    """The grid of the interchanged kernel has their maximum along the axis."""
    case = cases.attention(tmp_path, causal=True)
    restricted = restrict_writes(case.module, ["d_k_ptr"])
    scalars = {"scale": 0.5, "length": 37}
    counts = evaluate_slice(iteration_counts(restricted), 1, (3, 2, 1), scalars)
    assert counts.ravel().tolist() == [2, 4, 5] * 2


# ---- refusals

LOOP = "    for start in range(0, n, N):\n"
#: a kernel of x and d_x -> the reason of the refusal
REFUSALS: dict[str, tuple[str, str]] = {
    "no loop": (
        "    tl.atomic_add(d_x_ptr + tl.arange(0, N), p * 1.0)\n",
        "its writes do not stand in one loop of the kernel's outermost level",
    ),
    "two loops": (
        (LOOP + "        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), p * 1.0)\n") * 2,
        "its writes do not stand in one loop of the kernel's outermost level",
    ),
    "addresses of the program": (
        LOOP + "        tl.atomic_add(d_x_ptr + p * n + start + tl.arange(0, N), p * 1.0)\n",
        "d_x_ptr: its addresses, or its mask, depend on program_id(0)",
    ),
    "a mask of the program": (
        LOOP + "        at = start + tl.arange(0, N)\n"
        "        tl.atomic_add(d_x_ptr + at, p * 1.0, mask=at < p)\n",
        "d_x_ptr: its addresses, or its mask, depend on program_id(0)",
    ),
    "a store": (
        LOOP + "        tl.store(d_x_ptr + start + tl.arange(0, N), p * 1.0)\n",
        "d_x_ptr: it is stored, and not added to",
    ),
    "a maximum": (
        LOOP + "        tl.atomic_max(d_x_ptr + start + tl.arange(0, N), p * 1.0)\n",
        "it reads d_x_ptr, to which it writes",
    ),
    "an addition in a branch": (
        LOOP + "        if start > p:\n"
        "            tl.atomic_add(d_x_ptr + start + tl.arange(0, N), p * 1.0)\n",
        "d_x_ptr: its write stands in a branch or an inner loop",
    ),
    "a recurrence": (
        "    s = p * 1.0\n"
        + LOOP
        + "        s = s * 0.5\n        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), s)\n",
        "the loop carries s, to which each iteration does not add the same integer",
    ),
    "steps that vary": (
        "    s = p\n" + LOOP + "        s += start\n"
        "        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), s * 1.0)\n",
        "the loop carries s, to which each iteration does not add the same integer",
    ),
    "a first iteration of the program": (
        LOOP.replace("range(0", "range(p")
        + "        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), p * 1.0)\n",
        "the loop's first iteration, or its step, depends on program_id(0)",
    ),
    "a program that is not read": (
        LOOP.replace("range(0", "range(0")
        + "        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), start * 1.0)\n",
        "it does not read program_id(0)",
    ),
    "reads what it writes": (
        LOOP + "        at = d_x_ptr + start + tl.arange(0, N)\n"
        "        tl.atomic_add(at, tl.load(at) * p)\n",
        "it reads d_x_ptr, to which it writes",
    ),
    "heavy before the loop": (
        "    s = tl.sum(tl.load(x_ptr + p * N + tl.arange(0, N)))\n"
        + LOOP
        + "        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), s)\n",
        "materialize it first",
    ),
    "prints": (
        LOOP + '        tl.device_print("p", p)\n'
        "        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), p * 1.0)\n",
        "has effects that are not known",
    ),
    "a bound in memory": (
        LOOP.replace("range(0, n", "range(0, tl.load(x_ptr + p).to(tl.int32)")
        + "        tl.atomic_add(d_x_ptr + start + tl.arange(0, N), p * 1.0)\n",
        "the loop's bound depends on the program in a way that is not followed",
    ),
}


def refused_kernel(folder: Path, body: str) -> Module:
    head = "def adjoint(x_ptr, d_x_ptr, n, N: tl.constexpr):\n    p = tl.program_id(0)\n"
    return cases.kernel_of(folder, kernels.HEADER + head + body, N=8)


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(tmp_path: Path, name: str) -> None:
    body, reason = REFUSALS[name]
    with pytest.raises(NoTilingError) as error:
        interchange(refused_kernel(tmp_path, body), 0)
    assert reason in error.value.reason


def test_the_same_value_added_twice_is_summed_twice(tmp_path: Path) -> None:
    """A matmul accumulates into one sum alone."""
    body = (
        "    i = tl.arange(0, N)\n    at = i[:, None] * N + i[None, :]\n"
        "    x = tl.load(x_ptr + p * N * N + at)\n" + LOOP + "        d = tl.dot(x, x + start)\n"
        "        tl.atomic_add(d_x_ptr + start * N + at, d, sem='relaxed')\n"
        "        tl.atomic_add(d_x_ptr + (start + n) * N + at, d, sem='relaxed')\n"
    )
    module = refused_kernel(tmp_path, body)
    x = np.random.default_rng(4).standard_normal((3, 8, 8))
    total = np.stack([(x @ (x + start)).sum(0) for start in (0, 8, 0, 8)])
    case = Case(module, {"x_ptr": x, "n": 16}, (3,), {"d_x_ptr": total})
    case.clear()
    made = interchange(module, 0)
    case.run(made.module, (2,), **{made.programs: 3})
    case.check()


# ---- text in, text out

TEXT = """\
tilewright.ir 1.0

kernel @k(%x: ptr<f32>, %d: ptr<f32>, %n: i32, %by: i32) {
  %p = program_id 0 : i32
  %zero = constant 0 : i32
  %two = constant 2 : i32
  %at = addptr %x, %p : ptr<f32>
  %v = load %at : f32
  %end = for %zero, %n, %two, inits=[%d] : ptr<f32> body(%i: i32, %here: ptr<f32>) {
    %f = cast %i : f32
    %w = mul %v, %f : f32
    %old = atomic_rmw %here, %w {kind = add, order = relaxed} : f32
    %next = addptr %here, %by : ptr<f32>
    yield %next
  }
  return
}
"""

INTERCHANGED = """\
tilewright.ir 1.0

kernel @k_interchanged(%x: ptr<f32>, %d: ptr<f32>, %n: i32, %by: i32, %programs_0: i32) {
  %0 = program_id 0 : i32
  %two = constant 2 : i32
  %1 = mul %0, %two : i32
  %2 = constant 0 : i32
  %3 = cast %by : i64
  %4 = cast %0 : i64
  %5 = mul %3, %4 : i64
  %6 = addptr %d, %5 : ptr<f32>
  %f = cast %1 : f32
  %7 = constant 0.0 : f32
  %8 = constant 1 : i32
  %9 = for %2, %programs_0, %8, inits=[%7] : f32 body(%program: i32, %10: f32) {
    %at = addptr %x, %program : ptr<f32>
    %v = load %at : f32
    %w = mul %v, %f : f32
    %11 = add %10, %w : f32
    yield %11
  }
  store %6, %9
  return
}
"""


def test_an_address_that_moves_gets_a_closed_form() -> None:
    """In 64 bits: the loop's own steps did not wrap around."""
    assert print_module(interchange(parse_module(TEXT), 0, "store").module) == INTERCHANGED
