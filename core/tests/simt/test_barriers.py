"""Barriers: where threads touch what other threads touched, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.ir import Module, verify
from tilewright.ir.core import Region
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.assign import assign
from tilewright.simt.async_hazards import FlightError
from tilewright.simt.barriers import insert_barriers
from tilewright.simt.compile import run_stages
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.ops import SIMT_TABLE
from tilewright.simt.shared_memory import allocate
from tilewright.testing.stage_text import read
from tilewright.testing.toy_targets import BulkTarget

Kernel = Callable[..., Module]

TILE = """
%zero = constant 0 : i32
%one = constant 1 : i32
%a = arange {start = 0, end = 64} : tile<64xi32>
%ones = splat %one : tile<64xi32>
%shifted = add %a, %ones : tile<64xi32>
%sp = splat %p : tile<64xptr<f32>>
%sq = splat %q : tile<64xptr<f32>>
%here = addptr %sp, %a : tile<64xptr<f32>>
%there = addptr %sp, %shifted : tile<64xptr<f32>>
%other = addptr %sq, %a : tile<64xptr<f32>>
%f = constant 2.0 : f32
%x = splat %f : tile<64xf32>
"""
ARGUMENTS = "%p: ptr<f32>, %q: ptr<f32>, %n: i32, %c: i1, %lock: ptr<i32>"


def module_of(body: str) -> Module:
    return parse_module(f"tilewright.ir 1.0\nkernel @k({ARGUMENTS}) {{\n{TILE}\n{body}\nreturn\n}}")


def shape_of_barriers(region: Region) -> str:
    """Operations as letters: Load, Store, Atomic, Reduce, Convert, | a barrier, {} around what a loop or branch does; copy, wait, load of shared memory."""
    letters = {"load": "L", "store": "S", "atomic_rmw": "A", "reduce": "R", "simt.convert": "C", "barrier": "|", "gather": "G"}
    letters |= {"simt.copy_start": "c", "simt.wait": "w", "simt.load": "l", "simt.store": "s"}
    letters |= {"simt.publish": "p", "simt.block_store_start": "b", "simt.block_load_start": "b", "simt.arrive": "a"}
    text = ""
    for operation in region:
        if operation.name in ("for", "while", "if"):
            text += "".join("{" + shape_of_barriers(inner) + "}" for inner in operation.regions)
        elif operation.name == "simt.copy_start" and operation.attribute("ordered"):
            text += "o"
        else:
            text += letters.get(operation.name, "")
    return text


def placed(module: Module, warp_size: int = 32, num_warps: int = 2) -> str:
    target = EmulatedTarget(warp_size)
    assign(module.kernel, target, num_warps)
    allocate(module.kernel, target)
    insert_barriers(module.kernel, target)
    verify(module)
    return shape_of_barriers(module.kernel.body)


# ---- kernels


@pytest.mark.parametrize(("name", "expected"), [("add", 0), ("add_mixed", 0), ("softmax", 0), ("layer_norm", 0), ("transpose", 0), ("matmul", 1)])
def test_barriers_of_classic_kernels(kernel: Kernel, matrix_target: EmulatedTarget, name: str, expected: int) -> None:
    """Beside those inside reductions and conversions. Of ``matmul``: the loop's second iteration writes what the first may still read."""
    module = kernel(name)
    assign(module.kernel, matrix_target, 4)
    allocate(module.kernel, matrix_target)
    insert_barriers(module.kernel, matrix_target)
    assert sum(operation.name == "barrier" for operation in module.kernel.walk()) <= expected


# ---- global memory


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("store %here, %x\n%y = load %here : tile<64xf32>\nstore %other, %y", "SLS"),  # by the threads that wrote
        ("store %here, %x\n%y = load %there : tile<64xf32>\nstore %other, %y", "S|LS"),
        ("%y = load %there : tile<64xf32>\nstore %here, %y", "L|S"),
        ("%y = load %here : tile<64xf32>\nstore %here, %y", "LS"),
        ("store %here, %x\nstore %there, %x", "S|S"),
        ("store %here, %x\nstore %other, %x", "SS"),
        ("%y = load %here : tile<64xf32>\n%z = load %there : tile<64xf32>\nstore %other, %y\nstore %other, %z", "LLSS"),
        ("store %p, %f\n%y = load %p : f32\nstore %q, %y", "S|LS"),  # one thread writes, all read
        ("%y = load %p : f32\nstore %p, %y", "L|S"),
        ("store %p, %f\nstore %p, %f", "SS"),
        ("store %here, %x\nbarrier\n%y = load %there : tile<64xf32>\nstore %other, %y", "S|LS"),
        ("store %here, %x\n%o = atomic_rmw %lock, %one {kind = add} : i32", "S|A"),  # releases what was written
        ("%o = atomic_rmw %lock, %one {kind = add, order = relaxed} : i32\nstore %here, %x", "AS"),
    ],
)
def test_accesses_of_the_same_memory(body: str, expected: str) -> None:
    assert placed(module_of(body)) == expected


