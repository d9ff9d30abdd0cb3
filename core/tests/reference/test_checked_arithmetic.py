"""The checked mode: overflow, broken promises, and the text of what is found."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.ir import Builder, Function, Location
from tilewright.ir.types import F32, I1, I8, I32, I64, U32, PointerType
from tilewright.reference.checks.checked_mode import CheckedOptions, CheckError

P32 = PointerType(I32)
GRID = (4, 1, 1)
N = 8


# -- arithmetic and promises -----------------------------------------------------------------------


def binary(name, type_, a, c):
    def body(b):
        b.line(17)
        getattr(b, name)(b.const(a, type_), b.const(c, type_))

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
    findings = kernels.check(binary(name, type_, a, c), [], [])
    assert findings == [] if kind is None else kernels.only(findings, kind, 17).program == (0, 0, 0)
    off = {"overflow": False, "arithmetic": False}
    assert kernels.check(binary(name, type_, a, c), [], [], **off) == []


@pytest.mark.parametrize(
    ("value", "type_", "bad"),
    [
        (127.9, I8, False),
        (128.0, I8, True),
        (-1.0, U32, True),
        (float("nan"), I64, True),
        (2.0**62, I64, False),
    ],
)
def test_casts_out_of_range(value, type_, bad, kernels):
    def body(b, x):
        b.line(2)
        b.cast(x, result=type_)

    findings = kernels.check(body, [F32], [value])
    assert kernels.only(findings, "cast-out-of-range", 2) if bad else findings == []


def test_overflow_in_a_sum_and_in_undefined_lanes(kernels):
    """A reduction's own additions are watched; a lane that is undefined anyway is not."""

    def body(b, x, out):
        b.line(3)
        b.store(out, b.add_up(b.load(b.lanes(x, b.arange(start=0, end=N)))))

    assert kernels.only(
        kernels.check(
            body, [P32, P32], [np.full(N, 2**29, np.int32), kernels.ints()], grid=(1, 1, 1)
        ),
        "integer-overflow",
        3,
    )
    assert (
        kernels.check(
            body, [P32, P32], [np.full(N, 2**27, np.int32), kernels.ints()], grid=(1, 1, 1)
        )
        == []
    )

    def masked(b, x):
        index = b.arange(start=0, end=N)
        value = b.load(b.lanes(x, index), b.below(index, 0))
        b.div(index, value)

    assert kernels.check(masked, [P32], [kernels.ints()], grid=(1, 1, 1)) == []


def test_gathers_out_of_range(kernels):
    def body(b, n):
        b.line(2)
        b.gather(b.arange(start=0, end=N), b.tile_of(n), axis=0)

    assert kernels.check(body, [I32], [N - 1]) == []
    assert kernels.only(kernels.check(body, [I32], [N]), "index-out-of-range", 2)
    assert kernels.only(kernels.check(body, [I32], [-1]), "index-out-of-range", 2)


def test_assumptions_and_hints_are_held_to(kernels):
    def body(b, x, n, constancy):
        b.line(2)
        b.assume(b.cmp(n, b.const(16), predicate="ge"))
        b.line(3)
        base = b.hint(n, divisibility=(16,))
        b.line(4)
        index = b.hint(
            b.add(b.tile_of(base), b.arange(start=0, end=N)), divisibility=(16,), contiguity=(N,)
        )
        b.line(5)
        b.hint(b.lanes(x, index), divisibility=(8,), contiguity=(4,))
        b.line(6)
        b.hint(b.div(index, b.tile_of(4)), constancy=(4,))
        b.line(7)
        b.hint(b.div(index, b.tile_of(constancy)), constancy=(4,))

    x = np.zeros(8, np.int64).view(np.int32)
    assert kernels.check(body, [P32, I32, I32], [x, 32, 8]) == []
    assert kernels.only(
        kernels.check(body, [P32, I32, I32], [x, 32, 3]), "broken-promise", 7
    ).lane == (1,)
    assert [f.location.line for f in kernels.check(body, [P32, I32, I32], [x, 8, 8])] == [2, 3, 4]
    assert [f.location.line for f in kernels.check(body, [P32, I32, I32], [x[1:], 32, 8])] == [5]
    assert kernels.check(body, [P32, I32, I32], [x, 8, 8], promises=False) == []


# -- reports ---------------------------------------------------------------------------------------


def test_reports_carry_the_chain_of_calls(kernels):
    """An inlined helper in a function that is called: both chains are shown, innermost first."""
    module = kernels.make([I32], lambda b, n: None)
    kernel = module.kernel
    helper = module.add(Function("helper", [I32], kernel=False))
    inner = Builder.at_end(
        helper.body, Location("lib.py", 3, 8, "divide", Location("lib.py", 9, 0, "helper"))
    )
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
        "  lib.py:3:8 in divide, called from lib.py:9:0 in helper, called from kernel.py:20:4 in "
        "kernel: "
        "division-by-zero: integer division by zero; program (0, 0, 0)"
    )
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.findings[0].kind == "division-by-zero"


def test_findings_stop_at_the_limit(kernels):
    def body(b, x):
        for line in range(1, 31):
            b.line(line)
            b.load(b.addptr(x, b.const(10**6)))

    findings = kernels.check(body, [P32], [kernels.ints(1)])
    assert len(findings) == 20
    module = kernels.make([P32], body)
    with pytest.raises(CheckError, match="3 findings, where the run was stopped"):
        kernels.run(module, [kernels.ints(1)], GRID, checked=CheckedOptions(limit=3))


def test_checked_results_are_the_same(kernels, rng):
    """The checked mode computes what the plain one does."""
    x = rng.integers(-1000, 1000, 4 * N).astype(np.int32)

    def body(b, source, target):
        v = b.load(b.lanes(source, b.offsets()))
        w = b.running_sum(b.doubled(v), True)
        b.store(b.lanes(target, b.offsets()), b.add(w, b.tile_of(b.add_up(v))))

    module = kernels.make([P32, P32], body)
    outs = [np.zeros_like(x), np.zeros_like(x)]
    kernels.run(module, [x, outs[0]], GRID)
    kernels.run(module, [x, outs[1]], GRID, checked=CheckedOptions())
    rows = x.reshape(4, N)
    want = np.cumsum(2 * rows[:, ::-1], 1)[:, ::-1] + rows.sum(1, keepdims=True)
    assert np.array_equal(outs[0].reshape(4, N), want) and np.array_equal(outs[1], outs[0])
