"""The checked mode: programs that race with one another."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from tilewright.ir import Region
from tilewright.ir.types import I1, I32, PointerType
from tilewright.reference.checks.checked_mode import CheckError, Finding

P32 = PointerType(I32)
N = 8


def store_own(b, out, pid):
    b.store(b.addptr(out, pid), pid)


RACES = {
    "two writes in one store": (lambda b, x, pid: b.store(x, pid), 1),
    "two writes in two stores": (
        lambda b, x, pid: (
            store_own(b, x, pid),
            b.line(2),
            b.store(b.addptr(x, b.add(pid, b.const(1))), pid),
        ),
        2,
    ),
    "a read of what another program writes": (
        lambda b, x, pid: (
            store_own(b, x, pid),
            b.line(2),
            b.load(b.addptr(x, b.rem(b.add(pid, b.const(1)), b.const(4)))),
        ),
        2,
    ),
    "a write of what another program reads": (
        lambda b, x, pid: (b.load(x), b.load(b.addptr(x, pid)), b.line(2), store_own(b, x, pid)),
        2,
    ),
    "an atomic and a plain write": (
        lambda b, x, pid: (
            b.atomic_rmw(x, pid, kind="add", order="relaxed"),
            b.line(2),
            store_own(b, x, pid),
        ),
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

    found = kernels.check(body, [P32], [kernels.ints()], names=["x"])
    found = kernels.only(found, "race", line)
    assert (
        found.argument == "x"
        and "races with the" in found.message
        and "of program" in found.message
    )
    assert kernels.check(body, [P32], [kernels.ints()], grid=(1, 1, 1)) == []
    assert kernels.check(body, [P32], [kernels.ints()], races=False) == []


def test_the_error_of_a_race_names_a_remedy():
    race = Finding("race", "store races", None, (), (0, 0, 0), (), "x", 1)
    outside = replace(race, kind="out-of-bounds")
    for findings, remedies in (((race,), 1), ((race, race), 1), ((outside,), 0)):
        error = CheckError(findings)
        for each in (error, pickle.loads(pickle.dumps(error))):
            *notes, see = each.__notes__
            assert see.startswith("  see: ")
            assert len(notes) == remedies and all(note.startswith("  help: to") for note in notes)


def test_races_through_two_arguments_of_one_array(kernels):
    x = kernels.ints()

    def body(b, p, q):
        pid = b.program_id(axis=0)
        store_own(b, p, pid)
        b.line(3)
        b.load(b.addptr(q, b.const(0)))

    assert kernels.only(kernels.check(body, [P32, P32], [x, x[1:]], overlaps=False), "race", 3)
    found = kernels.check(body, [P32, P32], [x, x[1:]])
    assert [(finding.kind, finding.location.line) for finding in found] == [
        ("overlapping-arguments", 3),
        ("race", 3),
    ]
    assert kernels.check(body, [P32, P32], [x, kernels.ints()]) == []


def test_atomics_and_shared_reads_do_not_race(kernels):
    def body(b, x, out):
        pid = b.program_id(axis=0)
        value = b.load(x)
        b.atomic_rmw(out, b.add(value, pid), kind="add", order="relaxed")
        b.atomic_cas(out, pid, value, order="relaxed")

    assert kernels.check(body, [P32, P32], [kernels.ints(), kernels.ints()]) == []


def last_program_sums(order):
    def body(b, parts, count, out):
        pid = b.program_id(axis=0)
        b.store(b.addptr(parts, pid), pid)
        last = b.cmp(
            b.atomic_rmw(count, b.const(1), kind="add", order=order), b.const(3), predicate="eq"
        )

        def then():
            b.line(14)
            b.store(
                out,
                b.add_up(b.load(b.lanes(parts, b.and_(b.arange(start=0, end=N), b.tile_of(3))))),
            )

        b.region_op("if", last, regions=[b.yielding(then), b.nothing()], results=[])

    return body


def test_atomics_that_order_programs_prevent_races(kernels):
    """The last program to count reads what the others wrote: in order by acquire and release, a
    race if relaxed."""
    arguments = [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert kernels.check(last_program_sums("acq_rel"), [P32] * 3, arguments) == []
    assert arguments[2][0] == 12
    arguments = [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert kernels.only(
        kernels.check(last_program_sums("relaxed"), [P32] * 3, arguments), "race", 14
    )
    arguments = [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert kernels.only(
        kernels.check(last_program_sums("acquire"), [P32] * 3, arguments), "race", 14
    )


def test_a_lock_orders_what_it_guards_and_nothing_else(kernels):
    def body(b, lock, counter, guarded):
        before, after = Region([]), Region([])
        with b.at_region(before):
            b.condition(
                b.cmp(b.atomic_cas(lock, b.const(0), b.const(1)), b.const(0), predicate="ne"), []
            )
        with b.at_region(after):
            b.yield_([])
        b.region_op("while", [], regions=[before, after], results=[])

        def touch():
            b.line(40)
            b.store(counter, b.add(b.load(counter), b.const(1)))

        b.region_op("if", guarded, regions=[b.yielding(touch), b.nothing()], results=[])
        b.atomic_rmw(lock, b.const(0), kind="xchg")
        late = b.xor(guarded, b.const(True, I1))
        b.region_op("if", late, regions=[b.yielding(touch), b.nothing()], results=[])

    arguments = [np.zeros(1, np.int32), np.zeros(1, np.int32)]
    assert kernels.check(body, [P32, P32, I1], [*arguments, True]) == []
    assert arguments[1][0] == 4
    kinds = {
        (f.kind, f.location.line) for f in kernels.check(body, [P32, P32, I1], [*arguments, False])
    }
    assert kinds == {("race", 40)}
