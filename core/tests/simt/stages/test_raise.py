"""Stage ``raise``: pointer loads that become descriptor loads, with their tensors and offsets."""

from __future__ import annotations

from tilewright.testing.stage_text import after, plain
from tilewright.testing.toy_targets import BulkTarget

#: addresses that are multiples of 4 bytes: of any element
TARGET = BulkTarget(4, raises=4)


def test_bounds_of_masks_are_those_of_the_tensor() -> None:
    """Rows go on from program to program, and columns in the loop; both are bounded, and the stride
    of rows is an argument."""
    text = """
    kernel @k(%a: ptr<f32> {divisibility = 4}, %m: i32, %n: i32, %stride: i32, %c: tile<8x8xf32>, %out: tile<8x8xptr<f32>>) {
      %zero = constant 0 : i32
      %eight = constant 8 : i32
      %program = program_id 0 : i32
      %row = mul %program, %eight : i32
      %lanes = arange {start = 0, end = 8} : tile<8xi32>
      %first = splat %row : tile<8xi32>
      %rows = add %first, %lanes : tile<8xi32>
      %down = expand_dims %rows {axis = 1} : tile<8x1xi32>
      %end = splat %m : tile<8x1xi32>
      %above = cmp %down, %end {predicate = lt} : tile<8x1xi1>
      %above.all = broadcast %above : tile<8x8xi1>
      %step = splat %stride : tile<8x1xi32>
      %lines = mul %down, %step : tile<8x1xi32>
      %lines.all = broadcast %lines : tile<8x8xi32>
      %base = splat %a : tile<8x8xptr<f32>>
      %starts = addptr %base, %lines.all : tile<8x8xptr<f32>>
      %sum = for %zero, %n, %eight, inits=[%c] : tile<8x8xf32> body(%k: i32, %t: tile<8x8xf32>) {
        %here = splat %k : tile<8xi32>
        %columns = add %here, %lanes : tile<8xi32>
        %across = expand_dims %columns {axis = 0} : tile<1x8xi32>
        %across.all = broadcast %across : tile<8x8xi32>
        %ends = splat %n : tile<1x8xi32>
        %before = cmp %across, %ends {predicate = lt} : tile<1x8xi1>
        %before.all = broadcast %before : tile<8x8xi1>
        %inside = and %above.all, %before.all : tile<8x8xi1>
        %at = addptr %starts, %across.all : tile<8x8xptr<f32>>
        %x = load %at, mask=%inside : tile<8x8xf32>
        %r = dot %x, %x, %t : tile<8x8xf32>
        yield %r
      }
      store %out, %sum
      return
    }
    """
    expected = """
    kernel @k(%a: ptr<f32> {divisibility = 4}, %m: i32, %n: i32, %stride: i32, %c: tile<8x8xf32>, %out: tile<8x8xptr<f32>>) {
      %0 = cast %m : i64
      %1 = cast %n : i64
      %2 = cast %stride : i64
      %3 = constant 1 : i64
      %4 = simt.tensor %a, shape=[%0, %1], strides=[%2, %3] : desc<8x8xf32>
      %zero = constant 0 : i32
      %eight = constant 8 : i32
      %program = program_id 0 : i32
      %row = mul %program, %eight : i32
      %sum = for %zero, %n, %eight, inits=[%c] : tile<8x8xf32> body(%k: i32, %t: tile<8x8xf32>) {
        %x = descriptor_load %4, offsets=[%row, %k] : tile<8x8xf32>
        %r = dot %x, %x, %t : tile<8x8xf32>
        yield %r
      }
      store %out, %sum
      return
    }
    """
    assert after(text, "raise", target=TARGET, num_stages=2) == plain(expected)


def test_pointers_that_a_loop_carries() -> None:
    """Pointers go on along rows that lie side by side in memory: the tensor's axes are the other
    way round."""
    text = """
    kernel @k(%a: ptr<f32> {divisibility = 4}, %n: i32, %stride: i32, %c: tile<8x8xf32>, %out: tile<8x8xptr<f32>>) {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %distance = constant 8 : i32
      %eight = splat %distance : tile<8x8xi32>
      %lanes = arange {start = 0, end = 8} : tile<8xi32>
      %down = expand_dims %lanes {axis = 1} : tile<8x1xi32>
      %across = expand_dims %lanes {axis = 0} : tile<1x8xi32>
      %step = splat %stride : tile<1x8xi32>
      %lines = mul %across, %step : tile<1x8xi32>
      %lines.all = broadcast %lines : tile<8x8xi32>
      %down.all = broadcast %down : tile<8x8xi32>
      %offsets = add %lines.all, %down.all : tile<8x8xi32>
      %base = splat %a : tile<8x8xptr<f32>>
      %start = addptr %base, %offsets : tile<8x8xptr<f32>>
      %sum, %last = for %zero, %n, %one, inits=[%c, %start] : tile<8x8xf32>, tile<8x8xptr<f32>> body(%i: i32, %t: tile<8x8xf32>, %at: tile<8x8xptr<f32>>) {
        %x = load %at : tile<8x8xf32>
        %r = dot %x, %x, %t : tile<8x8xf32>
        %next = addptr %at, %eight : tile<8x8xptr<f32>>
        yield %r, %next
      }
      store %out, %sum
      return
    }
    """
    expected = """
    kernel @k(%a: ptr<f32> {divisibility = 4}, %n: i32, %stride: i32, %c: tile<8x8xf32>, %out: tile<8x8xptr<f32>>) {
      %0 = constant 8 : i64
      %1 = constant 2147483647 : i64
      %2 = cast %stride : i64
      %3 = constant 1 : i64
      %4 = simt.tensor %a, shape=[%0, %1], strides=[%2, %3] : desc<8x8xf32>
      %5 = constant 0 : i32
      %one = constant 1 : i32
      %6 = constant 8 : i32
      %sum = for %5, %n, %one, inits=[%c] : tile<8x8xf32> body(%i: i32, %t: tile<8x8xf32>) {
        %7 = mul %i, %6 : i32
        %8 = descriptor_load %4, offsets=[%5, %7] : tile<8x8xf32>
        %x = permute %8 {order = [1, 0]} : tile<8x8xf32>
        %r = dot %x, %x, %t : tile<8x8xf32>
        yield %r
      }
      store %out, %sum
      return
    }
    """
    assert after(text, "raise", target=TARGET, num_stages=2) == plain(expected)
