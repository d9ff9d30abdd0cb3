"""Stage ``stage``: operands that a plan reads from shared memory are stored there."""

from __future__ import annotations

from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, plain

#: four lanes
TARGET = EmulatedTarget(4)


def test_operands_in_registers_are_stored_first() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%x: tile<4x4xf32, #L0>, %y: tile<4x4xf32, #L0>, %at: tile<4x4xptr<f32>, #L0>) attributes {warps = 2} {
      %r = simt.dot %x, %y, %x {plan = "multiply and add"} : tile<4x4xf32, #L0>
      store %at, %r
      return
    }
    """
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>
    #S1 = shared<4x4, 1 4 2 8>

    kernel @k(%x: tile<4x4xf32, #L0>, %y: tile<4x4xf32, #L0>, %at: tile<4x4xptr<f32>, #L0>) attributes {warps = 2} {
      %0 = simt.buffer {alignment = 1024} : buffer<1 x 4x4xf32, #S0>
      %1 = constant 0 : i32
      %2 = simt.slot %0, %1 : slot<4x4xf32, #S0>
      simt.store %2, %x
      %3 = simt.buffer {alignment = 1024} : buffer<1 x 4x4xf32, #S1>
      %4 = constant 0 : i32
      %5 = simt.slot %3, %4 : slot<4x4xf32, #S1>
      simt.store %5, %y
      %r = simt.dot %2, %5, %x {plan = "multiply and add"} : tile<4x4xf32, #L0>
      store %at, %r
      return
    }
    """
    assert after(text, "stage", target=TARGET) == plain(expected)


def test_an_operand_that_is_in_shared_memory_stays_there() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>, %y: slot<4x4xf32, #S0>, %at: tile<4x4xptr<f32>, #L0>) attributes {warps = 2} {
      %r = simt.dot %x, %y, %x {plan = "multiply and add"} : tile<4x4xf32, #L0>
      store %at, %r
      return
    }
    """
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%x: tile<4x4xf32, #L0>, %y: slot<4x4xf32, #S0>, %at: tile<4x4xptr<f32>, #L0>) attributes {warps = 2} {
      %0 = simt.buffer {alignment = 1024} : buffer<1 x 4x4xf32, #S0>
      %1 = constant 0 : i32
      %2 = simt.slot %0, %1 : slot<4x4xf32, #S0>
      simt.store %2, %x
      %r = simt.dot %2, %y, %x {plan = "multiply and add"} : tile<4x4xf32, #L0>
      store %at, %r
      return
    }
    """
    assert after(text, "stage", target=TARGET) == plain(expected)


def test_an_operand_read_twice_is_stored_for_each_place() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%x: tile<4x4xf32, #L0>, %at: tile<4x4xptr<f32>, #L0>) attributes {warps = 2} {
      %r = simt.dot %x, %x, %x {plan = "multiply and add"} : tile<4x4xf32, #L0>
      store %at, %r
      return
    }
    """
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>
    #S1 = shared<4x4, 1 4 2 8>

    kernel @k(%x: tile<4x4xf32, #L0>, %at: tile<4x4xptr<f32>, #L0>) attributes {warps = 2} {
      %0 = simt.buffer {alignment = 1024} : buffer<1 x 4x4xf32, #S0>
      %1 = constant 0 : i32
      %2 = simt.slot %0, %1 : slot<4x4xf32, #S0>
      simt.store %2, %x
      %3 = simt.buffer {alignment = 1024} : buffer<1 x 4x4xf32, #S1>
      %4 = constant 0 : i32
      %5 = simt.slot %3, %4 : slot<4x4xf32, #S1>
      simt.store %5, %x
      %r = simt.dot %2, %5, %x {plan = "multiply and add"} : tile<4x4xf32, #L0>
      store %at, %r
      return
    }
    """
    assert after(text, "stage", target=TARGET) == plain(expected)
