"""Texts that canonicalize leaves as they are."""

from __future__ import annotations

from control_laws import reduced

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
        + reduced("z", name)
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
