"""Stage ``prepare``: calls, descriptors and block-scaled matmuls become plain operations."""

from __future__ import annotations

from tilewright.testing.stage_text import after, plain


def test_calls_are_written_out() -> None:
    text = """
    function @double(%x: tile<8xf32>) -> tile<8xf32> {
      %r = add %x, %x : tile<8xf32>
      return %r
    }

    kernel @k(%at: tile<8xptr<f32>>) {
      %x = load %at : tile<8xf32>
      %y = call %x {callee = "double"} : tile<8xf32>
      %z = call %y {callee = "double"} : tile<8xf32>
      store %at, %z
      return
    }
    """
    expected = """
    kernel @k(%at: tile<8xptr<f32>>) {
      %x = load %at : tile<8xf32>
      %r = add %x, %x : tile<8xf32>
      %r#1 = add %r, %r : tile<8xf32>
      store %at, %r#1
      return
    }
    """
    assert after(text, "prepare") == plain(expected)


def test_a_descriptor_becomes_a_base_and_what_bounds_it() -> None:
    text = """
    kernel @k(%d: desc<4xf32>, %i: i32) {
      %x = descriptor_load %d, offsets=[%i] : tile<4xf32>
      descriptor_store %d, %x, offsets=[%i]
      return
    }
    """
    expected = """
    kernel @k(%d.base: ptr<f32>, %d.extent0: i64, %d.stride0: i64, %i: i32) {
      %0 = cast %i : i64
      %1 = mul %0, %d.stride0 : i64
      %2 = addptr %d.base, %1 : ptr<f32>
      %3 = arange {start = 0, end = 4} : tile<4xi32>
      %4 = cast %3 : tile<4xi64>
      %5 = splat %0 : tile<4xi64>
      %6 = add %5, %4 : tile<4xi64>
      %7 = splat %d.stride0 : tile<4xi64>
      %8 = mul %4, %7 : tile<4xi64>
      %9 = splat %2 : tile<4xptr<f32>>
      %10 = constant 0 : i64
      %11 = splat %10 : tile<4xi64>
      %12 = cmp %6, %11 {predicate = ge} : tile<4xi1>
      %13 = splat %d.extent0 : tile<4xi64>
      %14 = cmp %6, %13 {predicate = lt} : tile<4xi1>
      %15 = and %12, %14 : tile<4xi1>
      %16 = addptr %9, %8 : tile<4xptr<f32>>
      %17 = constant 0.0 : f32
      %18 = splat %17 : tile<4xf32>
      %19 = load %16, mask=%15, other=%18 : tile<4xf32>
      store %16, %19, mask=%15
      return
    }
    """
    assert after(text, "prepare") == plain(expected)


def test_a_block_scaled_product_is_one_of_scaled_operands() -> None:
    """In bf16, of elements that a power of two keeps normal; where the result is infinite or NaN,
    the dot is computed again."""
    text = """
    kernel @k(%a: tile<4x32xf8e4m3fn>, %b: tile<32x4xf8e4m3fn>, %s: tile<4x1xu8>, %c: tile<4x4xf32>, %to: tile<4x4xptr<f32>>) {
      %r = dot_scaled %a, %b, %c, a_scale=%s {a_format = e4m3, b_format = e4m3} : tile<4x4xf32>
      store %to, %r
      return
    }
    """
    expected = """
    kernel @k(%a: tile<4x32xf8e4m3fn>, %b: tile<32x4xf8e4m3fn>, %s: tile<4x1xu8>, %c: tile<4x4xf32>, %to: tile<4x4xptr<f32>>) {
      %0 = constant 1024.0 : f32
      %1 = splat %0 : tile<4x4xf32>
      %2 = mul %c, %1 : tile<4x4xf32>
      %3 = cast %s : tile<4x1xu32>
      %4 = constant 10 : u32
      %5 = splat %4 : tile<4x1xu32>
      %6 = add %3, %5 : tile<4x1xu32>
      %7 = constant 254 : u32
      %8 = splat %7 : tile<4x1xu32>
      %9 = cmp %6, %8 {predicate = gt} : tile<4x1xi1>
      %10 = constant 23 : u32
      %11 = splat %10 : tile<4x1xu32>
      %12 = shl %6, %11 : tile<4x1xu32>
      %13 = constant 2143289344 : u32
      %14 = splat %13 : tile<4x1xu32>
      %15 = select %9, %14, %12 : tile<4x1xu32>
      %16 = bitcast %15 : tile<4x1xf32>
      %17 = cast %16 : tile<4x1xbf16>
      %18 = expand_dims %17 {axis = 2} : tile<4x1x1xbf16>
      %19 = broadcast %18 : tile<4x1x32xbf16>
      %20 = reshape %19 : tile<4x32xbf16>
      %21 = cast %a : tile<4x32xbf16>
      %22 = mul %21, %20 : tile<4x32xbf16>
      %23 = cast %b : tile<32x4xbf16>
      %24 = dot %22, %23, %2 : tile<4x4xf32>
      %25 = constant 0.0009765625 : f32
      %26 = splat %25 : tile<4x4xf32>
      %27 = mul %24, %26 : tile<4x4xf32>
      %28 = bitcast %27 : tile<4x4xu32>
      %29 = reshape %28 : tile<16xu32>
      %30 = reduce %29 {axis = 0} : u32 combine(%a#1: u32, %b#1: u32) {
        %31 = constant 2147483647 : u32
        %32 = and %a#1, %31 : u32
        %33 = and %b#1, %31 : u32
        %34 = max %32, %33 : u32
        yield %34
      }
      %35 = constant 2147483647 : u32
      %36 = and %30, %35 : u32
      %37 = constant 2139095040 : u32
      %38 = cmp %36, %37 {predicate = ge} : i1
      %39 = if %38 {simt.cold = true} : tile<4x4xf32> then {
    """
    found = after(text, "prepare")
    first, again = found.split(" then {\n", 1)
    assert first + " then {" == plain(expected)
    assert again.count(" = for ") == again.count(" = dot ") == 1 and again.count(" = map ") == 3
    assert again.endswith("  } else {\n    yield %27\n  }\n  store %to, %39\n  return\n}")
