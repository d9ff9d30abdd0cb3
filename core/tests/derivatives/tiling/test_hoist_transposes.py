"""Transposes of computed tiles move up to loads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tiling_cases as cases
from tiling_cases import count, tiles

from tilewright.derivatives.tiling.hoist_transposes import hoist_transposes
from tilewright.derivatives.tiling.interchange import interchange
from tilewright.derivatives.tiling.materialize import materialize
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import verify


def transposed_operations(module: Module) -> set[str]:
    """Return the names of the operations whose results are transposed."""
    return {
        op.operands[0].definition.name
        for op in module.walk()
        if op.name == "permute" and op.operands[0].definition is not None
    }


def test_attention_transposes_loads_alone(tmp_path: Path) -> None:
    case = cases.attention(tmp_path, causal=True)
    found = materialize(restrict_writes(case.module, ["d_k_ptr", "d_v_ptr"]))
    assert found.first is not None
    case.named["scratch_0"] = np.zeros(96, np.float32)
    case.run(found.first, case.grid)
    rest = interchange(found.rest, 0, "store")
    made = hoist_transposes(rest.module)
    verify(made)
    assert transposed_operations(rest.module) > {"load"}
    assert transposed_operations(made) == {"load"}
    assert count(made, "dot") == count(rest.module, "dot")
    case.clear()
    case.run(made, (tiles(37, 8), 2), **{rest.programs: 3})
    case.check("d_k_ptr", "d_v_ptr")


HEAD = """\
tilewright.ir 1.0

kernel @k(%p: tile<4x8xptr<f32>>, %q: tile<4x8xptr<f32>>, %o: tile<8x4xptr<f32>>, %s: f32) {
  %x = load %p : tile<4x8xf32>
"""

BEFORE = (
    HEAD
    + """\
  %t = splat %s : tile<4x8xf32>
  %y = mul %x, %t : tile<4x8xf32>
  %e = exp %y : tile<4x8xf32>
  %r = permute %e {order = [1, 0]} : tile<8x4xf32>
  store %o, %r
  return
}
"""
)

AFTER = (
    HEAD
    + """\
  %x#1 = permute %x {order = [1, 0]} : tile<8x4xf32>
  %t = splat %s : tile<8x4xf32>
  %y = mul %x#1, %t : tile<8x4xf32>
  %e = exp %y : tile<8x4xf32>
  store %o, %e
  return
}
"""
)


def test_elementwise_operations_are_computed_transposed() -> None:
    assert print_module(hoist_transposes(parse_module(BEFORE))) == AFTER


def test_what_is_read_both_ways_stays() -> None:
    """It would be computed twice."""
    module = parse_module(BEFORE.replace("  store %o", "  store %q, %e\n  store %o"))
    assert hoist_transposes(module) is module


def test_what_is_cheap_is_computed_both_ways() -> None:
    """A multiplication takes less than a transpose through memory."""
    text = BEFORE.replace("exp %y", "neg %y").replace("  store %o", "  store %q, %e\n  store %o")
    made = hoist_transposes(parse_module(text))
    assert transposed_operations(made) == {"load"}
    assert count(made, "neg") == 2


def test_a_matmul_swaps_its_operands() -> None:
    text = (
        HEAD
        + """\
  %zero = constant 0.0 : f32
  %c = splat %zero : tile<4x4xf32>
  %y = load %q : tile<4x8xf32>
  %z = permute %y {order = [1, 0]} : tile<8x4xf32>
  %d = dot %x, %z, %c {precision = tf32} : tile<4x4xf32>
  %r = permute %d {order = [1, 0]} : tile<4x4xf32>
  print %r {prefix = ""}
  return
}
"""
    )
    expected = (
        HEAD
        + """\
  %x#1 = permute %x {order = [1, 0]} : tile<8x4xf32>
  %zero = constant 0.0 : f32
  %c = splat %zero : tile<4x4xf32>
  %y = load %q : tile<4x8xf32>
  %d = dot %y, %x#1, %c {precision = tf32} : tile<4x4xf32>
  print %d {prefix = ""}
  return
}
"""
    )
    assert print_module(hoist_transposes(parse_module(text))) == expected
