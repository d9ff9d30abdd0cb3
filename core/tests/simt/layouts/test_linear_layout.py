"""Layouts against a model that knows nothing of linear algebra: a dictionary from threads'
registers to coordinates."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.simt.layouts.linear_layout import (
    Basis,
    LinearLayout,
    SharedLayout,
    blocked,
    combine,
    coordinates,
    log2,
    replicated,
    row_major,
    span,
)

Slot = tuple[int, int, int]


@st.composite
def layouts(draw: st.DrawFn, min_rank: int = 1, max_bits: int = 6) -> LinearLayout:
    """Any layout that covers its tile: mixed bits, redundant lanes and warps, size-1 axes."""
    rank = draw(st.integers(min_rank, 3))
    bits = [draw(st.integers(0, max(0, max_bits - 2 * (rank - 1)))) for _ in range(rank)]
    rng = random.Random(draw(st.integers(0, 2**32)))
    total = sum(bits)
    basis = Basis()
    candidates = [rng.randrange(1 << total) for _ in range(total)] if rng.random() < 0.5 else []
    units = [1 << bit for bit in range(total)]
    rng.shuffle(units)
    vectors = [vector for vector in (*candidates, *units) if basis.add(vector)]
    lane_count, warp_count = rng.randint(0, 3), rng.randint(0, 2)

    def take(count: int) -> tuple[int, ...]:
        return tuple(
            vectors.pop()
            if vectors and rng.random() < 0.7
            else rng.choice([0, rng.randrange(1 << total)])
            for _ in range(count)
        )

    lanes, warps = take(lane_count), take(warp_count)
    return LinearLayout(tuple(1 << count for count in bits), tuple(vectors), lanes, warps)


def slots(layout: LinearLayout) -> list[Slot]:
    return list(
        itertools.product(
            range(layout.register_count),
            range(1 << len(layout.lanes)),
            range(1 << len(layout.warps)),
        )
    )


def model(layout: LinearLayout) -> dict[Slot, tuple[int, ...]]:
    """The coordinates of what is in each slot, bit by bit."""
    found = {}
    for slot in slots(layout):
        point = [0] * len(layout.shape)
        for number, images in zip(
            slot, (layout.registers, layout.lanes, layout.warps), strict=True
        ):
            for bit, image in enumerate(images):
                if number >> bit & 1:
                    point = [
                        a ^ b
                        for a, b in zip(point, np.unravel_index(image, layout.shape), strict=True)
                    ]
        found[slot] = tuple(int(x) for x in point)
    return found


def held(layout: LinearLayout) -> dict[tuple[int, int], set[tuple[int, ...]]]:
    """The coordinates that each thread holds."""
    found: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for (_, lane, warp), point in model(layout).items():
        found.setdefault((lane, warp), set()).add(point)
    return found


@given(layouts())
def test_elements_are_where_the_bits_say(layout: LinearLayout) -> None:
    for (register, lane, warp), point in model(layout).items():
        element = layout.element(register, lane, warp)
        assert coordinates(element, layout.shape) == point
        assert (
            row_major(point, layout.shape) == element == np.ravel_multi_index(point, layout.shape)
        )
        assert layout.register_elements()[register] ^ layout.element(0, lane, warp) == element


@given(layouts())
def test_covers_means_that_every_element_is_held(layout: LinearLayout) -> None:
    assert layout.covers == (len(set(model(layout).values())) == math.prod(layout.shape))


@given(layouts())
def test_threads_that_are_not_redundant_hold_each_element_once(layout: LinearLayout) -> None:
    lane_mask, warp_mask = layout.redundant_threads()
    points = [
        point
        for (_, lane, warp), point in model(layout).items()
        if not lane & lane_mask and not warp & warp_mask
    ]
    assert len(points) == len(set(points))
    assert set(points) == set(model(layout).values())


@given(layouts(), st.randoms(use_true_random=False))
def test_permute_moves_axes(layout: LinearLayout, rng: random.Random) -> None:
    order = list(range(len(layout.shape)))
    rng.shuffle(order)
    moved = layout.permute(order)
    assert moved.shape == tuple(layout.shape[axis] for axis in order)
    after = model(moved)
    for slot, point in model(layout).items():
        assert after[slot] == tuple(point[axis] for axis in order)


@given(layouts(), st.data())
def test_reshape_keeps_row_major_numbers(layout: LinearLayout, data: st.DataObject) -> None:
    total = log2(math.prod(layout.shape))
    cut = data.draw(st.integers(0, total))
    moved = layout.reshape((1 << cut, 1 << (total - cut)))
    after = model(moved)
    for slot, point in model(layout).items():
        assert np.ravel_multi_index(point, layout.shape) == np.ravel_multi_index(
            after[slot], moved.shape
        )
    axis = data.draw(st.integers(0, len(layout.shape)))
    wider = model(layout.expand_dims(axis))
    assert all(
        wider[slot] == (*point[:axis], 0, *point[axis:]) for slot, point in model(layout).items()
    )


@given(layouts(), st.data())
def test_without_an_axis_threads_hold_what_is_left_of_their_elements(
    layout: LinearLayout, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(layout.shape) - 1))
    left = layout.without_axis(axis) if len(layout.shape) > 1 else None
    narrow = layout.narrowed(axis)
    for thread, points in held(layout).items():
        assert held(narrow)[thread] == {(*point[:axis], 0, *point[axis + 1 :]) for point in points}
        if left is not None:
            assert held(left)[thread] == {(*point[:axis], *point[axis + 1 :]) for point in points}
    assert Basis(narrow.registers).rank == len(narrow.registers), "a thread holds an element once"


@given(layouts(), st.data())
def test_a_thread_holds_of_the_source_of_a_broadcast_what_it_repeats(
    layout: LinearLayout, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.sampled_from((1, extent))) for extent in layout.shape)
    source = layout.broadcast_source(shape)
    assert source.shape == shape
    for thread, points in held(layout).items():
        expected = {
            tuple(0 if extent == 1 else x for x, extent in zip(point, shape, strict=True))
            for point in points
        }
        assert held(source)[thread] == expected


@given(layouts(max_bits=5))
def test_joined_holds_both_halves_in_one_thread(layout: LinearLayout) -> None:
    joined = layout.joined()
    assert joined.shape == (*layout.shape, 2)
    for thread, points in held(layout).items():
        assert held(joined)[thread] == {(*point, half) for point in points for half in (0, 1)}
    after = model(joined)
    for (register, lane, warp), point in model(layout).items():
        assert [after[2 * register + half, lane, warp] for half in (0, 1)] == [
            (*point, 0),
            (*point, 1),
        ]


@given(layouts(), st.data())
def test_vector_width_counts_consecutive_registers(
    layout: LinearLayout, data: st.DataObject
) -> None:
    axis, limit = (
        data.draw(st.integers(0, len(layout.shape) - 1)),
        data.draw(st.sampled_from((1, 2, 4, 16))),
    )
    width = layout.vector_width(axis, limit)
    points = model(layout)
    first = [points[register, 0, 0] for register in range(layout.register_count)]

    def consecutive(count: int) -> bool:
        return count <= len(first) and all(
            first[i] == tuple(i if at == axis else 0 for at in range(len(layout.shape)))
            for i in range(count)
        )

    assert width <= limit and consecutive(width)
    assert 2 * width > limit or not consecutive(2 * width)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((1, 4, 8, 32)),
    st.sampled_from((1, 2, 4)),
)
def test_blocked_puts_threads_side_by_side(
    bits: list[int], rng: random.Random, vector: int, lanes: int, warps: int
) -> None:
    shape = tuple(1 << count for count in bits)
    order = list(range(len(shape)))
    rng.shuffle(order)
    layout = blocked(shape, tuple(order), vector, lanes, warps)
    assert layout.covers and (1 << len(layout.lanes), 1 << len(layout.warps)) == (lanes, warps)
    # Along the axes in order, fastest first: the thread's vector, then lanes, then warps.
    vector = min(vector, shape[order[0]])
    turned = np.arange(math.prod(shape)).reshape(shape).transpose(order[::-1]).ravel()
    total = math.prod(shape)
    for thread in range(lanes * warps):
        for i in range(vector):
            expected = turned[(thread * vector + i) % total]
            assert layout.element(i, thread % lanes, thread // lanes) == expected


def test_replicated_threads_hold_everything() -> None:
    layout = replicated((4, 8), 8, 2)
    assert all(len(points) == 32 for points in held(layout).values())
    assert layout.redundant_threads() == (7, 1)


@given(st.lists(st.integers(0, 255), max_size=8), st.integers(0, 255))
def test_a_basis_solves_what_is_in_its_span(vectors: list[int], wanted: int) -> None:
    basis = Basis(vectors)
    used = basis.solve(wanted)
    assert (used is not None) == (wanted in span(vectors))
    if used is not None:
        assert combine(vectors, used) == wanted
    assert 1 << basis.rank == len(set(span(vectors)))


@given(layouts(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_a_shared_layout_gives_places_through_a_layout(
    layout: LinearLayout, rng: random.Random
) -> None:
    bits = log2(math.prod(layout.shape))
    images = [1 << bit for bit in range(bits)]
    rng.shuffle(images)
    shared = SharedLayout(layout.shape, tuple(images))
    for register, lane, warp in slots(layout):
        place = shared.offset(layout.element(register, lane, warp))
        parts = (shared.through(part) for part in (layout.registers, layout.lanes, layout.warps))
        assert place == combine(next(parts), register) ^ combine(next(parts), lane) ^ combine(
            next(parts), warp
        )
    assert {shared.offset(element) for element in range(1 << bits)} == set(range(1 << bits))


@pytest.mark.parametrize("value", [0, -1, 3, 12])
def test_extents_are_powers_of_two(value: int) -> None:
    with pytest.raises(ValueError, match="not a power of two"):
        log2(value)


def test_a_layout_prints_its_images_as_coordinates() -> None:
    layout = blocked((2, 8), (1, 0), 2, 4, 2)
    assert str(layout) == "registers [(0,1)], lanes [(0,2) (0,4)], warps [(1,0)]"