def test_threads_that_hold_the_same_elements_wait_for_the_one_that_writes() -> None:
    body = "store %here, %x\n%y = load %here : tile<64xf32>\nstore %other, %y"
    assert placed(module_of(body), num_warps=2) == "SLS"
    assert placed(module_of(body), num_warps=4) == "S|LS"
    assert placed(module_of("%y = load %here : tile<64xf32>\nstore %here, %y"), num_warps=4) == "L|S"


def test_roots_of_pointers_are_found_through_chains_of_any_length() -> None:
    steps = "".join(
        f"%p{i + 1} = addptr %{f'p{i}' if i else 'p'}, %one : ptr<f32>\n%q{i + 1} = addptr %{f'q{i}' if i else 'q'}, %one : ptr<f32>\n" for i in range(1500)
    )
    assert placed(module_of(f"{steps}store %p1500, %f\n%y = load %q1500 : f32")) == "SL"
    anywhere = "%any = addptr %p, %n : ptr<f32>\n"
    assert placed(module_of(f"{steps}{anywhere}store %p1500, %f\n%y = load %any : f32")) == "S|L"


def test_addresses_from_memory_may_be_anywhere() -> None:
    body = """
    %i = bitcast %q : i64
    %w = bitcast %i : ptr<f32>
    store %p, %f
    %y = load %w : f32
    store %q, %y
    """
    assert placed(module_of(body)).startswith("S|L")


IN_PLACE = """
for %zero, %n, %one body(%i: i32) {{
  %m = constant {step} : i32
  %o = mul %i, %m : i32
  %so = splat %o : tile<64xi32>
  %t = addptr %here, %so : tile<64xptr<f32>>
  %y = load %t : tile<64xf32>
  %z = add %y, %x : tile<64xf32>
  store %t, %z
  yield
}}
"""


@pytest.mark.parametrize(
    ("step", "num_warps", "expected"),
    [
        (64, 2, "{LS}"),  # iterations are apart
        (63, 2, "{|LS}"),  # other threads have the same addresses in the next iteration
        (1, 2, "{|LS}"),
        (64, 4, "{L|S}"),  # two threads hold an element, and one of them writes; the next iteration reads elsewhere
        (63, 4, "{|L|S}"),
    ],
)
def test_iterations_that_overlap_wait(step: int, num_warps: int, expected: str) -> None:
    assert placed(module_of(IN_PLACE.format(step=step)), num_warps=num_warps) == expected


ROWS = """
%d = expand_dims %a {{axis = 1}} : tile<64x1xi32>
%w = constant {stride} : i32
%ws = splat %w : tile<64x1xi32>
%rows = mul %d, %ws : tile<64x1xi32>
%all = broadcast %rows : tile<64x32xi32>
%e = arange {{start = 0, end = 32}} : tile<32xi32>
%f1 = expand_dims %e {{axis = 0}} : tile<1x32xi32>
%columns = broadcast %f1 : tile<64x32xi32>
%left = add %all, %columns : tile<64x32xi32>
%h = constant {distance} : i32
%hs = splat %h : tile<64x32xi32>
%right = add %left, %hs : tile<64x32xi32>
%sp2 = splat %p : tile<64x32xptr<f32>>
%one_half = addptr %sp2, %left : tile<64x32xptr<f32>>
%other_half = addptr %sp2, %right : tile<64x32xptr<f32>>
%again = addptr %sp2, %left : tile<64x32xptr<f32>>
%y = load %one_half : tile<64x32xf32>
%z = load %other_half : tile<64x32xf32>
store %again, %z
store %other_half, %y
"""


