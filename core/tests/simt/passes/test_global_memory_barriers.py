"""Barriers between accesses of global memory: where threads touch what other threads touched, and
nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from barrier_shapes import module_of, placed

from tilewright.ir import Module
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator

Kernel = Callable[..., Module]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "store %here, %x\n%y = load %here : tile<64xf32>\nstore %other, %y",
            "SLS",
        ),  # by the threads that wrote
        ("store %here, %x\n%y = load %there : tile<64xf32>\nstore %other, %y", "S|LS"),
        ("%y = load %there : tile<64xf32>\nstore %here, %y", "L|S"),
        ("%y = load %here : tile<64xf32>\nstore %here, %y", "LS"),
        ("store %here, %x\nstore %there, %x", "S|S"),
        ("store %here, %x\nstore %other, %x", "SS"),
        (
            (
                "%y = load %here : tile<64xf32>\n%z = load %there : tile<64xf32>\n"
                "store %other, %y\nstore %other, %z"
            ),
            "LLSS",
        ),
        ("store %p, %f\n%y = load %p : f32\nstore %q, %y", "S|LS"),  # one thread writes, all read
        ("%y = load %p : f32\nstore %p, %y", "L|S"),
        ("store %p, %f\nstore %p, %f", "SS"),
        ("store %here, %x\nbarrier\n%y = load %there : tile<64xf32>\nstore %other, %y", "S|LS"),
        (
            "store %here, %x\n%o = atomic_rmw %lock, %one {kind = add} : i32",
            "S|A",
        ),  # releases what was written
        ("%o = atomic_rmw %lock, %one {kind = add, order = relaxed} : i32\nstore %here, %x", "AS"),
    ],
)
def test_accesses_of_the_same_memory(body: str, expected: str) -> None:
    assert placed(module_of(body)) == expected


ORDER = '%z = inline_asm {assembly = "fence", constraints = "=r", pure = false} : i32\n'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{ORDER}%y = load %here : tile<64xf32>\nstore %other, %y", "LS"),
        (
            (
                f"{ORDER}for %zero, %n, %one body(%i: i32) {{\n%y = load %here : tile<64xf32>\n"
                f"store %other, %y\nyield\n}}"
            ),
            "{LS}",
        ),
        (f"store %here, %x\n{ORDER}%y = load %here : tile<64xf32>\nstore %other, %y", "S|LS"),
        (
            ORDER.replace("inline_asm", "inline_asm %n").replace("=r", "=r,r")
            + "%y = load %here : tile<64xf32>\nstore %other, %y",
            "|LS",
        ),
    ],
)
def test_each_thread_orders_its_own_accesses_by_assembly_without_inputs(
    body: str, expected: str
) -> None:
    assert placed(module_of(body)) == expected


def test_threads_that_hold_the_same_elements_wait_for_the_one_that_writes() -> None:
    body = "store %here, %x\n%y = load %here : tile<64xf32>\nstore %other, %y"
    assert placed(module_of(body), num_warps=2) == "SLS"
    assert placed(module_of(body), num_warps=4) == "S|LS"
    assert (
        placed(module_of("%y = load %here : tile<64xf32>\nstore %here, %y"), num_warps=4) == "L|S"
    )


def test_roots_of_pointers_are_found_through_chains_of_any_length() -> None:
    steps = "".join(
        (
            f"%p{i + 1} = addptr %{f'p{i}' if i else 'p'}, %one : ptr<f32>\n"
            f"%q{i + 1} = addptr %{f'q{i}' if i else 'q'}, %one : ptr<f32>\n"
        )
        for i in range(1500)
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
        # two threads hold an element, and one of them writes; the next iteration reads elsewhere
        (64, 4, "{L|S}"),
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
def test_parts_of_rows_that_do_not_meet_need_no_barrier(
    stride: int, distance: int, expected: str
) -> None:
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
def test_parts_at_distances_that_are_not_known(
    first: str, second: str, mask: str, expected: str
) -> None:
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


@pytest.mark.parametrize(
    ("step", "expected"), [(64, "{S}{LS}"), (128, "{S}{LS}"), (96, "{S}{LS}"), (32, "{|S}{|LS}")]
)
def test_loops_over_one_array_in_which_each_thread_has_its_own_elements(
    step: int, expected: str
) -> None:
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
        (
            128,
            256,
            "{LS}",
        ),  # what a thread stores, it loads itself in the second iteration after that
        (64, 64, "{LS}"),
        (128, 256 + 1, "{|LS}"),
        (128, -256 + 63, "{|LS}"),
        (0, 64, "{LS}"),
        (0, 32, "{|L|S}"),
    ],
)
def test_parts_that_no_iteration_has_in_common_need_no_barrier(
    step: int, distance: int, expected: str
) -> None:
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


@pytest.mark.parametrize(
    ("step", "num_warps", "expected"),
    [(64, 2, "{LS}"), (32, 2, "{|LS}"), (64, 4, "{L|S}"), (32, 4, "{|L|S}")],
)
def test_carried_pointers_that_move_on_do_not_wait(
    step: int, num_warps: int, expected: str
) -> None:
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
    assert (
        placed(
            module_of(f"store %here, %x\n{loop}\n%y = load %there : tile<64xf32>\nstore %other, %y")
        )
        == "S{|}|LS"
    )


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
    expected, found = (
        np.random.default_rng(1).standard_normal(65).astype(np.float32) for _ in range(2)
    )
    other = np.zeros(64, np.float32)
    arguments = [other, 20, False, np.zeros(1, np.int32)]
    run_reference(module_of(body), [expected, *arguments], (1, 1, 1))
    emulator.run(module_of(body), [found, *arguments], (1, 1, 1), warp_size=8, num_warps=4)
    np.testing.assert_array_equal(found, expected)
