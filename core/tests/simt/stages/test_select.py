"""Stage ``select``: prefetched loads, their copy mechanisms and shared layouts."""

from __future__ import annotations

import re

from tilewright.ir.ops.memory import Load
from tilewright.simt.compile import kernel_of, run_stages
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.pipeline_attributes import shared_layout
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.swizzle import accesses, transactions
from tilewright.testing.stage_text import after, changed, plain, read

#: four lanes
TARGET = EmulatedTarget(4)
#: copies of single bytes
NARROW = EmulatedTarget(4, copy_widths=(1,))
#: copies of 16 bytes only
WIDE = EmulatedTarget(4, copy_widths=(16,))

#: A loop whose load feeds a matmul.
LOOP = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
"""
#: What changes where the load of ``%x`` is copied.
COPIED = (
    ("warps [(2,0)]>\n", "warps [(2,0)]>\n    #S0 = shared<4x4, 8 1 2 4>\n"),
    ("%x = load %at :", '%x = load %at {simt.by = "queue", simt.shared = #S0, simt.width = 1} :'),
)


def test_a_load_that_feeds_a_product_is_copied() -> None:
    assert after(LOOP, "select", target=TARGET) == changed(LOOP, *COPIED)


#: The same without a matmul, in a loop that asks for stages.
STREAM = LOOP.replace(
    '%r = simt.dot %x, %x, %t {plan = "multiply and add"} :', "%r = add %x, %t :"
).replace("inits=[%c] :", "inits=[%c] {num_stages = 3} :")


def test_a_loop_without_products_asks_for_stages_itself() -> None:
    assert after(STREAM, "select", target=TARGET) == changed(STREAM, *COPIED)
    unasked = STREAM.replace("{num_stages = 3} ", "")
    assert after(unasked, "select", target=TARGET) == plain(unasked)


def test_a_loop_that_threads_take_differently_stays() -> None:
    """Its copies would need a barrier at which not all threads arrive."""
    text = STREAM.replace(
        "%zero = constant",
        '%own = inline_asm {assembly = "mov $0", constraints = "=r"} : i32\n      %zero = constant',
    )
    text = text.replace("for %zero, %n,", "for %zero, %own,")
    assert after(text, "select", target=TARGET) == plain(text)


def test_loads_that_feed_scaled_products_are_copied_for_who_reads_them() -> None:
    """What names the bytes otherwise comes after the conversion, which then reads its own layout
    from shared memory."""
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>
    #L1 = layout<4x4, registers [(1,0)], lanes [(2,0) (0,1)], warps [(0,2)]>

    kernel @k(%at: tile<4x4xptr<u8>, #L0>, %b: tile<4x4xf8e4m3fn, #L1>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at : tile<4x4xu8, #L0>
        %y = bitcast %x : tile<4x4xf8e4m3fn, #L0>
        %z = simt.convert %y : tile<4x4xf8e4m3fn, #L1>
        %r = dot_scaled %z, %b, %t {a_format = e4m3, b_format = e4m3} : tile<4x4xf32, #L0>
        yield %r
      }
      return
    }
    """
    found = after(text, "select", target=NARROW)
    assert "#S0 = shared<4x4, 8 1 2 4>" in found, "what the product reads in few turns"
    assert re.search(
        r"%x = load %at {simt.by = .*, simt.shared = #S0, simt.width = 1} : tile<4x4xu8, #L0>",
        found,
    )
    assert (
        "%0 = simt.convert %x : tile<4x4xu8, #L1>" in found
        and "%1 = bitcast %0 : tile<4x4xf8e4m3fn, #L1>" in found
    )
    assert "dot_scaled %1, %b, %t" in found and "%y" not in found


def test_other_loads_stay() -> None:
    """Only loads that a matmul reads are selected."""
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at : tile<4x4xf32, #L0>
        %y = load %at : tile<4x4xf32, #L0>
        %u = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        %r = add %u, %y : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    assert after(text, "select", target=TARGET) == changed(text, *COPIED)


