"""Plans of reductions, run on sets and trees of elements in plain Python: every element is combined
once, whatever the layout."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tilewright.simt.layouts.f2 import annihilators, parity, separator
from tilewright.simt.layouts.linear_layout import (
    LinearLayout,
    blocked,
    coordinates,
    replicated,
    row_major,
)
from tilewright.simt.layouts.reduce_plan import ReducePlan, plan_reduction, scratch_position
from tilewright.testing.random_layouts import random_layout

#: An element's number, or a pair (left, right) that was combined.
Tree = Any


def leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else leaves(tree[0]) + leaves(tree[1])


def unordered(tree: Tree) -> Any:
    return tree if isinstance(tree, int) else frozenset((unordered(tree[0]), unordered(tree[1])))


def run_plan(
    plan: ReducePlan, layout: LinearLayout, *, ordered: bool, most: int
) -> dict[tuple[int, int], list[Tree]]:
    """Execute a plan: return the registers of the result in every thread (lane, warp)."""
    lanes, warps = 1 << len(layout.lanes), 1 << len(layout.warps)
    threads = {}
    for lane in range(lanes):
        for warp in range(warps):
            trees: list[Tree] = [
                layout.element(register, lane, warp) for register in range(layout.register_count)
            ]
            for step in plan.pairs:
                for left, right in step:
                    trees[left] = (trees[left], trees[right])
            threads[lane, warp] = [trees[register] for register in plan.kept]
    for step in plan.exchanges:
        before = threads
        threads = {}
        for (lane, warp), trees in before.items():
            partner = before[lane ^ step.lanes, warp]
            swap = ordered and parity(lane & step.order)
            pairs = [
                (own, partner[register ^ step.registers]) for register, own in enumerate(trees)
            ]
            threads[lane, warp] = [(b, a) if swap else (a, b) for a, b in pairs]
    if not plan.through_memory(not ordered):
        return threads
    memory: dict[int, Tree] = {}
    lane_mask, warp_mask = plan.partials.redundant_threads()
    for (lane, warp), trees in threads.items():
        if not lane & lane_mask and not warp & warp_mask:
            for register, tree in enumerate(trees):
                place = plan.partials.element(register, lane, warp)
                assert place not in memory
                memory[place] = tree
    for lane, warp in threads:
        found = []
        for register in range(plan.result.register_count):
            number = plan.result.element(register, lane, warp)
            # the share of this lane, then those of the others
            shared = plan.sharing(most)
            own = plan.parts >> len(shared)
            share = sum(bool(lane & step.lanes) << i for i, step in enumerate(shared))
            parts = [memory[number * plan.parts + share * own + part] for part in range(own)]
            while len(parts) > 1:
                parts = [(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
            found.append(parts[0])
        threads[lane, warp] = found
    for step in plan.sharing(most):
        before, threads = threads, {}
        for (lane, warp), trees in before.items():
            partner = before[lane ^ step.lanes, warp]
            swap = ordered and parity(lane & step.order)
            threads[lane, warp] = [
                (b, a) if swap else (a, b) for a, b in zip(trees, partner, strict=True)
            ]
    return threads


def check(layout: LinearLayout, axis: int, *, ordered: bool, most: int = 4) -> ReducePlan:
    plan = plan_reduction(layout, axis)
    assert plan.result == layout.without_axis(axis)
    seen: dict[int, Any] = {}
    for (lane, warp), trees in run_plan(plan, layout, ordered=ordered, most=most).items():
        for register, tree in enumerate(trees):
            number = plan.result.element(register, lane, warp)
            form = tree if ordered else unordered(tree)
            if number not in seen:
                point = list(coordinates(number, plan.result.shape))
                expected = sorted(
                    row_major([*point[:axis], i, *point[axis:]], layout.shape)
                    for i in range(layout.shape[axis])
                )
                assert sorted(leaves(tree)) == expected
            assert seen.setdefault(number, form) == form, (
                "threads that hold one element combined it in different orders"
            )
    return plan


@pytest.mark.parametrize("seed", range(150))
def test_any_layout_combines_every_element_once_and_alike_in_all_threads(seed: int) -> None:
    rng = random.Random(seed)
    shape = rng.choice(
        [(16,), (64,), (4, 8), (8, 4), (2, 4, 8), (16, 1), (1,), (32, 2), (2, 2, 2, 4)]
    )
    layout = random_layout(rng, shape, rng.choice([4, 8, 16]), rng.choice([1, 2, 4, 16]))
    check(layout, rng.randrange(len(shape)), ordered=bool(seed & 1), most=rng.choice([1, 2, 4]))


def test_a_row_within_a_warp_takes_one_exchange_a_lane_bit_and_no_memory() -> None:
    layout = blocked((16, 128), (1, 0), 4, 32, 4)
    plan = check(layout, 1, ordered=False)
    assert [step.lanes for step in plan.exchanges] == [1, 2, 4, 8, 16]
    assert plan.parts == 1 and plan.any_order and not plan.through_memory(False)
    assert all(step.order == step.lanes for step in plan.exchanges)


def test_lanes_off_the_axis_take_no_exchange() -> None:
    plan = check(blocked((128, 8), (0, 1), 1, 32, 4), 1, ordered=True)
    assert not plan.exchanges and not plan.through_memory(False)


def test_warps_along_the_axis_meet_in_memory() -> None:
    plan = check(blocked((512,), (0,), 4, 32, 4), 0, ordered=True)
    assert plan.parts == 4 and len(plan.exchanges) == 5
    assert plan.partials.redundant_threads() == (31, 0)


@pytest.mark.parametrize(("warps", "lanes"), [(4, []), (8, [1]), (16, [1, 2]), (32, [1, 2, 4])])
def test_lanes_share_what_warps_left_in_memory(warps: int, lanes: list[int]) -> None:
    plan = check(blocked((4096,), (0,), 4, 32, warps), 0, ordered=True, most=4)
    assert plan.parts == warps and [step.lanes for step in plan.sharing(4)] == lanes


@pytest.mark.parametrize("own", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_lanes_that_load_parts_of_their_results_meet_no_bank_twice(own: int, size: int) -> None:
    parts = 16 // size  # what an access of 16 bytes loads
    positions = [scratch_position(number, size) for number in range(64 * own * parts)]
    assert sorted(positions) == list(range(len(positions)))
    for first in range(0, 32, 8):  # lanes whose accesses of 16 bytes are served together
        starts = [positions[lane * own * parts] for lane in range(first, first + 8)]
        assert len({start * size // 16 % 8 for start in starts}) == 8
        assert all(start * size % 16 == 0 for start in starts)


def test_lanes_with_results_of_their_own_load_all_parts() -> None:
    """A tile of 8 lanes along the axis that stays and 4 along the other: those four share."""
    plan = check(blocked((64, 8), (1, 0), 1, 32, 16), 0, ordered=True, most=1)
    assert plan.parts == 16 and [step.lanes for step in plan.sharing(1)] == [8, 16]


def test_redundant_lanes_are_not_exchanged() -> None:
    plan = check(blocked((8,), (0,), 1, 32, 4), 0, ordered=True)
    assert [step.lanes for step in plan.exchanges] == [1, 2, 4]
    assert not plan.through_memory(False)
    assert not check(replicated((4, 4), 32, 4), 0, ordered=True).exchanges


def test_lanes_that_are_redundant_together_keep_the_order() -> None:
    """Lanes 0 and 3 hold one element, and lanes 1 and 2 the other.

    Only the lane's parity distinguishes them.
    """
    plan = check(LinearLayout((2,), (), (1, 1), ()), 0, ordered=True)
    assert len(plan.exchanges) == 1 and plan.exchanges[0].order == 3
    assert plan.any_order and not plan.through_memory(False)


def test_lanes_that_hold_registers_of_others_use_memory_only_where_order_counts() -> None:
    layout = LinearLayout((4,), (1, 2), (1,), ())  # lane 1 has the same elements in another order
    plan = check(layout, 0, ordered=True)
    assert not plan.exchanges and plan.through_memory(False) and not plan.through_memory(True)
    check(layout, 0, ordered=False)


def test_a_lane_that_moves_along_and_off_the_axis_meets_another_register() -> None:
    layout = LinearLayout(
        (2, 2), (2,), (3,), ()
    )  # registers are rows; lane 1 is in the other row and column
    plan = check(layout, 1, ordered=True)
    ((step),) = plan.exchanges
    assert (step.lanes, step.registers) == (1, 1)


@pytest.mark.parametrize("seed", range(50))
def test_functionals(seed: int) -> None:
    rng = random.Random(seed)
    width = rng.randint(1, 7)
    vectors = [rng.randrange(1 << width) for _ in range(rng.randint(0, 5))]
    span = {0}
    for vector in vectors:
        span |= {other ^ vector for other in span}
    found = annihilators(vectors, width)
    assert {v for v in range(1 << width) if all(parity(v & f) == 0 for f in found)} == span
    assert 1 << (width - len(found)) == len(span)
    independent: list[int] = []
    reached = {0}
    for vector in vectors:
        if vector not in reached:
            independent.append(vector)
            reached |= {other ^ vector for other in reached}
    for number in range(len(independent)):
        functional = separator(independent, number, width)
        assert [parity(vector & functional) for vector in independent] == [
            int(i == number) for i in range(len(independent))
        ]