@pytest.mark.parametrize(
    ("stride", "distance", "expected"),
    [
        (64, 32, "LLSS"),  # the halves of each row
        (64, 31, "LL|S|S"),  # they have a column in common
        (80, 32, "LLSS"),  # with a gap behind them
        (48, 32, "LL|S|S"),  # the second half of a row is the first one of the next
        (64, 64 * 64, "LLSS"),  # one behind the other
        (64, 64 * 63, "LL|S|S"),
        (64, -32, "LLSS"),
    ],
)
def test_parts_of_rows_that_do_not_meet_need_no_barrier(stride: int, distance: int, expected: str) -> None:
    assert placed(module_of(ROWS.format(stride=stride, distance=distance))) == expected


@pytest.mark.parametrize(
    ("first", "second", "mask", "expected"),
    [
        ("%here", "%behind", "%inside", "LS"),  # i < n, and n + i
        ("%here", "%behind", "%all", "L|S"),
        ("%behind", "%here", "%inside", "L|S"),  # the mask of what begins later says nothing
        ("%strided", "%strided_behind", "%all", "LS"),  # n * i for i < 64, and n * (64 + i)
        ("%strided", "%strided_near", "%all", "L|S"),  # and n * (63 + i)
    ],
)
def test_parts_at_distances_that_are_not_known(first: str, second: str, mask: str, expected: str) -> None:
    body = f"""
    %ns = splat %n : tile<64xi32>
    %inside = cmp %a, %ns {{predicate = lt}} : tile<64xi1>
    %true = constant true : i1
    %all = splat %true : tile<64xi1>
    %behind = addptr %here, %ns : tile<64xptr<f32>>
    %na = mul %a, %ns : tile<64xi32>
    %strided = addptr %sp, %na : tile<64xptr<f32>>
    %c64 = constant 64 : i32
    %n64 = mul %n, %c64 : i32
    %n64s = splat %n64 : tile<64xi32>
    %strided_behind = addptr %strided, %n64s : tile<64xptr<f32>>
    %c63 = constant 63 : i32
    %n63 = mul %n, %c63 : i32
    %n63s = splat %n63 : tile<64xi32>
    %strided_near = addptr %strided, %n63s : tile<64xptr<f32>>
    %y = load {first}, mask={mask} : tile<64xf32>
    store {second}, %y
    """
    assert placed(module_of(body)) == expected


MASKED_IN_A_LOOP = """
for %zero, %n, %one body(%i: i32) {{
  %is = splat %i : tile<64xi32>
  %inside = cmp %a, %is {{predicate = lt}} : tile<64xi1>
  %behind = addptr %here, %is : tile<64xptr<f32>>
  %y = load %here, mask=%inside : tile<64xf32>
  store %behind, %y
  yield
}}
"""


def test_masks_of_earlier_iterations_say_nothing() -> None:
    assert placed(module_of(MASKED_IN_A_LOOP.format())) == "{|LS}"


TWICE = """
for %zero, %n, %one body(%i: i32) {{
  %m = constant {step} : i32
  %o = mul %i, %m : i32
  %so = splat %o : tile<64xi32>
  %t = addptr %here, %so : tile<64xptr<f32>>
  store %t, %x
  yield
}}
for %zero, %n, %one body(%j: i32) {{
  %m = constant {step} : i32
  %o = mul %j, %m : i32
  %so = splat %o : tile<64xi32>
  %t = addptr %here, %so : tile<64xptr<f32>>
  %y = load %t : tile<64xf32>
  store %t, %y
  yield
}}
"""


@pytest.mark.parametrize(("step", "expected"), [(64, "{S}{LS}"), (128, "{S}{LS}"), (96, "{S}{LS}"), (32, "{|S}{|LS}")])
def test_loops_over_one_array_in_which_each_thread_has_its_own_elements(step: int, expected: str) -> None:
    assert placed(module_of(TWICE.format(step=step))) == expected


TWO_HALVES = """
for %zero, %n, %one body(%i: i32) {{
  %m = constant {step} : i32
  %o = mul %i, %m : i32
  %so = splat %o : tile<64xi32>
  %t = addptr %here, %so : tile<64xptr<f32>>
  %m2 = constant {distance} : i32
  %so2 = splat %m2 : tile<64xi32>
  %u = addptr %t, %so2 : tile<64xptr<f32>>
  %y = load %t : tile<64xf32>
  store %u, %y
  yield
}}
"""


@pytest.mark.parametrize(
    ("step", "distance", "expected"),
    [
        (128, 64, "{LS}"),
        (-128, 64, "{LS}"),
        (128, 256 + 64, "{LS}"),  # beside what later iterations load
        (128, 256, "{LS}"),  # what a thread stores, it loads itself in the second iteration after that
        (64, 64, "{LS}"),
        (128, 256 + 1, "{|LS}"),
        (128, -256 + 63, "{|LS}"),
        (0, 64, "{LS}"),
        (0, 32, "{|L|S}"),
    ],
)
def test_parts_that_no_iteration_has_in_common_need_no_barrier(step: int, distance: int, expected: str) -> None:
    assert placed(module_of(TWO_HALVES.format(step=step, distance=distance))) == expected


