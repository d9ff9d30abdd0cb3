"""Threads wait for each other where they must."""

from __future__ import annotations

import re

from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, plain

#: four lanes
TARGET = EmulatedTarget(4)


def inserts(text: str) -> None:
    """The stage inserts the barriers of a text, and no others, where the text has none."""
    assert after(re.sub(r"(?m)^ *barrier\n", "", text), "barriers", target=TARGET) == plain(text)


def test_what_was_written_is_read_after_a_barrier() -> None:
    """The other slot is other memory."""
    inserts("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>) attributes {warps = 2, shared_bytes = 128} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %zero : slot<4x4xf32, #S0>
      %t = simt.slot %a, %one : slot<4x4xf32, #S0>
      simt.store %s, %x
      %z = simt.load %t : tile<4x4xf32, #L0>
      barrier
      %y = simt.load %s : tile<4x4xf32, #L0>
      return
    }
    """)


def test_what_is_read_is_written_after_a_barrier() -> None:
    inserts("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>) attributes {warps = 2, shared_bytes = 128} {
      %zero = constant 0 : i32
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %zero : slot<4x4xf32, #S0>
      %y = simt.load %s : tile<4x4xf32, #L0>
      barrier
      simt.store %s, %x
      return
    }
    """)


def test_one_barrier_serves_for_all_that_came_before() -> None:
    inserts("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>) attributes {warps = 2, shared_bytes = 128} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %zero : slot<4x4xf32, #S0>
      %t = simt.slot %a, %one : slot<4x4xf32, #S0>
      simt.store %s, %x
      simt.store %t, %x
      barrier
      %y = simt.load %s : tile<4x4xf32, #L0>
      %z = simt.load %t : tile<4x4xf32, #L0>
      return
    }
    """)


def test_a_product_reads_its_slots() -> None:
    inserts("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>) attributes {warps = 2, shared_bytes = 128} {
      %zero = constant 0 : i32
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %zero : slot<4x4xf32, #S0>
      simt.store %s, %x
      barrier
      %r = simt.dot %s, %s, %x {plan = "multiply and add"} : tile<4x4xf32, #L0>
      barrier
      simt.store %s, %x
      return
    }
    """)


def test_what_an_iteration_leaves_the_next_one_finds() -> None:
    inserts("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2, shared_bytes = 128} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %zero : slot<4x4xf32, #S0>
      for %zero, %n, %one body(%i: i32) {
        barrier
        %y = simt.load %s : tile<4x4xf32, #L0>
        barrier
        simt.store %s, %y
        yield
      }
      return
    }
    """)


def test_all_threads_meet_before_parts_begin() -> None:
    """A barrier inside of a part would be for the threads of that part alone."""
    inserts("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>) attributes {warps = 2, shared_bytes = 128} {
      %zero = constant 0 : i32
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %zero : slot<4x4xf32, #S0>
      simt.store %s, %x
      barrier
      simt.partition parts {
        simt.part {name = "one", warps = 2} body {
          %y = simt.load %s : tile<4x4xf32, #L0>
          yield
        }
        yield
      }
      simt.store %s, %x
      return
    }
    """)


def test_parts_do_not_wait_for_each_other_by_barriers() -> None:
    """They talk through mbarriers; each part's own threads wait for each other."""
    inserts("""
    #S0 = shared<4x4>
    #L0 = layout<4x4, registers [(0,1) (2,0)], lanes [(0,2) (1,0)], warps []>

    kernel @k() attributes {warps = 2, shared_bytes = 128} {
      %zero = constant 0 : i32
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %zero : slot<4x4xf32, #S0>
      simt.partition parts {
        simt.part {name = "one", warps = 1} body {
          %x = simt.load %s : tile<4x4xf32, #L0>
          barrier
          simt.store %s, %x
          yield
        }
        simt.part {name = "other", warps = 1} body {
          %y = simt.load %s : tile<4x4xf32, #L0>
          yield
        }
        yield
      }
      return
    }
    """)
