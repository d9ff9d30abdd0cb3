"""The checked mode: each kind of mistake found with its line, and nothing found in kernels that are right."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tilewright.errors import KernelError, LaunchError
from tilewright.ir import Builder, Function, Location, Region
from tilewright.ir.types import F32, I1, I8, I16, I32, I64, U32, DescriptorType, PointerType, TileType
from tilewright.reference.checked import CheckedOptions, CheckError
from tilewright.reference.interpreter import DescriptorValue

P32, PF = PointerType(I32), PointerType(F32)
GRID = (4, 1, 1)
N = 8
TILE = TileType((N,), I32)


def const(b, value, type_=I32):
    return b.constant(value=value, result=type_)


def tile_of(b, value):
    return b.splat(value if not isinstance(value, int) else const(b, value), result=TILE)


def offsets(b):
    """pid * N + 0 .. N - 1"""
    return b.add(tile_of(b, b.mul(b.program_id(axis=0), const(b, N))), b.arange(start=0, end=N))


def at(b, base, index):
    return b.addptr(b.splat(base, result=TileType((N,), base.type)), index)


def below(b, index, bound):
    return b.cmp(index, tile_of(b, bound), predicate="lt")


def yielding(b, build, types=()):
    region = Region(types)
    with b.at_region(region):
        b.yield_(build(*region.arguments) or [])
    return region


def nothing(b):
    """A region without values or effects."""
    return yielding(b, list)


def check(kernels, body, types, arguments, grid=GRID, names=(), **options):
    """The findings of a run; an empty list where it is clean. The kernel must also build and run unchecked modes elsewhere."""
    module = kernels.make(types, body, names)
    try:
        kernels.run(module, arguments, grid, checked=CheckedOptions(**options))
    except CheckError as error:
        return list(error.findings)
    return []


def only(findings, kind, line):
    """The one finding, of that kind and line."""
    assert [(f.kind, f.location.line) for f in findings] == [(kind, line)], "\n".join(map(str, findings))
    return findings[0]


def ints(n=4 * N):
    return np.arange(n, dtype=np.int32)


# -- clean kernels ---------------------------------------------------------------------------------------------------------------------------------


def test_a_masked_copy_is_clean(kernels):
    def body(b, source, target, n):
        index = offsets(b)
        mask = below(b, index, n)
        b.store(at(b, target, index), b.add(b.load(at(b, source, index), mask), b.arange(start=0, end=N)), mask)

    x, out = ints(30), np.zeros(30, np.int32)
    assert check(kernels, body, [P32, P32, I32], [x, out, 30], uninitialized=[1]) == []
    assert np.array_equal(out, x + np.arange(30) % N)


def test_undefined_lanes_that_reach_nothing_are_clean(kernels):
    """Masked-off lanes go through arithmetic, a select, a mask that is false there, and a sum of what was selected."""

    def body(b, source, target, n):
        index = b.arange(start=0, end=N)
        mask = below(b, index, n)
        loaded = b.load(at(b, source, index), mask)
        positive = b.and_(mask, b.cmp(loaded, tile_of(b, 0), predicate="gt"))
        kept = b.select(mask, b.mul(loaded, loaded), tile_of(b, 0))
        total = b.region_op("reduce", [kept], regions=[yielding(b, lambda p, q: [b.add(p, q)], [I32, I32])], axis=0)
        again = b.load(at(b, source, loaded), positive, tile_of(b, 5))
        b.store(at(b, target, index), b.add(again, tile_of(b, total.result)), mask)

    x, out = np.array([1, 2, 0, 3, 4], np.int32), np.zeros(5, np.int32)
    assert check(kernels, body, [P32, P32, I32], [x, out, 5], grid=(1, 1, 1)) == []
    assert out.tolist() == [x[v] + 30 if v > 0 else 35 for v in x]


def test_atomics_loops_calls_and_descriptors_are_clean(kernels):
    block = DescriptorType((N,), I32)

    def body(b, source, target, counter):
        pid = b.program_id(axis=0)
        loop = Region([I32, TILE])
        with b.at_region(loop):
            i, total = loop.arguments
            b.yield_([b.add(total, b.descriptor_load(source, [b.mul(i, const(b, N))]))])
        summed = b.region_op("for", pid, b.num_programs(axis=0), const(b, 1), [tile_of(b, 0)], regions=[loop])
        made = b.make_descriptor(target, [const(b, 30, I64)], [const(b, 1, I64)], result=block)
        b.descriptor_store(made, [b.mul(pid, const(b, N))], summed.result)
        b.atomic_rmw(counter, const(b, 1), kind="add")

    x, out, counter = ints(30), np.zeros(30, np.int32), np.zeros(1, np.int32)
    source = DescriptorValue(x, (30,), (1,))
    assert check(kernels, body, [block, P32, P32], [source, out, counter], uninitialized=[1]) == []
    padded = np.pad(x, (0, 2)).reshape(4, N)
    assert np.array_equal(out, np.concatenate([padded[p:].sum(0) for p in range(4)])[:30])
    assert counter[0] == 4


# -- bounds ----------------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["load", "store", "atomic"])
def test_accesses_outside_the_argument(what, kernels):
    def body(b, source, n):
        index = offsets(b)
        b.line(12)
        if what == "load":
            b.load(at(b, source, index), below(b, index, n))
        elif what == "store":
            b.store(at(b, source, index), index, below(b, index, n))
        else:
            b.atomic_rmw(at(b, source, index), index, below(b, index, n), kind="add")

    base = ints(100)
    assert check(kernels, body, [P32, I32], [base[:30], 30], names=["x", "n"]) == []
    found = only(check(kernels, body, [P32, I32], [base[:30], 32], names=["x", "n"]), "out-of-bounds", 12)
    assert found.program == (3, 0, 0) and found.lane == (6,) and found.argument == "x" and found.count == 2
    assert "kernel.py:12:4 in kernel: out-of-bounds:" in str(found) and "at byte 120 of 120 bytes; program (3, 0, 0), lane 6 (and 1 more)" in str(found)


def test_running_over_into_a_neighbouring_argument_is_found(kernels):
    """Both arguments are parts of one array, so that the address alone does not tell."""
    base = ints(64)

    def body(b, x, y):
        b.line(4)
        b.store(at(b, x, offsets(b)), offsets(b))
        b.line(5)
        b.store(at(b, y, offsets(b)), offsets(b))

    found = only(check(kernels, body, [P32, P32], [base[:31], base[31:63]], names=["x", "y"], races=False), "out-of-bounds", 4)
    assert found.argument == "x"


def test_before_the_start_and_through_loops_and_branches(kernels):
    """The pointer is carried by a loop and chosen by a branch, and still known to come from x."""

    def body(b, x):
        pid = b.program_id(axis=0)
        then = yielding(b, lambda: [b.addptr(x, const(b, -1))])
        other = yielding(b, lambda: [x])
        chosen = b.region_op("if", b.cmp(pid, const(b, 2), predicate="eq"), regions=[then, other], results=[P32])
        loop = Region([I32, P32])
        with b.at_region(loop):
            b.line(21)
            b.load(loop.arguments[1])
            b.yield_([b.addptr(loop.arguments[1], const(b, 1))])
        b.region_op("for", const(b, 0), const(b, 3), const(b, 1), [chosen.result], regions=[loop])

    found = only(check(kernels, body, [P32], [ints(3)], names=["x"]), "out-of-bounds", 21)
    assert found.argument == "x" and found.program == (2, 0, 0) and "4 bytes before its first of 12 bytes" in found.message


def test_a_descriptor_larger_than_its_array(kernels):
    block = DescriptorType((N,), I32)

    def body(b, source):
        b.line(6)
        b.descriptor_load(source, [b.mul(b.program_id(axis=0), const(b, N))])

    assert check(kernels, body, [block], [DescriptorValue(ints(27), (27,), (1,))]) == []
    assert only(check(kernels, body, [block], [DescriptorValue(ints(27), (28,), (1,))]), "out-of-bounds", 6).lane == (3,)


def test_pointers_from_memory_need_their_buffers_named(kernels):
    data, out = ints(5), np.zeros(1, np.int32)

    def body(b, table, target):
        b.line(8)
        b.store(target, b.load(b.addptr(b.load(table), const(b, 4))))

    table = np.array([data.ctypes.data], np.int64)
    types = [PointerType(P32), P32]
    assert only(check(kernels, body, types, [table, out], grid=(1, 1, 1)), "out-of-bounds", 8)
    assert check(kernels, body, types, [table, out], grid=(1, 1, 1), buffers=[data]) == []
    assert out[0] == 4


# -- memory that nothing wrote ---------------------------------------------------------------------------------------------------------------------


def test_reading_what_nothing_wrote(kernels):
    def body(b, scratch, target):
        index = offsets(b)
        b.store(at(b, scratch, index), index, below(b, b.arange(start=0, end=N), 5))
        b.line(10)
        b.store(at(b, target, index), b.load(at(b, scratch, index)))

    types, arguments = [P32, P32], [np.empty(4 * N, np.int32), np.zeros(4 * N, np.int32)]
    assert check(kernels, body, types, arguments) == []
    found = only(check(kernels, body, types, arguments, names=["scratch", "out"], uninitialized=["scratch", "out"]), "uninitialized-read", 10)
    assert found.argument == "scratch" and found.lane == (5,) and found.count == 12
    with pytest.raises(LaunchError, match="uninitialized names argument 'nothing'; arguments with memory are scratch"):
        check(kernels, body, types, arguments, names=["scratch", "out"], uninitialized=["nothing"])


def test_bytes_are_followed_one_by_one(kernels):
    """Two of an integer's four bytes are written; reading the integer is a finding, reading those two is not."""

    def body(b, x, wide):
        b.store(b.bitcast(x, result=PointerType(I16)), const(b, 7, I16))
        b.line(3)
        b.load(b.bitcast(x, result=PointerType(I16)))
        b.line(4)
        b.load(b.bitcast(x, result=PointerType(I8)))
        then = Region([])
        with b.at_region(then):
            b.load(x)
            b.yield_([])
        b.region_op("if", wide, regions=[then, nothing(b)], results=[])

    arguments = [np.empty(1, np.int32)]
    assert check(kernels, body, [P32, I1], [*arguments, False], grid=(1, 1, 1), uninitialized=[0]) == []
    assert only(check(kernels, body, [P32, I1], [*arguments, True], grid=(1, 1, 1), uninitialized=[0]), "uninitialized-read", 4)


