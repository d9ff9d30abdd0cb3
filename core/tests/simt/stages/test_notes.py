"""Stage ``notes``: missed-optimization remarks."""

from __future__ import annotations

from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, changed, plain

#: four lanes
TARGET = EmulatedTarget(4)


def noted(text: str, operation: str, *notes: str) -> str:
    """A text with notes on an operation."""
    quoted = ", ".join(f'"{note}"' for note in notes)
    return changed(text, (f"{operation} :", f"{operation} {{simt.notes = [{quoted}]}} :"))


def test_an_access_that_may_be_wide_is_not_noted() -> None:
    text = """
    #L0 = layout<32, registers [(1) (2)], lanes [(4) (8)], warps [(16)]>

    kernel @k(%p: ptr<f32> {divisibility = 16}) attributes {warps = 2} {
      %a = arange {start = 0, end = 32} : tile<32xi32, #L0>
      %s = splat %p : tile<32xptr<f32>, #L0>
      %at = addptr %s, %a : tile<32xptr<f32>, #L0>
      %x = load %at : tile<32xf32, #L0>
      store %at, %x
      return
    }
    """
    assert after(text, "notes", target=TARGET) == plain(text)


def test_a_narrow_access_says_why() -> None:
    text = """
    #L0 = layout<32, registers [(1) (2)], lanes [(4) (8)], warps [(16)]>

    kernel @k(%p: ptr<f32>) attributes {warps = 2} {
      %a = arange {start = 0, end = 32} : tile<32xi32, #L0>
      %s = splat %p : tile<32xptr<f32>, #L0>
      %at = addptr %s, %a : tile<32xptr<f32>, #L0>
      %x = load %at : tile<32xf32, #L0>
      return
    }
    """
    assert after(text, "notes", target=TARGET) == noted(
        text,
        "%x = load %at",
        "load moves 4 bytes at once instead of 16: addresses are not known to be multiples of 16 "
        "bytes: "
        "the address `p` is not known to be a multiple of 16 bytes "
        "(launches state it of multiples of 16 only; for other multiples, state it in the kernel "
        "with tl.multiple_of)",
    )


def test_a_load_of_a_product_that_stays_in_its_loop_says_why() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #S0 = shared<4x4>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32, %s: slot<4x4xf32, #S0>, %m: tile<4x4xi1, #L0>) attributes {warps = 2} {
      %one = constant 1 : i32
      %sum = for %one, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at, mask=%m, other=%c : tile<4x4xf32, #L0>
        simt.store %s, %x
        %r = simt.dot %s, %s, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      return
    }
    """
    assert after(text, "notes", target=TARGET) == noted(
        text,
        "%x = load %at, mask=%m, other=%c",
        (
            "load is not pipelined: asynchronous copies fill with zeros where the mask is false, "
            "not with another value"
        ),
        "load moves 4 bytes at once instead of 8: no two addresses are known to be consecutive",
    )
