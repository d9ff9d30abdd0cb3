"""Sessions of cases: placement of arrays, seeded random numbers, requirements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError, LaunchError
from tilewright.runtime.arguments.mock_tensors import reinterpret
from tilewright_conformance.suite.comparison import MismatchError
from tilewright_conformance.suite.placement import Addresses, OutOfBoundsWriteError
from tilewright_conformance.suite.session import Session, Subject


@tw.jit
def copy(source, target, n, step, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(
        target + offsets * step,
        tl.load(source + offsets * step, mask=offsets < n),
        mask=offsets < n,
    )


@tw.jit
def through_table(table, out):
    pointer = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0), tl.load(pointer))


@tw.jit
def say(x):
    tl.device_print("value", x)


@pytest.fixture(params=["cpu", "reference"], scope="module")
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    yield Subject(request.param)


@pytest.fixture
def session(subject: Subject) -> Session:
    return Session(subject, "suite/session/test", 7)


def test_random_numbers_depend_on_case_and_seed_alone(subject: Subject) -> None:
    def draw(case: str, seed: int) -> list[int]:
        return Session(subject, case, seed).rng.integers(1 << 40, size=4).tolist()

    assert draw("a/b", 1) == draw("a/b", 1)
    assert len({tuple(draw(case, seed)) for case in ("a/b", "a/c") for seed in (0, 1, 2)}) == 6
    assert Session(subject, "a/b", 1).reference.rng.integers(1 << 40, size=4).tolist() == draw(
        "a/b", 1
    )


def test_views_share_memory_on_the_device(session: Session) -> None:
    whole = np.arange(64, dtype=np.float32)
    expected = whole.copy()
    expected[33::2][:10] = whole[1::2][:10]
    session.launch(copy, (1,), whole[1::2], whole[33::2], 10, 2, BLOCK=16)
    session.check(whole, expected)
    assert session.numbers == {"ulp": 0.0, "ulp_allowed": 0.0, "compared": 64}


def test_bits_of_formats_that_numpy_lacks(session: Session) -> None:
    bits, out = np.arange(16, dtype=np.uint16) * 1000, np.zeros(16, np.uint16)
    session.launch(
        copy, (1,), reinterpret(bits, "bfloat16"), reinterpret(out, "bfloat16"), 16, 1, BLOCK=16
    )
    session.check(out, bits, type_="bf16")


def test_tables_of_addresses(session: Session) -> None:
    rows = [np.full(3, value, np.float32) for value in (1.5, -2.0)]
    out = np.zeros(2, np.float32)
    session.launch(through_table, (2,), Addresses([rows[1], rows[0]]), out)
    session.check(out, np.array([-2.0, 1.5]))


def test_a_write_beside_an_array_is_noticed(subject: Subject) -> None:
    if subject.backend.name == "reference":
        pytest.skip("the reference itself refuses the access")
    session = Session(subject, "suite/session/test")
    x = np.ones(32, np.float32)
    with pytest.raises(
        OutOfBoundsWriteError,
        match="4 bytes after the end of an array of 40 bytes, the nearest with 0 bytes between",
    ):
        session.launch(copy, (1,), x, np.zeros(10, np.float32), 11, 1, BLOCK=16)
    with pytest.raises(
        OutOfBoundsWriteError,
        match="8 bytes before an array of 40 bytes, the nearest with 0 bytes between",
    ):
        session.launch(
            copy, (1,), np.ones(32, np.float32)[3:], np.zeros(10, np.float32), 3, -1, BLOCK=4
        )


def test_read_only_arrays_stay_so(session: Session) -> None:
    frozen = np.zeros(16, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        session.launch(copy, (1,), np.ones(16, np.float32), frozen, 16, 1, BLOCK=16)
    place = session.placement()
    source, target = place(np.ones(16, np.float32)), place(frozen)
    target.readonly = False  # what a backend does that does not look
    with session.use():
        copy[(1,)](source, target, 16, 1, BLOCK=16)
    with pytest.raises(
        OutOfBoundsWriteError,
        match="wrote where it must not: an array of 64 bytes that is read-only",
    ):
        place.fetch()
    assert not frozen.any()


def test_prints_are_collected(session: Session) -> None:
    with session.printed() as lines:
        session.launch(say, (2,), 41)
    assert len(lines) == 2 and all("value" in line and "41" in line for line in lines)


def test_demands(session: Session) -> None:
    session.require(True, "never")
    with pytest.raises(MismatchError, match="because"):
        session.require(0, "because")
    with session.raises(CompilationError, match="undefined_name"):
        raise CompilationError("undefined_name is not defined")
    with (
        pytest.raises(
            MismatchError, match="a CompilationError was due, saying 'x', and nothing was raised"
        ),
        session.raises(CompilationError, match="x"),
    ):
        pass
    with (
        pytest.raises(MismatchError, match="should say 'x'; it says: y"),
        session.raises(CompilationError, match="x"),
    ):
        raise CompilationError("y")
    with pytest.raises(LaunchError), session.raises(CompilationError):
        raise LaunchError("of another kind")
    assert session.checks == 6