# -- undefined lanes -------------------------------------------------------------------------------------------------------------------------------


def undefined_kernel(use):
    """Loads lanes 0 .. 4 of 8 without ``other`` at line 5, and lets ``use(b, value, x, out, index)`` do something with it at line 6."""

    def body(b, x, out):
        index = b.arange(start=0, end=N)
        b.line(5)
        value = b.load(at(b, x, index), below(b, index, 5))
        b.line(6)
        use(b, value, x, out, index)

    return body


def add_up(b, value):
    return b.region_op("reduce", [value], regions=[yielding(b, lambda p, q: [b.add(p, q)], [I32, I32])], axis=0).result


def running_sum(b, value, reverse):
    region = yielding(b, lambda p, q: [b.add(p, q)], [I32, I32])
    return b.region_op("scan", [value], regions=[region], axis=0, reverse=reverse).result


def doubled(b, value):
    return b.region_op("map", [value], regions=[yielding(b, lambda p: [b.add(p, p)], [I32])], results=[TILE]).result


SINKS = {
    "a store": lambda b, v, x, out, i: b.store(at(b, out, i), b.add(v, i)),
    "a store through shapes": lambda b, v, x, out, i: b.store(
        at(b, out, i), b.reshape(b.permute(b.reshape(v, result=TileType((2, 4), I32)), order=(1, 0)), result=TILE)
    ),
    "a store of a sum": lambda b, v, x, out, i: b.store(out, add_up(b, v)),
    "a store of a scan": lambda b, v, x, out, i: b.store(at(b, out, i), running_sum(b, v, False)),
    "a store of the first of a reverse scan": lambda b, v, x, out, i: b.store(at(b, out, i), running_sum(b, v, True), below(b, i, 1)),
    "a store of a map": lambda b, v, x, out, i: b.store(at(b, out, i), doubled(b, v)),
    "a store of a gather": lambda b, v, x, out, i: b.store(at(b, out, i), b.gather(v, tile_of(b, 6), axis=0)),
    "an address": lambda b, v, x, out, i: b.load(at(b, x, v)),
    "a mask": lambda b, v, x, out, i: b.store(at(b, out, i), i, b.cmp(v, i, predicate="eq")),
    "a branch": lambda b, v, x, out, i: b.region_op("if", b.cmp(add_up(b, v), const(b, 3), predicate="gt"), regions=[nothing(b), nothing(b)], results=[]),
    "a loop bound": lambda b, v, x, out, i: b.region_op("for", const(b, 0), add_up(b, v), const(b, 1), [], regions=[yielding(b, lambda j: [], [I32])]),
    "an assert": lambda b, v, x, out, i: getattr(b, "assert_")(b.cmp(v, v, predicate="eq"), message="m"),
    "an atomic": lambda b, v, x, out, i: b.atomic_rmw(at(b, out, i), v, kind="add"),
    "a condition of a select that is stored": lambda b, v, x, out, i: b.store(at(b, out, i), b.select(b.cmp(v, i, predicate="eq"), i, i)),
    "a histogram": lambda b, v, x, out, i: b.store(at(b, out, i), b.histogram(v, bins=N)),
}


