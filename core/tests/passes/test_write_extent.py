"""Analysis of the memory that a kernel certainly writes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import verify
from tilewright.ir.parser import parse_module
from tilewright.passes.analysis.write_extent import certain_writes
from tilewright.passes.pipeline import run

SIGNATURE = "%a: ptr<f32>, %b: ptr<f16>, %i: i32, %t: i1, %f: f32, %h: f16"

#: what is stored where -> [(argument, first byte, byte after the last)]
CASES: dict[str, tuple[str, list[tuple[str, int, int]]]] = {
    "a scalar": ("store %a, %f", [("a", 0, 4)]),
    "a scalar at a constant": (
        "%c = constant 5 : i32\n%p = addptr %a, %c : ptr<f32>\nstore %p, %f",
        [("a", 20, 24)],
    ),
    "a scalar below": (
        "%c = constant -5 : i32\n%p = addptr %b, %c : ptr<f16>\nstore %p, %h",
        [("b", -10, -8)],
    ),
    "a row": (
        "%o = arange {start = 3, end = 11} : tile<8xi32>\n%s = splat %a : tile<8xptr<f32>>\n"
        "%p = addptr %s, %o : tile<8xptr<f32>>\n"
        "%v = splat %f : tile<8xf32>\nstore %p, %v",
        [("a", 12, 44)],
    ),
    "every program's row, of the first": (
        "%pid = program_id {axis = 0} : i32\n%n = constant 8 : i32\n%m = mul %pid, %n : i32\n"
        "%sm = splat %m : tile<8xi32>\n"
        "%o = arange {start = 0, end = 8} : tile<8xi32>\n%x = add %sm, %o : tile<8xi32>\n"
        "%s = splat %b : tile<8xptr<f16>>\n"
        "%p = addptr %s, %x : tile<8xptr<f16>>\n%v = splat %h : tile<8xf16>\nstore %p, %v",
        [("b", 0, 16)],
    ),
    "backwards": (
        "%r = arange {start = 0, end = 8} : tile<8xi32>\n%o = cast %r : tile<8xi64>\n"
        "%c = constant 3 : i64\n%m = splat %c : tile<8xi64>\n"
        "%x = sub %m, %o : tile<8xi64>\n"
        "%s = splat %a : tile<8xptr<f32>>\n%p = addptr %s, %x : tile<8xptr<f32>>\n"
        "%v = splat %f : tile<8xf32>\nstore %p, %v",
        [("a", -16, 16)],
    ),
    "the difference of a coordinate and itself": (
        "%o = arange {start = 0, end = 8} : tile<8xi32>\n"
        "%r = arange {start = 0, end = 8} : tile<8xi32>\n%x = sub %o, %r : tile<8xi32>\n"
        "%s = splat %a : tile<8xptr<f32>>\n%p = addptr %s, %x : tile<8xptr<f32>>\n"
        "%v = splat %f : tile<8xf32>\nstore %p, %v",
        [("a", 0, 4)],
    ),
    "a matrix of rows of 16": (
        "%o = arange {start = 0, end = 4} : tile<4xi32>\n"
        "%r = expand_dims %o {axis = 1} : tile<4x1xi32>\n%n = constant 16 : i32\n"
        "%sn = splat %n : tile<4x1xi32>\n%rn = mul %sn, %r : tile<4x1xi32>\n"
        "%c = arange {start = 0, end = 8} : tile<8xi32>\n"
        "%ce = expand_dims %c {axis = 0} : tile<1x8xi32>\n%rb = broadcast %rn : tile<4x8xi32>\n"
        "%cb = broadcast %ce : tile<4x8xi32>\n"
        "%x = add %rb, %cb : tile<4x8xi32>\n%s = splat %a : tile<4x8xptr<f32>>\n"
        "%p = addptr %s, %x : tile<4x8xptr<f32>>\n"
        "%v = splat %f : tile<4x8xf32>\nstore %p, %v",
        [("a", 0, 4 * (3 * 16 + 8))],
    ),
    "its transpose": (
        "%o = arange {start = 0, end = 4} : tile<4xi32>\n"
        "%r = expand_dims %o {axis = 1} : tile<4x1xi32>\n%s = splat %a : tile<4x1xptr<f32>>\n"
        "%p = addptr %s, %r : tile<4x1xptr<f32>>\n"
        "%q = permute %p {order = [1, 0]} : tile<1x4xptr<f32>>\n"
        "%w = broadcast %q : tile<2x4xptr<f32>>\n"
        "%v = splat %f : tile<2x4xf32>\nstore %w, %v",
        [("a", 0, 16)],
    ),
    "one coordinate, repeated": (
        "%o = arange {start = 3, end = 4} : tile<1xi32>\n%w = broadcast %o : tile<8xi32>\n"
        "%s = splat %a : tile<8xptr<f32>>\n"
        "%p = addptr %s, %w : tile<8xptr<f32>>\n%v = splat %f : tile<8xf32>\nstore %p, %v",
        [("a", 12, 16)],
    ),
    "a row that is reshaped": (
        "%o = arange {start = 2, end = 10} : tile<8xi32>\n%r = reshape %o : tile<1x8xi32>\n"
        "%s = splat %a : tile<1x8xptr<f32>>\n%p = addptr %s, %r : tile<1x8xptr<f32>>\n"
        "%v = splat %f : tile<1x8xf32>\nstore %p, %v",
        [("a", 8, 40)],
    ),
    "at a place in groups of programs": (
        "%pid = program_id {axis = 0} : i32\n%n = constant 4 : i32\n%q = div %pid, %n : i32\n"
        "%m = rem %pid, %n : i32\n%x = add %q, %m : i32\n%y = add %x, %n : i32\n"
        "%p = addptr %a, %y : ptr<f32>\nstore %p, %f",
        [("a", 16, 20)],
    ),
    "at coordinates that wrap around": (
        "%o = arange {start = 0, end = 8} : tile<8xi32>\n%n = splat %i : tile<8xi32>\n"
        "%x = rem %o, %n : tile<8xi32>\n%s = splat %a : tile<8xptr<f32>>\n"
        "%p = addptr %s, %x : tile<8xptr<f32>>\n%v = splat %f : tile<8xf32>\nstore %p, %v",
        [],
    ),
    "two stores": (
        (
            "%c = constant 5 : i32\n%d = constant 9 : i32\n%p = addptr %a, %c : ptr<f32>\n"
            "%q = addptr %a, %d : ptr<f32>\nstore %q, %f\nstore %p, %f"
        ),
        [("a", 20, 24), ("a", 36, 40)],
    ),
    "at a number of the host": ("%p = addptr %a, %i : ptr<f32>\nstore %p, %f", []),
    "under a mask": ("store %a, %f, mask=%t", []),
    "in a branch": ("if %t then {\nstore %a, %f\nyield\n} else {\nyield\n}", []),
    "at a narrowed number": (
        "%o = arange {start = 0, end = 8} : tile<8xi32>\n%x = cast %o : tile<8xi8>\n"
        "%s = splat %a : tile<8xptr<f32>>\n"
        "%p = addptr %s, %x : tile<8xptr<f32>>\n%v = splat %f : tile<8xf32>\nstore %p, %v",
        [],
    ),
    "beyond 32 bits": (
        "%o = arange {start = 0, end = 8} : tile<8xi32>\n%c = constant 500000000 : i32\n"
        "%m = splat %c : tile<8xi32>\n%x = mul %m, %o : tile<8xi32>\n"
        "%s = splat %a : tile<8xptr<f32>>\n%p = addptr %s, %x : tile<8xptr<f32>>\n"
        "%v = splat %f : tile<8xf32>\nstore %p, %v",
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_certain_writes(case: str) -> None:
    body, expected = CASES[case]
    module = parse_module(f"tilewright.ir 1.0\nkernel @k({SIGNATURE}) {{\n{body}\nreturn\n}}")
    verify(module)
    names = [argument.name for argument in module.kernel.arguments]
    for passes in (False, True):
        if passes:
            run(module)
        assert sorted(
            (names[write.argument], write.first, write.end) for write in certain_writes(module)
        ) == sorted(expected), f"after the passes: {passes}"


def test_offsets_of_random_tiles() -> None:
    """Sums of multiples of the coordinates, against all the addresses as NumPy gives them."""
    random = np.random.default_rng(5)
    for _ in range(20):
        start, rows, columns = (int(x) for x in random.integers(-40, 40, 3))
        body = (
            f"%o = arange {{start = 0, end = 4}} : tile<4xi32>\n"
            f"%oe = expand_dims %o {{axis = 1}} : tile<4x1xi32>\n%on = constant {rows} : i32\n"
            "%os = splat %on : tile<4x1xi32>\n%om = mul %oe, %os : tile<4x1xi32>\n"
            "%ob = broadcast %om : tile<4x8xi32>\n"
            f"%c = arange {{start = 0, end = 8}} : tile<8xi32>\n"
            f"%ce = expand_dims %c {{axis = 0}} : tile<1x8xi32>\n%cn = constant {columns} : i32\n"
            "%cs = splat %cn : tile<1x8xi32>\n%cm = mul %cs, %ce : tile<1x8xi32>\n"
            "%cb = broadcast %cm : tile<4x8xi32>\n%x = add %ob, %cb : tile<4x8xi32>\n"
            f"%n = constant {start} : i32\n%base = addptr %a, %n : ptr<f32>\n"
            "%s = splat %base : tile<4x8xptr<f32>>\n"
            "%p = addptr %s, %x : tile<4x8xptr<f32>>\n%v = splat %f : tile<4x8xf32>\nstore %p, %v"
        )
        module = parse_module(f"tilewright.ir 1.0\nkernel @k({SIGNATURE}) {{\n{body}\nreturn\n}}")
        addresses = 4 * (start + rows * np.arange(4)[:, None] + columns * np.arange(8)[None, :])
        (write,) = certain_writes(module)
        assert (write.first, write.end) == (addresses.min(), addresses.max() + 4)
