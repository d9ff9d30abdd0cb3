"""The operations and types of the toolkit in text: what reads back, and what is refused with which
words."""

from __future__ import annotations

import pickle

import pytest

from tilewright.ir.parser import ParseError, parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import VerificationError, verify
from tilewright.simt.dialect.ops import OPS, SIMT_TABLE
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout

HEAD = """tilewright.ir 1.0
#L0 = layout<8x8, registers [], lanes [(0,1) (0,2) (0,4) (1,0) (2,0)], warps [(4,0)]>
#S0 = shared<8x8>
#S1 = shared<8x8, 1 2 4 9 18 36>

"""
ARGUMENTS = """%i: i32, %k: i64, %c: i1, %f: f32, %p: ptr<f32>, %d: desc<8x8xf32>,
  %x: tile<8x8xf32, #L0>, %h: tile<8x8xf16, #L0>, %t: tile<8x8xptr<f32>, #L0>, %m: tile<8x8xi1, #L0>, %w: tile<16x8xf32>,
  %buffer: buffer<4 x 8x8xf32, #S0>, %slot: slot<8x8xf32, #S0>, %half: slot<8x8xf16, #S1>, %barriers: barriers<4>,
  %sums: accumulator<8x8xf32>, %row: desc<1x8xf32>, %numbers: slot<8xi32, shared<8>>, %copies: token<copies>, %matmuls: token<matmuls>"""


def check(*lines: str) -> None:
    """Read a kernel of some lines, verify it, and read what it prints."""
    module = parse_module(
        HEAD
        + f"kernel @k({ARGUMENTS}) attributes {{warps = 2}} {{\n"
        + "\n".join(lines)
        + "\nreturn\n}",
        SIMT_TABLE,
    )
    verify(module)
    text = print_module(module)
    assert print_module(parse_module(text, SIMT_TABLE)) == text


# ---- types and layouts


