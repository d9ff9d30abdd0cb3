"""The part of a kernel that writes some outputs, and what a first kernel keeps for it."""

from __future__ import annotations

from pathlib import Path

import adjoint_kernels as kernels
import pytest
import tiling_cases as cases
from tiling_cases import count

from tilewright.derivatives.tiling.kernel_memory import NoTilingError
from tilewright.derivatives.tiling.materialize import materialize
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.ir.core import Module


def test_a_restricted_kernel_writes_and_computes_what_is_named(tmp_path: Path) -> None:
    case = cases.attention(tmp_path, causal=True)
    made = restrict_writes(case.module, ["d_v_ptr"])
    assert count(made, "atomic_rmw") == 1
    assert count(made, "dot") == 2  # the scores, and the sum
    case.run(made, case.grid)
    case.check("d_v_ptr")
    assert not case.named["d_k_ptr"].any()
    assert count(case.module, "atomic_rmw") == 3


def test_barriers_go_with_what_they_order(tmp_path: Path) -> None:
    source = kernels.NORM_ADJOINT + (
        "    tl.store(d_x_ptr + at, tl.load(d_x_ptr + at, mask=inside) + d_x, mask=inside)\n"
        "    tl.debug_barrier()\n"
    )
    case = cases.norm(tmp_path, source)
    assert count(restrict_writes(case.module, ["d_w_ptr"]), "barrier") == 0
    assert count(restrict_writes(case.module, ["d_x_ptr"]), "barrier") == 1


#: d_y is read, and set to zero: the next kernel would find no cotangent there.
CONSUMING = kernels.NORM_ADJOINT + "    tl.store(d_y_ptr + at, x * 0.0, mask=inside)\n"


@pytest.mark.parametrize(
    ("source", "names", "reason"),
    [
        (kernels.NORM_ADJOINT, ["d_x_ptr", "d_b_ptr"], "it does not write to d_b_ptr"),
        (
            CONSUMING,
            ["d_w_ptr"],
            "what it writes to d_w_ptr is computed from d_y_ptr, to which it writes as well",
        ),
        (
            kernels.NORM_ADJOINT.replace("tl.atomic_add(d_w_ptr", "old = tl.atomic_add(d_w_ptr")
            + "    tl.store(d_x_ptr + at, old, mask=inside)\n",
            ["d_x_ptr"],
            "returns what was in memory",
        ),
        (
            kernels.NORM_ADJOINT + '    tl.device_print("x", x)\n',
            ["d_x_ptr"],
            "has effects that are not known",
        ),
    ],
    ids=["unknown", "consumed", "read", "print"],
)
def test_refusals(tmp_path: Path, source: str, names: list[str], reason: str) -> None:
    module = cases.kernel_of(tmp_path, source, BLOCK=16)
    with pytest.raises(NoTilingError) as error:
        restrict_writes(module, names)
    assert reason in error.value.reason


def test_scratch_is_written_where_it_is_read(tmp_path: Path) -> None:
    module = cases.kernel_of(tmp_path, CONSUMING, BLOCK=16)
    made = restrict_writes(module, ["d_w_ptr"], scratch=["d_y_ptr"])
    assert count(made, "store") == 1
    assert count(made, "atomic_rmw") == 1


# ---- materialization


def materialized_types(module: Module) -> list[str]:
    return [str(tile.type) for tile in materialize(module).scratch]


def test_cheap_values_are_not_kept(tmp_path: Path) -> None:
    """Loads and elementwise operations are repeated."""
    source = kernels.ATTENTION_ADJOINT.replace("tl.sum(out * d_out, axis=1)", "lse * 2.0")
    case = cases.attention(tmp_path, causal=False, source=source)
    found = materialize(restrict_writes(case.module, ["d_k_ptr"]))
    assert found.first is None
    assert found.scratch == ()


def test_the_fewest_bytes_are_kept(tmp_path: Path) -> None:
    """A tile made of row sums and a loaded tile is made again of the row sums."""
    source = kernels.ATTENTION_ADJOINT.replace(
        "delta = tl.sum(out * d_out, axis=1)",
        "delta = tl.sum(out * d_out, axis=1)\n    q = q * tl.sum(q, axis=1)[:, None]",
    )
    case = cases.attention(tmp_path, causal=False, source=source)
    restricted = restrict_writes(case.module, ["d_k_ptr", "d_v_ptr"])
    assert materialized_types(restricted) == ["tile<16xf32>", "tile<16xf32>"]


def test_the_first_kernel_stores_and_nothing_else(tmp_path: Path) -> None:
    case = cases.matmul(tmp_path)
    first = materialize(restrict_writes(case.module, ["d_a_ptr"])).first
    assert first is not None
    assert count(first, "store") == 1
    assert count(first, "atomic_rmw") == 0
    assert count(first, "for") == 1
