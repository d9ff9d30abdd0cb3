"""Loads and stores through descriptors that a target keeps, in no pipelined loop: text in, text
out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tilewright.errors import LoweringError
from tilewright.ir import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.simt.compile import run_stages
from tilewright.simt.dialect.attributes import notes_of
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.emulator import EmulatedTarget, EmulatedTma
from tilewright.simt.target.copy_mechanism import BARRIER, CopyMechanism

OPTIONS = {"num_warps": 2, "num_stages": 3}
WRITTEN = ["layouts", "select", "schedule", "expand", "blocks"]
HEAD = (
    "tilewright.ir 1.0\n\n"
    "kernel @k(%d: desc<4x8xf32>, %p: ptr<f32>, %m: i64, %n: i64, %sm: i64, %sn: i64, %i: i32) "
    "{\n  %0 = constant 0 : i32\n"
)


def _never(*arguments: Any) -> None:
    raise AssertionError("only its text is looked at")


class Blocks(EmulatedTarget):
    """A machine that copies blocks, of which nothing is run."""

    def __init__(
        self,
        *,
        fills: Callable[..., bool] | None = None,
        store: Any = _never,
        copy_widths: tuple[int, ...] = (),
    ) -> None:
        super().__init__(8, copy_widths=copy_widths)
        self.async_copy.mechanisms = (
            CopyMechanism("blocks", BARRIER, fills=fills, start=_never, store=store, alignment=128),
            *self.async_copy.mechanisms,
        )
        self.tma = EmulatedTma(self.record, lambda operation, divisors, width: True)
        self.mbarriers.bytes = 16


def written(
    body: str, *, target: EmulatedTarget | None = None, stages: list[str] = WRITTEN
) -> Module:
    module = parse_module(f"{HEAD}{body}  return\n}}\n", SIMT_TABLE)
    run_stages(module, target or Blocks(), OPTIONS, stages)
    assert print_module(parse_module(print_module(module), SIMT_TABLE)) == print_module(module)
    return module


def lines(module: Module) -> list[str]:
    """Return the operations without layouts."""
    text = print_module(module, locations=False)
    return [re.sub(r", #\w+>", ">", line) for line in text.splitlines() if line.startswith("  ")]


def names(module: Module) -> list[str]:
    return [operation.name for operation in module.kernel.walk()]


PHASES = """  %0 = constant false : i1
  %1 = simt.barriers 1 : barriers<1>
  %2 = constant 0 : i32
  %3 = constant 1 : i32
  %4 = for %2, %i, %3, inits=[%0] : i1 body(%j: i32, %5: i1) {
    %6 = simt.buffer {alignment = 128} : buffer<1 x 4x8xf32>
    %7 = constant 0 : i32
    %8 = simt.slot %6, %7 : slot<4x8xf32>
    %9 = constant 0 : i32
    simt.expect %1, %9 {bytes = 128}
    simt.block_load_start %8, %d, offsets=[%j, %2], %1, %9 {by = "blocks"}
    simt.await %1, %9, %5
    %10 = simt.load %8 : tile<4x8xf32>
    %11 = constant true : i1
    %12 = xor %5, %11 : i1
    %q = splat %p : tile<4x8xptr<f32>>
    store %q, %10
    yield %12
  }
  return"""


def test_a_load_waits_for_a_phase_that_what_is_around_it_carries() -> None:
    body = """  %1 = constant 1 : i32
  for %0, %i, %1 body(%j: i32) {
    %x = descriptor_load %d, offsets=[%j, %0] : tile<4x8xf32>
    %q = splat %p : tile<4x8xptr<f32>>
    store %q, %x
    yield
  }
"""
    assert lines(written(body)) == PHASES.splitlines()


def test_a_store_is_waited_for() -> None:
    body = (
        "  %f = constant 1.0 : f32\n  %x = splat %f : tile<4x8xf32>\n"
        "  descriptor_store %d, offsets=[%i, %0], %x\n"
    )
    assert (
        lines(written(body))[3:]
        == """  %1 = simt.buffer {alignment = 128} : buffer<1 x 4x8xf32>
  %2 = constant 0 : i32
  %3 = simt.slot %1, %2 : slot<4x8xf32>
  simt.store %3, %x
  simt.block_store_start %3, %d, offsets=[%i, %0] {by = "blocks"}
  %4 = simt.commit : token<stores>
  simt.wait tokens=[%4]
  return""".splitlines()
    )


def test_each_load_has_a_barrier_object_of_its_own() -> None:
    load = (
        "  %x{0} = descriptor_load %d, offsets=[%i, %0] : tile<4x8xf32>\n"
        "  descriptor_store %d, offsets=[%0, %0], %x{0}\n"
    )
    module = written(load.format(1) + load.format(2))
    assert sum("barriers<2>" in line for line in lines(module)) == 1
    expected = [
        operation.operand("index")
        for operation in module.kernel.walk()
        if operation.name == "simt.expect"
    ]
    assert [
        index.definition.attributes["value"]
        for index in expected
        if index is not None and index.definition is not None
    ] == [0, 1]


def test_products_read_what_was_copied_from_where_it_is() -> None:
    body = """  %f = constant 0.0 : f32
  %c = splat %f : tile<4x4xf32>
  %a = descriptor_load %d, offsets=[%i, %0] : tile<4x8xf32>
  %b = descriptor_load %d, offsets=[%0, %i] : tile<4x8xf32>
  %t = permute %b {order = [1, 0]} : tile<8x4xf32>
  %y = dot %a, %t, %c : tile<4x4xf32>
  %q = splat %p : tile<4x4xptr<f32>>
  store %q, %y
