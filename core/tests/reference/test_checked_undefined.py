"""Checked mode: masked-off lanes of a load whose undefined values matter are reported."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import Region
from tilewright.ir.types import I32, PointerType, TileType
from tilewright.reference.checks.checked_mode import CheckedOptions, CheckError

P32 = PointerType(I32)
N = 8
TILE = TileType((N,), I32)


#: how lanes 0 .. 4 of 8 are read -> the findings where the others are used
SOURCES = {"load": "masked-off-lane", "atomic_load": "undefined-value"}
CHECKED = CheckedOptions(masked_off=True)


def partial_kernel(source, use):
    """Reads lanes 0 .. 4 of 8 at line 5, and lets ``use(b, value, x, out, index)`` do something
    with it at line 6."""

    def body(b, x, out):
        index = b.arange(start=0, end=N)
        b.line(5)
        value = getattr(b, source)(b.lanes(x, index), b.below(index, 5))
        b.line(6)
        use(b, value, x, out, index)

    return body


SINKS = {
    "a store": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.add(v, i)),
    "a store through shapes": lambda b, v, x, out, i: b.store(
        b.lanes(out, i),
        b.reshape(b.permute(b.reshape(v, result=TileType((2, 4), I32)), order=(1, 0)), result=TILE),
    ),
    "a store of a sum": lambda b, v, x, out, i: b.store(out, b.add_up(v)),
    "a store of a scan": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.running_sum(v, False)),
    "a store of the first of a reverse scan": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.running_sum(v, True), b.below(i, 1)
    ),
    "a store of a map": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.doubled(v)),
    "a store of a gather": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.gather(v, b.tile_of(6), axis=0)
    ),
    "an address": lambda b, v, x, out, i: b.load(b.lanes(x, v)),
    "a mask": lambda b, v, x, out, i: b.store(b.lanes(out, i), i, b.cmp(v, i, predicate="eq")),
    "a branch": lambda b, v, x, out, i: b.region_op(
        "if",
        b.cmp(b.add_up(v), b.const(3), predicate="gt"),
        regions=[b.nothing(), b.nothing()],
        results=[],
    ),
    "a loop bound": lambda b, v, x, out, i: b.region_op(
        "for", b.const(0), b.add_up(v), b.const(1), [], regions=[b.yielding(lambda j: [], [I32])]
    ),
    "an assert": lambda b, v, x, out, i: getattr(b, "assert_")(
        b.cmp(v, v, predicate="eq"), message="m"
    ),
    "an atomic": lambda b, v, x, out, i: b.atomic_rmw(b.lanes(out, i), v, kind="add"),
    "a condition of a select that is stored": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.select(b.cmp(v, i, predicate="eq"), i, i)
    ),
    "a histogram": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.histogram(v, bins=N)),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", SINKS)
def test_lanes_are_found_where_they_matter(name, source, kernels):
    module = kernels.make([P32, P32], partial_kernel(source, SINKS[name]))
    arrays = [np.zeros(N, np.int32), np.zeros(N, np.int32)]
    with pytest.raises(CheckError) as caught:
        kernels.run(module, arrays, (1, 1, 1), checked=CHECKED)
    found = kernels.only(list(caught.value.findings), SOURCES[source], 6)
    assert f"masked off in the {source} at kernel.py:5:4 in kernel" in found.message
    off = CheckedOptions() if source == "load" else CheckedOptions(undefined=False, masked_off=True)
    kernels.run(module, arrays, (1, 1, 1), checked=off)


CLEAN_USES = {
    "a store under the mask": lambda b, v, x, out, i: b.store(b.lanes(out, i), v, b.below(i, 5)),
    "a select": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.select(b.below(i, 5), v, i)),
    "a scan up to the mask": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.running_sum(v, False), b.below(i, 5)
    ),
    "a product with zero": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.mul(v, b.cast(b.below(i, 5), result=TILE))
    ),
    "a gather of defined lanes": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.gather(v, b.select(b.below(i, 5), i, b.tile_of(0)), axis=0)
    ),
    "an address under the mask": lambda b, v, x, out, i: b.load(b.lanes(x, v), b.below(i, 5)),
    "a histogram under the mask": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.histogram(v, b.below(i, 5), bins=N)
    ),
    "other": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.load(b.lanes(x, i), b.below(i, 5), b.select(b.below(i, 5), v, i))
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", CLEAN_USES)
def test_lanes_that_are_kept_off_are_clean(name, source, kernels):
    arrays = [np.zeros(N, np.int32), np.zeros(N, np.int32)]
    assert (
        kernels.check(
            partial_kernel(source, CLEAN_USES[name]),
            [P32, P32],
            arrays,
            grid=(1, 1, 1),
            masked_off=True,
        )
        == []
    )


#: values that zeros in masked-off lanes make undefined or wrong -> the finding at the store
SPOILING = {
    "a division": (lambda b, v, i: b.div(i, v), "undefined-value"),
    "a remainder": (lambda b, v, i: b.rem(i, v), "undefined-value"),
    "a shift": (lambda b, v, i: b.shl(i, b.sub(v, b.tile_of(1))), "undefined-value"),
    "a difference": (lambda b, v, i: b.sub(i, v), None),
}


@pytest.mark.parametrize("name", SPOILING)
@pytest.mark.parametrize("masked", [False, True])
def test_what_zeros_in_lanes_that_are_left_out_spoil(name, masked, kernels):
    """A division by such a zero is a mistake where its result is used, and nowhere else."""
    make, kind = SPOILING[name]
    use = partial_kernel(
        "load",
        lambda b, v, x, out, i: b.store(
            b.lanes(out, i), make(b, v, i), b.below(i, 5) if masked else b.below(i, N)
        ),
    )
    found = kernels.check(
        use, [P32, P32], [np.ones(N, np.int32), np.zeros(N, np.int32)], grid=(1, 1, 1)
    )
    assert [finding.kind for finding in found] == ([] if masked or kind is None else [kind])


def test_an_undefined_lane_is_worse_than_one_that_is_left_out(kernels):
    """Of both together the finding is about the undefined one, but where the zero of the other
    settles the result."""

    def body(b, x, out):
        index = b.arange(start=0, end=N)
        masked_off, undefined = (
            read(b.lanes(x, index), b.below(index, 5)) for read in (b.load, b.atomic_load)
        )
        b.line(7)
        b.store(b.lanes(out, index), b.add(masked_off, undefined))
        b.line(8)
        b.store(b.lanes(out, index), b.mul(undefined, masked_off))

    arrays = [np.zeros(N, np.int32), np.zeros(N, np.int32)]
    kernels.only(kernels.check(body, [P32, P32], arrays, grid=(1, 1, 1)), "undefined-value", 7)
    found = kernels.check(body, [P32, P32], arrays, grid=(1, 1, 1), masked_off=True)
    assert sorted((finding.kind, finding.location.line) for finding in found) == [
        ("masked-off-lane", 8),
        ("undefined-value", 7),
    ]


def test_lanes_that_are_left_out_through_divergent_control_flow(kernels):
    """Only program 2 leaves a lane out, in a loop under a branch; program 3 stores under its own
    mask."""

    def body(b, x, out):
        pid = b.program_id(axis=0)
        index = b.offsets()

        def then():
            loop = Region([I32, TILE])
            with b.at_region(loop):
                b.line(30)
                more = b.load(
                    b.lanes(x, index), b.below(b.arange(start=0, end=N), b.sub(b.const(10), pid))
                )
                loaded = b.load(
                    b.lanes(x, index),
                    b.below(b.arange(start=0, end=N), b.sub(b.const(11), b.mul(pid, b.const(2)))),
                )
                b.yield_([b.add(b.add(loop.arguments[1], more), loaded)])
            return list(
                b.region_op(
                    "for", b.const(0), pid, b.const(1), [b.tile_of(0)], regions=[loop]
                ).results
            )

        branch = b.region_op(
            "if",
            b.cmp(pid, b.const(2), predicate="le"),
            regions=[b.yielding(then), b.yielding(lambda: [index])],
            results=[TILE],
        )
        b.line(31)
        b.store(b.lanes(out, index), branch.result)

    found = kernels.only(
        kernels.check(body, [P32, P32], [kernels.ints(), kernels.ints()], masked_off=True),
        "masked-off-lane",
        31,
    )
    assert (
        found.program == (2, 0, 0)
        and found.lane == (7,)
        and found.count == 1
        and "kernel.py:30:4" in found.message
    )
