"""Every law of canonicalize: text in, text out; and what must stay as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tilewright.ir import Module
from tilewright.passes.canonicalize import REWRITES, canonicalize
from tilewright.passes.rewriter import Rewriter, by_operation


def _reduced(tile: str, name: str) -> str:
    """``%r``, the rows of a tile of 4x8 reduced by an operation."""
    return (
        f"%r = reduce %{tile} {{axis = 1}} : tile<4xf32> combine(%0: f32, %1: f32) {{\n"
        f"%2 = {name} %0, %1 : f32\nyield %2\n}}\n"
    )


#: (before, after); ``use`` keeps values alive.
CASES: list[tuple[str, str]] = [
    # f(constants)
    (
        "%x = constant 7 : i32\n%y = constant 5 : i32\n%z = mul %x, %y : i32\nuse %z",
        "%z = constant 35 : i32\nuse %z",
    ),
    (
        "%x = constant 1.5 : f32\n%y = splat %x : tile<8xf32>\n%z = neg %y : tile<8xf32>\nuse %z",
        "%x = constant -1.5 : f32\n%z = splat %x : tile<8xf32>\nuse %z",
    ),
    ("%x = constant 300 : i32\n%y = cast %x : u8\nuse %y", "%y = constant 44 : u8\nuse %y"),
    # the constant stands right
    (
        "%x = constant 3 : i32\n%y = add %x, %i : i32\nuse %y",
        "%x = constant 3 : i32\n%y = add %i, %x : i32\nuse %y",
    ),
    (
        "%x = constant 3 : i32\n%y = cmp %x, %i {predicate = lt} : i1\nuse %y",
        "%x = constant 3 : i32\n%y = cmp %i, %x {predicate = gt} : i1\nuse %y",
    ),
    (
        "%x = constant 3.0 : f32\n%y = max %x, %f {nan = propagate} : f32\nuse %y",
        "%x = constant 3.0 : f32\n%y = max %f, %x {nan = propagate} : f32\nuse %y",
    ),
    # op(x, constant)
    *[
        (
            f"%x = constant {constant} : {type_}\n%y = {name} %{operand}, %x : {type_}\nuse %y",
            f"use %{operand}",
        )
        for name, constant, type_, operand in (
            ("add", "0", "i32", "i"),
            ("sub", "0", "i32", "i"),
            ("mul", "1", "i32", "i"),
            ("div", "1", "i32", "i"),
            ("and", "-1", "i32", "i"),
            ("and", "4294967295", "u32", "u"),
            ("and", "true", "i1", "c"),
            ("or", "0", "i32", "i"),
            ("xor", "0", "i32", "i"),
            ("xor", "false", "i1", "c"),
            ("shl", "0", "i32", "i"),
            ("shr", "0", "u32", "u"),
            ("min", "2147483647", "i32", "i"),
            ("max", "-2147483648", "i32", "i"),
            ("max", "0", "u32", "u"),
            ("add", "-0.0", "f32", "f"),
            ("sub", "0.0", "f32", "f"),
            ("mul", "1.0", "f32", "f"),
            ("div", "1.0", "f32", "f"),
        )
    ],
    *[
        (
            f"%x = constant {constant} : {type_}\n%y = {name} %{operand}, %x : {type_}\nuse %y",
            f"%x = constant {constant} : {type_}\nuse %x",
        )
        for name, constant, type_, operand in (
            ("mul", "0", "i32", "i"),
            ("and", "0", "i32", "i"),
            ("and", "false", "i1", "c"),
            ("or", "-1", "i32", "i"),
            ("min", "-2147483648", "i32", "i"),
            ("max", "2147483647", "i32", "i"),
        )
    ],
    (
        "%x = constant 0 : i32\n%y = splat %x : tile<8xi32>\n%z = add %v, %y : tile<8xi32>\nuse %z",
        "use %v",
    ),
    # op(x, x)
    *[
        (
            f"%y = {name} %{operand}, %{operand} : {type_}\nuse %y",
            f"%y = constant {constant} : {type_}\nuse %y",
        )
        for name, type_, operand, constant in (
            ("sub", "i32", "i", 0),
            ("rem", "i32", "i", 0),
            ("xor", "i32", "i", 0),
        )
    ],
    *[
        (f"%y = {name} %{operand}, %{operand} : {type_}\nuse %y", f"use %{operand}")
        for name, type_, operand in (
            ("and", "i32", "i"),
            ("or", "i1", "c"),
            ("min", "f32", "f"),
            ("max", "i32", "i"),
        )
    ],
    (
        "%y = sub %v, %v : tile<8xi32>\nuse %y",
        "%x = constant 0 : i32\n%y = splat %x : tile<8xi32>\nuse %y",
    ),
    # remainders and zeros
    ("%x = constant 1 : i32\n%y = rem %i, %x : i32\nuse %y", "%y = constant 0 : i32\nuse %y"),
    ("%x = constant 0 : i32\n%y = div %x, %i : i32\nuse %y", "%y = constant 0 : i32\nuse %y"),
    ("%x = constant 0 : i32\n%y = shl %x, %i : i32\nuse %y", "%y = constant 0 : i32\nuse %y"),
    # (x op a) op b
    (
        (
            "%x = constant 3 : i32\n%y = constant 4 : i32\n%z = add %i, %x : i32\n"
            "%r = add %z, %y : i32\nuse %r"
        ),
        "%x = constant 7 : i32\n%r = add %i, %x : i32\nuse %r",
    ),
    (
        "%x = constant 2147483647 : i32\n%y = add %i, %x : i32\n%z = add %y, %x : i32\nuse %z",
        "%x = constant -2 : i32\n%z = add %i, %x : i32\nuse %z",
    ),
    ("%x = constant true : i1\n%y = xor %c, %x : i1\n%z = xor %y, %x : i1\nuse %z", "use %c"),
    (
        (
            "%x = constant 7 : i32\n%y = constant 3 : i32\n%z = min %i, %x : i32\n"
            "%r = min %z, %y : i32\nuse %r"
        ),
        "%y = constant 3 : i32\n%z = min %i, %y : i32\nuse %z",
    ),
    # signs
    ("%x = neg %g : f32\n%y = add %f, %x : f32\nuse %y", "%y = sub %f, %g : f32\nuse %y"),
    ("%x = neg %i : i32\n%y = add %x, %j : i32\nuse %y", "%y = sub %j, %i : i32\nuse %y"),
    ("%x = neg %g : f32\n%y = sub %f, %x : f32\nuse %y", "%y = add %f, %g : f32\nuse %y"),
    ("%x = constant 0 : i32\n%y = sub %x, %i : i32\nuse %y", "%y = neg %i : i32\nuse %y"),
    ("%x = constant -0.0 : f32\n%y = sub %x, %f : f32\nuse %y", "%y = neg %f : f32\nuse %y"),
    ("%x = neg %f : f32\n%y = neg %x : f32\nuse %y", "use %f"),
    ("%x = abs %f : f32\n%y = abs %x : f32\nuse %y", "%x = abs %f : f32\nuse %x"),
    ("%x = neg %f : f32\n%y = abs %x : f32\nuse %y", "%x = abs %f : f32\nuse %x"),
    ("%y = abs %u : u32\nuse %y", "use %u"),
    # division by powers of two, ldexp
    (
        "%x = constant 8.0 : f32\n%y = div %f, %x : f32\nuse %y",
        "%x = constant 0.125 : f32\n%y = mul %f, %x : f32\nuse %y",
    ),
    (
        "%x = constant -0.5 : f16\n%y = div %h, %x : f16\nuse %y",
        "%x = constant -2.0 : f16\n%y = mul %h, %x : f16\nuse %y",
    ),
    ("%x = constant 0 : i32\n%y = ldexp %f, %x : f32\nuse %y", "use %f"),
    # comparisons
    *[
        (
            f"%y = cmp %i, %i {{predicate = {predicate}}} : i1\nuse %y",
            f"%y = constant {answer} : i1\nuse %y",
        )
        for predicate, answer in (
            ("eq", "true"),
            ("ne", "false"),
            ("lt", "false"),
            ("le", "true"),
            ("gt", "false"),
            ("ge", "true"),
        )
    ],
    ("%y = cmp %f, %f {predicate = lt} : i1\nuse %y", "%y = constant false : i1\nuse %y"),
    (
        "%x = constant 0 : u32\n%y = cmp %u, %x {predicate = lt} : i1\nuse %y",
        "%y = constant false : i1\nuse %y",
    ),
    (
        "%x = constant 2147483647 : i32\n%y = cmp %i, %x {predicate = le} : i1\nuse %y",
        "%y = constant true : i1\nuse %y",
    ),
    (
        "%x = cast %c : i32\n%z = constant 0 : i32\n%y = cmp %x, %z {predicate = ne} : i1\nuse %y",
        "use %c",
    ),
    (
        "%x = cast %c : i32\n%z = constant 0 : i32\n%y = cmp %x, %z {predicate = eq} : i1\nuse %y",
        "%z = constant true : i1\n%y = xor %c, %z : i1\nuse %y",
    ),
    (
        (
            "%x = cmp %i, %j {predicate = lt} : i1\n%z = constant true : i1\n"
            "%y = xor %x, %z : i1\nuse %y"
        ),
        "%y = cmp %i, %j {predicate = ge} : i1\nuse %y",
    ),
    (
        (
            "%x = cmp %f, %g {predicate = eq} : i1\n%z = constant true : i1\n"
            "%y = xor %x, %z : i1\nuse %y"
        ),
        "%y = cmp %f, %g {predicate = ne} : i1\nuse %y",
    ),
    # select
    ("%y = select %c, %f, %f : f32\nuse %y", "use %f"),
    ("%x = constant true : i1\n%y = select %x, %f, %g : f32\nuse %y", "use %f"),
    (
        (
            "%x = constant false : i1\n%z = splat %x : tile<8xi1>\n"
            "%y = select %z, %t, %s : tile<8xf32>\nuse %y"
        ),
        "use %s",
    ),
    (
        "%x = constant true : i1\n%z = constant false : i1\n%y = select %c, %x, %z : i1\nuse %y",
        "use %c",
    ),
    (
        "%x = constant true : i1\n%z = constant false : i1\n%y = select %c, %z, %x : i1\nuse %y",
        "%x = constant true : i1\n%y = xor %c, %x : i1\nuse %y",
    ),
    (
        "%x = constant true : i1\n%z = xor %c, %x : i1\n%y = select %z, %f, %g : f32\nuse %y",
        "%y = select %c, %g, %f : f32\nuse %y",
    ),
    # casts
    ("%y = cast %f : f32\nuse %y", "use %f"),
    ("%x = cast %h : f32\n%y = cast %x : f16\nuse %y", "use %h"),
    ("%x = cast %e4 : f32\n%y = cast %x : f8e4m3fn\nuse %y", "use %e4"),
    ("%x = cast %e5 : f32\n%y = cast %x {rounding = rtz} : f8e5m2\nuse %y", "use %e5"),
    ("%x = cast %e5 : f32\n%y = cast %x : f8e4m3fn\nuse %y", "%y = cast %e5 : f8e4m3fn\nuse %y"),
    ("%x = constant 1.0 : f8e4m3fn\n%y = mul %e4, %x : f8e4m3fn\nuse %y", "use %e4"),
    ("%x = cast %i : i64\n%y = cast %x : i32\nuse %y", "use %i"),
    ("%x = cast %l : i32\n%y = cast %x : i8\nuse %y", "%y = cast %l : i8\nuse %y"),
    ("%x = cast %i : i64\n%y = cast %x : f32\nuse %y", "%y = cast %i : f32\nuse %y"),
    ("%x = cast %i : f64\n%y = cast %x : f32\nuse %y", "%y = cast %i : f32\nuse %y"),
    ("%x = cast %h : f32\n%y = cast %x : f64\nuse %y", "%y = cast %h : f64\nuse %y"),
    (
        "%x = cast %h : f64\n%y = cast %x {rounding = rtz} : f8e5m2\nuse %y",
        "%y = cast %h {rounding = rtz} : f8e5m2\nuse %y",
    ),
    (
        "%x = cast %h : f64\n%y = cast %x {rounding = rtz} : f32\nuse %y",
        "%y = cast %h : f32\nuse %y",
    ),
    (
        "%x = abs %h : f16\n%y = cast %x : f32\nuse %y",
        "%x = cast %h : f32\n%y = abs %x : f32\nuse %y",
    ),
    ("%x = trunc %f : f32\n%y = cast %x : i8\nuse %y", "%y = cast %f : i8\nuse %y"),
    ("%x = bitcast %f : i32\n%y = bitcast %x : f32\nuse %y", "use %f"),
    ("%x = bitcast %f : i32\n%y = bitcast %x : u32\nuse %y", "%y = bitcast %f : u32\nuse %y"),
    # pointers
    ("%x = constant 0 : i32\n%y = addptr %p, %x : ptr<f32>\nuse %y", "use %p"),
    (
        (
            "%x = constant 3 : i32\n%y = addptr %p, %x : ptr<f32>\n"
            "%z = addptr %y, %x : ptr<f32>\nuse %z"
        ),
        "%x = constant 6 : i32\n%z = addptr %p, %x : ptr<f32>\nuse %z",
    ),
    (
        (
            "%x = splat %p : tile<8xptr<f32>>\n%y = addptr %x, %v : tile<8xptr<f32>>\n"
            "%z = splat %i : tile<8xi32>\n%r = addptr %y, %z : tile<8xptr<f32>>\nuse %r"
        ),
        (
            "%x = addptr %p, %i : ptr<f32>\n%y = splat %x : tile<8xptr<f32>>\n"
            "%r = addptr %y, %v : tile<8xptr<f32>>\nuse %r"
        ),
    ),
    # hints
    (
        "%x = constant 16 : i32\n%y = hint %x {divisibility = [16]} : i32\nuse %y",
        "%x = constant 16 : i32\nuse %x",
    ),
    (
        (
            "%x = hint %i {divisibility = [16]} : i32\n%y = hint %x {divisibility = [16]} : i32\n"
            "use %y"
        ),
        "%x = hint %i {divisibility = [16]} : i32\nuse %x",
    ),
    # uniform operands
    (
        (
            "%x = splat %i : tile<8xi32>\n%y = splat %j : tile<8xi32>\n"
            "%z = add %x, %y : tile<8xi32>\nuse %z"
        ),
        "%x = add %i, %j : i32\n%z = splat %x : tile<8xi32>\nuse %z",
    ),
    (
        "%x = splat %h : tile<8xf16>\n%y = cast %x : tile<8xf32>\nuse %y",
        "%x = cast %h : f32\n%y = splat %x : tile<8xf32>\nuse %y",
    ),
    (
        (
            "%x = splat %i : tile<8xi32>\n%y = splat %j : tile<8xi32>\n"
            "%z = cmp %x, %y {predicate = le} : tile<8xi1>\nuse %z"
        ),
        "%x = cmp %i, %j {predicate = le} : i1\n%z = splat %x : tile<8xi1>\nuse %z",
    ),
    # shapes
    *[
        (f"%x = splat %f : {before}\n%y = {text}\nuse %y", f"%y = splat %f : {after}\nuse %y")
        for before, text, after in (
            ("tile<1x8xf32>", "broadcast %x : tile<4x8xf32>", "tile<4x8xf32>"),
            ("tile<8xf32>", "expand_dims %x {axis = 0} : tile<1x8xf32>", "tile<1x8xf32>"),
            ("tile<8xf32>", "reshape %x : tile<2x4xf32>", "tile<2x4xf32>"),
            ("tile<2x4xf32>", "permute %x {order = [1, 0]} : tile<4x2xf32>", "tile<4x2xf32>"),
            ("tile<8xf32>", "gather %x, %v {axis = 0} : tile<8xf32>", "tile<8xf32>"),
            ("tile<8xf32>", "join %x, %x : tile<8x2xf32>", "tile<8x2xf32>"),
            ("tile<8xf32>", "cat %x, %x {axis = 0} : tile<16xf32>", "tile<16xf32>"),
        )
    ],
    ("%x = broadcast %t : tile<8xf32>\n%y = reshape %x : tile<8xf32>\nuse %y", "use %t"),
    (
        (
            "%x = expand_dims %o {axis = 0} : tile<1x1xf32>\n%y = broadcast %x : tile<1x8xf32>\n"
            "%z = broadcast %y : tile<4x8xf32>\nuse %z"
        ),
        "%x = expand_dims %o {axis = 0} : tile<1x1xf32>\n%z = broadcast %x : tile<4x8xf32>\nuse %z",
    ),
    (
        "%x = reshape %t : tile<2x4xf32>\n%y = reshape %x : tile<4x2xf32>\nuse %y",
        "%y = reshape %t : tile<4x2xf32>\nuse %y",
    ),
    (
        "%x = reshape %t {reorder = true} : tile<2x4xf32>\n%y = reshape %x : tile<4x2xf32>\nuse %y",
        "%y = reshape %t {reorder = true} : tile<4x2xf32>\nuse %y",
    ),
    (
        "%x = expand_dims %t {axis = 0} : tile<1x8xf32>\n%y = reshape %x : tile<2x4xf32>\nuse %y",
        "%y = reshape %t : tile<2x4xf32>\nuse %y",
    ),
    ("%y = permute %a {order = [0, 1]} : tile<4x8xf32>\nuse %y", "use %a"),
    (
        (
            "%x = permute %a {order = [1, 0]} : tile<8x4xf32>\n"
            "%y = permute %x {order = [1, 0]} : tile<4x8xf32>\nuse %y"
        ),
        "use %a",
    ),
    (
        "%r = reshape %a : tile<2x4x4xf32>\n%x = permute %r {order = [1, 2, 0]} : tile<4x4x2xf32>\n"
        "%y = permute %x {order = [2, 1, 0]} : tile<2x4x4xf32>\nuse %y",
        (
            "%r = reshape %a : tile<2x4x4xf32>\n"
            "%y = permute %r {order = [0, 2, 1]} : tile<2x4x4xf32>\nuse %y"
        ),
    ),
    ("%x = splat %f : tile<1xf32>\n%y = unsplat %x : f32\nuse %y", "use %f"),
    (
        "%x = reshape %o : tile<1x1xf32>\n%y = unsplat %x : f32\nuse %y",
        "%y = unsplat %o : f32\nuse %y",
    ),
    ("%x = unsplat %o : f32\n%y = splat %x : tile<1xf32>\nuse %y", "use %o"),
    (
        "%x = unsplat %o : f32\n%y = splat %x : tile<1x1xf32>\nuse %y",
        "%y = reshape %o : tile<1x1xf32>\nuse %y",
    ),
    (
        (
            "%x = join %t, %s : tile<8x2xf32>\n%y, %z = split %x : tile<8xf32>, tile<8xf32>\n"
            "use %y, %z"
        ),
        "use %t, %s",
    ),
    (
        "%x = splat %f : tile<8x2xf32>\n%y, %z = split %x : tile<8xf32>, tile<8xf32>\nuse %y, %z",
        "%y = splat %f : tile<8xf32>\nuse %y, %y",
    ),
    ("%x = splat %f : tile<2xf32>\n%y, %z = split %x : f32, f32\nuse %y, %z", "use %f, %f"),
    (
        "%y, %z = split %x2 : tile<8xf32>, tile<8xf32>\n%x = join %y, %z : tile<8x2xf32>\nuse %x",
        "use %x2",
    ),
    (
        (
            "%y = reduce %o {axis = 0} : f32 combine(%x: f32, %z: f32) {\n%r = add %x, %z : f32\n"
            "yield %r\n}\nuse %y"
        ),
        "%y = unsplat %o : f32\nuse %y",
    ),
    (
        "%1 = expand_dims %t {axis = 1} : tile<8x1xf32>\n"
        "%y = reduce %1 {axis = 1} : tile<8xf32> combine(%x: f32, %z: f32) {\n"
        "%r = add %x, %z : f32\nyield %r\n}\nuse %y",
        "use %t",
    ),
    (
        (
            "%y = scan %o {axis = 0} : tile<1xf32> combine(%x: f32, %z: f32) {\n"
            "%r = add %x, %z : f32\nyield %r\n}\nuse %y"
        ),
        "use %o",
    ),
    # masks
    *[
        (f"%x = constant true : i1\n%y = splat %x : tile<8xi1>\n{before}", after)
        for before, after in (
            (
                "%z = load %q, mask=%y, other=%t {cache = cg} : tile<8xf32>\nuse %z",
                "%z = load %q {cache = cg} : tile<8xf32>\nuse %z",
            ),
            ("store %q, %t, mask=%y", "store %q, %t"),
            (
                "%z = atomic_rmw %q, %t, mask=%y {kind = add} : tile<8xf32>\nuse %z",
                "%z = atomic_rmw %q, %t {kind = add} : tile<8xf32>\nuse %z",
            ),
            ('assert %m, mask=%y {message = "no"}', 'assert %m {message = "no"}'),
            (
                "%z = histogram %v, mask=%y {bins = 4} : tile<4xi32>\nuse %z",
                "%z = histogram %v {bins = 4} : tile<4xi32>\nuse %z",
            ),
            ('assert %y {message = "no"}', ""),
            ("assume %x", ""),
        )
    ],
    *[
        (f"%x = constant false : i1\n%y = splat %x : tile<8xi1>\n{before}", after)
        for before, after in (
            ("%z = load %q, mask=%y, other=%t : tile<8xf32>\nuse %z", "use %t"),
            (
                "%z = load %q, mask=%y : tile<8xf32>\nuse %z",
                "%x = constant 0.0 : f32\n%z = splat %x : tile<8xf32>\nuse %z",
            ),
            ("store %q, %t, mask=%y", ""),
            (
                "%z = atomic_rmw %q, %t, mask=%y {kind = add} : tile<8xf32>\nuse %z",
                "%x = constant 0.0 : f32\n%z = splat %x : tile<8xf32>\nuse %z",
            ),
            ('assert %m, mask=%y {message = "no"}', ""),
            (
                "%z = histogram %v, mask=%y {bins = 4} : tile<4xi32>\nuse %z",
                "%x = constant 0 : i32\n%z = splat %x : tile<4xi32>\nuse %z",
            ),
        )
    ],
    # products
    *[
        (
            "%x = constant 0.0 : f32\n%y = splat %x : tile<4x16xf32>\n"
            "%z = dot %a, %b, %y {precision = tf32} : tile<4x16xf32>\n"
            f"%r = add {operands} : tile<4x16xf32>\nuse %r",
            "%r = dot %a, %b, %k {precision = tf32} : tile<4x16xf32>\nuse %r",
        )
        for operands in ("%z, %k", "%k, %z")
    ],
    # if
    *[
        (
            (
                f"%x = constant {known} : i1\n%y = if %x : f32 then {{\n%z = neg %f : f32\n"
                f"yield %z\n}} else {{\n%z = neg %g : f32\nyield %z\n}}\nuse %y"
            ),
            f"%y = neg %{taken} : f32\nuse %y",
        )
        for known, taken in (("true", "f"), ("false", "g"))
    ],
    (
        (
            "%x = constant true : i1\n%n1 = xor %c, %x : i1\nif %n1 then {\nstore %p, %f\nyield\n"
            "} else {\nyield\n}"
        ),
        "if %c then {\nyield\n} else {\nstore %p, %f\nyield\n}",
    ),
    (
        (
            "%y, %z = if %c : f32, f32 then {\nstore %p, %f\n%r = neg %f : f32\nyield %g, %r\n"
            "} else {\nyield %g, %g\n}\nuse %y, %z"
        ),
        (
            "%y, %z = if %c : f32, f32 then {\nstore %p, %f\n%r = neg %f : f32\nyield %g, %r\n"
            "} else {\nyield %g, %g\n}\nuse %g, %z"
        ),
    ),
    (
        "%y = if %c : tile<8xf32> then {\n%x = constant 1.0 : f32\n%z = splat %x : tile<8xf32>\n"
        "yield %z\n} else {\n"
        "%x = constant 1.0 : f32\n%z = splat %x : tile<8xf32>\nyield %z\n}\nuse %y",
        "%x = constant 1.0 : f32\n%z = splat %x : tile<8xf32>\nuse %z",
    ),
    (
        "%y = if %c : i32 then {\nyield %i\n} else {\nyield %j\n}\nuse %y",
        "%y = select %c, %i, %j : i32\nuse %y",
    ),
    (
        "%y = if %c : i1 then {\n%x = constant true : i1\nyield %x\n} else {\nyield %e\n}\nuse %y",
        "%x = constant true : i1\n%y = select %c, %x, %e : i1\nuse %y",
    ),
    (
        (
            "%y = if %c : f32 then {\n%x = constant 0.0 : f32\nyield %x\n} else {\n"
            "%x = constant -0.0 : f32\nyield %x\n}\nuse %y"
        ),
        "%x = constant 0.0 : f32\n%z = constant -0.0 : f32\n%y = select %c, %x, %z : f32\nuse %y",
    ),
    # for
    *[
        (
            f"%x = constant {lower} : i32\n%y = constant {upper} : i32\n"
            f"%z = constant {step} : i32\n"
            "%r = for %x, %y, %z, inits=[%f] : f32 body(%0: i32, %1: f32) {\n%2 = cast %0 : f32\n"
            "%3 = add %1, %2 : f32\nyield %3\n}\nuse %r",
            after,
        )
        for lower, upper, step, after in (
            (0, 0, 1, "use %f"),
            (5, 2, 1, "use %f"),
            (3, 5, 2, "%x = constant 3.0 : f32\n%y = add %f, %x : f32\nuse %y"),
        )
    ],
    (
        (
            "%r = for %i, %i, %j, inits=[%f] : f32 body(%0: i32, %1: f32) {\n%2 = neg %1 : f32\n"
            "yield %2\n}\nuse %r"
        ),
        "use %f",
    ),
    (
        (
            "%r, %r2 = for %i, %j, %n, inits=[%f, %g] : f32, f32 body(%0: i32, %1: f32, %2: f32) "
            "{\n%3 = add %2, %1 : f32\nyield %1, %3\n}\nuse %r, %r2"
        ),
        (
            "%r, %r2 = for %i, %j, %n, inits=[%f, %g] : f32, f32 body(%0: i32, %1: f32, %2: f32) "
            "{\n%3 = add %2, %f : f32\nyield %f, %3\n}\nuse %f, %r2"
        ),
    ),
    # while
    (
        "%r, %r2 = while %f : f32, f32 before(%0: f32) {\n%1 = constant false : i1\n"
        "%2 = neg %0 : f32\ncondition %1, values=[%2, %0]\n} "
        "after(%0: f32, %1: f32) {\nyield %1\n}\nuse %r, %r2",
        "%2 = neg %f : f32\nuse %2, %f",
    ),
    (
        "%r = while %i : f32 before(%0: i32) {\n%1 = cmp %0, %j {predicate = lt} : i1\n"
        "condition %1, values=[%f]\n} "
        "after(%0: f32) {\nstore %p, %0\n%1 = cast %0 : i32\nyield %1\n}\nuse %r",
        "%r = while %i : f32 before(%0: i32) {\n%1 = cmp %0, %j {predicate = lt} : i1\n"
        "condition %1, values=[%f]\n} "
        "after(%0: f32) {\nstore %p, %f\n%1 = cast %f : i32\nyield %1\n}\nuse %f",
    ),
    (
        "%r, %r2 = while %i, %n : i32, i32 before(%0: i32, %1: i32) {\n"
        "%2 = cmp %0, %1 {predicate = lt} : i1\ncondition %2, values=[%0, %1]\n} "
        "after(%0: i32, %1: i32) {\n%2 = add %0, %1 : i32\nyield %2, %1\n}\nuse %r, %r2",
        "%r, %r2 = while %i, %n : i32, i32 before(%0: i32, %1: i32) {\n"
        "%2 = cmp %0, %n {predicate = lt} : i1\ncondition %2, values=[%0, %n]\n} "
        "after(%0: i32, %1: i32) {\n%2 = add %0, %n : i32\nyield %2, %n\n}\nuse %r, %n",
    ),
    # between bounds
    (
        "%x = constant 4 : i32\n%y = constant 7 : i32\n%z = min %n, %x : i32\n"
        "%a2 = constant 0 : i32\n%b2 = constant 1 : i32\n"
        "for %a2, %z, %b2 body(%0: i32) {\n%1 = rem %0, %y : i32\nuse %1\nyield\n}",
        (
            "%x = constant 4 : i32\n%z = min %n, %x : i32\n%a2 = constant 0 : i32\n"
            "%b2 = constant 1 : i32\nfor %a2, %z, %b2 body(%0: i32) {\nuse %0\nyield\n}"
        ),
    ),
    (
        (
            "%x = arange {start = 0, end = 8} : tile<8xi32>\n%y = constant 8 : i32\n"
            "%z = splat %y : tile<8xi32>\n%r = div %x, %z : tile<8xi32>\nuse %r"
        ),
        "%x = constant 0 : i32\n%y = splat %x : tile<8xi32>\nuse %y",
    ),
    (
        (
            "%x = program_id 0 : i32\n%y = constant 0 : i32\n"
            "%z = cmp %x, %y {predicate = ge} : i1\nuse %z"
        ),
        "%z = constant true : i1\nuse %z",
    ),
    # what a constant scales
    (
        (
            "%x = constant 3.0 : f32\n%y = constant inf : f32\n%z = mul %f, %x : f32\n"
            "%r = select %c, %y, %z : f32\nuse %r"
        ),
        (
            "%x = constant 3.0 : f32\n%y = constant inf : f32\n%z = select %c, %y, %f : f32\n"
            "%r = mul %z, %x : f32\nuse %r"
        ),
    ),
    (
        "%x = constant 3.0 : f32\n%y = splat %x : tile<4x8xf32>\n%z = mul %a, %y : tile<4x8xf32>\n"
        + _reduced("z", "max")
        + "%d = sub %z, %a : tile<4x8xf32>\nuse %r, %d",
        "%x = constant 3.0 : f32\n%y = splat %x : tile<4x8xf32>\n%z = mul %a, %y : tile<4x8xf32>\n"
        + _reduced("a", "max")
        + (
            "%x3 = constant 3.0 : f32\n%y2 = splat %x3 : tile<4xf32>\n"
            "%r2 = mul %r, %y2 : tile<4xf32>\n%d = sub %z, %a : tile<4x8xf32>\nuse %r2, %d"
        ),
    ),
    (
        (
            "%x = constant 0.125 : f32\n%y = constant 3.0 : f32\n%z = mul %f, %x : f32\n"
            "%d = mul %z, %y : f32\n%r = sub %d, %g : f32\n%q2 = exp2 %r : f32\nuse %q2"
        ),
        (
            "%x = constant 0.375 : f32\n%d = mul %f, %x : f32\n%r = sub %d, %g : f32\n"
            "%q2 = exp2 %r : f32\nuse %q2"
        ),
    ),
    (
        "%z = constant 3 : i64\n"
        "%d = make_descriptor %p, shape=[%l, %z], strides=[%z, %l] : desc<4x8xf32>\n"
        "%x = descriptor_extent %d {axis = 0} : i64\n%y = descriptor_stride %d {axis = 0} : i64\n"
        "use %x, %y",
        "%z = constant 3 : i64\nuse %l, %z",
    ),
    (
        "%z = constant 3 : i64\n"
        "%d = make_descriptor %p, shape=[%l, %z], strides=[%z, %l] : desc<4x8xf32>\n"
        "%x = descriptor_extent %d {axis = 1} : i64\n%y = descriptor_stride %d {axis = 1} : i64\n"
        "use %x, %y",
        "%z = constant 3 : i64\nuse %z, %l",
    ),
]

#: Near the laws, but not theirs.
UNTOUCHED: list[str] = [
    "%x = constant 0.0 : f32\n%y = add %f, %x : f32\nuse %y",  # -0.0 + 0.0 = 0.0
    "%x = constant -0.0 : f32\n%y = sub %f, %x : f32\nuse %y",  # -0.0 - -0.0 = 0.0
    "%x = constant 0.0 : f32\n%y = sub %x, %f : f32\nuse %y",  # 0.0 - 0.0 is not -0.0
    "%x = constant 0.0 : f32\n%y = mul %f, %x : f32\nuse %y",  # NaN, infinity, signs
    "%y = sub %f, %f : f32\nuse %y",
    "%y = div %f, %f : f32\nuse %y",
    "%y = cmp %f, %f {predicate = eq} : i1\nuse %y",
    "%y = cmp %f, %f {predicate = ne} : i1\nuse %y",
    "%x = constant 3.0 : f32\n%y = div %f, %x : f32\nuse %y",
    "%x = constant 3.0 : f64\n%z = cast %f : f64\n%y = div %z, %x : f64\nuse %y",
    "%x = constant 0.0 : f32\n%y = div %f, %x : f32\nuse %y",
    # the divisor is infinite in f16
    "%x = constant 32768.0 : f16\n%y = constant 65536.0 : f16\n%z = div %h, %y : f16\nuse %x, %z",
    (
        "%x = constant 1.7014118346046923e+38 : f32\n%y = constant 1e-45 : f32\n"
        "%z = div %f, %y : f32\nuse %x, %z"
    ),  # 1 / c overflows
    (
        "%x = constant 1.0 : f32\n%y = constant 2.0 : f32\n%z = add %f, %x : f32\n"
        "%r = add %z, %y : f32\nuse %r"
    ),  # floats do not associate
    # a fused operation rounds where it stands; a product or sum in its place might be fused with
    # its neighbours
    "%x = constant 0.0 : f32\n%y = fma %f, %g, %x : f32\nuse %y",
    "%x = constant -0.0 : f32\n%y = fma %f, %g, %x : f32\nuse %y",
    "%x = constant 1.0 : f32\n%y = fma %f, %x, %g : f32\nuse %y",
    "%x = cast %f : f16\n%y = cast %x : f32\nuse %y",
    "%x = cast %i : i8\n%y = cast %x : i32\nuse %y",
    "%x = cast %i : f32\n%y = cast %x : i32\nuse %y",  # f32 does not hold every i32
    "%x = trunc %f : f32\n%y = cast %x : i1\nuse %y",  # 0.5 is not zero, its whole part is
    "%x = floor %f : f32\n%y = cast %x : i32\nuse %y",
    "%x = abs %f : f32\n%y = cast %x : f16\nuse %y",
    "%x = abs %h : f16\n%y = cast %x : f32\nuse %x, %y",
    "%x = cast %l : i32\n%y = cast %x : i1\nuse %y",  # a truncation may give zero
    "%x = cast %h : bf16\n%y = cast %x : f32\nuse %y",
    (
        "%x = constant 2147483647 : i32\n%y = addptr %p, %x : ptr<f32>\n"
        "%z = addptr %y, %x : ptr<f32>\nuse %z"
    ),  # the sum wraps
    "%x = constant inf : f32\n%y = min %f, %x : f32\nuse %y",  # NaN
    "%y = div %i, %i : i32\nuse %y",  # 0 / 0 is 0
    "%x = constant 1.0 : f32\n%y = exp %x : f32\nuse %y",  # only a bound on the error is promised
    "%y = reshape %a {reorder = true} : tile<8x4xf32>\nuse %y",
    # NaN
    "%x = cmp %f, %g {predicate = lt} : i1\n%z = constant true : i1\n%y = xor %x, %z : i1\nuse %y",
    (
        "%x = splat %f : tile<8xf32>\n%y = splat %g : tile<8xf32>\n"
        "%z = join %x, %y : tile<8x2xf32>\nuse %z"
    ),
    "%y = dot %a, %b, %k : tile<4x16xf32>\n%z = add %y, %k : tile<4x16xf32>\nuse %z",
    (
        "%x = constant 0.0 : f32\n%y = splat %x : tile<4x16xf32>\n"
        "%z = dot %a, %b, %y : tile<4x16xf32>\n%r = add %z, %k : tile<4x16xf32>\nuse %r, %z"
    ),
    # of a product before the loop the loop would make one an iteration
    "%x = constant 0.0 : f32\n%y = splat %x : tile<4x16xf32>\n"
    "%z = dot %a, %b, %y : tile<4x16xf32>\n"
    "%r = for %i, %j, %n, inits=[%k] : tile<4x16xf32> body(%0: i32, %1: tile<4x16xf32>) {\n"
    "%2 = add %z, %1 : tile<4x16xf32>\nyield %2\n}\nuse %r",
    "%y, %z = split %x2 : tile<8xf32>, tile<8xf32>\n%r = join %z, %y : tile<8x2xf32>\nuse %r",
    "%x = constant false : i1\n%y = load %p, mask=%x {volatile = true} : f32\nuse %y",
    (
        "%x = constant 0 : i32\n%y = constant 3 : i32\n%z = constant 2 : i32\n"
        "for %x, %y, %z body(%0: i32) {\nuse %0\nyield\n}"
    ),  # two trips
    # only scalars become selects
    "%y = if %c : tile<8xf32> then {\nyield %t\n} else {\nyield %s\n}\nuse %y",
    # an infinity in fp8 comes back finite
    "%x = cast %e5 : f32\n%y = cast %x : f8e5m2\nuse %y",
    "%y = max %e5, %e5 : f8e5m2\nuse %y",
    *[
        f"%x = constant {constant} : f8e5m2\n%y = {name} {operands} : f8e5m2\nuse %y"
        for name, constant, operands in (
            ("add", "-0.0", "%e5, %x"),
            ("sub", "0.0", "%e5, %x"),
            ("sub", "-0.0", "%x, %e5"),
            ("mul", "1.0", "%e5, %x"),
        )
    ],
    # bounds that leave both answers open, sums that may wrap, loops that count down
    "%x = constant 4 : i32\n%z = min %n, %x : i32\n%r = rem %z, %x : i32\nuse %r",
    (
        "%x = arange {start = 0, end = 9} : tile<9xi32>\n%y = constant 8 : i32\n"
        "%z = splat %y : tile<9xi32>\n%r = rem %x, %z : tile<9xi32>\nuse %r"
    ),
    (
        "%x = program_id 0 : i32\n%y = constant 1 : i32\n%z = add %x, %y : i32\n"
        "%r = cmp %z, %y {predicate = ge} : i1\nuse %r"
    ),
    (
        "%x = constant 9 : i32\n%y = constant -1 : i32\nfor %x, %n, %y body(%0: i32) {\n"
        "%1 = rem %0, %x : i32\nuse %1\nyield\n}"
    ),
    # a factor may be negative, its products be read by others; a sum is rounded as its terms are
    # scaled; positions of equal products are those of others
    *[
        (
            f"%x = constant {factor} : f32\n%y = splat %x : tile<4x8xf32>\n"
            "%z = mul %a, %y : tile<4x8xf32>\n"
        )
        + _reduced("z", name)
        + use
        for factor, name, use in (
            ("-3.0", "max", "use %r"),
            ("3.0", "add", "use %r"),
            ("3.0", "max", "use %r, %z"),
            ("inf", "max", "use %r"),
        )
    ],
    "%x = constant 3.0 : f32\n%y = splat %x : tile<4x8xf32>\n%z = mul %a, %y : tile<4x8xf32>\n"
    "%n2 = constant 0 : i32\n%n3 = splat %n2 : tile<4x8xi32>\n"
    "%r, %i2 = reduce %z, %n3 {axis = 1} : tile<4xf32>, tile<4xi32> combine(%0: f32, %1: i32, "
    "%2: f32, %3: i32) {\n"
    "%4 = max %0, %2 : f32\n%5 = max %1, %3 : i32\nyield %4, %5\n}\nuse %r, %i2",
    (
        "%x = constant 3.0 : f32\n%y = constant 1.0 : f32\n%z = mul %f, %x : f32\n"
        "%r = select %c, %y, %z : f32\nuse %r"
    ),
    # products that are rounded twice, or that others read, or whose exponential may overflow
    *[
        f"%x = constant {first} : f32\n%y = constant {second} : f32\n%z = mul %f, %x : f32\n"
        "%d = mul %z, %y : f32\n"
        f"%r = sub %d, %g : f32\n%q2 = exp2 %r : f32\n{use}"
        for first, second, use in (
            ("0.375", "3.0", "use %q2"),
            ("0.125", "3.0", "use %q2, %d"),
            ("0.125", "3.0", "use %q2, %z"),
            ("4.0", "3.0", "use %q2"),
            ("0.125", "1e+30", "use %q2"),
        )
    ],
    (
        "%x = constant 16 : i32\n%y = add %i, %x : i32\n"
        "%z = hint %y {divisibility = [16]} : i32\nuse %z"
    ),
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_law(before: str, after: str, check_pass: Callable[..., None]) -> None:
    check_pass(canonicalize, before, after)


@pytest.mark.parametrize("text", UNTOUCHED)
def test_untouched(text: str, check_pass: Callable[..., None]) -> None:
    check_pass(canonicalize, text, text)


@pytest.mark.parametrize(("before", "after"), CASES)
def test_twice_is_once(before: str, after: str, check_pass: Callable[..., None]) -> None:
    check_pass(canonicalize, after, after)


def test_every_law_has_a_case(kernel_of: Callable[[str], Module]) -> None:
    applied: set[str] = set()

    def recorded(rewrite: object) -> object:
        def apply(operation: object, rewriter: object) -> object:
            found = rewrite.apply(operation, rewriter)  # type: ignore[attr-defined]
            if found is not None:
                applied.add(rewrite.law)  # type: ignore[attr-defined]
            return found

        return dataclasses.replace(rewrite, apply=apply)  # type: ignore[type-var]

    rows = by_operation([recorded(rewrite) for rewrite in REWRITES])  # type: ignore[misc]

    def pass_(module: Module) -> bool:
        return any(Rewriter(rows).run(function) for function in module.functions.values())

    for before, _ in CASES:
        pass_(kernel_of(before))
    assert {rewrite.law for rewrite in REWRITES} == applied


def test_laws_are_stated_once() -> None:
    laws = [(rewrite.operations, rewrite.law) for rewrite in REWRITES]
    assert len(set(laws)) == len(laws)