@pytest.mark.parametrize("name", SINKS)
def test_undefined_lanes_are_found_where_they_matter(name, kernels):
    module = kernels.make([P32, P32], undefined_kernel(SINKS[name]))
    with pytest.raises(CheckError) as caught:
        kernels.run(module, [np.zeros(N, np.int32), np.zeros(N, np.int32)], (1, 1, 1), checked=CheckedOptions())
    found = only(list(caught.value.findings), "undefined-value", 6)
    assert "masked off in the load at kernel.py:5:4 in kernel" in found.message
    kernels.run(module, [np.zeros(N, np.int32), np.zeros(N, np.int32)], (1, 1, 1), checked=CheckedOptions(undefined=False))


CLEAN_USES = {
    "a store under the mask": lambda b, v, x, out, i: b.store(at(b, out, i), v, below(b, i, 5)),
    "a select": lambda b, v, x, out, i: b.store(at(b, out, i), b.select(below(b, i, 5), v, i)),
    "a scan up to the mask": lambda b, v, x, out, i: b.store(at(b, out, i), running_sum(b, v, False), below(b, i, 5)),
    "a product with zero": lambda b, v, x, out, i: b.store(at(b, out, i), b.mul(v, b.cast(below(b, i, 5), result=TILE))),
    "a gather of defined lanes": lambda b, v, x, out, i: b.store(at(b, out, i), b.gather(v, b.select(below(b, i, 5), i, tile_of(b, 0)), axis=0)),
    "an address under the mask": lambda b, v, x, out, i: b.load(at(b, x, v), below(b, i, 5)),
    "a histogram under the mask": lambda b, v, x, out, i: b.store(at(b, out, i), b.histogram(v, below(b, i, 5), bins=N)),
    "other": lambda b, v, x, out, i: b.store(at(b, out, i), b.load(at(b, x, i), below(b, i, 5), b.select(below(b, i, 5), v, i))),
}


