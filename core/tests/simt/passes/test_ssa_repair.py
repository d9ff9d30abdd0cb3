"""Values that control flow carries to the places that change them: text in, text out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tilewright.ir import Builder, Module, Operation, Value, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import I32
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.passes.ssa_repair import thread_values

BEFORE = """tilewright.ir 1.0

kernel @k(%n: i32, %c: i1, %p: ptr<i32>) {
  %0 = constant 0 : i32
  %1 = for %0, %n, %n, inits=[%0] : i32 body(%i: i32, %x: i32) {
    %2 = if %c : i32 then {
      %3 = while %x : i32 before(%y: i32) {
        %4 = cmp %y, %n {predicate = lt} : i1
        condition %4, values=[%y]
      } after(%z: i32) {
        barrier
        yield %z
      }
      yield %3
    } else {
      yield %x
    }
    yield %2
  }
  barrier
  return
}
"""


AFTER = """tilewright.ir 1.0

kernel @k(%n: i32, %c: i1, %p: ptr<i32>) {
  %0 = constant 0 : i32
  %1, %2 = for %0, %n, %n, inits=[%0, %0] : i32, i32 body(%i: i32, %x: i32, %3: i32) {
    %4, %5 = if %c : i32, i32 then {
      %6, %7 = while %x, %3 : i32, i32 before(%y: i32, %8: i32) {
        %9 = cmp %y, %n {predicate = lt} : i1
        condition %9, values=[%y, %8]
      } after(%z: i32, %10: i32) {
        store %p, %10
        %11 = constant 1 : i32
        %12 = add %10, %11 : i32
        barrier
        yield %z, %12
      }
      yield %6, %7
    } else {
      yield %x, %3
    }
    yield %4, %5
  }
  store %p, %2
  %13 = constant 1 : i32
  %14 = add %2, %13 : i32
  barrier
  store %p, %14
  return
}
"""


def counted(module: Module) -> str:
    """Each barrier stores how many were before it, and the kernel ends with storing how many there
    were."""
    body = module.kernel.body
    places = [operation for operation in body.walk() if operation.name == "barrier"]
    pointer = module.kernel.arguments[2]

    def count(place: Operation, values: tuple[Value, ...]) -> Sequence[Value]:
        builder = Builder.at(place)
        builder.store(pointer, values[0])
        return [builder.add(values[0], builder.constant(value=1, result=I32))]

    assert body.first is not None and body.terminator is not None
    (last,) = thread_values(body, places, [body.first.results[0]], count)
    Builder.at(body.terminator).store(pointer, last)
    verify(module)
    return print_module(module, locations=False)


def parsed(text: str) -> Module:
    module = parse_module(text, SIMT_TABLE)
    verify(module)
    return module


def test_a_value_goes_through_all_that_is_around_a_place() -> None:
    assert counted(parsed(BEFORE)) == AFTER


def test_a_value_does_not_get_into_a_part_from_outside() -> None:
    module = parsed(
        """tilewright.ir 1.0

kernel @k(%p: ptr<i32>) {
  %0 = constant 0 : i32
  simt.partition parts {
    simt.part {name = "a", warps = 1} body {
      barrier
      yield
    }
    yield
  }
  return
}
"""
    )
    (place,) = (operation for operation in module.kernel.walk() if operation.name == "barrier")
    body, part = module.kernel.body, place.parent
    assert body.first is not None and part is not None
    with pytest.raises(AssertionError, match=r"simt\.part carries no values to the barrier in it"):
        thread_values(body, [place], body.first.results, lambda place, values: values)
    # what begins in the part goes through what is in it
    assert thread_values(part, [place], body.first.results, lambda place, values: values) == tuple(
        body.first.results
    )
