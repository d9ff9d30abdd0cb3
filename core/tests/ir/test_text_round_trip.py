"""Printing, and reading back what was printed."""

from __future__ import annotations

import math
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.ir import (
    TABLE,
    Attribute,
    Builder,
    Effect,
    Function,
    Kind,
    Location,
    Module,
    Operand,
    Operation,
    OpSpec,
    Region,
    Value,
    verify,
)
from tilewright.ir.hash import structural_hash
from tilewright.ir.parser import ParseError, parse_module
from tilewright.ir.printer import float_text, print_function, print_module, print_operation, quote
from tilewright.ir.types import F32, F64, I32, PointerType, TileType, Type
from tilewright_conformance.op_samples import samples


def assert_same_regions(a: Region, b: Region, values: dict[Value, Value]) -> None:
    """The regions agree in everything: types, hints, operands, attributes, locations."""

    def define(first: list[Value], second: list[Value]) -> None:
        assert [(value.type, value.name) for value in first] == [
            (value.type, value.name) for value in second
        ]
        values.update(zip(first, second, strict=True))

    define(a.arguments, b.arguments)
    assert len(a) == len(b)
    for first, second in zip(a, b, strict=True):
        assert first.spec is second.spec
        assert [values[operand] for operand in first.operands] == second.operands
        assert first.segments == second.segments
        assert first.location == second.location
        for declared in first.spec.attributes:
            found = first.attribute(declared.name), second.attribute(declared.name)
            assert type(found[0]) is type(found[1])
            if isinstance(found[0], float):
                assert struct.pack("<d", found[0]) == struct.pack("<d", found[1])
            else:
                assert found[0] == found[1]
        define(first.results, second.results)
        assert len(first.regions) == len(second.regions)
        for inner, other in zip(first.regions, second.regions, strict=True):
            assert other.owner is second
            assert_same_regions(inner, other, values)


def assert_same(a: Module, b: Module) -> None:
    assert (a.version, a.attributes, list(a.functions)) == (
        b.version,
        b.attributes,
        list(b.functions),
    )
    for first, second in zip(a.functions.values(), b.functions.values(), strict=True):
        assert (first.kernel, first.result_types, first.location) == (
            second.kernel,
            second.result_types,
            second.location,
        )
        assert first.argument_attributes == second.argument_attributes
        assert_same_regions(first.body, second.body, {})


def round_trip(module: Module) -> Module:
    text = print_module(module)
    read = parse_module(text)
    assert print_module(read) == text
    assert_same(module, read)
    assert structural_hash(read) == structural_hash(module)
    return read


@pytest.mark.parametrize("name", [spec.name for spec in TABLE])
def test_every_sample(name: str) -> None:
    for sample in samples(name):
        verify(round_trip(sample.module))
        bare = print_module(sample.module, locations=False)
        assert "loc(" not in bare
        assert print_module(parse_module(bare), locations=False) == bare


def kernel(*types: Type, names: tuple[str, ...] = ()) -> tuple[Module, Function, Builder]:
    module = Module()
    function = module.add(Function("k", types, argument_names=names))
    return module, function, Builder.at_end(function.body)


def finish(module: Module, b: Builder) -> Module:
    b.return_([])
    verify(module)
    return module


def test_the_form() -> None:
    module, function, b = kernel(PointerType(F32), I32, names=("x", "n"))
    function.argument_attributes[0] = {"divisibility": 16}
    module.attributes = {"target": "any", "warps": 4}
    b.location = Location("add.py", 12, 4, "add", Location("main.py", 30, 8))
    tile = TileType((1024,), I32)
    offsets = b.arange(start=0, end=1024)
    offsets.name = "offsets"
    mask = b.cmp(offsets, b.splat(function.arguments[1], result=tile), predicate="lt")
    pointers = b.addptr(
        b.splat(function.arguments[0], result=TileType((1024,), PointerType(F32))), offsets
    )
    b.location = None
    other = b.constant_like(TileType((1024,), F32), -math.inf)
    value = b.load(pointers, mask=mask, other=other, eviction="first")
    body = Region([I32, value.type], ["i", "acc"])
    with b.at_region(body):
        b.yield_([b.add(body.arguments[1], value)])
    zero, one = b.constant(value=0, result=I32), b.constant(value=1, result=I32)
    total = b.region_op(
        "for", zero, function.arguments[1], one, [value], regions=[body], num_stages=3
    ).result
    total.name = "acc"
    b.store(pointers, total, mask=mask)
    b.return_([])
    function.location = Location("add.py", 10)
    assert (
        print_module(module)
        == """\
tilewright.ir 1.0 {target = "any", warps = 4}

kernel @k(%x: ptr<f32> {divisibility = 16}, %n: i32) {
  %offsets = arange {start = 0, end = 1024} : tile<1024xi32> loc("add.py":12:4 in "add" at "main.py":30:8)
  %0 = splat %n : tile<1024xi32> loc("add.py":12:4 in "add" at "main.py":30:8)
  %1 = cmp %offsets, %0 {predicate = lt} : tile<1024xi1> loc("add.py":12:4 in "add" at "main.py":30:8)
  %2 = splat %x : tile<1024xptr<f32>> loc("add.py":12:4 in "add" at "main.py":30:8)
  %3 = addptr %2, %offsets : tile<1024xptr<f32>> loc("add.py":12:4 in "add" at "main.py":30:8)
  %4 = constant -inf : f32
  %5 = splat %4 : tile<1024xf32>
  %6 = load %3, mask=%1, other=%5 {eviction = first} : tile<1024xf32>
  %7 = constant 0 : i32
  %8 = constant 1 : i32
  %acc = for %7, %n, %8, inits=[%6] {num_stages = 3} : tile<1024xf32> body(%i: i32, %acc#1: tile<1024xf32>) {
    %9 = add %acc#1, %6 : tile<1024xf32>
    yield %9
  }
  store %3, %acc, mask=%1
  return
} loc("add.py":10:0)
"""
    )
    verify(round_trip(module))


