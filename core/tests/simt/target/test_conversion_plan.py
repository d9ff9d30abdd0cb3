"""Plans of conversions, carried out by NumPy-free simulation of registers, lanes and warps; shared
layouts, by a simulation of the banks."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.types import F16, F32, F64, I8
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, blocked, combine, span
from tilewright.simt.layouts.swizzle import accesses, intersection, shared_between, transactions
from tilewright.simt.target.conversion_plan import (
    SharedMove,
    WarpMove,
    conversion_cost,
    plan_conversion,
    scratch_bytes,
    variables_in_groups,
    within_warp,
)

WARP, BANKS = 32, 32


def random_layout(rng: random.Random, bits: int, lanes: int, warps: int) -> LinearLayout:
    """Any layout that covers a tile of 2**bits elements."""
    basis = Basis()
    units = [1 << bit for bit in range(bits)]
    rng.shuffle(units)
    mixed = [rng.randrange(1 << bits) for _ in range(bits)] if rng.random() < 0.4 else []
    vectors = [vector for vector in (*mixed, *units) if basis.add(vector)]

    def take(count: int) -> tuple[int, ...]:
        return tuple(
            vectors.pop()
            if vectors and rng.random() < 0.8
            else rng.choice([0, 0, rng.randrange(1 << bits)])
            for _ in range(count)
        )

    lane_images, warp_images = take(lanes), take(warps)
    return LinearLayout((1 << bits,), tuple(vectors), lane_images, warp_images)


def same_warps(rng: random.Random, a: LinearLayout) -> LinearLayout:
    """A layout in which each warp has what it has in ``a``, or more: registers and lanes changed
    places and were mixed."""
    bits = sum(extent.bit_length() - 1 for extent in a.shape)
    pool = [image for image in (*a.registers, *a.lanes) if image]
    for _ in range(3):
        if len(pool) > 1 and rng.random() < 0.5:
            i, j = rng.sample(range(len(pool)), 2)
            pool[i] ^= pool[j]
    rng.shuffle(pool)
    lanes = tuple(pool.pop() if pool and rng.random() < 0.8 else 0 for _ in a.lanes)
    basis = Basis()
    registers = [image for image in pool if basis.add(image)]
    warps = tuple(
        image ^ (rng.choice(pool) if pool and rng.random() < 0.3 else 0) for image in a.warps
    )
    known = Basis((*registers, *lanes, *warps))
    registers += [image for image in a.images if known.add(image) and basis.add(image)]
    layout = LinearLayout(a.shape, tuple(registers), lanes, warps)
    assert Basis(layout.images).rank == bits
    return layout


def carry_out(plan: WarpMove, a: LinearLayout, b: LinearLayout) -> None:
    """Do what the plan says with the numbers of elements, and compare."""
    lanes, variables = range(1 << len(a.lanes)), range(1 << len(plan.variables))
    for warp in range(1 << len(a.warps)):
        before = {}
        for lane, p in itertools.product(lanes, variables):
            register = (
                combine(plan.variables, p)
                ^ combine(plan.lanes_before, lane)
                ^ combine(plan.warps_before, warp)
            )
            before[p, lane] = a.element(register, lane, warp)
        shuffled = {}
        for lane, q in itertools.product(lanes, variables):
            source = (
                combine(plan.source_of_variable, q)
                ^ combine(plan.source_of_lane, lane)
                ^ combine(plan.source_of_warp, warp)
            )
            shuffled[q, lane] = before[q, source] if plan.shuffles else before[q, lane]
        for lane, register in itertools.product(lanes, range(plan.results)):
            assert shuffled[register ^ combine(plan.lanes_after, lane), lane] == b.element(
                register, lane, warp
            )


@given(
    st.randoms(use_true_random=False),
    st.integers(1, 7),
    st.integers(0, 3),
    st.integers(0, 2),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_moves_within_a_warp_bring_each_element_where_it_belongs(
    rng: random.Random, bits: int, lanes: int, warps: int, near: bool
) -> None:
    a = random_layout(rng, bits, lanes, warps)
    b = same_warps(rng, a) if near else random_layout(rng, bits, lanes, warps)
    plan = within_warp(a, b)
    if plan is None:
        # some element is indeed in another warp
        own = Basis((*a.registers, *a.lanes))
        differ = [x ^ y for x, y in zip(a.warps, b.warps, strict=True)]
        assert any(own.solve(image) is None for image in (*differ, *b.registers, *b.lanes))
        return
    carry_out(plan, a, b)
    for size in (1, 2, 4, 8):
        packed = plan.packed_bits(size)
        groups = variables_in_groups(1 << len(plan.variables), packed)
        assert sorted(number for group in groups for number in group) == list(
            range(1 << len(plan.variables))
        )
        assert all(
            combine(plan.source_of_variable, number) == combine(plan.source_of_variable, group[0])
            for group in groups
            for number in group
        )
        if plan.shuffles and size <= 4:
            assert plan.shuffle_count(size) == len(groups)


@given(st.randoms(use_true_random=False), st.integers(1, 7), st.integers(0, 3), st.integers(0, 2))
@settings(max_examples=100, deadline=None)
def test_moves_are_found_wherever_warps_keep_their_elements(
    rng: random.Random, bits: int, lanes: int, warps: int
) -> None:
    a = random_layout(rng, bits, lanes, warps)
    images = list(a.registers)
    rng.shuffle(images)
    b = LinearLayout(a.shape, tuple(images), a.lanes, a.warps)
    plan = within_warp(a, b)
    assert plan is not None and not plan.shuffles and plan.selects == 0
    target = EmulatedTarget(1 << lanes)
    assert conversion_cost(a, b, F32, target) == 0
    assert plan_conversion(a, b, F32, target) is plan


def test_a_transposition_of_lanes_and_registers_takes_one_shuffle_a_register() -> None:
    """What lanes hold of four registers each is exchanged for registers of four lanes: rotate,
    shuffle, rotate."""
    a = LinearLayout((16,), (1, 2), (4, 8), ())
    b = LinearLayout((16,), (4, 8), (1, 2), ())
    plan = within_warp(a, b)
    assert plan is not None
    carry_out(plan, a, b)
    assert plan.shuffle_count(4) == 4 and plan.selects == 16


def test_a_shuffle_moves_as_many_narrow_elements_as_a_word_holds() -> None:
    a = LinearLayout((32,), (1, 2), (4, 8, 16), ())
    b = LinearLayout((32,), (1, 2), (8, 4, 16), ())
    plan = within_warp(a, b)
    assert plan is not None and plan.selects == 0
    assert [plan.shuffle_count(size) for size in (1, 2, 4, 8)] == [1, 2, 4, 8]


def test_rotations_select_between_words_of_narrow_elements() -> None:
    """Pairs of registers keep together what a transposition of the others takes apart: half as many
    selects of 16-bit elements."""
    a = LinearLayout((32,), (1, 2, 4), (8, 16), ())
    b = LinearLayout((32,), (1, 8, 16), (2, 4), ())
    plan = within_warp(a, b)
    assert plan is not None and plan.selects > 0
    assert [plan.select_count(size) for size in (2, 4, 8)] == [
        plan.selects // 2,
        plan.selects,
        2 * plan.selects,
    ]
    (bit,) = plan.words(2)
    assert not plan.words(4) and bit.of(bit.register) == 1
    assert not any(
        bit.of(combine(plan.variables, image)) for image in plan.lanes_after
    ) and not any(map(bit.of, plan.lanes_before))


def test_one_lane_that_others_want_different_registers_of_gives_them_one_by_one() -> None:
    a = LinearLayout((4,), (1,), (2,), (0,))
    b = LinearLayout((4,), (), (1,), (2,))
    plan = within_warp(a, b)
    assert plan is not None
    carry_out(plan, a, b)
    assert len(plan.variables) == 1


# ---- shared memory


def bank_turns(layout: LinearLayout, shared: object, size: int, max_access: int) -> tuple[int, int]:
    """Count (accesses, wavefronts) of a warp by trial.

    Each phase of lanes takes as many as the busiest bank has words.
    """
    plan = accesses(layout, shared, max(1, max_access // size))  # type: ignore[arg-type]
    moved = plan.width * size
    lanes = 1 << len(plan.lanes)
    phase = min(lanes, BANKS * 4 // max(4, moved))
    turns = 0
    for _, offset in plan.groups:
        for first in range(0, lanes, phase):
            words: dict[int, set[int]] = {}
            for lane in range(first, first + phase):
                start = (combine(plan.lanes, lane) ^ offset) * size
                for word in range(start // 4, (start + moved - 1) // 4 + 1):
                    words.setdefault(word % BANKS, set()).add(word)
            turns += max(map(len, words.values()))
    return len(plan.groups), turns


@given(
    st.randoms(use_true_random=False),
    st.integers(0, 9),
    st.sampled_from((1, 2, 4, 8)),
    st.integers(0, 2),
    st.sampled_from((4, 16)),
)
@settings(max_examples=150, deadline=None)
def test_shared_layouts_are_one_to_one_and_accesses_find_every_register(
    rng: random.Random, bits: int, size: int, round_bits: int, max_access: int
) -> None:
    a, b = (random_layout(rng, bits, 5, rng.choice((0, 2))) for _ in range(2))
    b = LinearLayout(b.shape, b.registers, b.lanes, b.warps)
    shared = shared_between(a, b, size, max_access, BANKS, round_bits)
    assert {shared.offset(element) for element in range(1 << bits)} == set(range(1 << bits))
    for layout in (a, b):
        plan = accesses(layout, shared, max(1, max_access // size))
        assert sorted(register for registers, _ in plan.groups for register in registers) == list(
            range(layout.register_count)
        )
        for lane, warp in itertools.product(range(32), range(1 << len(layout.warps))):
            thread = combine(plan.lanes, lane) ^ combine(plan.warps, warp)
            for registers, offset in plan.groups:
                assert (thread ^ offset) % plan.width == 0
                for i, register in enumerate(registers):
                    assert (
                        shared.offset(layout.element(register, lane, warp)) == (thread ^ offset) + i
                    )
        assert bank_turns(layout, shared, size, max_access) == transactions(
            layout, shared, size, max_access, BANKS
        )


@given(
    st.integers(3, 7), st.integers(3, 7), st.sampled_from((1, 2, 4, 8)), st.integers(0, 2),
    st.sampled_from(list(itertools.product((1, 2, 4, 8, 16), ((0, 1), (1, 0))))),
    st.sampled_from(list(itertools.product((1, 2, 4, 8, 16), ((0, 1), (1, 0))))),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_blocked_layouts_meet_without_bank_conflicts(
    rows: int,
    columns: int,
    size: int,
    warp_bits: int,
    first: tuple[int, tuple[int, int]],
    second: tuple[int, tuple[int, int]],
) -> None:
    a, b = (
        blocked((1 << rows, 1 << columns), order, vector, WARP, 1 << warp_bits)
        for vector, order in (first, second)
    )
    shared = shared_between(a, b, size, 16, BANKS)
    excess = 0.0
    for layout in (a, b):
        count, turns = bank_turns(layout, shared, size, 16)
        needed = max(count, layout.register_count * WARP * size / (BANKS * 4))
        excess += turns / needed - 1
    # Narrow elements that neither side can pair cost what they cost; a side never waits for
    # conflicts of whole words.
    assert excess <= (0 if size >= 4 else 1)


@pytest.mark.parametrize(("element", "vector"), [(F16, 8), (F32, 4), (F64, 2), (I8, 16)])
def test_a_row_major_tile_passes_to_a_column_major_one_in_wide_accesses(
    element: object, vector: int
) -> None:
    """Each side has a square block in registers.

    Both move 16 bytes at a time, in the minimum number of wavefronts.
    """
    size = 16 // vector
    a = blocked((128, 128), (1, 0), vector, WARP, 4)
    b = LinearLayout((128, 128), a.registers, tuple(reversed(a.lanes)), a.warps)
    shared = shared_between(a, b, size, 16, BANKS)
    for layout in (a, b):
        count, turns = bank_turns(layout, shared, size, 16)
        assert count == layout.register_count // vector
        assert turns == layout.register_count * WARP * size // 128


@given(st.lists(st.integers(1, 255), max_size=5), st.lists(st.integers(1, 255), max_size=5))
def test_intersections_of_spans(a: list[int], b: list[int]) -> None:
    a, b = (
        [vector for vector in vectors if basis.add(vector)]
        for vectors, basis in ((a, Basis()), (b, Basis()))
    )
    found = intersection(a, b)
    assert Basis(found).rank == len(found)
    both = set(span(a)) & set(span(b))
    assert {combine(found, i) for i in range(1 << len(found))} == both


def test_a_tile_greater_than_the_scratch_goes_in_rounds() -> None:
    a, b = blocked((128, 128), (1, 0), 4, WARP, 4), blocked((128, 128), (0, 1), 4, WARP, 4)
    target = EmulatedTarget()
    plan = plan_conversion(a, b, F32, target)
    assert isinstance(plan, SharedMove)
    assert plan.round_bits == 1 and scratch_bytes(plan, F32) == 32 * 1024
    # All bits belong to threads of one side or the other: the round depends on warps of one side,
    # on no lane.
    bits = len(plan.shared.images) - plan.round_bits
    assert not any(
        plan.shared.offset(image) >> bits
        for layout in (a, b)
        for image in (*layout.lanes, *a.warps)
    )
    near = LinearLayout(a.shape, a.registers, a.lanes, a.warps[::-1])
    rounds = plan_conversion(a, near, F32, target)
    assert isinstance(rounds, SharedMove)
    assert not any(
        rounds.shared.offset(image) >> bits
        for layout in (a, near)
        for image in (*layout.lanes, *layout.warps)
    )
    small = EmulatedTarget(shared_memory=8 * 1024)
    assert scratch_bytes(plan_conversion(a, b, F32, small), F32) == 8 * 1024
    assert (
        conversion_cost(a, b, F32, small)
        > conversion_cost(a, b, F32, target)
        > conversion_cost(a, b, I8, target)
        > 0
    )
