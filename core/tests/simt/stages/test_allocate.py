"""Stage ``allocate``: offsets in shared memory, and the bytes of a program."""

from __future__ import annotations

import re

from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, plain

#: four lanes
TARGET = EmulatedTarget(4)


def allocates(text: str) -> None:
    """The stage finds the offsets and the bytes of a text."""
    bare = re.sub(r" \{simt\.offset = \d+\}|, simt\.offset = \d+|, shared_bytes = \d+", "", text)
    assert after(bare, "allocate", target=TARGET) == plain(text)


def test_buffers_that_live_together_are_apart() -> None:
    allocates("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>, %i: i32) attributes {warps = 2, shared_bytes = 1088} {
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %b = simt.buffer {alignment = 1024, simt.offset = 1024} : buffer<1 x 4x4xf32, #S0>
      %s = simt.slot %a, %i : slot<4x4xf32, #S0>
      %t = simt.slot %b, %i : slot<4x4xf32, #S0>
      simt.store %t, %x
      %y = simt.load %s : tile<4x4xf32, #L0>
      return
    }
    """)


def test_a_buffer_takes_the_place_of_one_that_is_not_used_any_more() -> None:
    allocates("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>, %i: i32) attributes {warps = 2, shared_bytes = 128} {
      %a = simt.buffer {simt.offset = 0} : buffer<2 x 4x4xf32, #S0>
      %s = simt.slot %a, %i : slot<4x4xf32, #S0>
      simt.store %s, %x
      %b = simt.buffer {simt.offset = 0} : buffer<1 x 4x4xf32, #S0>
      %t = simt.slot %b, %i : slot<4x4xf32, #S0>
      simt.store %t, %x
      return
    }
    """)


def test_a_conversion_has_scratch_space_beside_the_buffers_alive() -> None:
    """Its layouts put elements of one warp into another, so it goes through shared memory."""
    allocates("""
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>
    #L1 = layout<4x4, registers [(1,0)], lanes [(2,0) (0,1)], warps [(0,2)]>

    kernel @k(%x: tile<4x4xf32, #L0>, %i: i32) attributes {warps = 2, shared_bytes = 128} {
      %a = simt.buffer {simt.offset = 0} : buffer<1 x 4x4xf32, #S0>
      %t = simt.slot %a, %i : slot<4x4xf32, #S0>
      %y = simt.convert %x {simt.offset = 64} : tile<4x4xf32, #L1>
      simt.store %t, %y
      return
    }
    """)


def test_a_buffer_that_a_loop_reads_lives_for_all_of_it() -> None:
    allocates("""
    #S0 = shared<4x4>
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%n: i32, %one: i32) attributes {warps = 2, shared_bytes = 128} {
      %a = simt.buffer {simt.offset = 0} : buffer<1 x 4x4xf32, #S0>
      for %one, %n, %one body(%i: i32) {
        %s = simt.slot %a, %one : slot<4x4xf32, #S0>
        %x = simt.load %s : tile<4x4xf32, #L0>
        %b = simt.buffer {simt.offset = 64} : buffer<1 x 4x4xf32, #S0>
        %t = simt.slot %b, %one : slot<4x4xf32, #S0>
        simt.store %t, %x
        yield
      }
      return
    }
    """)


def test_parts_run_at_the_same_time_and_share_nothing() -> None:
    """A buffer that is over in one part, another in the next, and scratch space in both."""
    text = """
    #L0 = layout<8x8, registers [(0,1) (0,2) (0,4)], lanes [(1,0) (2,0)], warps [(4,0)]>
    #L1 = layout<8x8, registers [(1,0) (2,0) (4,0)], lanes [(0,1) (0,2)], warps [(0,4)]>
    #S0 = shared<8x8>

    kernel @k(%i: i32) attributes {warps = 4} {
      simt.partition parts {
        simt.part {name = "a", warps = 2} body {
          BODY
        }
        simt.part {name = "b", warps = 2} body {
          BODY
        }
        yield
      }
      return
    }
    """
    body = """
          %z = constant 1.0 : f32
          %x = splat %z : tile<8x8xf32, #L0>
          %a = simt.buffer : buffer<1 x 8x8xf32, #S0>
          %s = simt.slot %a, %i : slot<8x8xf32, #S0>
          simt.store %s, %x
          %y = simt.convert %x : tile<8x8xf32, #L1>
          yield
    """
    places = [
        int(found)
        for found in re.findall(
            r"simt.offset = (\d+)", after(text.replace("BODY", body), "allocate", target=TARGET)
        )
    ]
    # all are of 256 bytes
    assert len(places) == 4 and not set(places[:2]) & set(places[2:])