def test_a_location_reads_the_same_however_it_is_spaced() -> None:
    plain = 'loc("a.py":1:22 in "f" at "b.py":333:4 at "c.py":5:6 in "g")'
    for spelled in (
        plain,
        plain.replace(" ", "  "),
        plain.replace(":", " :\n"),
        plain.replace("f", "\\u{66}"),
        plain.replace("333", "0000000000333"),
    ):
        (operation, _) = parse_module(
            f"tilewright.ir 1.0 kernel @k(%i: i32) {{ %a = neg %i : i32 {spelled} return }}"
        ).kernel.body
        assert operation.location == Location(
            "a.py", 1, 22, "f", Location("b.py", 333, 4, "", Location("c.py", 5, 6, "g"))
        ), spelled


def test_an_operation_is_named_as_in_the_whole() -> None:
    module = parse_module(
        "tilewright.ir 1.0 kernel @k(%i: i32) { %a = neg %i : i32 %0 = neg %a : i32 %1 = neg "
        "%0 : i32 return }"
    )
    last = module.kernel.body.last
    assert last is not None
    assert last.previous is not None
    assert print_operation(last.previous) == "%1 = neg %0 : i32"
    assert print_operation(last.previous, locations=False) in print_module(module)
    assert print_function(module.kernel) in print_module(module)


def test_malformed_modules_print() -> None:
    module, function, _ = kernel(I32)
    stranger = Operation(TABLE["neg"], [function.arguments[0]], (1,), {}, [I32])
    function.body.append(
        Operation(
            TABLE["add"], [stranger.result, function.arguments[0]], (1, 1), {"odd": (1, "a")}, [I32]
        )
    )
    assert '%1 = add %2, %0 {odd = [1, "a"]} : i32' in print_module(module)


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "t.0",
        "_",
        "größe",
        "0",
        "12",
        "a b",
        'quo"te',
        "back\\slash",
        "#1",
        "x#1",
        "new\nline",
        "nan",
        "loc",
        "\u2028",
        "😀",
    ],
)
def test_names_survive(name: str) -> None:
    module, function, b = kernel(I32, I32, names=(name, name))
    b.add(*function.arguments).name = name
    b.constant(value=1, result=I32)
    b.add(*function.arguments).name = ""
    read = round_trip(finish(module, b))
    assert [value.name for value in read.kernel.arguments] == [name, name]
    module.functions.clear()
    function.name = name
    module.add(function)
    verify(round_trip(module))


def test_equal_hints_in_regions_stay_apart() -> None:
    text = """tilewright.ir 1.0
    kernel @k(%x: tile<8xf32>) {
      %s = reduce %x {axis = 0} : f32 combine(%a: f32, %b: f32) { %c = add %a, %b : f32 yield %c }
      %t = reduce %x {axis = 0} : f32 combine(%a: f32, %b: f32) { %c = max %a, %b : f32 yield %c }
      return
    }"""
    printed = print_module(parse_module(text))
    assert "combine(%a: f32, %b: f32)" in printed
    assert "combine(%a#1: f32, %b#1: f32)" in printed
    round_trip(parse_module(text))


@given(st.floats(allow_nan=False))
def test_floats_survive(value: float) -> None:
    module, _, b = kernel()
    b.constant(value=value, result=F64)
    round_trip(finish(module, b))


@pytest.mark.parametrize(
    "bits",
    [
        0x7FF8000000000000,
        0xFFF8000000000000,
        0x7FF8000000000001,
        0x7FF0000000000001,
        0x7FF0000000000000,
        0xFFF0000000000000,
        1 << 63,
    ],
)
def test_special_floats_survive(bits: int) -> None:
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    module, _, b = kernel()
    b.constant(value=value, result=F32)
    round_trip(finish(module, b))


