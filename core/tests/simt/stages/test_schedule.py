"""How many slots the ring of a loop has, and in which form it is written out."""

from __future__ import annotations

from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, plain

#: four lanes
TARGET = EmulatedTarget(4)
#: memory for two tiles, and for one
TWO, ONE = EmulatedTarget(4, shared_memory=128), EmulatedTarget(4, shared_memory=64)


def test_as_many_slots_as_stages() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at {simt.by = "queue", simt.shared = #S0} : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] {simt.form = "groups", simt.slots = 4} : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at {simt.by = "queue", simt.shared = #S0} : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    assert after(text, "schedule", target=TARGET, num_stages=4) == plain(expected)


def test_fewer_where_memory_is_short() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at {simt.by = "queue", simt.shared = #S0} : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] {simt.form = "groups", simt.notes = ["pipelined 2 deep instead of 4, for want of shared memory"], simt.slots = 2} : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at {simt.by = "queue", simt.shared = #S0} : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """  # noqa: E501
    assert after(text, "schedule", target=TWO, num_stages=4) == plain(expected)


def test_a_loop_without_memory_for_two_forgets_what_was_selected() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at {simt.by = "queue", simt.shared = #S0} : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] {simt.notes = ["not pipelined: emulator has no shared memory for two buffers of its loads"]} : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """  # noqa: E501
    assert after(text, "schedule", target=ONE, num_stages=4) == plain(expected)


def test_a_loop_that_writes_memory_forgets_what_was_selected() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at {simt.by = "queue", simt.shared = #S0} : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        store %at, %r
        yield %r
      }
      store %at, %sum
      return
    }
    """
    expected = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] {simt.notes = ["not pipelined: store in the loop may change what later iterations load"]} : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        store %at, %r
        yield %r
      }
      store %at, %sum
      return
    }
    """  # noqa: E501
    assert after(text, "schedule", target=TARGET) == plain(expected)
