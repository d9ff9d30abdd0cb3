"""Stage ``schedule``: the number of slots of a loop, and the form of its expansion."""

from __future__ import annotations

from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, changed

#: four lanes
TARGET = EmulatedTarget(4)
#: memory for two tiles, and for one
TWO, ONE = EmulatedTarget(4, shared_memory=128), EmulatedTarget(4, shared_memory=64)

#: A loop with a load that was selected.
LOOP = """
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
SELECTED = '{simt.by = "queue", simt.shared = #S0} '


def decided(what: str) -> tuple[str, str]:
    """Match the attributes of the loop."""
    return "inits=[%c] :", f"inits=[%c] {{{what}}} :"


def not_pipelined(text: str, why: str) -> str:
    """A loop whose load is as if it had not been selected."""
    return changed(
        text,
        (SELECTED, ""),
        ("    #S0 = shared<4x4>\n", ""),
        decided(f'simt.notes = ["not pipelined: {why}"]'),
    )


def test_as_many_slots_as_stages() -> None:
    assert after(LOOP, "schedule", target=TARGET, num_stages=4) == changed(
        LOOP, decided('simt.form = "groups", simt.slots = 4')
    )


def test_fewer_where_memory_is_short() -> None:
    note = "pipelined 2 deep instead of 4, for want of shared memory"
    assert after(LOOP, "schedule", target=TWO, num_stages=4) == changed(
        LOOP, decided(f'simt.form = "groups", simt.notes = ["{note}"], simt.slots = 2')
    )


def test_a_loop_without_memory_for_two_forgets_what_was_selected() -> None:
    why = "emulator has no shared memory for two buffers of its loads"
    assert after(LOOP, "schedule", target=ONE, num_stages=4) == not_pipelined(LOOP, why)


def test_a_loop_that_writes_memory_forgets_what_was_selected() -> None:
    text = LOOP.replace("yield %r", "store %at, %r\n        yield %r")
    assert after(text, "schedule", target=TARGET) == not_pipelined(
        text, "store in the loop may change what later iterations load"
    )


#: The same loop, over a kernel's own arguments.
OF_ARGUMENTS = LOOP.replace(
    "%at: tile<4x4xptr<f32>, #L0>, ", "%from: ptr<f32>, %to: ptr<f32>, "
).replace(
    "      %zero =",
    (
        "      %at = splat %from : tile<4x4xptr<f32>, #L0>\n"
        "      %other = splat %to : tile<4x4xptr<f32>, #L0>\n      %zero ="
    ),
)


def test_a_loop_that_writes_memory_of_another_argument_is_pipelined() -> None:
    text = OF_ARGUMENTS.replace("yield %r", "store %other, %r\n        yield %r")
    assert after(text, "schedule", target=TARGET, num_stages=3) == changed(
        text, decided('simt.form = "groups", simt.slots = 3')
    )


def test_a_loop_that_writes_memory_that_it_loads_is_not() -> None:
    text = OF_ARGUMENTS.replace("yield %r", "store %at, %r\n        yield %r")
    assert after(text, "schedule", target=TARGET) == not_pipelined(
        text, "store in the loop may change what later iterations load"
    )
