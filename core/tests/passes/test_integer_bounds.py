"""Laws of integers between bounds: a loop computes with its counter before and after they are
applied, on the reference, at the bounds and beside them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.parser import parse_module
from tilewright.passes.canonicalize import canonicalize
from tilewright.reference.interpreter import run

PREDICATES = ("lt", "le", "gt", "ge", "eq", "ne")
KERNEL = """tilewright.ir 1.0
kernel @k(%out: ptr<i32>) {{
  %lower = constant {lower} : i32
  %upper = constant {upper} : i32
  %step = constant {step} : i32
  %n = constant {n} : i32
  for %lower, %upper, %step, inits=[] body(%0: i32) {{
    %shifted = sub %0, %lower : i32
    %width = constant {width} : i32
    %row = mul %shifted, %width : i32
    %first = addptr %out, %row : ptr<i32>
{body}
    yield
  }}
  return
}}
"""


def kernel(lower: int, upper: int, step: int, n: int) -> str:
    names = ("rem", "div", *PREDICATES)
    body = []
    for place, name in enumerate(names):
        if name in PREDICATES:
            body += [
                f"%c{place} = cmp %0, %n {{predicate = {name}}} : i1",
                f"%v{place} = cast %c{place} : i32",
            ]
        else:
            body.append(f"%v{place} = {name} %0, %n : i32")
        body += [
            f"%o{place} = constant {place} : i32",
            f"%p{place} = addptr %first, %o{place} : ptr<i32>",
            f"store %p{place}, %v{place}",
        ]
    text = "\n".join(f"    {line}" for line in body)
    return KERNEL.format(lower=lower, upper=upper, step=step, n=n, width=len(names), body=text)


def results(text: str, rows: int, *, simplified: bool) -> tuple[np.ndarray, set[str]]:
    module = parse_module(text)
    if simplified:
        canonicalize(module)
    out = np.full((rows, 2 + len(PREDICATES)), -77, np.int32)
    run(module, [out], (1, 1, 1))
    return out, {operation.name for operation in module.walk()}


@pytest.mark.parametrize("lower, step", [(0, 1), (-9, 1), (2, 3)])
@pytest.mark.parametrize("upper", [5, 8, 9])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9])
def test_a_counter_computes_the_same(lower: int, upper: int, step: int, n: int) -> None:
    text, rows = kernel(lower, upper, step, n), upper - lower
    (before, _), (after, _) = (
        results(text, rows, simplified=simplified) for simplified in (False, True)
    )
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(("upper", "left"), [(7, set()), (8, set()), (9, {"rem", "div", "cmp"})])
def test_a_counter_below_the_divisor_needs_no_division(upper: int, left: set[str]) -> None:
    _, names = results(kernel(0, upper, 1, 8), upper, simplified=True)
    assert names & {"rem", "div"} == left - {"cmp"} and left <= names
