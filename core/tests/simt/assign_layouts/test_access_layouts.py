"""Layouts of accesses of several sizes, widths and orders that depend on each other."""

from __future__ import annotations

from assigned_layouts import assigned, named

from tilewright.ir.parser import parse_module
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.emulator import EmulatedTarget


def test_large_tiles_decide_the_layout_of_the_rows_that_are_broadcast_to_them() -> None:
    """Alone, each row would have one element in each of 64 threads; its readers would follow it, as
    one of them cannot change without the others."""
    rows = "".join(
        f"""
      %row{i} = load %q{i} : tile<64xf16> %q{i + 1} = addptr %q{i}, %sixtyfour : tile<64xptr<f16>>
      %e{i} = expand_dims %row{i} {{axis = 0}} : tile<1x64xf16> %w{i} = broadcast %e{i} : tile<8x64xf16>"""
        for i in range(4)
    )
    products = "".join(f" %f{i + 1} = mul %f{i}, %w{i} : tile<8x64xf16>" for i in range(4))
    module = parse_module(f"""tilewright.ir 1.0
    kernel @k(%p: ptr<f16> {{divisibility = 16}}, %q: ptr<f16> {{divisibility = 16}}) {{
      %c = arange {{start = 0, end = 64}} : tile<64xi32> %qs = splat %q : tile<64xptr<f16>> %q0 = addptr %qs, %c : tile<64xptr<f16>>
      %n = constant 64 : i32 %sixtyfour = splat %n : tile<64xi32>{rows}
      %h = arange {{start = 0, end = 8}} : tile<8xi32> %h1 = expand_dims %h {{axis = 1}} : tile<8x1xi32> %hb = broadcast %h1 : tile<8x64xi32>
      %k = constant 128 : i32 %ks = splat %k : tile<8x64xi32> %o = mul %hb, %ks : tile<8x64xi32>
      %c1 = expand_dims %c {{axis = 0}} : tile<1x64xi32> %cb = broadcast %c1 : tile<8x64xi32> %off = add %o, %cb : tile<8x64xi32>
      %ps = splat %p : tile<8x64xptr<f16>> %at = addptr %ps, %off : tile<8x64xptr<f16>> %f0 = load %at : tile<8x64xf16>{products}
      store %at, %f4
      return
    }}""")
    assigned(module, EmulatedTarget(32))
    *rows_loaded, large = named(module, "load")
    assert layout_of(large.results[0]).vector_width(1, 8) == 4
    assert len(rows_loaded) == 4 and not named(module, "simt.convert")


def test_threads_are_side_by_side_where_a_load_is_not_aligned_but_the_store_is() -> None:
    """A layout with eight elements of the store in a thread would have each of the load's
    instructions read two bytes of a sector."""
    module = parse_module("""tilewright.ir 1.0
    kernel @k(%p: ptr<f16> {divisibility = 16}, %q: ptr<f16> {divisibility = 16}, %n: i32) {
      %i = arange {start = 0, end = 1024} : tile<1024xi32>
      %ns = splat %n : tile<1024xi32> %moved = add %i, %ns : tile<1024xi32>
      %ps = splat %p : tile<1024xptr<f16>> %from = addptr %ps, %moved : tile<1024xptr<f16>>
      %x = load %from : tile<1024xf16>
      %qs = splat %q : tile<1024xptr<f16>> %to = addptr %qs, %i : tile<1024xptr<f16>>
      store %to, %x
      return
    }""")
    assigned(module, EmulatedTarget(32))
    (load,) = named(module, "load")
    assert layout_of(load.results[0]).lanes == (1, 2, 4, 8, 16)


def test_a_load_stays_wide_where_a_transposed_store_of_bytes_has_another_layout() -> None:
    """Of 16 bytes side by side that a store has in a thread the load has 32, in two instructions;
    the second one finds its half of the sectors in the cache."""
    module = parse_module("""tilewright.ir 1.0
    kernel @k(%p: ptr<f16> {divisibility = 16}, %q: ptr<i8> {divisibility = 16}, %t: ptr<i8> {divisibility = 16}, %n: i32 {divisibility = 16}) {
      %i = arange {start = 0, end = 32} : tile<32xi32> %ns = splat %n : tile<32x32xi32>
      %r1 = expand_dims %i {axis = 1} : tile<32x1xi32> %r = broadcast %r1 : tile<32x32xi32>
      %c1 = expand_dims %i {axis = 0} : tile<1x32xi32> %c = broadcast %c1 : tile<32x32xi32>
      %rn = mul %r, %ns : tile<32x32xi32> %o = add %rn, %c : tile<32x32xi32>
      %cn = mul %c, %ns : tile<32x32xi32> %ot = add %cn, %r : tile<32x32xi32>
      %ps = splat %p : tile<32x32xptr<f16>> %from = addptr %ps, %o : tile<32x32xptr<f16>> %x = load %from : tile<32x32xf16>
      %b = cast %x : tile<32x32xi8>
      %qs = splat %q : tile<32x32xptr<i8>> %to = addptr %qs, %o : tile<32x32xptr<i8>> store %to, %b
      %ts = splat %t : tile<32x32xptr<i8>> %tt = addptr %ts, %ot : tile<32x32xptr<i8>> store %tt, %b
      return
    }""")
    assigned(module, EmulatedTarget(32), num_warps=1)
    (load,) = named(module, "load")
    assert layout_of(load.results[0]).vector_width(1, 16) >= 8