def test_float_text() -> None:
    values = (0.1, -0.0, 1e300, math.inf, -math.inf, math.nan)
    assert [float_text(value) for value in values] == [
        "0.1",
        "-0.0",
        "1e+300",
        "inf",
        "-inf",
        "nan",
    ]


@given(st.text(alphabet=st.characters(codec=None)))
def test_strings_survive(text: str) -> None:
    module, function, b = kernel(I32)
    b.location = Location(text, 1, 2, text, Location("a", 3))
    b.print([function.arguments[0]], prefix=text)
    round_trip(finish(module, b))


def test_quote() -> None:
    assert quote('a "b" \\ \n \x00 \ud800 é') == '"a \\"b\\" \\\\ \\n \\u{0} \\u{d800} é"'


def test_module_attributes_of_every_kind() -> None:
    module, _, b = kernel()
    module.attributes = {
        "int": -3,
        "big": 1 << 80,
        "true": True,
        "float": 1.0,
        "text": "a",
        "type": TileType((4,), PointerType(F32, "shared")),
        "scalar": F32,
        "nested": (1, (2.5, "x", F32), (), False),
        "odd name": "v",
    }
    read = round_trip(finish(module, b))
    assert read.attributes == module.attributes
    assert list(read.attributes) == list(module.attributes)
    assert [type(value) for value in read.attributes.values()] == [
        type(value) for value in module.attributes.values()
    ]


def test_functions_with_results() -> None:
    text = """\
tilewright.ir 1.0

function @pair(%a: i32 {divisibility = 8}, %b: f32) -> (i32, f32) {
  return %a, %b
}

function @one(%a: i32) -> i32 {
  return %a
}

function @none() {
  return
}

kernel @k(%i: i32, %f: f32) {
  %x, %y = call %i, %f {callee = "pair"} : i32, f32
  %z = call %x {callee = "one"} : i32
  call {callee = "none"}
  return
}
"""
    module = parse_module(text)
    verify(module)
    assert print_module(module) == text


def test_defaults_go_without_saying() -> None:
    module, function, b = kernel(F32)
    b.max(function.arguments[0], function.arguments[0], nan="ignore")
    function.body.last.attributes["nan"] = "ignore"  # type: ignore[union-attr]
    assert "ignore" not in print_module(finish(module, b))
    round_trip(module)


VENDOR = TABLE.extended(
    [
        OpSpec(
            "acme.tick",
            "a counter",
            (),
            lambda shape: (I32,),
            (Attribute("unit", "enum", choices=("cycles", "true")),),
        ),
        OpSpec(
            "acme.mix",
            "all kinds of operands",
            (
                Operand("a"),
                Operand("extra", kind=Kind.OPTIONAL),
                Operand("rest", kind=Kind.VARIADIC),
                Operand("b"),
            ),
            lambda shape: shape.results,
            (
                Attribute("mode", "enum", default="", choices=("", "fast mode", "nan", "slow")),
                Attribute("type", "type", default=F32),
                Attribute("scale", "float", default=1.0),
                Attribute("names", "strs", default=()),
            ),
            effects=Effect.REGION,
            regions=("first", "second.half"),
            explicit_results=True,
        ),
    ]
)


def test_vendor_operations() -> None:
    text = """\
tilewright.ir 1.0

kernel @k(%a: i32, %b: i32) {
  %0 = acme.tick "true" : i32
  %1 = acme.mix %a, extra=%b, rest=[%a, %b], %b {mode = "fast mode", type = tile<4xf16>, scale = -inf, names = ["x", "y"]} : i32 first(%c: i32) {
    yield %c
  } second.half {
    acme.mix %a, %b {mode = "nan", scale = 1e-05} first {
      yield
    } second.half {
      yield
    }
    yield
  }
  return
}
"""
    module = parse_module(text, VENDOR)
    verify(module)
    assert print_module(module) == text
    with pytest.raises(ParseError, match=r"there is no operation 'acme\.tick'"):
        parse_module(text)


def test_comments_and_layout_mean_nothing() -> None:
    text = (
        "tilewright.ir 1.0// version\nkernel @k ( %i : i32 ) { // a comment: }\n\n"
        " %x=add %i,%i:i32 return}"
    )
    assert (
        print_module(parse_module(text))
        == "tilewright.ir 1.0\n\nkernel @k(%i: i32) {\n  %x = add %i, %i : i32\n  return\n}\n"
    )


def test_errors_can_be_pickled() -> None:
    error = ParseError(3, 5, "expected ':'", "  %x = 1")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.line, copy.column, copy.message) == (str(error), 3, 5, "expected ':'")