CARRIED = """
%m = constant {step} : i32
%ms = splat %m : tile<64xi32>
%last = for %zero, %n, %one, inits=[%here] : tile<64xptr<f32>> body(%i: i32, %t: tile<64xptr<f32>>) {{
  %y = load %t : tile<64xf32>
  %z = add %y, %x : tile<64xf32>
  store %t, %z
  %u = addptr %t, %ms : tile<64xptr<f32>>
  yield %u
}}
"""


@pytest.mark.parametrize(("step", "num_warps", "expected"), [(64, 2, "{LS}"), (32, 2, "{|LS}"), (64, 4, "{L|S}"), (32, 4, "{|L|S}")])
def test_carried_pointers_that_move_on_do_not_wait(step: int, num_warps: int, expected: str) -> None:
    assert placed(module_of(CARRIED.format(step=step)), num_warps=num_warps) == expected


def test_branches_join() -> None:
    module = module_of("""
    if %c then {
      store %here, %x
      yield
    } else {
      yield
    }
    %y = load %there : tile<64xf32>
    store %other, %y
    """)
    assert placed(module) == "{S}{}|LS"


def test_what_a_loop_leaves_is_found_by_its_next_iteration_and_after_it() -> None:
    module = module_of("""
    for %zero, %n, %one body(%i: i32) {
      %y = load %there : tile<64xf32>
      store %other, %y
      store %here, %x
      yield
    }
    %z = load %there : tile<64xf32>
    store %other, %z
    """)
    assert placed(module) == "{|LS|S}|LS"


def test_what_was_done_before_a_loop_that_may_not_run_counts_after_it() -> None:
    """Whatever barriers the loop has."""
    loop = "for %zero, %n, %one body(%i: i32) {\nbarrier\nyield\n}"
    assert placed(module_of(f"store %here, %x\n{loop}\n%y = load %there : tile<64xf32>\nstore %other, %y")) == "S{|}|LS"


def test_what_a_while_does_before_its_condition_counts_after_it() -> None:
    module = module_of("""
    %r = while %zero : i32 before(%i: i32) {
      store %here, %x
      %go = cmp %i, %n {predicate = lt} : i1
      condition %go, values=[%i]
    } after(%j: i32) {
      %y = load %there : tile<64xf32>
      store %other, %y
      %k = add %j, %one : i32
      yield %k
    }
    %z = load %there : tile<64xf32>
    store %other, %z
    """)
    found = placed(module)
    assert found == "{|S}{|LS}|LS"


def test_a_program_of_one_thread_needs_none() -> None:
    assert placed(module_of("store %p, %f\n%y = load %p : f32\nstore %q, %y"), 1, 1) == "SLS"


def test_memory_is_in_order_on_the_emulator() -> None:
    """Neighbours' elements, in place, in a loop: wrong without each of the barriers."""
    body = """
    for %zero, %n, %one body(%i: i32) {
      %y = load %there : tile<64xf32>
      %z = mul %y, %x : tile<64xf32>
      store %here, %z
      yield
    }
    """
    expected, found = (np.random.default_rng(1).standard_normal(65).astype(np.float32) for _ in range(2))
    other = np.zeros(64, np.float32)
    arguments = [other, 20, False, np.zeros(1, np.int32)]
    run_reference(module_of(body), [expected, *arguments], (1, 1, 1))
    emulator.run(module_of(body), [found, *arguments], (1, 1, 1), warp_size=8, num_warps=4)
    np.testing.assert_array_equal(found, expected)


# ---- shared memory


REDUCE = "%r{0} = reduce %y{1} {{axis = 0}} : f32 combine(%l{0}: f32, %m{0}: f32) {{\n%s{0} = add %l{0}, %m{0} : f32\nyield %s{0}\n}}\n"


def test_reductions_that_take_turns_need_no_barrier_between_them() -> None:
    one = "%y = load %here : tile<64xf32>\n" + REDUCE.format(1, "") + REDUCE.format(2, "")
    assert placed(module_of(one + "store %q, %r1\nstore %q, %r2")) == "LRRSS"
    loop = "for %zero, %n, %one body(%i: i32) {\n" + one + "store %q, %r1\nstore %q, %r2\nyield\n}"
    assert placed(module_of(loop)) == "{LRRSS}"


