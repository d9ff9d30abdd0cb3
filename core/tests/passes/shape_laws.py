"""Laws of shapes and masks: text before and after canonicalize."""

from __future__ import annotations

SHAPE_LAWS: list[tuple[str, str]] = [
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
]
