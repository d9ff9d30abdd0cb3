"""Loops that have a schedule are written out."""

from __future__ import annotations

import re

from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, plain

#: four lanes
TARGET = EmulatedTarget(4)

LOOP = """
#L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
#S0 = shared<4x4>

kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %sum = for %zero, %n, %one, inits=[%c] {simt.form = "groups", simt.slots = 2} : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
    %x = load %at {simt.by = "queue", simt.shared = #S0} : tile<4x4xf32, #L0>
    %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
    yield %r
  }
  store %at, %sum
  return
}
"""
#: where the loop begins in what is made of it
TOP = "  %sum, "


def test_before_the_loop_a_ring_is_filled_but_for_one_slot() -> None:
    """Where the loop runs at all, and so often; how often after that is counted down by the
    loop."""
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %0 = simt.buffer : buffer<2 x 4x4xf32, #S0>
      %1 = cmp %zero, %n {predicate = lt} : i1
      %2 = cast %zero : u32
      %3 = cast %n : u32
      %4 = constant 0 : u32
      %5 = sub %3, %2 : u32
      %6 = select %1, %5, %4 : u32
      %7 = constant 0 : u32
      %8 = cmp %6, %7 {predicate = gt} : i1
      %9 = constant 0 : i32
      %10 = simt.slot %0, %9 : slot<4x4xf32, #S0>
      %11 = splat %8 : tile<4x4xi1, #L0>
      simt.copy_start %10, %at, mask=%11 {by = "queue"}
      %12 = simt.commit : token<copies>
      %13 = constant 1 : u32
      %14 = cmp %6, %13 {predicate = gt} : i1
      %15 = sub %6, %13 : u32
      %16 = constant 0 : u32
      %17 = select %14, %15, %16 : u32
      %18 = constant 0 : i32
    """
    assert after(LOOP, "expand", target=TARGET).partition(TOP)[0].rstrip() == plain(expected)


def test_each_iteration_waits_for_its_copies_and_starts_later_ones() -> None:
    """Two slots: what is filled is the slot before the one that is read, by a number that goes
    round; a group is ended whether or not it has copies."""
    expected = """
      %sum, %19, %20, %21 = for %zero, %n, %one, inits=[%c, %18, %17, %12] : tile<4x4xf32, #L0>, i32, u32, token<copies> body(%i: i32, %t: tile<4x4xf32, #L0>, %22: i32, %23: u32, %24: token<copies>) {
        simt.wait tokens=[%24]
        %25 = constant 0 : u32
        %26 = cmp %23, %25 {predicate = gt} : i1
        %27 = constant 0 : i32
        %28 = constant 1 : i32
        %29 = constant 1 : i32
        %30 = cmp %22, %27 {predicate = eq} : i1
        %31 = sub %22, %28 : i32
        %32 = select %30, %29, %31 : i32
        %33 = cmp %22, %29 {predicate = eq} : i1
        %34 = add %22, %28 : i32
        %35 = select %33, %27, %34 : i32
        %36 = cast %26 : u32
        %37 = sub %23, %36 : u32
        %38 = simt.slot %0, %32 : slot<4x4xf32, #S0>
        %39 = simt.slot %0, %22 : slot<4x4xf32, #S0>
        %40 = splat %26 : tile<4x4xi1, #L0>
        simt.copy_start %38, %at, mask=%40 {by = "queue"}
        %41 = simt.commit : token<copies>
        %r = simt.dot %39, %39, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r, %35, %37, %41
      }
      simt.wait tokens=[%21]
      store %at, %sum
      return
    }
    """
    assert plain(TOP + after(LOOP, "expand", target=TARGET).partition(TOP)[2]) == plain(expected)


def test_copies_past_the_last_iteration_are_left_out_whatever_their_mask() -> None:
    masked = LOOP.replace("%n: i32)", "%n: i32, %m: tile<4x4xi1, #L0>)").replace(
        "load %at {", "load %at, mask=%m {"
    )
    text = after(masked, "expand", target=TARGET)
    masks = re.findall(r"simt.copy_start %\w+, %at, mask=(%\w+)", text)
    assert len(masks) == 2
    for mask in masks:
        runs = re.search(rf"{mask} = and (%\w+), %m : ", text)
        assert runs and re.search(rf"{runs[1]} = splat %\w+ : tile<4x4xi1, #L0>", text)


def test_a_loop_without_a_schedule_stays() -> None:
    text = LOOP.replace(' {simt.form = "groups", simt.slots = 2}', "").replace(
        ' {simt.by = "queue", simt.shared = #S0}', ""
    )
    assert after(text, "expand", target=TARGET) == plain(text).replace("\n#S0 = shared<4x4>", "")


def test_what_is_written_out_is_not_written_out_again() -> None:
    once = after(LOOP, "expand", target=TARGET)
    assert after(once, "expand", target=TARGET) == once
