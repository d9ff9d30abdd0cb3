"""Barriers in shared memory and in kernels: where threads touch what other threads touched, and
nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from barrier_shapes import ARGUMENTS, TILE, module_of, placed, shape_of_barriers

from tilewright.ir import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.simt.analysis.async_hazards import FlightError
from tilewright.simt.assign_layouts.assign import assign
from tilewright.simt.compile import run_stages
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.emulator import EmulatedProxy, EmulatedTarget
from tilewright.simt.passes.allocate_shared import allocate
from tilewright.simt.passes.insert_membar import insert_barriers
from tilewright.testing.stage_text import read
from tilewright.testing.toy_targets import BulkTarget

Kernel = Callable[..., Module]


# ---- kernels


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", 0),
        ("add_mixed", 0),
        ("softmax", 0),
        ("layer_norm", 0),
        ("transpose", 0),
        ("matmul", 1),
    ],
)
def test_barriers_of_classic_kernels(
    kernel: Kernel, matrix_target: EmulatedTarget, name: str, expected: int
) -> None:
    """Beside those inside reductions and conversions. Of ``matmul``: the loop's second iteration
    writes what the first may still read."""
    module = kernel(name)
    assign(module.kernel, matrix_target, 4)
    allocate(module.kernel, matrix_target)
    insert_barriers(module.kernel, matrix_target)
    assert sum(operation.name == "barrier" for operation in module.kernel.walk()) <= expected


# ---- shared memory


REDUCE = (
    "%r{0} = reduce %y{1} {{axis = 0}} : f32 combine(%l{0}: f32, %m{0}: f32) {{\n"
    "%s{0} = add %l{0}, %m{0} : f32\nyield %s{0}\n}}\n"
)


def test_reductions_that_take_turns_need_no_barrier_between_them() -> None:
    one = "%y = load %here : tile<64xf32>\n" + REDUCE.format(1, "") + REDUCE.format(2, "")
    assert placed(module_of(one + "store %q, %r1\nstore %q, %r2")) == "LRRSS"
    loop = "for %zero, %n, %one body(%i: i32) {\n" + one + "store %q, %r1\nstore %q, %r2\nyield\n}"
    assert placed(module_of(loop)) == "{LRRSS}"


def test_a_reduction_alone_in_a_loop_waits_for_its_own_readers() -> None:
    loop = (
        "for %zero, %n, %one body(%i: i32) {\n%y = load %here : tile<64xf32>\n"
        + REDUCE.format(1, "")
        + "store %q, %r1\nyield\n}"
    )
    assert placed(module_of(loop)) == "{L|RS}"


RING = """
#L0 = layout<64, registers [], lanes [(1) (2) (4) (8) (16)], warps [(32)]>
#S0 = shared<64>
kernel @k(%p: ptr<f32>, %n: i32) attributes {{warps = 2}} {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %half = constant 0.5 : f32
  %filled = splat %half : tile<64xf32, #L0>
  %pointers = splat %p : tile<64xptr<f32>, #L0>
  %ring = simt.buffer : buffer<2 x 64xf32, #S0>
  %first = simt.commit : token<copies>
  %last = for %zero, %n, %one, inits=[%first] : token<copies> body(%i: i32, %token: token<copies>) {{
    %s = simt.slot %ring, %i : slot<64xf32, #S0>
    {body}
    yield %next
  }}
  return
}}
"""
LINES = {
    "w": "simt.wait tokens=[%token]",
    "c": 'simt.copy_start %s, %pointers {by = "queue"}\n%next = simt.commit : token<copies>',
    "o": (
        'simt.copy_start %s, %pointers {by = "queue", ordered = true}\n'
        "%next = simt.commit : token<copies>"
    ),
    "l": "%x = simt.load %s : tile<64xf32, #L0>",
    "s": "simt.store %s, %filled {ordered = true}",
    "|": "barrier",
}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("wcl", "{w|cl}"),
        ("wlc", "{w|l|c}"),
        ("cwl", "{|cw|l}"),
        ("c|wl", "{|c|w|l}"),  # a barrier before the wait does not count
        ("w|lc", "{w|l|c}"),
        ("w|ol", "{w|ol}"),
        ("owl", "{ow|l}"),  # nothing is asked of a copy that is ordered
    ],
)
def test_copies_are_seen_by_all_after_a_barrier_that_follows_the_wait(
    order: str, expected: str
) -> None:
    module = read(RING.format(body="\n".join(LINES[letter] for letter in order)))
    run_stages(module, EmulatedTarget(32), {"num_warps": 2}, ["allocate", "barriers"])
    assert shape_of_barriers(module.kernel.body) == expected


@pytest.mark.parametrize(
    ("order", "expected"), [("lsl", "{|lsl}"), ("sl", "{s|l}"), ("ls|", "{ls|}"), ("s|l", "{s|l}")]
)
def test_what_an_ordered_store_writes_is_read_in_later_iterations_only(
    order: str, expected: str
) -> None:
    lines = [LINES[letter].replace("%x", f"%x{number}") for number, letter in enumerate(order)]
    module = read(RING.format(body="\n".join([*lines, "%next = simt.commit : token<copies>"])))
    run_stages(module, EmulatedTarget(32), {"num_warps": 2}, ["allocate", "barriers"])
    assert shape_of_barriers(module.kernel.body) == expected


EXCHANGE = """
#L0 = layout<32x128, registers [(0,1) (8,0) (0,8) (0,16) (0,32) (0,64)], lanes [(0,2) (0,4) (1,0) (2,0) (4,0)], warps [(16,0)]>
#L1 = layout<32x128, registers [(0,1) (0,2) (0,4) (2,0) (4,0) (8,0)], lanes [(0,8) (0,16) (0,32) (0,64) (1,0)], warps [({0},0)]>
kernel @k(%n: i32) attributes {{warps = 2}} {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %half = constant 0.5 : f16
  %x = splat %half : tile<32x128xf16, #L0>
  for %zero, %n, %one body(%i: i32) {{
    {1}
    yield
  }}
  return
}}
"""


@pytest.mark.parametrize(
    ("row", "count", "expected"),
    [(16, 1, "{C}"), (16, 2, "{|C|C}"), (1, 1, "{|C}"), (1, 2, "{|C|C}")],
)
def test_conversions_within_warps_wait_for_no_other_warp(
    row: int, count: int, expected: str
) -> None:
    """Warps have scratch space of their own, which another conversion may share out differently."""
    registers = "(0,1) (0,2) (0,4) (2,0) (4,0) (8,0)"
    text = EXCHANGE.format(
        row, "\n".join(f"%y{i} = simt.convert %x : tile<32x128xf16, #L1>" for i in range(count))
    )
    other = registers.replace("(2,0)", "(16,0)") if row == 1 else registers
    module = read(text.replace(registers, other))
    run_stages(module, EmulatedTarget(32), {"num_warps": 2}, ["allocate", "barriers"])
    assert shape_of_barriers(module.kernel.body) == expected


OBJECTS = """
kernel @k(%n: i32) attributes {{warps = 2}} {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %first = constant false : i1
  for %zero, %n, %one body(%i: i32) {{
    {body}
    yield
  }}
  return
}}
"""
EXPECT, AWAIT = "simt.expect %b, %zero {bytes = 16}", "simt.await %b, %zero, %first"
MADE = "%b = simt.barriers 1 : barriers<2>"


@pytest.mark.parametrize(
    ("before", "inside", "expected"),
    [
        (MADE, f"{EXPECT}\n{AWAIT}", "{|}"),  # who still waits could miss the phase
        (MADE, f"{AWAIT}\n{EXPECT}", "{|}"),
        (MADE, f"{EXPECT}\nsimt.await %b, %one, %first", "{}"),  # another object
        (MADE, f"{EXPECT[:-1]}, ordered = true}}\n{AWAIT}", "{}"),
        (MADE, f"{EXPECT}\n{AWAIT} {{alone = true}}", "{}"),  # by the thread of expect_tx
        ("", f"{MADE}\n{EXPECT}\n{AWAIT}", "{|}"),  # the objects are made anew
    ],
)
def test_bytes_are_announced_when_nobody_waits_for_the_phase_before(
    before: str, inside: str, expected: str
) -> None:
    text = OBJECTS.format(body=inside).replace("  for ", f"  {before}\n  for ", 1)
    module = read(text)
    run_stages(module, EmulatedTarget(32), {"num_warps": 2}, ["allocate", "barriers"])
    assert shape_of_barriers(module.kernel.body) == expected


BLOCKS = """
#L0 = layout<8x8, registers [(0,1) (0,2)], lanes [(0,4) (1,0) (2,0)], warps [(4,0)]>
#L1 = layout<8x8, registers [(0,1) (0,2)], lanes [(4,0) (1,0) (2,0)], warps [(0,4)]>
#S0 = shared<8x8>
kernel @k(%d: desc<8x8xf32>, %n: i32) attributes {{warps = 2}} {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %f = constant 2.0 : f32
  %x = splat %f : tile<8x8xf32, #L0>
  %full = simt.barriers 1 : barriers<1>
  %A = simt.buffer : buffer<1 x 8x8xf32, #S0>
  %B = simt.buffer : buffer<1 x 8x8xf32, #S0>
  %a = simt.slot %A, %zero : slot<8x8xf32, #S0>
  %b = simt.slot %B, %zero : slot<8x8xf32, #S0>
  for %zero, %n, %one body(%i: i32) {{
    {body}
    yield
  }}
  %y = simt.load %b : tile<8x8xf32, #L0>
  simt.block_store_start %b, %d, offsets=[%zero, %zero] {{by = "bulk"}}
  return
}}
"""
BLOCK_LINES = {
    "s": "simt.store %a, %x",
    "t": "simt.store %b, %x",
    "b": 'simt.block_load_start %a, %d, offsets=[%zero, %zero], %full, %zero {by = "bulk"}',
    "l": "%v = simt.load %a : tile<8x8xf32, #L0>",
    "a": "simt.arrive %full, %zero",
    "p": (
        '%y, %t = simt.dot_start %a, %a, %x {plan = "toy.ss"} : tile<8x8xf32, #L0>, token<matmuls>'
    ),
    "w": "%z = simt.wait tokens=[%t], tiles=[%y] : tile<8x8xf32, #L0>",
    "c": "%u = simt.convert %x : tile<8x8xf32, #L1>",
    "|": "barrier",
}


@pytest.mark.parametrize(
    ("order", "published", "expected"),
    [
        ("sb", True, "{sp|b}l|b"),
        ("sb", False, "{s|b}l|b"),
        ("s|b", True, "{sp|b}l|b"),
        ("lb", True, "{lp|b}l|b"),  # a copy may not overtake reads either
        ("lb", False, "{l|b}l|b"),
        ("sa", True, "{|sa}lb"),  # nor what only they touch
        ("ta", True, "{|spa}|lb"),
        ("t", True, "{p|s}p|lb"),
        ("t|", True, "{sp|}lb"),
        (
            "scb",
            True,
            "{sCp|b}l|b",
        ),  # the conversion has a barrier and no fence
        ("scb", False, "{s|Cb}l|b"),  # the scratch space of the iteration before
    ],
)
def test_what_threads_write_is_published_before_copies_of_blocks_see_it(
    order: str, published: bool, expected: str
) -> None:
    target = BulkTarget(8)
    target.async_proxy = EmulatedProxy(target.record) if published else None
    module = block_module(order)
    run_stages(module, target, {"num_warps": 2}, ["allocate", "barriers"])
    assert shape_of_barriers(module.kernel.body) == expected


def block_module(order: str) -> Module:
    return parse_module(
        "tilewright.ir 1.0\n"
        + BLOCKS.format(body="\n".join(BLOCK_LINES[letter] for letter in order)),
        SIMT_TABLE,
    )


@pytest.mark.parametrize("order", ["spw", "ptw"])
def test_what_a_product_has_read_may_be_written(order: str) -> None:
    run_stages(block_module(order), BulkTarget(8), {"num_warps": 2}, ["allocate", "barriers"])


@pytest.mark.parametrize("order", ["psw", "tpsw"])
def test_what_a_product_in_flight_reads_is_not_written(order: str) -> None:
    """No barrier helps there."""
    with pytest.raises(
        FlightError, match=r"simt.store at .*: writes what a matmul in flight reads"
    ):
        run_stages(block_module(order), BulkTarget(8), {"num_warps": 2}, ["allocate", "barriers"])


def test_no_barrier_is_put_in_where_halves_of_the_warps_are_a_barrier_apart() -> None:
    body = "store %here, %x\n%y = load %there : tile<64xf32>\nstore %other, %y\nbarrier\n"
    text = (
        f"tilewright.ir 1.0\nkernel @k({ARGUMENTS}) {{\n{TILE}\n"
        f"for %zero, %n, %one body(%i: i32) {{\n{body}SIMT\nyield\n}}\nreturn\n}}"
    )
    assert placed(parse_module(text.replace("SIMT", ""), SIMT_TABLE)) == "{S|LS|}"
    with pytest.raises(
        FlightError,
        match=(
            r"load at .*: a barrier is needed before it, where halves of the warps are a barrier "
            r"apart"
        ),
    ):
        placed(parse_module(text.replace("SIMT", "simt.phase {matmuls = true}"), SIMT_TABLE))


def test_the_text_of_a_function_with_barriers_reads_back() -> None:
    module = module_of("store %p, %f\n%y = load %p : f32\nstore %q, %y")
    placed(module)
    text = print_module(module)
    assert "barrier" in text and print_module(parse_module(text, SIMT_TABLE)) == text
