"""Stage ``layouts``: tiles get layouts, matmuls get plans, and conversions are inserted."""

from __future__ import annotations

from tilewright.ir.verifier import verify
from tilewright.simt.assign_layouts.rematerialize import sink_conversions
from tilewright.simt.emulator import EmulatedTarget
from tilewright.testing.stage_text import after, plain, read

#: four lanes
TARGET = EmulatedTarget(4)


def test_an_access_is_coalesced_and_what_leads_to_it_has_its_layout() -> None:
    """Four elements of 4 bytes a thread, for the addresses are multiples of 16 and two warps of
    four lanes leave no more."""
    text = """
    kernel @k(%p: ptr<f32> {divisibility = 16}) {
      %a = arange {start = 0, end = 64} : tile<64xi32>
      %s = splat %p : tile<64xptr<f32>>
      %at = addptr %s, %a : tile<64xptr<f32>>
      %x = load %at : tile<64xf32>
      store %at, %x
      return
    }
    """
    expected = """
    #L0 = layout<64, registers [(1) (2) (32)], lanes [(4) (8)], warps [(16)]>

    kernel @k(%p: ptr<f32> {divisibility = 16}) attributes {warps = 2} {
      %a = arange {start = 0, end = 64} : tile<64xi32, #L0>
      %s = splat %p : tile<64xptr<f32>, #L0>
      %at = addptr %s, %a : tile<64xptr<f32>, #L0>
      %x = load %at : tile<64xf32, #L0>
      store %at, %x
      return
    }
    """
    assert after(text, "layouts", target=TARGET) == plain(expected)


def test_a_tile_is_converted_where_its_reader_wants_another_layout() -> None:
    """The store is coalesced as the load is; between them rows become columns."""
    text = """
    kernel @k(%p: ptr<f32> {divisibility = 16}) {
      %a = arange {start = 0, end = 256} : tile<256xi32>
      %o = reshape %a : tile<16x16xi32>
      %s = splat %p : tile<16x16xptr<f32>>
      %at = addptr %s, %o : tile<16x16xptr<f32>>
      %x = load %at : tile<16x16xf32>
      %t = permute %x {order = [1, 0]} : tile<16x16xf32>
      store %at, %t
      return
    }
    """
    expected = """
    #L0 = layout<256, registers [(1) (2) (32) (64) (128)], lanes [(4) (8)], warps [(16)]>
    #L1 = layout<16x16, registers [(0,1) (0,2) (2,0) (4,0) (8,0)], lanes [(0,4) (0,8)], warps [(1,0)]>
    #L2 = layout<16x16, registers [(1,0) (2,0) (0,2) (0,4) (0,8)], lanes [(4,0) (8,0)], warps [(0,1)]>

    kernel @k(%p: ptr<f32> {divisibility = 16}) attributes {warps = 2} {
      %a = arange {start = 0, end = 256} : tile<256xi32, #L0>
      %o = reshape %a : tile<16x16xi32, #L1>
      %s = splat %p : tile<16x16xptr<f32>, #L1>
      %at = addptr %s, %o : tile<16x16xptr<f32>, #L1>
      %x = load %at : tile<16x16xf32, #L1>
      %x#1 = simt.convert %x : tile<16x16xf32, #L2>
      %t = permute %x#1 {order = [1, 0]} : tile<16x16xf32, #L1>
      store %at, %t
      return
    }
    """
    assert after(text, "layouts", target=TARGET) == plain(expected)


def test_what_costs_nothing_to_compute_twice_is_not_converted() -> None:
    """Row and column numbers of one arange, in two layouts."""
    text = """
    kernel @k(%p: ptr<f32> {divisibility = 16}) {
      %a = arange {start = 0, end = 8} : tile<8xi32>
      %r = expand_dims %a {axis = 1} : tile<8x1xi32>
      %c = expand_dims %a {axis = 0} : tile<1x8xi32>
      %rows = broadcast %r : tile<8x8xi32>
      %columns = broadcast %c : tile<8x8xi32>
      %o = mul %rows, %columns : tile<8x8xi32>
      %s = splat %p : tile<8x8xptr<f32>>
      %at = addptr %s, %o : tile<8x8xptr<f32>>
      %f = constant 1.0 : f32
      %x = splat %f : tile<8x8xf32>
      store %at, %x
      return
    }
    """
    expected = """
    #L0 = layout<8, registers [], lanes [(1) (2)], warps [(4)]>
    #L1 = layout<8, registers [(1) (2) (4)], lanes [(0) (0)], warps [(0)]>
    #L2 = layout<8x1, registers [(1,0) (2,0) (4,0)], lanes [(0,0) (0,0)], warps [(0,0)]>
    #L3 = layout<1x8, registers [], lanes [(0,1) (0,2)], warps [(0,4)]>
    #L4 = layout<8x8, registers [(1,0) (2,0) (4,0)], lanes [(0,1) (0,2)], warps [(0,4)]>

    kernel @k(%p: ptr<f32> {divisibility = 16}) attributes {warps = 2} {
      %a = arange {start = 0, end = 8} : tile<8xi32, #L0>
      %a#1 = arange {start = 0, end = 8} : tile<8xi32, #L1>
      %r = expand_dims %a#1 {axis = 1} : tile<8x1xi32, #L2>
      %c = expand_dims %a {axis = 0} : tile<1x8xi32, #L3>
      %rows = broadcast %r : tile<8x8xi32, #L4>
      %columns = broadcast %c : tile<8x8xi32, #L4>
      %o = mul %rows, %columns : tile<8x8xi32, #L4>
      %s = splat %p : tile<8x8xptr<f32>, #L4>
      %at = addptr %s, %o : tile<8x8xptr<f32>, #L4>
      %f = constant 1.0 : f32
      %x = splat %f : tile<8x8xf32, #L4>
      store %at, %x
      return
    }
    """
    assert after(text, "layouts", target=TARGET) == plain(expected)


