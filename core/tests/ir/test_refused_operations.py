"""Errors of the rules of single operations, at least one per operation, with their messages."""

from __future__ import annotations

import pytest

from tilewright.ir import TABLE, VerificationError, verify
from tilewright.ir.parser import parse_module

PRELUDE = """tilewright.ir 1.0
function @callee(%a: i32) -> i32 {
  return %a
}
kernel @k(%i: i32, %j: i64, %u: u32, %f: f32, %h: f16, %c: i1, %p: ptr<f32>, %q: ptr<i32>, %d: desc<4x8xf32>, %row: desc<1x8xf32>) {
  %t = splat %f : tile<8xf32>
  %t1 = splat %f : tile<1xf32>
  %t2 = splat %f : tile<4x8xf32>
  %th = splat %h : tile<8x8xf16>
  %ti = splat %i : tile<8xi32>
  %ti2 = splat %i : tile<4x8xi32>
  %tm = splat %c : tile<8xi1>
  %tp = splat %p : tile<8xptr<f32>>
  %tq = splat %q : tile<8xptr<i32>>
"""

#: operation -> cases of (text, the rule that is broken)
CASES: dict[str, list[tuple[str, str]]] = {
    "constant": [
        ("%x = constant 1 : f32", "a constant of f32 is a float, not 1"),
        ("%x = constant 1 : i1", "an i1 constant is true or false, not 1"),
        ("%x = constant true : i32", "a constant of i32 is an integer, not True"),
        ("%x = constant 2147483648 : i32", "constant 2147483648 is out of range of i32"),
        ("%x = constant -1 : u8", "constant -1 is out of range of u8"),
        ("%x = constant 8 : ptr<f32>", "the only pointer constant is the null pointer 0, not 8"),
        ("%x = constant 1 : tile<8xi32>", "a constant is a scalar, not tile<8xi32>"),
        ('%x = constant "a" : i32', "attribute value must be number, not 'a'"),
        ("%x = constant {} : i32", "attribute value is missing"),
    ],
    "arange": [
        (
            "%x = arange {start = 4, end = 4} : tile<1xi32>",
            "end must be greater than start, got 4 and 4",
        ),
        (
            "%x = arange {start = 0, end = 2147483649} : tile<2147483649xi32>",
            "start and end must fit int32",
        ),
        (
            "%x = arange {start = 0, end = 8} : tile<4xi32>",
            "has results (tile<4xi32>), by its rule (tile<8xi32>)",
        ),
    ],
    "program_id": [("%x = program_id 3 : i32", "axis must be 0, 1 or 2, not 3")],
    "num_programs": [("%x = num_programs -1 : i32", "axis must be 0, 1 or 2, not -1")],
    "add": [
        ("%x = add %i, %j : i32", "operands must have one type, not i32 and i64"),
        ("%x = add %i, %u : i32", "operands must have one type, not i32 and u32"),
        ("%x = add %p, %p : ptr<f32>", "operands must hold numbers, not ptr<f32>"),
        ("%x = add %c, %c : i1", "i1 has no arithmetic: use and, or, xor"),
    ],
    "sub": [
        ("%x = sub %t, %f : tile<8xf32>", "operands must have one type, not tile<8xf32> and f32")
    ],
    "mul": [
        (
            "%x = mul %t, %t2 : tile<8xf32>",
            "operands must have one type, not tile<8xf32> and tile<4x8xf32>",
        )
    ],
    "div": [("%x = div %f, %h : f32", "operands must have one type, not f32 and f16")],
    "rem": [("%x = rem %tm, %tm : tile<8xi1>", "i1 has no arithmetic: use and, or, xor")],
    "neg": [("%x = neg %c : i1", "i1 has no negative")],
    "abs": [
        ("%x = abs %tp : tile<8xptr<f32>>", "operands must hold numbers, not tile<8xptr<f32>>")
    ],
    "and": [("%x = and %f, %f : f32", "operands must hold integers, not f32")],
    "or": [("%x = or %i, %c : i32", "operands must have one type, not i32 and i1")],
    "xor": [("%x = xor %t, %t : tile<8xf32>", "operands must hold integers, not tile<8xf32>")],
    "shl": [("%x = shl %f, %f : f32", "operands must hold integers, not f32")],
    "shr": [("%x = shr %j, %i : i64", "operands must have one type, not i64 and i32")],
    "mulhi": [("%x = mulhi %c, %c : i1", "operands must be 32 or 64 bits wide, not i1")],
    "min": [("%x = min %p, %p : ptr<f32>", "operands must hold numbers, not ptr<f32>")],
    "max": [
        (
            "%x = max %f, %f {nan = maybe} : f32",
            "attribute nan must be one of 'ignore', 'propagate', not 'maybe'",
        )
    ],
    "cmp": [
        ("%x = cmp %i, %j {predicate = lt} : i1", "operands must have one type, not i32 and i64"),
        (
            "%x = cmp %i, %i {predicate = ult} : i1",
            "attribute predicate must be one of 'eq', 'ne', 'lt', 'le', 'gt', 'ge', not 'ult'",
        ),
        ("%x = cmp %i, %i : i1", "attribute predicate is missing"),
        ("%x = cmp %t, %t {predicate = lt} : i1", "has results (i1), by its rule (tile<8xi1>)"),
    ],
    "select": [
        ("%x = select %c, %i, %j : i32", "both choices must have one type, not i32 and i64"),
        ("%x = select %c, %t, %t : tile<8xf32>", "condition must be tile<8xi1>, not i1"),
    ],
    "fma": [("%x = fma %i, %i, %i : i32", "operands must hold floats, not i32")],
    "cast": [
        ("%x = cast %p : f32", "operand must hold numbers, not ptr<f32>"),
        ("%x = cast %f : ptr<f32>", "result must hold numbers, not ptr<f32>"),
        ("%x = cast %t : f16", "operand and result must have one shape, not tile<8xf32> and f16"),
        (
            "%x = cast %h {rounding = rtz} : f32",
            "rounding rtz is only for a float made narrower, not f16 to f32",
        ),
        ("%x, %y = cast %h : f32, f32", "has one result, not 2"),
    ],
    "bitcast": [
        ("%x = bitcast %f : i64", "operand and result must have one width, not f32 and i64")
    ],
    "addptr": [
        ("%x = addptr %i, %i : i32", "pointer must be a pointer or a tile of pointers, not i32"),
        ("%x = addptr %p, %f : ptr<f32>", "offset must hold integers, not f32"),
        (
            "%x = addptr %tp, %i : tile<8xptr<f32>>",
            "pointer and offset must have one shape, not tile<8xptr<f32>> and i32",
        ),
    ],
    **{
        name: [(f"%x = {name} %h : f16", "operand must be f32 or f64, not f16")]
        for name in (
            "exp",
            "exp2",
            "log",
            "log2",
            "sin",
            "cos",
            "tanh",
            "erf",
            "sqrt",
            "rsqrt",
            "floor",
            "ceil",
            "round_even",
            "trunc",
        )
    },
    "copysign": [("%x = copysign %h, %h : f16", "operand must be f32 or f64, not f16")],
    "ldexp": [
        ("%x = ldexp %f, %j : f32", "exponent must be i32, not i64"),
        ("%x = ldexp %h, %i : f16", "x must be f32 or f64, not f16"),
        ("%x = ldexp %i, %i : i32", "x must hold floats, not i32"),
    ],
    "clz": [("%x = clz %f : f32", "operands must hold integers, not f32")],
    "popcount": [("%x = popcount %f : f32", "operands must hold integers, not f32")],
    "splat": [
        ("%x = splat %t : tile<8xf32>", "operand must be a scalar, not tile<8xf32>"),
        ("%x = splat %f : tile<8xi32>", "the result's element must be f32, not i32"),
        ("%x = splat %f : f32", "result must be a tile, not f32"),
    ],
    "unsplat": [("%x = unsplat %t : f32", "operand must have one element, not tile<8xf32>")],
    "broadcast": [
        (
            "%x = broadcast %t : tile<16xf32>",
            "only extents of 1 grow, and the rank stays: not tile<8xf32> to tile<16xf32>",
        ),
        (
            "%x = broadcast %t1 : tile<4x4xf32>",
            "only extents of 1 grow, and the rank stays: not tile<1xf32> to tile<4x4xf32>",
        ),
        (
            "%x = broadcast %t1 : tile<4xi32>",
            "operand and result must have one element type, not tile<1xf32> and tile<4xi32>",
        ),
    ],
    "expand_dims": [("%x = expand_dims %t {axis = 2} : tile<8x1xf32>", "axis 2 is not in 0..1")],
    "reshape": [
        (
            "%x = reshape %t : tile<4xf32>",
            "operand and result must have as many elements, not tile<8xf32> and tile<4xf32>",
        )
    ],
    "permute": [
        (
            "%x = permute %t2 {order = [0, 0]} : tile<4x4xf32>",
            "order (0, 0) is not a permutation of the 2 axes of tile<4x8xf32>",
        )
    ],
    "cat": [
        (
            "%x = cat %t, %t2 {axis = 0} : tile<8xf32>",
            "operands must have one element type and rank, not tile<8xf32> and tile<4x8xf32>",
        ),
        (
            "%x = cat %t, %ti {axis = 0} : tile<16xf32>",
            "operands must have one element type and rank, not tile<8xf32> and tile<8xi32>",
        ),
        ("%x = cat %t, %t {axis = 1} : tile<16xf32>", "axis 1 is not in 0..0"),
    ],
    "join": [("%x = join %f, %f : tile<2xf32>", "operands must be a tile, not f32")],
    "split": [("%x, %y = split %t : f32, f32", "the last extent must be 2, not tile<8xf32>")],
    "gather": [
        (
            "%x = gather %t, %t {axis = 0} : tile<8xf32>",
            "index must hold integers, not tile<8xf32>",
        ),
        (
            "%x = gather %t, %ti2 {axis = 0} : tile<4x8xf32>",
            "x and index must have one rank, not tile<8xf32> and tile<4x8xi32>",
        ),
    ],
    "histogram": [
        ("%x = histogram %t {bins = 4} : tile<4xi32>", "x must hold integers, not tile<8xf32>"),
        ("%x = histogram %ti2 {bins = 4} : tile<4xi32>", "x must have rank 1, not tile<4x8xi32>"),
        ("%x = histogram %ti, mask=%c {bins = 4} : tile<4xi32>", "mask must be tile<8xi1>, not i1"),
        ("%x = histogram %ti {bins = 0} : tile<1xi32>", "bins must be at least 1, not 0"),
    ],
    "load": [
        (
            "%x = load %t : tile<8xf32>",
            "pointer must be a pointer or a tile of pointers, not tile<8xf32>",
        ),
        ("%x = load %tp, mask=%c : tile<8xf32>", "mask must be tile<8xi1>, not i1"),
        ("%x = load %tp, other=%t : tile<8xf32>", "other needs a mask"),
        (
            "%x = load %tp, mask=%tm, other=%ti : tile<8xf32>",
            "other must be tile<8xf32>, not tile<8xi32>",
        ),
        (
            "%x = load %tp {cache = wb} : tile<8xf32>",
            "attribute cache must be one of '', 'ca', 'cg', 'cs', 'cv', not 'wb'",
        ),
    ],
    "store": [
        ("store %tp, %f", "value must be tile<8xf32>, not f32"),
        ("store %tp, %t, mask=%ti", "mask must be tile<8xi1>, not tile<8xi32>"),
    ],
    "atomic_rmw": [
        ("%x = atomic_rmw %p, %f {kind = and} : f32", "an atomic and does not work on f32"),
        ("%x = atomic_rmw %p, %i {kind = add} : i32", "value must be f32, not i32"),
        (
            "%x = atomic_rmw %p, %f {kind = sub} : f32",
            (
                "attribute kind must be one of 'add', 'min', 'max', 'and', 'or', 'xor', 'xchg', "
                "not 'sub'"
            ),
        ),
    ],
    "atomic_load": [
        ("%x = atomic_load %q, mask=%tm : i32", "mask must be i1, not tile<8xi1>"),
        ("%x = atomic_load %i : i32", "pointer must be a pointer or a tile of pointers, not i32"),
    ],
    "atomic_store": [("atomic_store %q, %f", "value must be i32, not f32")],
    "clock": [],  # takes nothing and gives i64: see below
    "atomic_cas": [
        ("%x = atomic_cas %q, %f, %i : i32", "compare and value must be i32, not f32 and i32")
    ],
    "make_descriptor": [
        (
            "%x = make_descriptor %p, shape=[%j, %j], strides=[%j, %j] : desc<8xf32>",
            "shape must have 1 entries, not 2",
        ),
        ("%x = make_descriptor %p, shape=[%i], strides=[%j] : desc<8xf32>", "shape must be i64"),
        ("%x = make_descriptor %p, shape=[%j], strides=[%i] : desc<8xf32>", "strides must be i64"),
        (
            "%x = make_descriptor %p, shape=[%j], strides=[%j] : desc<8xf16>",
            "base must be a pointer to f16, not ptr<f32>",
        ),
        ("%x = make_descriptor %p : f32", "result must be a descriptor, not f32"),
    ],
    "descriptor_extent": [
        (
            "%x = descriptor_extent %d {axis = 2} : i64",
            "axis must be 0 to 1 for desc<4x8xf32>, not 2",
        ),
        (
            "%x = descriptor_extent %d {axis = -1} : i64",
            "axis must be 0 to 1 for desc<4x8xf32>, not -1",
        ),
        (
            "%x = descriptor_extent %p {axis = 0} : i64",
            "descriptor must be a descriptor, not ptr<f32>",
        ),
        ("%x = descriptor_extent %d : i64", "attribute axis is missing"),
    ],
    "descriptor_stride": [
        (
            "%x = descriptor_stride %row {axis = 2} : i64",
            "axis must be 0 to 1 for desc<1x8xf32>, not 2",
        ),
        (
            "%x = descriptor_stride %t {axis = 0} : i64",
            "descriptor must be a descriptor, not tile<8xf32>",
        ),
        ("%x = descriptor_stride %d {axis = true} : i64", "attribute axis must be int, not True"),
    ],
    "descriptor_load": [
        (
            "%x = descriptor_load %d, offsets=[%i] : tile<4x8xf32>",
            "offsets must have 2 entries, not 1",
        ),
        (
            "%x = descriptor_load %p, offsets=[%i] : tile<4x8xf32>",
            "descriptor must be a descriptor, not ptr<f32>",
        ),
        ("%x = descriptor_load %d, offsets=[%i, %f] : tile<4x8xf32>", "offsets must be integers"),
    ],
    "descriptor_store": [
        (
            "descriptor_store %d, offsets=[%i, %i], %t",
            "value must be tile<4x8xf32>, not tile<8xf32>",
        )
    ],
    "descriptor_reduce": [
        (
            "descriptor_reduce %d, offsets=[%i, %i], %t2 {kind = or}",
            "an atomic or does not work on f32",
        ),
        (
            "descriptor_reduce %d, offsets=[%i, %i], %t {kind = add}",
            "value must be tile<4x8xf32>, not tile<8xf32>",
        ),
    ],
    "descriptor_gather": [
        (
            "%x = descriptor_gather %d, %ti, %i : tile<8x8xf32>",
            "the descriptor's block must be one row, not desc<4x8xf32>",
        ),
        (
            "%x = descriptor_gather %row, %ti2, %i : tile<8x8xf32>",
            "rows must have rank 1, not tile<4x8xi32>",
        ),
        ("%x = descriptor_gather %row, %ti, %f : tile<8x8xf32>", "column must be an integer"),
    ],
    "descriptor_scatter": [
        ("descriptor_scatter %row, %ti, %i, %t2", "value must be tile<8x8xf32>, not tile<4x8xf32>")
    ],
    "dot": [
        (
            "%x = dot %t2, %t2, %t2 : tile<4x8xf32>",
            (
                "shapes must be [..., M, K], [..., K, N] and [..., M, N], not tile<4x8xf32>, "
                "tile<4x8xf32> and tile<4x8xf32>"
            ),
        ),
        (
            "%x = dot %th, %th, %t : tile<8xf32>",
            (
                "a, b and c must have one rank of at least 2, not tile<8x8xf16>, tile<8x8xf16> "
                "and tile<8xf32>"
            ),
        ),
        (
            "%x = dot %th, %t2, %t2 : tile<4x8xf32>",
            "a and b must have one element type, not tile<8x8xf16> and tile<4x8xf32>",
        ),
        ("%x = dot %ti2, %ti2, %ti2 : tile<4x8xi32>", "there is no dot of i32"),
        ("%x = dot %t2, %t2, %th : tile<8x8xf16>", "a dot of f32 does not accumulate in f16"),
    ],
    "dot_scaled": [
        (
            "%x = dot_scaled %th, %th, %t2 {a_format = e4m3, b_format = fp16} : tile<4x8xf32>",
            "a in format e4m3 must hold f8e4m3fn, not f16",
        ),
        (
            "%x = dot_scaled %th, %th, %t2 {a_format = fp16, b_format = fp16} : tile<4x8xf32>",
            "c must be tile<8x8xf32>, not tile<4x8xf32>",
        ),
        (
            (
                "%s = constant 1 : u8 %st = splat %s : tile<8x1xu8> %x = dot_scaled %th, "
                "a_scale=%st, %th, %t2 {a_format = fp16, b_format = fp16} : tile<4x8xf32>"
            ),
            "a's extent along K must be a multiple of the 32 elements that share a scale, not 8",
        ),
    ],
    "if": [
        ("if %i then { yield } else { yield }", "condition must be i1, not i32"),
        (
            "%x = if %c : i32 then { yield %i } else { yield %j }",
            "yield of region else must have types (i32), not (i64)",
        ),
        ("if %c then(%a: i32) { yield } else { yield }", "region then has no arguments"),
        ("if %c then { return } else { yield }", "region then must end with yield"),
    ],
    "for": [
        (
            "for %i, %j, %i body(%n: i32) { yield }",
            "lower, upper and step must have one integer type, not (i32, i64, i32)",
        ),
        (
            "for %f, %f, %f body(%n: f32) { yield }",
            "lower, upper and step must have one integer type, not (f32, f32, f32)",
        ),
        (
            "for %i, %i, %i body(%n: i64) { yield }",
            "arguments of region body must have types (i32), not (i64)",
        ),
        (
            "%x = for %i, %i, %i, inits=[%f] : f32 body(%n: i32, %a: f32) { yield %n }",
            "yield of region body must have types (f32), not (i32)",
        ),
    ],
    "while": [
        (
            (
                "%x = while %i : i32 before(%a: i32) { condition %c, values=[%a] } after(%a: "
                "i32) { yield %j }"
            ),
            "yield of region after must have types (i32), not (i64)",
        ),
        ("while before { yield } after { yield }", "region before must end with condition"),
        (
            (
                "%x = while %i : i64 before(%a: i32) { condition %c, values=[%a] } after(%a: "
                "i64) { yield %i }"
            ),
            "condition of region before must have types (i64), not (i32)",
        ),
    ],
    "reduce": [
        (
            "%x = reduce %t {axis = 1} : f32 combine(%a: f32, %b: f32) { yield %a }",
            "axis 1 is not in 0..0",
        ),
        (
            "%x = reduce %t {axis = 0} : f32 combine(%a: f32) { yield %a }",
            "arguments of region combine must have types (f32, f32), not (f32)",
        ),
        (
            "%x, %y = reduce %t, %t2 {axis = 0} : f32, f32 combine(%a: f32, %b: f32) { yield %a }",
            "inputs must have one shape, not (tile<8xf32>, tile<4x8xf32>)",
        ),
        ("reduce {axis = 0} combine { yield }", "takes at least one input"),
    ],
    "scan": [
        (
            "%x = scan %t {axis = -1} : tile<8xf32> combine(%a: f32, %b: f32) { yield %a }",
            "axis -1 is not in 0..0",
        ),
        (
            "%x = scan %t {axis = 0} : tile<8xf32> combine(%a: f32, %b: f32) { yield %i }",
            "yield of region combine must have types (f32), not (i32)",
        ),
    ],
    "map": [
        (
            "%x = map %t {pack = 3} : tile<8xf32> body(%a: f32) { yield %a }",
            "pack 3 must divide the 8 elements",
        ),
        (
            "%x = map %t {pack = 2} : tile<8xf32> body(%a: f32) { yield %a }",
            "arguments of region body must have types (f32, f32), not (f32)",
        ),
        (
            "%x = map %t : tile<4x8xf32> body(%a: f32) { yield %a }",
            "results must have the inputs' shape, not (tile<4x8xf32>)",
        ),
    ],
    "call": [
        (
            '%x = call %i {callee = "missing"} : i32',
            "calls @missing, which the module does not have",
        ),
        (
            '%x = call %j {callee = "callee"} : i32',
            "calls @callee with other argument types than it takes",
        ),
        (
            '%x = call %i {callee = "callee"} : i64',
            "calls @callee for other results than it returns",
        ),
        ('call %i {callee = "k"}', "calls the kernel @k"),
    ],
    "yield": [("if %c then { yield yield } else { yield }", "is a terminator and must come last")],
    "condition": [
        ("while before { condition %i } after { yield }", "condition must be i1, not i32")
    ],
    "return": [("return %i", "returns (i32) from a function of results ()")],
    "print": [
        ('print %d {prefix = ""}', "values must be scalars or tiles"),
        ("print %i", "attribute prefix is missing"),
    ],
    "assert": [
        ('assert %i {message = ""}', "condition must be i1, not i32"),
        ('assert %tm, mask=%c {message = ""}', "mask must be tile<8xi1>, not i1"),
    ],
    "assume": [("assume %tm", "condition must be i1, not tile<8xi1>")],
    "hint": [
        (
            "%x = hint %ti2 {divisibility = [8]} : tile<4x8xi32>",
            "divisibility has one entry an axis, not 1 for tile<4x8xi32>",
        ),
        ("%x = hint %ti {contiguity = [0]} : tile<8xi32>", "contiguity must be positive, not (0,)"),
    ],
    "inline_asm": [
        (
            '%x = inline_asm %t {assembly = "", constraints = ""} : tile<4x8xf32>',
            "inputs and results must have one shape",
        ),
        (
            '%x = inline_asm %t {assembly = "", constraints = "", pack = 0} : tile<8xf32>',
            "pack must be positive",
        ),
    ],
    "extern": [('%x = extern %t {symbol = "f"} : f32', "inputs and results must have one shape")],
    "barrier": [],  # takes nothing, so nothing can be wrong but its operands: see below
}


