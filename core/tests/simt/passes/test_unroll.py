"""Short loops written out: what they compute stays, and which loops stay."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.verifier import verify
from tilewright.reference.interpreter import run
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.passes.inline_and_expand import prepare
from tilewright.simt.passes.unroll import unroll_short_loops
from tilewright.simt.target.thresholds import Thresholds


def looped(
    *,
    high: int = 12,
    extent: int = 8,
    upper: str = "%high",
    attributes: str = "",
    loaded: str = "load %at",
    also: str = "neg %r",
) -> Module:
    """A sum over 2, 5, 8, ... below ``high``, each times what is in memory."""
    return parse_module(f"""tilewright.ir 1.0
kernel @k(%p: ptr<i32>, %n: i32) {{
  %low = constant 2 : i32
  %high = constant {high} : i32
  %step = constant 3 : i32
  %r = arange {{start = 0, end = {extent}}} : tile<{extent}xi32>
  %first = splat %low : tile<{extent}xi32>
  %base = splat %p : tile<{extent}xptr<i32>>
  %at = addptr %base, %r : tile<{extent}xptr<i32>>
  %sum = for %low, {upper}, %step, inits=[%first] {attributes} : tile<{extent}xi32> body(%i: i32, %a: tile<{extent}xi32>) {{
    %s = splat %i : tile<{extent}xi32>
    %l = {loaded} : tile<{extent}xi32>
    %o = {also} : tile<{extent}xi32>
    %t = mul %s, %l : tile<{extent}xi32>
    %b = add %a, %t : tile<{extent}xi32>
    yield %b
  }}
  store %at, %sum
  return
}}""")


def test_a_short_loop_is_written_out_before_layouts() -> None:
    module = looped()
    prepare(module, EmulatedTarget())
    verify(module)
    assert all(operation.name != "for" for operation in module.walk())
    out = np.arange(8, dtype=np.int32)
    run(module, [out, 12], (1, 1, 1))
    np.testing.assert_array_equal(out, 2 + (2 + 5 + 8 + 11) * np.arange(8))


def test_a_loop_without_iterations_gives_what_it_began_with() -> None:
    module = looped(high=2)
    assert unroll_short_loops(module.kernel, Thresholds())
    verify(module)
    out = np.zeros(8, np.int32)
    run(module, [out, 12], (1, 1, 1))
    np.testing.assert_array_equal(out, np.full(8, 2))


@pytest.mark.parametrize(
    "given",
    [
        {"upper": "%n"},
        {"high": 27},
        {"extent": 1 << 13},
        {"attributes": "{unroll = 1}"},
        {"attributes": "{num_stages = 2}"},
        {"loaded": "neg %r"},
        {"also": "gather %a, %r {axis = 0}"},
    ],
    ids=str,
)
def test_loops_that_stay(given: dict[str, str]) -> None:
    assert not unroll_short_loops(looped(**given).kernel, Thresholds())  # type: ignore[arg-type]