def test_a_reduction_alone_in_a_loop_waits_for_its_own_readers() -> None:
    loop = "for %zero, %n, %one body(%i: i32) {\n%y = load %here : tile<64xf32>\n" + REDUCE.format(1, "") + "store %q, %r1\nyield\n}"
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
    "o": 'simt.copy_start %s, %pointers {by = "queue", ordered = true}\n%next = simt.commit : token<copies>',
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
def test_copies_are_seen_by_all_after_a_barrier_that_follows_the_wait(order: str, expected: str) -> None:
    module = read(RING.format(body="\n".join(LINES[letter] for letter in order)))
    run_stages(module, EmulatedTarget(32), {"num_warps": 2}, ["allocate", "barriers"])
    assert shape_of_barriers(module.kernel.body) == expected


@pytest.mark.parametrize(("order", "expected"), [("lsl", "{|lsl}"), ("sl", "{s|l}"), ("ls|", "{ls|}"), ("s|l", "{s|l}")])
def test_what_an_ordered_store_writes_is_read_in_later_iterations_only(order: str, expected: str) -> None:
    lines = [LINES[letter].replace("%x", f"%x{number}") for number, letter in enumerate(order)]
    module = read(RING.format(body="\n".join([*lines, "%next = simt.commit : token<copies>"])))
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
        (MADE, f"{EXPECT}\n{AWAIT} {{alone = true}}", "{}"),  # by the thread that announces
        ("", f"{MADE}\n{EXPECT}\n{AWAIT}", "{|}"),  # the objects are made anew
    ],
)
def test_bytes_are_announced_when_nobody_waits_for_the_phase_before(before: str, inside: str, expected: str) -> None:
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
    "p": '%y, %t = simt.dot_start %a, %a, %x {plan = "toy.ss"} : tile<8x8xf32, #L0>, token<products>',
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
        ("scb", True, "{sCp|b}l|b"),  # all threads meet in a conversion, and nothing is published there
        ("scb", False, "{s|Cb}l|b"),  # the scratch space of the iteration before
    ],
)
def test_what_threads_write_is_published_before_copies_of_blocks_see_it(order: str, published: bool, expected: str) -> None:
    target = BulkTarget(8)
    target.published = published
    module = block_module(order)
    run_stages(module, target, {"num_warps": 2}, ["allocate", "barriers"])
    assert shape_of_barriers(module.kernel.body) == expected


def block_module(order: str) -> Module:
    return parse_module("tilewright.ir 1.0\n" + BLOCKS.format(body="\n".join(BLOCK_LINES[letter] for letter in order)), SIMT_TABLE)


@pytest.mark.parametrize("order", ["spw", "ptw"])
def test_what_a_product_has_read_may_be_written(order: str) -> None:
    run_stages(block_module(order), BulkTarget(8), {"num_warps": 2}, ["allocate", "barriers"])


@pytest.mark.parametrize("order", ["psw", "tpsw"])
def test_what_a_product_under_way_reads_is_not_written(order: str) -> None:
    """No barrier helps there."""
    with pytest.raises(FlightError, match=r"simt.store at .*: writes what a product under way reads"):
        run_stages(block_module(order), BulkTarget(8), {"num_warps": 2}, ["allocate", "barriers"])


def test_no_barrier_is_put_in_where_halves_of_the_warps_are_a_barrier_apart() -> None:
    body = "store %here, %x\n%y = load %there : tile<64xf32>\nstore %other, %y\nbarrier\n"
    text = f"tilewright.ir 1.0\nkernel @k({ARGUMENTS}) {{\n{TILE}\nfor %zero, %n, %one body(%i: i32) {{\n{body}SIMT\nyield\n}}\nreturn\n}}"
    assert placed(parse_module(text.replace("SIMT", ""), SIMT_TABLE)) == "{S|LS|}"
    with pytest.raises(FlightError, match=r"load at .*: a barrier is needed before it, where halves of the warps are a barrier apart"):
        placed(parse_module(text.replace("SIMT", "simt.phase {products = true}"), SIMT_TABLE))


def test_the_text_of_a_function_with_barriers_reads_back() -> None:
    module = module_of("store %p, %f\n%y = load %p : f32\nstore %q, %y")
    placed(module)
    text = print_module(module)
    assert "barrier" in text and print_module(parse_module(text, SIMT_TABLE)) == text