@pytest.mark.parametrize("name", CLEAN_USES)
def test_undefined_lanes_that_are_kept_off_are_clean(name, kernels):
    assert check(kernels, undefined_kernel(CLEAN_USES[name]), [P32, P32], [np.zeros(N, np.int32), np.zeros(N, np.int32)], grid=(1, 1, 1)) == []


def test_undefined_values_through_divergent_control_flow(kernels):
    """Only program 2 leaves a lane undefined, in a loop under a branch; program 3 stores under its own mask."""

    def body(b, x, out):
        pid = b.program_id(axis=0)
        index = offsets(b)

        def then():
            loop = Region([I32, TILE])
            with b.at_region(loop):
                b.line(30)
                more = b.load(at(b, x, index), below(b, b.arange(start=0, end=N), b.sub(const(b, 10), pid)))
                loaded = b.load(at(b, x, index), below(b, b.arange(start=0, end=N), b.sub(const(b, 11), b.mul(pid, const(b, 2)))))
                b.yield_([b.add(b.add(loop.arguments[1], more), loaded)])
            return list(b.region_op("for", const(b, 0), pid, const(b, 1), [tile_of(b, 0)], regions=[loop]).results)

        branch = b.region_op("if", b.cmp(pid, const(b, 2), predicate="le"), regions=[yielding(b, then), yielding(b, lambda: [index])], results=[TILE])
        b.line(31)
        b.store(at(b, out, index), branch.result)

    found = only(check(kernels, body, [P32, P32], [ints(), ints()]), "undefined-value", 31)
    assert found.program == (2, 0, 0) and found.lane == (7,) and found.count == 1 and "kernel.py:30:4" in found.message