def test_a_reduction_gives_its_result_without_the_axis() -> None:
    text = """
    kernel @k(%p: ptr<f32>) {
      %f = constant 1.0 : f32
      %x = splat %f : tile<8x8xf32>
      %sum = reduce %x {axis = 1} : tile<8xf32> combine(%l: f32, %r: f32) {
        %s = add %l, %r : f32
        yield %s
      }
      %at = splat %p : tile<8xptr<f32>>
      store %at, %sum
      return
    }
    """
    expected = """
    #L0 = layout<8x8, registers [(0,1) (0,2) (4,0)], lanes [(0,4) (1,0)], warps [(2,0)]>
    #L1 = layout<8, registers [(4)], lanes [(0) (1)], warps [(2)]>

    kernel @k(%p: ptr<f32>) attributes {warps = 2} {
      %f = constant 1.0 : f32
      %x = splat %f : tile<8x8xf32, #L0>
      %sum = reduce %x {axis = 1} : tile<8xf32, #L1> combine(%l: f32, %r: f32) {
        %s = add %l, %r : f32
        yield %s
      }
      %at = splat %p : tile<8xptr<f32>, #L1>
      store %at, %sum
      return
    }
    """
    assert after(text, "layouts", target=TARGET) == plain(expected)


def test_a_carried_tile_has_one_layout() -> None:
    text = """
    kernel @k(%p: ptr<f32>, %n: i32) {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %f = constant 1.0 : f32
      %x = splat %f : tile<16xf32>
      %last = for %zero, %n, %one, inits=[%x] : tile<16xf32> body(%i: i32, %t: tile<16xf32>) {
        %u = add %t, %x : tile<16xf32>
        yield %u
      }
      %at = splat %p : tile<16xptr<f32>>
      store %at, %last
      return
    }
    """
    expected = """
    #L0 = layout<16, registers [(8)], lanes [(1) (2)], warps [(4)]>

    kernel @k(%p: ptr<f32>, %n: i32) attributes {warps = 2} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %f = constant 1.0 : f32
      %x = splat %f : tile<16xf32, #L0>
      %last = for %zero, %n, %one, inits=[%x] : tile<16xf32, #L0> body(%i: i32, %t: tile<16xf32, #L0>) {
        %u = add %t, %x : tile<16xf32, #L0>
        yield %u
      }
      %at = splat %p : tile<16xptr<f32>, #L0>
      store %at, %last
      return
    }
    """
    assert after(text, "layouts", target=TARGET) == plain(expected)


def test_conversions_that_are_moved_down_stay_behind_what_they_read() -> None:
    """Two readers of a conversion move down to one reader of both: the conversion goes before the
    first of them, wherever they came to stand."""
    text = """
    #L0 = layout<8, registers [(1)], lanes [(2) (4)], warps [(0)]>
    #L1 = layout<8, registers [(4)], lanes [(1) (2)], warps [(0)]>

    kernel @k(%x: tile<8xf32, #L0>) attributes {warps = 2} {
      %y = simt.convert %x : tile<8xf32, #L1>
      %a = cast %y : tile<8xf16, #L1>
      %b = cast %y : tile<8xf16, #L1>
      %c = cast %y : tile<8xf16, #L1>
      %n = constant 1 : i32
      %s = fma %a, %b, %c : tile<8xf16, #L1>
      return
    }
    """
    module = read(text)
    sink_conversions(module.kernel.body)
    verify(module)
    names = [operation.name for operation in module.kernel.body]
    assert names == ["constant", "simt.convert", "cast", "cast", "cast", "fma", "return"]
