"""Laws of arithmetic, comparisons, choices and casts: text before and after canonicalize."""

from __future__ import annotations

ARITHMETIC_LAWS: list[tuple[str, str]] = [
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
]