@pytest.mark.parametrize(
    "type_",
    [
        "slot<8x8xf32, #S0>",
        "slot<8x8xptr<f32>, #S1>",
        "slot<16xptr<f16, shared>, shared<16, 2 1 4 8>>",
        "buffer<3 x 8x8xi1, #S1>",
        "token<copies>",
        "token<vendor_queue>",
        "barriers<4>",
        "accumulator<16x8xf32>",
        (
            "tile<8x8xf32, layout<8x8, registers [(0,1)], lanes [(1,1)], warps [], blocks [(4,0) "
            "(0,0)]>>"
        ),
    ],
)
def test_types_read_back(type_: str) -> None:
    module = parse_module(HEAD + f"kernel @k(%a: {type_}) {{ return }}", SIMT_TABLE)
    text = print_module(module)
    again = parse_module(text, SIMT_TABLE)
    assert print_module(again) == text
    (first,), (second,) = module.kernel.arguments, again.kernel.arguments
    assert first.type is second.type and first.layout == second.layout
    assert pickle.loads(pickle.dumps(first.type)) is first.type


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("slot<8x8xf32>", "'8x8xf32' is no tile in shared memory: 'EXTENTSxELEMENT, LAYOUT' is"),
        ("slot", "'' is no tile in shared memory"),
        ("slot<8x8xf32, #S7>", "#S7 is not defined before it is read here; did you mean #S1?"),
        ("slot<8x8xf32, #L0>", "#L0 is no layout of shared memory"),
        ("slot<8x4xf32, #S0>", "a tile of 8x4 in shared memory cannot have a layout of 8x8"),
        ("slot<64xf32, #S0>", "a tile of 64 in shared memory cannot have a layout of 8x8"),
        (
            "buffer<8x8xf32, #S0>",
            "'8x8xf32, #S0' is no buffer: 'COUNT x EXTENTSxELEMENT, LAYOUT' is",
        ),
        ("buffer<0 x 8x8xf32, #S0>", "a buffer has one slot at least, not 0"),
        ("token", "a queue is named by an identifier, not ''"),
        ("token<a b>", "a queue is named by an identifier, not 'a b'"),
        ("barriers<0>", "there is one barrier at least, not 0"),
        ("accumulator<f32>", "'f32' is no accumulator: 'EXTENTSxELEMENT' is"),
        ("barriers<x>", "'x' is no number of barriers"),
        (
            "tile<8x8xf32, #S0>",
            (
                "a value of type tile<8x8xf32> is held by threads: a layout of shared memory is "
                "for slots and buffers"
            ),
        ),
        ("tile<64xf32, #L0>", "a value of type tile<64xf32> cannot have a layout of 8x8"),
        ("tile<8x8xf32, layout<64>>", "'64' is no layout"),
        (
            "tile<8x8xf32, layout<8x8, registers [(1)], lanes [], warps []>>",
            "each image has a coordinate below the extent for each axis",
        ),
        (
            "tile<8x8xf32, layout<8x8, registers [(8,0)], lanes [], warps []>>",
            "each image has a coordinate below the extent for each axis",
        ),
        (
            "tile<8x8xf32, layout<8x8, registers [(1,0) (1,1) (0,1)], lanes [], warps []>>",
            "a thread holds an element once",
        ),
        ("tile<6xf32, layout<6, registers [], lanes [], warps []>>", "6 is not a power of two"),
        ("slot<8xf32, shared<8, 1 2 3>>", "3 independent images below 8 are"),
        ("slot<8xf32, shared<8, 1 2>>", "3 independent images below 8 are"),
        ("slot<8xf32, shared<8, 1 2 8>>", "3 independent images below 8 are"),
        ("slot<8xf32, shared<8, 1 2 x>>", "3 independent images below 8 are"),
    ],
)
def test_what_is_no_type_is_refused_where_it_begins(type_: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(HEAD + f"kernel @k(%a: {type_}) {{ return }}", SIMT_TABLE)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (6, 15)


def test_texts_of_layouts_are_those_of_their_classes() -> None:
    layout = LinearLayout((4, 8), (1, 2), (4, 8), (16,), (0,))
    assert (
        layout.text()
        == "4x8, registers [(0,1) (0,2)], lanes [(0,4) (1,0)], warps [(2,0)], blocks [(0,0)]"
    )
    assert LinearLayout.parse(layout.text()) == layout
    assert SharedLayout.row_major((4, 8)).text() == "4x8"
    assert SharedLayout.parse("4x8, 1 2 4 9 18") == SharedLayout((4, 8), (1, 2, 4, 9, 18))


# ---- operations

_STEP = 'plan = "p", shape = [8, 8], k = 8, a = f32, b = f32, c = f32'

#: name -> (a text that keeps the rules, [(one that does not, what is said of it)])
CASES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "simt.convert": (
        "%r = simt.convert %x : tile<8x8xf32>",
        [("%r = simt.convert %x : tile<8x8xf16>", "by its rule (tile<8x8xf32>)")],
    ),
    "simt.buffer": (
        "%r = simt.buffer {alignment = 1024} : buffer<4 x 8x8xf32, #S1>",
        [("%r = simt.buffer : slot<8x8xf32, #S0>", "the result must be a buffer")],
    ),
    "simt.release": ("simt.release %buffer", [("simt.release %slot", "buffer must be a buffer")]),
    "simt.stagger": ("simt.stagger {later = true}", []),
    "simt.keep_order": ("simt.keep_order {everything = true}", []),
    "simt.phase": ("simt.phase {matmuls = false}", []),
    "simt.slot": (
        "%r = simt.slot %buffer, %i : slot<8x8xf32, #S0>",
        [
            ("%r = simt.slot %slot, %i : slot<8x8xf32, #S0>", "buffer must be a buffer"),
            (
                "%r = simt.slot %buffer, %f : slot<8x8xf32, #S0>",
                "index must be an integer, not f32",
            ),
            (
                "%r = simt.slot %buffer, %i : slot<8x8xf32, #S1>",
                "by its rule (slot<8x8xf32, shared<8x8>>)",
            ),
        ],
    ),
    "simt.view": (
        "%r = simt.view %slot : slot<64xf32, shared<64>>",
        [
            (
                "%r = simt.view %slot : slot<32xf32, shared<32>>",
                "a slot of as many elements of the same type",
            ),
            (
                "%r = simt.view %slot : slot<64xi32, shared<64>>",
                "a slot of as many elements of the same type",
            ),
            ("%r = simt.view %x : slot<64xf32, shared<64>>", "x must be a slot"),
        ],
    ),
    "simt.load": (
        "%r = simt.load %slot : tile<8x8xf32, #L0>",
        [("%r = simt.load %buffer : tile<8x8xf32>", "slot must be a slot")],
    ),
    "simt.store": (
        "simt.store %slot, %x",
        [("simt.store %slot, %h", "x must be tile<8x8xf32>, not tile<8x8xf16>")],
    ),
    "simt.tensor": (
        "%r = simt.tensor %p, shape=[%k, %k], strides=[%k, %k] : desc<8x4xf32>",
        [
            (
                "%r = simt.tensor %p, shape=[%k, %k], strides=[%k, %k] : slot<8x8xf32, #S0>",
                "the result must be a descriptor",
            ),
            (
                "%r = simt.tensor %p, shape=[%k, %k], strides=[%k, %k] : desc<8x4xf16>",
                "base must be a pointer to f16, not ptr<f32>",
            ),
            (
                "%r = simt.tensor %t, shape=[%k, %k], strides=[%k, %k] : desc<8x4xf32>",
                "base must be a pointer to f32, not tile",
            ),
            (
                "%r = simt.tensor %p, shape=[%k], strides=[%k, %k] : desc<8x4xf32>",
                "shape must be 2 numbers of i64, not i64",
            ),
            (
                "%r = simt.tensor %p, shape=[%k, %k], strides=[%k, %i] : desc<8x4xf32>",
                "strides must be 2 numbers of i64, not i64, i32",
            ),
            ("%r = simt.tensor %p : desc<8x4xf32>", "shape must be 2 numbers of i64, not none"),
        ],
    ),
    "simt.descriptors": ("%r = simt.descriptors : i32", []),
    "simt.make_descriptor": (
        (
            "%r = simt.make_descriptor %i, %slot, %p, shape=[%k, %k], strides=[%k, %k] {padding "
            '= "nan"} : desc<8x4xf32>'
        ),
        [
            (
                (
                    "%r = simt.make_descriptor %f, %slot, %p, shape=[%k, %k], strides=[%k, %k] : "
                    "desc<8x4xf32>"
                ),
                "memory must be what simt.descriptors yields, not f32",
            ),
            (
                (
                    "%r = simt.make_descriptor %i, %buffer, %p, shape=[%k, %k], strides=[%k, %k] "
                    ": desc<8x4xf32>"
                ),
                "slot must be a slot",
            ),
            (
                (
                    "%r = simt.make_descriptor %i, %slot, %p, shape=[%k], strides=[%k, %k] : "
                    "desc<8x4xf32>"
                ),
                "shape must be 2 numbers of i64, not i64",
            ),
        ],
    ),
    "simt.show_descriptor": (
        "simt.show_descriptor %d",
        [("simt.show_descriptor %slot", "descriptor must be a descriptor, not slot")],
    ),
    "simt.free_descriptors": (
        "simt.free_descriptors %i",
        [("simt.free_descriptors %x", "memory must be what simt.descriptors yields, not tile")],
    ),
    "simt.copy_start": (
        'simt.copy_start %slot, %t, mask=%m {by = "queue", ordered = true}',
        [
            (
                'simt.copy_start %half, %t {by = "queue"}',
                "pointer must point to tile<8x8xf16>, not to tile<8x8xf32>",
            ),
            ('simt.copy_start %slot, %p {by = "queue"}', "pointer must be a tile of pointers"),
            ('simt.copy_start %slot, %t, mask=%x {by = "queue"}', "mask must be a tile of i1"),
            ("simt.copy_start %slot, %t", "attribute by is missing"),
        ],
    ),
    "simt.own_copy_start": (
        'simt.own_copy_start %slot, %t, mask=%m {by = "queue"}\n'
        'simt.own_copy_start %slot, %p, mask=%c {by = "queue"}',
        [
            (
                'simt.own_copy_start %half, %t {by = "queue"}',
                "pointer must point to f16, not be tile<8x8xptr<f32>",
            ),
            (
                'simt.own_copy_start %slot, %t, mask=%c {by = "queue"}',
                "mask must be i1 of the pointer's shape, not i1",
            ),
        ],
    ),
    "simt.own_load": (
        "%r = simt.own_load %slot : tile<8x8xf32, #L0>\n%q = simt.own_load %slot : f32",
        [("%r = simt.own_load %slot : f16", "the result must be of f32, not f16")],
    ),
    "simt.commit": (
        "%r = simt.commit : token<copies>\n%q = simt.commit : token<vendor>",
        [("%r = simt.commit : i32", "the result must be a token, not i32")],
    ),
    "simt.load_start": (
        "%r, %q = simt.load_start %t, mask=%m, other=%x : tile<8x8xf32, #L0>, token<loads>",
        [
            (
                "%r, %q = simt.load_start %t, other=%h : tile<8x8xf32, #L0>, token<loads>",
                "other must be tile<8x8xf32>",
            )
        ],
    ),
    "simt.block_load_start": (
        (
            "simt.block_load_start %slot, %d, %barriers, %i, offsets=[%i, %k], condition=%c {by "
            '= "bulk"}'
        ),
        [
            (
                'simt.block_load_start %slot, %d, %barriers, %i, offsets=[%i] {by = "bulk"}',
                "takes 2 offsets, not 1",
            ),
            (
                'simt.block_load_start %half, %d, %barriers, %i, offsets=[%i, %i] {by = "bulk"}',
                "slot must be one of tile<8x8xf32>",
            ),
            (
                'simt.block_load_start %slot, %p, %barriers, %i, offsets=[%i, %i] {by = "bulk"}',
                "descriptor must be a descriptor",
            ),
            (
                'simt.block_load_start %slot, %d, %i, %i, offsets=[%i, %i] {by = "bulk"}',
                "barriers must be barriers, not i32",
            ),
        ],
    ),
    "simt.block_store_start": (
        'simt.block_store_start %slot, %d, offsets=[%i, %i] {by = "bulk"}',
        [('simt.block_store_start %slot, %d, offsets=[] {by = "bulk"}', "takes 2 offsets, not 0")],
    ),
    "simt.rows_load_start": (
        'simt.rows_load_start %slot, %row, %numbers, %i, %barriers, %i {by = "bulk"}',
        [
            (
                'simt.rows_load_start %slot, %d, %numbers, %i, %barriers, %i {by = "bulk"}',
                "descriptor must be one of rows",
            ),
            (
                'simt.rows_load_start %half, %row, %numbers, %i, %barriers, %i {by = "bulk"}',
                "slot must be one of tile<8x8xf32>",
            ),
            (
                'simt.rows_load_start %slot, %row, %slot, %i, %barriers, %i {by = "bulk"}',
                "rows must be a slot of numbers of i32",
            ),
            (
                'simt.rows_load_start %slot, %row, %numbers, %c, %i, %i {by = "bulk"}',
                "barriers must be barriers, not i32",
            ),
        ],
    ),
    "simt.rows_store_start": (
        'simt.rows_store_start %slot, %row, %numbers, %i {by = "bulk"}',
        [
            (
                'simt.rows_store_start %half, %row, %numbers, %i {by = "bulk"}',
                "slot must be one of tile<8x8xf32>",
            )
        ],
    ),
    "simt.wait": (
        (
            "simt.wait tokens=[%copies]\n"
            "%r = simt.wait tokens=[%copies, %matmuls], tiles=[%x] : tile<8x8xf32, #L0>"
        ),
        [
            ("%r = simt.wait tiles=[%x] : tile<8x8xf32, #L0>", "takes one token at least"),
            ("simt.wait tokens=[%i]", "tokens must be tokens, not i32"),
            ("%r = simt.wait tokens=[%copies], tiles=[%i] : i32", "tiles must be tiles, not i32"),
        ],
    ),
    "simt.barriers": (
        "%r = simt.barriers {count = 2} : barriers<4>",
        [("%r = simt.barriers {count = 2} : i32", "the result must be barriers")],
    ),
    "simt.expect": (
        "simt.expect %barriers, %i, condition=%c {bytes = 64}",
        [("simt.expect %barriers, %i, condition=%i {bytes = 64}", "condition must be i1, not i32")],
    ),
    "simt.publish": ("simt.publish", []),
    "simt.rank": (
        "%r = simt.rank : i32",
        [("%r = simt.rank : i64", "has results (i64), by its rule (i32)")],
    ),
    "simt.uniform": (
        "%r = simt.uniform %i : i32",
        [("%r = simt.uniform %k : i32", "x must be i32")],
    ),
    "simt.arrive": (
        "simt.arrive %barriers, %k {at_all = true}",
        [("simt.arrive %i, %i", "barriers must be barriers, not i32")],
    ),
    "simt.await": (
        "simt.await %barriers, %i, %c, condition=%c {alone = true, stores = true}",
        [("simt.await %barriers, %i, %i", "phase must be i1, not i32")],
    ),
    "simt.dot": (
        '%r = simt.dot %slot, %x, %x {plan = "p", precision = tf32} : tile<8x8xf32, #L0>',
        [
            (
                '%r = simt.dot %w, %x, %x {plan = "p"} : tile<8x8xf32>',
                "tile<16x8xf32> times tile<8x8xf32> does not give tile<8x8xf32>",
            ),
            (
                '%r = simt.dot %i, %x, %x {plan = "p"} : tile<8x8xf32>',
                "a and b must be tiles or slots and c a tile",
            ),
            (
                '%r = simt.dot %slot, %slot, %slot {plan = "p"} : tile<8x8xf32>',
                "a and b must be tiles or slots and c a tile",
            ),
        ],
    ),
    "simt.dot_start": (
        (
            '%r, %q = simt.dot_start %half, %half, %x {plan = "p", overwrites = true} : '
            "tile<8x8xf32, #L0>, token<matmuls>"
        ),
        [
            (
                (
                    '%r, %q = simt.dot_start %half, %half, %x {plan = "p"} : tile<8x8xf32>, '
                    "token<copies>"
                ),
                "by its rule (tile<8x8xf32>, token<matmuls>)",
            )
        ],
    ),
    "simt.accumulators": ("%r = simt.accumulators {units = 32} : i32", []),
    "simt.accumulator": (
        "%r = simt.accumulator %i {first = 32} : accumulator<8x8xf32>",
        [
            (
                "%r = simt.accumulator %i {first = 0} : tile<8x8xf32>",
                "the result must be an accumulator, not tile<8x8xf32>",
            ),
            (
                "%r = simt.accumulator %k {first = 0} : accumulator<8x8xf32>",
                "memory must be what simt.accumulators yields, not i64",
            ),
        ],
    ),
    "simt.accumulator_load": (
        f"%r = simt.accumulator_load %sums, there=%c {{{_STEP}}} : tile<8x8xf32, #L0>",
        [
            (
                f"%r = simt.accumulator_load %x {{{_STEP}}} : tile<8x8xf32>",
                "accumulator must be one, not tile<8x8xf32>",
            ),
            (
                f"%r = simt.accumulator_load %sums, there=%i {{{_STEP}}} : tile<8x8xf32>",
                "there must be i1, not i32",
            ),
        ],
    ),
    "simt.accumulator_store": (
        f"simt.accumulator_store %sums, %x {{{_STEP}}}",
        [
            (
                f"simt.accumulator_store %sums, %h {{{_STEP}}}",
                "x must be tile<8x8xf32>, not tile<8x8xf16>",
            )
        ],
    ),
    "simt.dot_into": (
        'simt.dot_into %slot, %half, %sums, %c {plan = "p", precision = tf32}',
        [
            ('simt.dot_into %slot, %x, %sums, %c {plan = "p"}', "a and b must be slots"),
            ('simt.dot_into %slot, %half, %sums, %i {plan = "p"}', "adds must be i1, not i32"),
            ('simt.dot_into %slot, %half, %x, %c {plan = "p"}', "accumulator must be one"),
        ],
    ),
    "simt.arrive_after": (
        "simt.arrive_after %barriers, %i, condition=%c",
        [("simt.arrive_after %i, %i", "barriers must be barriers, not i32")],
    ),
    "simt.free_accumulators": (
        "simt.free_accumulators %i",
        [("simt.free_accumulators %k", "memory must be what simt.accumulators yields, not i64")],
    ),
    "simt.fragment": (
        f"%r = simt.fragment %slot {{{_STEP}, operand = 0, first = 4}} : tile<64xf32>",
        [
            (
                f"%r = simt.fragment %slot {{{_STEP}, operand = 0, first = 4}} : f32",
                "the result must be a tile, not f32",
            )
        ],
    ),
    "simt.dot_step": (
        f"%r = simt.dot_step %h, %h, %x {{{_STEP}}} : tile<8x8xf32, #L0>",
        [
            (
                f"%r = simt.dot_step %h, %h, %x {{{_STEP}}} : tile<8x8xf16>",
                "by its rule (tile<8x8xf32>)",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_operation_keeps_its_rule(name: str) -> None:
    good, bad = CASES[name]
    assert f"{name} " in f"{good} "
    check(good)
    for text, message in bad:
        with pytest.raises(VerificationError) as caught:
            check(text)
        assert message in str(caught.value) and str(caught.value).startswith(f"{name} in @k")


PART = "simt.part {{name = {name}, warps = {warps}}} body {{\n{body}\n{end}\n}}"
PARTITIONS = {
    "simt.partition": (
        "simt.partition parts {{\n{a}\n{b}\nyield\n}}",
        [
            (
                "simt.partition parts {{\n{a}\n%q = add %i, %i : i32\nyield\n}}",
                "holds parts only, not add",
            )
        ],
    ),
    "simt.part": (
        "simt.partition parts {{\n{a}\nyield\n}}",
        [
            ("{a}", "stands in a partition only"),
            ("simt.partition parts {{\n{none}\nyield\n}}", "has one warp at least"),
            (
                "simt.partition parts {{\n{outside}\nyield\n}}",
                "reads the tile x from outside: tiles go between parts through buffers",
            ),
        ],
    ),
    "simt.turn_wait": (
        (
            'simt.partition parts {{\nsimt.part {{name = "a", warps = 1}} body {{\n'
            'simt.turn_wait {{order = "o", place = 0, of = 2}}\nyield\n}}\nyield\n}}'
        ),
        [('simt.turn_wait {{order = "o", place = 0}}', "attribute of is missing")],
    ),
    "simt.turn_pass": (
        'simt.turn_pass {{order = "o", place = 1, of = 2}}',
        [("simt.turn_pass {{place = 1, of = 2}}", "attribute order is missing")],
    ),
}
PARTS = {
    "a": PART.format(
        name='"a"',
        warps=1,
        body="%one = constant 1 : i32\nsimt.arrive %barriers, %one",
        end="yield",
    ),
    "b": PART.format(
        name='"b"',
        warps=4,
        body="%y = simt.load %slot : tile<8x8xf32, #L0>\nsimt.store %slot, %y",
        end="yield",
    ),
    "none": PART.format(name='"n"', warps=0, body="", end="yield"),
    "outside": PART.format(name='"o"', warps=1, body="simt.store %slot, %x", end="yield"),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions_keep_their_rules(name: str) -> None:
    good, bad = PARTITIONS[name]
    check(good.format(**PARTS))
    for text, message in bad:
        with pytest.raises(VerificationError) as caught:
            check(text.format(**PARTS))
        assert message in str(caught.value) and str(caught.value).startswith(f"{name} in @k")


def test_every_operation_of_the_toolkit_is_here() -> None:
    assert {spec.name for spec in OPS} == {*CASES, *PARTITIONS}
