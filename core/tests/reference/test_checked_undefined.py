"""The checked mode: lanes that a mask left undefined are found where they matter."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir import Region
from tilewright.ir.types import I32, PointerType, TileType
from tilewright.reference.checked import CheckedOptions, CheckError

P32 = PointerType(I32)
N = 8
TILE = TileType((N,), I32)


def undefined_kernel(use):
    """Loads lanes 0 .. 4 of 8 without ``other`` at line 5, and lets ``use(b, value, x, out, index)`` do something with it at line 6."""

    def body(b, x, out):
        index = b.arange(start=0, end=N)
        b.line(5)
        value = b.load(b.lanes(x, index), b.below(index, 5))
        b.line(6)
        use(b, value, x, out, index)

    return body


SINKS = {
    "a store": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.add(v, i)),
    "a store through shapes": lambda b, v, x, out, i: b.store(
        b.lanes(out, i), b.reshape(b.permute(b.reshape(v, result=TileType((2, 4), I32)), order=(1, 0)), result=TILE)
    ),
    "a store of a sum": lambda b, v, x, out, i: b.store(out, b.add_up(v)),
    "a store of a scan": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.running_sum(v, False)),
    "a store of the first of a reverse scan": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.running_sum(v, True), b.below(i, 1)),
    "a store of a map": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.doubled(v)),
    "a store of a gather": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.gather(v, b.tile_of(6), axis=0)),
    "an address": lambda b, v, x, out, i: b.load(b.lanes(x, v)),
    "a mask": lambda b, v, x, out, i: b.store(b.lanes(out, i), i, b.cmp(v, i, predicate="eq")),
    "a branch": lambda b, v, x, out, i: b.region_op("if", b.cmp(b.add_up(v), b.const(3), predicate="gt"), regions=[b.nothing(), b.nothing()], results=[]),
    "a loop bound": lambda b, v, x, out, i: b.region_op("for", b.const(0), b.add_up(v), b.const(1), [], regions=[b.yielding(lambda j: [], [I32])]),
    "an assert": lambda b, v, x, out, i: getattr(b, "assert_")(b.cmp(v, v, predicate="eq"), message="m"),
    "an atomic": lambda b, v, x, out, i: b.atomic_rmw(b.lanes(out, i), v, kind="add"),
    "a condition of a select that is stored": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.select(b.cmp(v, i, predicate="eq"), i, i)),
    "a histogram": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.histogram(v, bins=N)),
}


@pytest.mark.parametrize("name", SINKS)
def test_undefined_lanes_are_found_where_they_matter(name, kernels):
    module = kernels.make([P32, P32], undefined_kernel(SINKS[name]))
    with pytest.raises(CheckError) as caught:
        kernels.run(module, [np.zeros(N, np.int32), np.zeros(N, np.int32)], (1, 1, 1), checked=CheckedOptions())
    found = kernels.only(list(caught.value.findings), "undefined-value", 6)
    assert "masked off in the load at kernel.py:5:4 in kernel" in found.message
    kernels.run(module, [np.zeros(N, np.int32), np.zeros(N, np.int32)], (1, 1, 1), checked=CheckedOptions(undefined=False))


CLEAN_USES = {
    "a store under the mask": lambda b, v, x, out, i: b.store(b.lanes(out, i), v, b.below(i, 5)),
    "a select": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.select(b.below(i, 5), v, i)),
    "a scan up to the mask": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.running_sum(v, False), b.below(i, 5)),
    "a product with zero": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.mul(v, b.cast(b.below(i, 5), result=TILE))),
    "a gather of defined lanes": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.gather(v, b.select(b.below(i, 5), i, b.tile_of(0)), axis=0)),
    "an address under the mask": lambda b, v, x, out, i: b.load(b.lanes(x, v), b.below(i, 5)),
    "a histogram under the mask": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.histogram(v, b.below(i, 5), bins=N)),
    "other": lambda b, v, x, out, i: b.store(b.lanes(out, i), b.load(b.lanes(x, i), b.below(i, 5), b.select(b.below(i, 5), v, i))),
}


@pytest.mark.parametrize("name", CLEAN_USES)
def test_undefined_lanes_that_are_kept_off_are_clean(name, kernels):
    assert kernels.check(undefined_kernel(CLEAN_USES[name]), [P32, P32], [np.zeros(N, np.int32), np.zeros(N, np.int32)], grid=(1, 1, 1)) == []


def test_undefined_values_through_divergent_control_flow(kernels):
    """Only program 2 leaves a lane undefined, in a loop under a branch; program 3 stores under its own mask."""

    def body(b, x, out):
        pid = b.program_id(axis=0)
        index = b.offsets()

        def then():
            loop = Region([I32, TILE])
            with b.at_region(loop):
                b.line(30)
                more = b.load(b.lanes(x, index), b.below(b.arange(start=0, end=N), b.sub(b.const(10), pid)))
                loaded = b.load(b.lanes(x, index), b.below(b.arange(start=0, end=N), b.sub(b.const(11), b.mul(pid, b.const(2)))))
                b.yield_([b.add(b.add(loop.arguments[1], more), loaded)])
            return list(b.region_op("for", b.const(0), pid, b.const(1), [b.tile_of(0)], regions=[loop]).results)

        branch = b.region_op("if", b.cmp(pid, b.const(2), predicate="le"), regions=[b.yielding(then), b.yielding(lambda: [index])], results=[TILE])
        b.line(31)
        b.store(b.lanes(out, index), branch.result)

    found = kernels.only(kernels.check(body, [P32, P32], [kernels.ints(), kernels.ints()]), "undefined-value", 31)
    assert found.program == (2, 0, 0) and found.lane == (7,) and found.count == 1 and "kernel.py:30:4" in found.message