"""
    module = written(body, stages=[*WRITTEN, "stage", "allocate", "barriers"])
    assert (
        not {"simt.store", "simt.load", "simt.convert", "permute"} & set(names(module))
        and names(module).count("simt.view") == 1
    )


def test_barriers_are_between_readers_of_a_slot_and_the_next_copy_to_it() -> None:
    body = """  %1 = constant 1 : i32
  for %0, %i, %1 body(%j: i32) {
    %x = descriptor_load %d, offsets=[%j, %0] : tile<4x8xf32>
    descriptor_store %d, offsets=[%j, %i], %x
    yield
  }
"""
    module = written(body, stages=[*WRITTEN, "allocate", "barriers"])
    found = [name for name in names(module) if name == "barrier" or name.startswith("simt.")]
    # the last two are for the same bytes, which the store's buffer shares with that of the load
    load = ["buffer", "slot", "expect", "barrier", "block_load_start", "await", "load"]
    store = ["buffer", "slot", "barrier", "store", "barrier", "block_store_start", "commit", "wait"]
    assert [name.removeprefix("simt.") for name in found] == ["barriers", *load, *store]


def test_what_was_stored_through_a_descriptor_is_there_for_its_pointer() -> None:
    body = """  %f = constant 1.0 : f32
  %x = splat %f : tile<4x8xf32>
  descriptor_store %d, offsets=[%i, %0], %x
  %q = splat {0} : tile<4x8xptr<f32>>
  %y = load %q : tile<4x8xf32>
  descriptor_store %d, offsets=[%0, %i], %y
"""
    module = written(body.replace("{0}", "%p"), stages=[*WRITTEN, "allocate", "barriers"])
    order = [
        name for name in names(module) if name in ("barrier", "load", "simt.block_store_start")
    ]
    assert order == [
        "barrier",
        "simt.block_store_start",
        "barrier",
        "load",
        "barrier",
        "simt.block_store_start",
    ]


@pytest.mark.parametrize(
    ("target", "operation", "message"),
    [
        (
            Blocks(store=None),
            "descriptor_store %d, offsets=[%i, %0], %x",
            "descriptor_store at .* keeps the descriptor, and has no TMA copies",
        ),
        (
            Blocks(fills=lambda *_: False),
            "descriptor_store %d, offsets=[%i, %0], %x",
            "blocks of emulator copies no block of desc<4x8xf32>",
        ),
        (
            Blocks(fills=lambda *_: False),
            "%y = descriptor_load %d, offsets=[%i, %0] : tile<4x8xf32>\n  store %q, %y",
            "copies no block of desc<4x8xf32>",
        ),
    ],
)
def test_what_a_target_cannot_copy_is_said(target: Blocks, operation: str, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        written(
            (
                "  %f = constant 1.0 : f32\n  %x = splat %f : tile<4x8xf32>\n"
                f"  %q = splat %p : tile<4x8xptr<f32>>\n  {operation}\n"
            ),
            target=target,
        )


MIXED = """  %f = constant 0.0 : f32
  %1 = constant 1 : i32
  %c = splat %f : tile<4x4xf32>
  %r = for %0, %i, %1, inits=[%c] : tile<4x4xf32> body(%j: i32, %x: tile<4x4xf32>) {
    %a = descriptor_load %d, offsets=[%j, %0] : tile<4x8xf32>
    %w = splat %j : tile<8x4xi32>
    %q = splat %p : tile<8x4xptr<f32>>
    %qj = addptr %q, %w : tile<8x4xptr<f32>>
    %b = load %qj : tile<8x4xf32>
    %s = load %qj : tile<8x4xf32>
    %bs = dot %a, %b, %x : tile<4x4xf32>
    %y = dot %a, %s, %bs : tile<4x4xf32>
    yield %y
  }
  %t = splat %p : tile<4x4xptr<f32>>
  store %t, %r
"""


@pytest.mark.parametrize(
    ("widths", "form", "by"), [((), "registers", "registers"), ((4, 8, 16), "groups", "queue")]
)
def test_of_loads_that_are_copied_in_different_ways_those_of_most_bytes_are_pipelined(
    widths: tuple[int, ...], form: str, by: str
) -> None:
    module = written(
        MIXED, target=Blocks(copy_widths=widths), stages=["layouts", "select", "schedule"]
    )
    (loop,) = (operation for operation in module.kernel.walk() if operation.name == "for")
    loads = [
        operation for operation in loop.regions[0] if operation.name in ("load", "descriptor_load")
    ]
    assert [load.attributes.get("simt.by") for load in loads] == [None, by, by] and loop.attributes[
        "simt.form"
    ] == form
    told = [text for operation, text in notes_of(module.kernel) if operation is loads[0]]
    assert told == [
        (
            "descriptor_load is not pipelined: most of what the loop loads is copied in another "
            "way than by 'blocks'"
        )
    ]
    module = written(MIXED, target=Blocks(copy_widths=widths))
    assert names(module).count("simt.block_load_start") == 1 and "descriptor_load" not in names(
        module
    )