def test_small_loads_beside_a_matmul_are_copied_with_its_operands() -> None:
    """Scales take an eighth of the bytes of the operands at most."""
    text = """
    #L0 = layout<8x8, registers [(0,1) (0,2) (4,0)], lanes [(0,4) (1,0)], warps [(2,0)]>
    #L1 = layout<2, registers [(1)], lanes [(0) (0)], warps [(0)]>

    kernel @k(%at: tile<8x8xptr<f32>, #L0>, %p: tile<2xptr<f32>, #L1>, %c: tile<8x8xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<8x8xf32, #L0> body(%i: i32, %t: tile<8x8xf32, #L0>) {
        %x = load %at : tile<8x8xf32, #L0>
        %y = load %p : tile<2xf32, #L1>
        %f = reduce %y {axis = 0} : f32 combine(%a: f32, %b: f32) {
          %s = add %a, %b : f32
          yield %s
        }
        %u = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<8x8xf32, #L0>
        %g = splat %f : tile<8x8xf32, #L0>
        %r = mul %u, %g : tile<8x8xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    assert re.search(
        r"%y = load %p {simt.by = .*, simt.shared = #\w+, simt.width = 1} : tile<2xf32, #L1>",
        after(text, "select", target=TARGET),
    )
    # copies of 16 bytes cannot copy them
    assert "%y = load %p : tile<2xf32, #L1>" in after(text, "select", target=WIDE)


def test_a_load_narrower_than_copies_stays() -> None:
    """Nothing is known of the addresses, so one element is read at once."""
    assert after(LOOP, "select", target=WIDE) == plain(LOOP)


def test_copies_fill_with_zeros_and_with_nothing_else() -> None:
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32, %m: tile<4x4xi1, #L0>) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %x = load %at, mask=%m, other=%c : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    assert after(text, "select", target=TARGET) == plain(text)


def test_a_load_whose_address_comes_from_a_product_stays() -> None:
    """The matmul itself would have to be prefetched."""
    text = """
    #L0 = layout<4x4, registers [(0,1)], lanes [(0,2) (1,0)], warps [(2,0)]>

    kernel @k(%at: tile<4x4xptr<f32>, #L0>, %c: tile<4x4xf32, #L0>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<4x4xf32, #L0> body(%i: i32, %t: tile<4x4xf32, #L0>) {
        %o = cast %t : tile<4x4xi32, #L0>
        %to = addptr %at, %o : tile<4x4xptr<f32>, #L0>
        %x = load %to : tile<4x4xf32, #L0>
        %r = simt.dot %x, %x, %t {plan = "multiply and add"} : tile<4x4xf32, #L0>
        yield %r
      }
      store %at, %sum
      return
    }
    """
    assert after(text, "select", target=TARGET) == plain(text)


def test_a_loop_of_one_stage_is_left_alone() -> None:
    text = LOOP.replace("inits=[%c] :", "inits=[%c] {num_stages = 1} :")
    assert after(text, "select", target=TARGET) == plain(text)


def test_what_is_converted_on_the_way_to_a_product_is_read_without_conflicts() -> None:
    """The matmul's operand is computed from the load in another layout.

    The rows of the shared layout are permuted for it.
    """
    text = """
    #L0 = layout<16x16, registers [(4,0) (8,0)], lanes [(0,1) (0,2) (0,4) (0,8) (1,0)], warps [(2,0)]>
    #L1 = layout<16x16, registers [(0,1) (0,2)], lanes [(1,0) (2,0) (4,0) (8,0) (0,4)], warps [(0,8)]>

    kernel @k(%at: tile<16x16xptr<i32>, #L0>, %b: tile<16x16xf32, #L1>, %c: tile<16x16xf32, #L1>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %sum = for %zero, %n, %one, inits=[%c] : tile<16x16xf32, #L1> body(%i: i32, %t: tile<16x16xf32, #L1>) {
        %x = load %at : tile<16x16xi32, #L0>
        %y = simt.convert %x : tile<16x16xi32, #L1>
        %z = cast %y : tile<16x16xf32, #L1>
        %r = simt.dot %z, %b, %t {plan = "multiply and add"} : tile<16x16xf32, #L1>
        yield %r
      }
      return
    }
    """
    target = EmulatedTarget(32)
    module = read(text, target)
    run_stages(module, target, {"num_warps": 2, "num_stages": 2}, ["select"])
    (load,) = (operation for operation in kernel_of(module).walk() if isinstance(operation, Load))
    (converted,) = load.results[0].uses
    shared = shared_layout(load)
    for layout in (layout_of(load.results[0]), layout_of(converted.results[0])):
        count, turns = transactions(
            layout, shared, 4, target.resources.max_access, target.resources.banks
        )
        assert turns == count * accesses(layout, shared, 4).width
