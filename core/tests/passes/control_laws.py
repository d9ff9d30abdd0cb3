"""Laws of control flow, bounds and scaling: text before and after canonicalize."""

from __future__ import annotations


def reduced(tile: str, name: str) -> str:
    """``%r``, the rows of a tile of 4x8 reduced by an operation."""
    return (
        f"%r = reduce %{tile} {{axis = 1}} : tile<4xf32> combine(%0: f32, %1: f32) {{\n"
        f"%2 = {name} %0, %1 : f32\nyield %2\n}}\n"
    )


CONTROL_LAWS: list[tuple[str, str]] = [
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
        + reduced("z", "max")
        + "%d = sub %z, %a : tile<4x8xf32>\nuse %r, %d",
        "%x = constant 3.0 : f32\n%y = splat %x : tile<4x8xf32>\n%z = mul %a, %y : tile<4x8xf32>\n"
        + reduced("a", "max")
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