def test_every_operation_has_a_case() -> None:
    assert set(CASES) == {spec.name for spec in TABLE}


@pytest.mark.parametrize(
    ("name", "text", "rule"), [(name, *case) for name, cases in CASES.items() for case in cases]
)
def test_refused(name: str, text: str, rule: str) -> None:
    module = parse_module(f"{PRELUDE}{text}\n{'' if name == 'return' else 'return'}\n}}")
    with pytest.raises(VerificationError) as caught:
        verify(module)
    assert str(caught.value) == f"{name} in @k: {rule}"
    assert caught.value.operation is not None
    assert caught.value.operation.name == name


def test_prelude_is_accepted() -> None:
    verify(parse_module(f"{PRELUDE}return\n}}"))


_WORDS = frozenset(("i32", "u32", "i64", "u64"))
_FLOATS = frozenset(("f16", "bf16", "f32", "f64"))
_NARROW = frozenset(("i1", "i8", "u8", "f8e4m3fn", "f8e5m2"))
_HALVES = frozenset(("i16", "u16"))
_POINTERS = frozenset(("ptr<f32>",))
#: atomic -> the element types it works on
ATOMICS = {
    "add": _WORDS | _FLOATS,
    "min": _WORDS | _FLOATS,
    "max": _WORDS | _FLOATS,
    "and": _WORDS,
    "or": _WORDS,
    "xor": _WORDS,
    "xchg": _HALVES | _WORDS | _FLOATS | _POINTERS,
    "cas": _HALVES | _WORDS | _FLOATS | _POINTERS,
}


@pytest.mark.parametrize("element", sorted(_NARROW | _HALVES | _WORDS | _FLOATS | _POINTERS))
@pytest.mark.parametrize("kind", ATOMICS)
def test_element_types_of_atomics(kind: str, element: str) -> None:
    operation = (
        f"atomic_cas %p, %v, %v : {element}"
        if kind == "cas"
        else f"atomic_rmw %p, %v {{kind = {kind}}} : {element}"
    )
    text = (
        f"tilewright.ir 1.0\nkernel @k(%p: ptr<{element}>, %v: {element}) {{\n"
        f"  %x = {operation}\n  return\n}}\n"
    )
    if element in ATOMICS[kind]:
        verify(parse_module(text))
    else:
        with pytest.raises(
            VerificationError,
            match=r"an atomic (cas works on 16, 32 or 64 bits, not|\w+ does not work on)",
        ):
            verify(parse_module(text))
