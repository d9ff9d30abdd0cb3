"""The checked mode: accesses out of bounds and reads of memory that nothing wrote are found with
their line, and nothing in kernels that are right."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import LaunchError
from tilewright.ir import Region
from tilewright.ir.types import I1, I8, I16, I32, I64, DescriptorType, PointerType, TileType
from tilewright.reference.interpreter import DescriptorValue

P32 = PointerType(I32)
N = 8
TILE = TileType((N,), I32)


# -- clean kernels ---------------------------------------------------------------------------------


def test_a_masked_copy_is_clean(kernels):
    def body(b, source, target, n):
        index = b.offsets()
        mask = b.below(index, n)
        b.store(
            b.lanes(target, index),
            b.add(b.load(b.lanes(source, index), mask), b.arange(start=0, end=N)),
            mask,
        )

    x, out = kernels.ints(30), np.zeros(30, np.int32)
    assert kernels.check(body, [P32, P32, I32], [x, out, 30], uninitialized=[1]) == []
    assert np.array_equal(out, x + np.arange(30) % N)


def test_undefined_lanes_that_reach_nothing_are_clean(kernels):
    """Masked-off lanes go through arithmetic, a select, a mask that is false there, and a sum of
    what was selected."""

    def body(b, source, target, n):
        index = b.arange(start=0, end=N)
        mask = b.below(index, n)
        loaded = b.load(b.lanes(source, index), mask)
        positive = b.and_(mask, b.cmp(loaded, b.tile_of(0), predicate="gt"))
        kept = b.select(mask, b.mul(loaded, loaded), b.tile_of(0))
        total = b.region_op(
            "reduce", [kept], regions=[b.yielding(lambda p, q: [b.add(p, q)], [I32, I32])], axis=0
        )
        again = b.load(b.lanes(source, loaded), positive, b.tile_of(5))
        b.store(b.lanes(target, index), b.add(again, b.tile_of(total.result)), mask)

    x, out = np.array([1, 2, 0, 3, 4], np.int32), np.zeros(5, np.int32)
    assert kernels.check(body, [P32, P32, I32], [x, out, 5], grid=(1, 1, 1)) == []
    assert out.tolist() == [x[v] + 30 if v > 0 else 35 for v in x]


def test_atomics_loops_calls_and_descriptors_are_clean(kernels):
    block = DescriptorType((N,), I32)

    def body(b, source, target, counter):
        pid = b.program_id(axis=0)
        loop = Region([I32, TILE])
        with b.at_region(loop):
            i, total = loop.arguments
            b.yield_([b.add(total, b.descriptor_load(source, [b.mul(i, b.const(N))]))])
        summed = b.region_op(
            "for", pid, b.num_programs(axis=0), b.const(1), [b.tile_of(0)], regions=[loop]
        )
        made = b.make_descriptor(target, [b.const(30, I64)], [b.const(1, I64)], result=block)
        b.descriptor_store(made, [b.mul(pid, b.const(N))], summed.result)
        b.atomic_rmw(counter, b.const(1), kind="add")

    x, out, counter = kernels.ints(30), np.zeros(30, np.int32), np.zeros(1, np.int32)
    source = DescriptorValue(x, (30,), (1,))
    assert kernels.check(body, [block, P32, P32], [source, out, counter], uninitialized=[1]) == []
    padded = np.pad(x, (0, 2)).reshape(4, N)
    assert np.array_equal(out, np.concatenate([padded[p:].sum(0) for p in range(4)])[:30])
    assert counter[0] == 4


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["load", "store", "atomic"])
def test_accesses_outside_the_argument(what, kernels):
    def body(b, source, n):
        index = b.offsets()
        b.line(12)
        if what == "load":
            b.load(b.lanes(source, index), b.below(index, n))
        elif what == "store":
            b.store(b.lanes(source, index), index, b.below(index, n))
        else:
            b.atomic_rmw(b.lanes(source, index), index, b.below(index, n), kind="add")

    base = kernels.ints(100)
    assert kernels.check(body, [P32, I32], [base[:30], 30], names=["x", "n"]) == []
    found = kernels.only(
        kernels.check(body, [P32, I32], [base[:30], 32], names=["x", "n"]), "out-of-bounds", 12
    )
    assert (
        found.program == (3, 0, 0)
        and found.lane == (6,)
        and found.argument == "x"
        and found.count == 2
    )
    assert (
        "kernel.py:12:4 in kernel: out-of-bounds:" in str(found)
        and "bytes 120 to 123, but its last is 119; program (3, 0, 0), lane 6 (and 1 more lane)"
        in str(found)
    )


def test_running_over_into_a_neighbouring_argument_is_found(kernels):
    """Both arguments are parts of one array: the address alone does not distinguish them."""
    base = kernels.ints(64)

    def body(b, x, y):
        b.line(4)
        b.store(b.lanes(x, b.offsets()), b.offsets())
        b.line(5)
        b.store(b.lanes(y, b.offsets()), b.offsets())

    found = kernels.only(
        kernels.check(body, [P32, P32], [base[:31], base[31:63]], names=["x", "y"], races=False),
        "out-of-bounds",
        4,
    )
    assert found.argument == "x"


def test_before_the_start_and_through_loops_and_branches(kernels):
    """The pointer is carried by a loop and chosen by a branch, and still known to come from x."""

    def body(b, x):
        pid = b.program_id(axis=0)
        then = b.yielding(lambda: [b.addptr(x, b.const(-1))])
        other = b.yielding(lambda: [x])
        chosen = b.region_op(
            "if", b.cmp(pid, b.const(2), predicate="eq"), regions=[then, other], results=[P32]
        )
        loop = Region([I32, P32])
        with b.at_region(loop):
            b.line(21)
            b.load(loop.arguments[1])
            b.yield_([b.addptr(loop.arguments[1], b.const(1))])
        b.region_op("for", b.const(0), b.const(3), b.const(1), [chosen.result], regions=[loop])

    found = kernels.only(
        kernels.check(body, [P32], [kernels.ints(3)], names=["x"]), "out-of-bounds", 21
    )
    assert (
        found.argument == "x"
        and found.program == (2, 0, 0)
        and "4 bytes before its first of 12 bytes" in found.message
    )


@pytest.mark.parametrize(
    ("count", "at", "said"),
    [
        (3, 3, "bytes 12 to 15, but its last is 11; program (0, 0, 0) (and 3 more programs)"),
        (0, 0, "load outside argument x: it is empty; program"),
    ],
)
def test_messages_say_where_an_argument_ends(count, at, said, kernels):
    def body(b, x):
        b.line(5)
        b.load(b.addptr(x, b.const(at)))

    argument = kernels.ints(8)[:count]
    found = kernels.only(kernels.check(body, [P32], [argument], names=["x"]), "out-of-bounds", 5)
    assert said in str(found)


@pytest.mark.parametrize("form", ["if", "select"])
def test_descriptors_of_several_arguments_that_meet_are_clean(form, kernels):
    block = DescriptorType((N,), I32)

    def body(b, one, other, target):
        pid = b.program_id(axis=0)
        odd = b.cmp(pid, b.const(1), predicate="eq")
        if form == "select":
            met = b.select(odd, one, other)
        else:
            met = b.region_op(
                "if",
                odd,
                regions=[b.yielding(lambda: [one], []), b.yielding(lambda: [other], [])],
                results=[block],
            ).results[0]
        b.store(b.lanes(target, b.offsets()), b.descriptor_load(met, [b.const(0)]))

    x, y, out = kernels.ints(N), kernels.ints(N) + 100, np.zeros(2 * N, np.int32)
    descriptors = [DescriptorValue(array, (N,), (1,)) for array in (x, y)]
    assert (
        kernels.check(
            body, [block, block, P32], [*descriptors, out], grid=(2, 1, 1), uninitialized=[2]
        )
        == []
    )
    assert np.array_equal(out, np.concatenate([y, x]))


def test_a_descriptor_larger_than_its_array(kernels):
    block = DescriptorType((N,), I32)

    def body(b, source):
        b.line(6)
        b.descriptor_load(source, [b.mul(b.program_id(axis=0), b.const(N))])

    assert kernels.check(body, [block], [DescriptorValue(kernels.ints(27), (27,), (1,))]) == []
    assert kernels.only(
        kernels.check(body, [block], [DescriptorValue(kernels.ints(27), (28,), (1,))]),
        "out-of-bounds",
        6,
    ).lane == (3,)


def test_pointers_from_memory_need_their_buffers_named(kernels):
    data, out = kernels.ints(5), np.zeros(1, np.int32)

    def body(b, table, target):
        b.line(8)
        b.store(target, b.load(b.addptr(b.load(table), b.const(4))))

    table = np.array([data.ctypes.data], np.int64)
    types = [PointerType(P32), P32]
    assert kernels.only(
        kernels.check(body, types, [table, out], grid=(1, 1, 1)), "out-of-bounds", 8
    )
    assert kernels.check(body, types, [table, out], grid=(1, 1, 1), buffers=[data]) == []
    assert out[0] == 4
    # of a view no more than its own elements, whatever it is part of
    assert kernels.only(
        kernels.check(body, types, [table, out], grid=(1, 1, 1), buffers=[data[:4]]),
        "out-of-bounds",
        8,
    )


# -- memory that nothing wrote ---------------------------------------------------------------------


def test_reading_what_nothing_wrote(kernels):
    def body(b, scratch, target):
        index = b.offsets()
        b.store(b.lanes(scratch, index), index, b.below(b.arange(start=0, end=N), 5))
        b.line(10)
        b.store(b.lanes(target, index), b.load(b.lanes(scratch, index)))

    types, arguments = [P32, P32], [np.empty(4 * N, np.int32), np.zeros(4 * N, np.int32)]
    assert kernels.check(body, types, arguments) == []
    found = kernels.only(
        kernels.check(
            body, types, arguments, names=["scratch", "out"], uninitialized=["scratch", "out"]
        ),
        "uninitialized-read",
        10,
    )
    assert found.argument == "scratch" and found.lane == (5,) and found.count == 12
    with pytest.raises(
        LaunchError,
        match="uninitialized names argument 'nothing'; arguments with memory are scratch",
    ):
        kernels.check(body, types, arguments, names=["scratch", "out"], uninitialized=["nothing"])


def test_bytes_are_followed_one_by_one(kernels):
    """Two of an integer's four bytes are written; reading the integer is a finding, reading those
    two is not."""

    def body(b, x, wide):
        b.store(b.bitcast(x, result=PointerType(I16)), b.const(7, I16))
        b.line(3)
        b.load(b.bitcast(x, result=PointerType(I16)))
        b.line(4)
        b.load(b.bitcast(x, result=PointerType(I8)))
        then = Region([])
        with b.at_region(then):
            b.load(x)
            b.yield_([])
        b.region_op("if", wide, regions=[then, b.nothing()], results=[])

    arguments = [np.empty(1, np.int32)]
    assert (
        kernels.check(body, [P32, I1], [*arguments, False], grid=(1, 1, 1), uninitialized=[0]) == []
    )
    assert kernels.only(
        kernels.check(body, [P32, I1], [*arguments, True], grid=(1, 1, 1), uninitialized=[0]),
        "uninitialized-read",
        4,
    )