# -- races -----------------------------------------------------------------------------------------------------------------------------------------


def store_own(b, out, pid):
    b.store(b.addptr(out, pid), pid)


RACES = {
    "two writes in one store": (lambda b, x, pid: b.store(x, pid), 1),
    "two writes in two stores": (
        lambda b, x, pid: (store_own(b, x, pid), b.line(2), b.store(b.addptr(x, b.add(pid, const(b, 1))), pid)),
        2,
    ),
    "a read of what another program writes": (
        lambda b, x, pid: (store_own(b, x, pid), b.line(2), b.load(b.addptr(x, b.rem(b.add(pid, const(b, 1)), const(b, 4))))),
        2,
    ),
    "a write of what another program reads": (
        lambda b, x, pid: (b.load(x), b.load(b.addptr(x, pid)), b.line(2), store_own(b, x, pid)),
        2,
    ),
    "an atomic and a plain write": (
        lambda b, x, pid: (b.atomic_rmw(x, pid, kind="add", order="relaxed"), b.line(2), store_own(b, x, pid)),
        2,
    ),
    "an atomic and a plain read": (
        lambda b, x, pid: (b.load(x), b.line(2), b.atomic_rmw(x, pid, kind="add", order="relaxed")),
        2,
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_races_between_programs(name, kernels):
    build, line = RACES[name]

    def body(b, x):
        b.line(1)
        build(b, x, b.program_id(axis=0))

    found = check(kernels, body, [P32], [ints()], names=["x"])
    found = only(found, "race", line)
    assert found.argument == "x" and "races with the" in found.message and "of program" in found.message
    assert check(kernels, body, [P32], [ints()], grid=(1, 1, 1)) == []
    assert check(kernels, body, [P32], [ints()], races=False) == []


def test_races_through_two_arguments_of_one_array(kernels):
    x = ints()

    def body(b, p, q):
        pid = b.program_id(axis=0)
        store_own(b, p, pid)
        b.line(3)
        b.load(b.addptr(q, const(b, 0)))

    assert only(check(kernels, body, [P32, P32], [x, x[1:]]), "race", 3)
    assert check(kernels, body, [P32, P32], [x, ints()]) == []


def test_atomics_and_shared_reads_do_not_race(kernels):
    def body(b, x, out):
        pid = b.program_id(axis=0)
        value = b.load(x)
        b.atomic_rmw(out, b.add(value, pid), kind="add", order="relaxed")
        b.atomic_cas(out, pid, value, order="relaxed")

    assert check(kernels, body, [P32, P32], [ints(), ints()]) == []


def last_program_sums(order):
    def body(b, parts, count, out):
        pid = b.program_id(axis=0)
        b.store(b.addptr(parts, pid), pid)
        last = b.cmp(b.atomic_rmw(count, const(b, 1), kind="add", order=order), const(b, 3), predicate="eq")

        def then():
            b.line(14)
            b.store(out, add_up(b, b.load(at(b, parts, b.and_(b.arange(start=0, end=N), tile_of(b, 3))))))

        b.region_op("if", last, regions=[yielding(b, then), nothing(b)], results=[])

    return body


def test_atomics_that_order_programs_prevent_races(kernels):
    """The last program to count reads what the others wrote: in order by acquire and release, a race if relaxed."""
    arguments = [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert check(kernels, last_program_sums("acq_rel"), [P32] * 3, arguments) == []
    assert arguments[2][0] == 12
    arguments = [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert only(check(kernels, last_program_sums("relaxed"), [P32] * 3, arguments), "race", 14)
    arguments = [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert only(check(kernels, last_program_sums("acquire"), [P32] * 3, arguments), "race", 14)


def test_a_lock_orders_what_it_guards_and_nothing_else(kernels):
    def body(b, lock, counter, guarded):
        before, after = Region([]), Region([])
        with b.at_region(before):
            b.condition(b.cmp(b.atomic_cas(lock, const(b, 0), const(b, 1)), const(b, 0), predicate="ne"), [])
        with b.at_region(after):
            b.yield_([])
        b.region_op("while", [], regions=[before, after], results=[])

        def touch():
            b.line(40)
            b.store(counter, b.add(b.load(counter), const(b, 1)))

        b.region_op("if", guarded, regions=[yielding(b, touch), nothing(b)], results=[])
        b.atomic_rmw(lock, const(b, 0), kind="xchg")
        late = b.xor(guarded, const(b, True, I1))
        b.region_op("if", late, regions=[yielding(b, touch), nothing(b)], results=[])

    arguments = [np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert check(kernels, body, [P32, P32, I1], [*arguments, True]) == []
    assert arguments[1][0] == 4
    kinds = {(f.kind, f.location.line) for f in check(kernels, body, [P32, P32, I1], [*arguments, False])}
    assert kinds == {("race", 40)}


# -- arithmetic and promises -----------------------------------------------------------------------------------------------------------------------


def binary(name, type_, a, c):
    def body(b):
        b.line(17)
        getattr(b, name)(const(b, a, type_), const(b, c, type_))

    return body


@pytest.mark.parametrize(
    ("name", "type_", "a", "c", "kind"),
    [
        ("add", I32, 2**31 - 1, 1, "integer-overflow"),
        ("add", I64, -(2**63), -1, "integer-overflow"),
        ("add", I32, 2**31 - 2, 1, None),
        ("add", U32, 2**32 - 1, 1, None),
        ("sub", I8, -128, 1, "integer-overflow"),
        ("sub", I64, 0, -(2**63), "integer-overflow"),
        ("sub", I64, -1, -(2**63), None),
        ("mul", I32, 65536, 32768, "integer-overflow"),
        ("mul", I64, 2**32, 2**31, "integer-overflow"),
        ("mul", I64, -(2**32), 2**31, None),
        ("mul", I64, -1, -(2**63), "integer-overflow"),
        ("div", I32, 7, 0, "division-by-zero"),
        ("div", I32, -(2**31), -1, "integer-overflow"),
        ("rem", U32, 7, 0, "division-by-zero"),
        ("div", I32, 7, 2, None),
        ("shl", I32, 1, 32, "shift-out-of-range"),
        ("shr", I8, 1, -1, "shift-out-of-range"),
        ("shr", U32, 1, 31, None),
        ("shl", I1, True, True, "shift-out-of-range"),
    ],
)
def test_integer_arithmetic(name, type_, a, c, kind, kernels):
    findings = check(kernels, binary(name, type_, a, c), [], [])
    assert findings == [] if kind is None else only(findings, kind, 17).program == (0, 0, 0)
    off = {"overflow": False, "arithmetic": False}
    assert check(kernels, binary(name, type_, a, c), [], [], **off) == []


@pytest.mark.parametrize(
    ("value", "type_", "bad"), [(127.9, I8, False), (128.0, I8, True), (-1.0, U32, True), (float("nan"), I64, True), (2.0**62, I64, False)]
)
def test_casts_out_of_range(value, type_, bad, kernels):
    def body(b, x):
        b.line(2)
        b.cast(x, result=type_)

    findings = check(kernels, body, [F32], [value])
    assert only(findings, "cast-out-of-range", 2) if bad else findings == []


def test_overflow_in_a_sum_and_in_undefined_lanes(kernels):
    """A reduction's own additions are watched; a lane that is undefined anyway is not."""

    def body(b, x, out):
        b.line(3)
        b.store(out, add_up(b, b.load(at(b, x, b.arange(start=0, end=N)))))

    assert only(check(kernels, body, [P32, P32], [np.full(N, 2**29, np.int32), ints()], grid=(1, 1, 1)), "integer-overflow", 3)
    assert check(kernels, body, [P32, P32], [np.full(N, 2**27, np.int32), ints()], grid=(1, 1, 1)) == []

    def masked(b, x):
        index = b.arange(start=0, end=N)
        value = b.load(at(b, x, index), below(b, index, 0))
        b.div(index, value)

    assert check(kernels, masked, [P32], [ints()], grid=(1, 1, 1)) == []


def test_gathers_out_of_range(kernels):
    def body(b, n):
        b.line(2)
        b.gather(b.arange(start=0, end=N), tile_of(b, n), axis=0)

    assert check(kernels, body, [I32], [N - 1]) == []
    assert only(check(kernels, body, [I32], [N]), "index-out-of-range", 2)
    assert only(check(kernels, body, [I32], [-1]), "index-out-of-range", 2)


def test_assumptions_and_hints_are_held_to(kernels):
    def body(b, x, n, constancy):
        b.line(2)
        b.assume(b.cmp(n, const(b, 16), predicate="ge"))
        b.line(3)
        base = b.hint(n, divisibility=(16,))
        b.line(4)
        index = b.hint(b.add(tile_of(b, base), b.arange(start=0, end=N)), divisibility=(16,), contiguity=(N,))
        b.line(5)
        b.hint(at(b, x, index), divisibility=(8,), contiguity=(4,))
        b.line(6)
        b.hint(b.div(index, tile_of(b, 4)), constancy=(4,))
        b.line(7)
        b.hint(b.div(index, tile_of(b, constancy)), constancy=(4,))

    x = np.zeros(8, np.int64).view(np.int32)
    assert check(kernels, body, [P32, I32, I32], [x, 32, 8]) == []
    assert only(check(kernels, body, [P32, I32, I32], [x, 32, 3]), "broken-promise", 7).lane == (1,)
    assert [f.location.line for f in check(kernels, body, [P32, I32, I32], [x, 8, 8])] == [2, 3, 4]
    assert [f.location.line for f in check(kernels, body, [P32, I32, I32], [x[1:], 32, 8])] == [5]
    assert check(kernels, body, [P32, I32, I32], [x, 8, 8], promises=False) == []


# -- reports ---------------------------------------------------------------------------------------------------------------------------------------


def test_reports_carry_the_chain_of_calls(kernels):
    """An inlined helper in a function that is called: both chains are shown, innermost first."""
    module = kernels.make([I32], lambda b, n: None)
    kernel = module.kernel
    helper = module.add(Function("helper", [I32], kernel=False))
    inner = Builder.at_end(helper.body, Location("lib.py", 3, 8, "divide", Location("lib.py", 9, 0, "helper")))
    inner.div(inner.constant(value=1, result=I32), helper.arguments[0])
    inner.return_()
    last = kernel.body.last
    builder = Builder.at(last)
    builder.location = Location("kernel.py", 20, 4, "kernel")
    builder.call([kernel.arguments[0]], callee="helper", results=[])
    with pytest.raises(KernelError) as caught:
        kernels.run(module, [0], (1, 1, 1), checked=CheckedOptions())
    assert str(caught.value) == (
        "the checked mode has 1 finding:\n"
        "  lib.py:3:8 in divide, called from lib.py:9:0 in helper, called from kernel.py:20:4 in kernel: "
        "division-by-zero: integer division by zero; program (0, 0, 0)"
    )
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.findings[0].kind == "division-by-zero"


def test_findings_stop_at_the_limit(kernels):
    def body(b, x):
        for line in range(1, 31):
            b.line(line)
            b.load(b.addptr(x, const(b, 10**6)))

    findings = check(kernels, body, [P32], [ints(1)])
    assert len(findings) == 20
    module = kernels.make([P32], body)
    with pytest.raises(CheckError, match="3 findings, where the run was stopped"):
        kernels.run(module, [ints(1)], GRID, checked=CheckedOptions(limit=3))


def test_checked_results_are_the_same(kernels, rng):
    """The checked mode computes what the plain one does."""
    x = rng.integers(-1000, 1000, 4 * N).astype(np.int32)

    def body(b, source, target):
        v = b.load(at(b, source, offsets(b)))
        w = running_sum(b, doubled(b, v), True)
        b.store(at(b, target, offsets(b)), b.add(w, tile_of(b, add_up(b, v))))

    module = kernels.make([P32, P32], body)
    outs = [np.zeros_like(x), np.zeros_like(x)]
    kernels.run(module, [x, outs[0]], GRID)
    kernels.run(module, [x, outs[1]], GRID, checked=CheckedOptions())
    rows = x.reshape(4, N)
    want = np.cumsum(2 * rows[:, ::-1], 1)[:, ::-1] + rows.sum(1, keepdims=True)
    assert np.array_equal(outs[0].reshape(4, N), want) and np.array_equal(outs[1], outs[0])
