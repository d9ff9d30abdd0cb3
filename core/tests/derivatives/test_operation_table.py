"""The table of derivatives has every operation, and its partial derivatives are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.derivatives.forward_mode import TangentRequest, jvp
from tilewright.derivatives.operation_table import derivatives
from tilewright.derivatives.partials import PARTIALS
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module
from tilewright.ir.ops import TABLE
from tilewright.ir.types import F64, I32, PointerType, TileType
from tilewright.reference.interpreter import run

COUNT = 16
TILE = TileType((COUNT,), F64)


def test_every_operation_has_an_entry() -> None:
    assert set(derivatives()) == {spec.name for spec in TABLE}


def test_every_entry_has_a_law() -> None:
    assert all(entry.law for entry in derivatives().values())


#: Operations whose domain is not the interval from -2 to 2 -> theirs.
DOMAINS = {
    "log": (0.1, 3.0),
    "log2": (0.1, 3.0),
    "sqrt": (0.1, 3.0),
    "rsqrt": (0.1, 3.0),
}


def of_operation(name: str) -> Module:
    """A kernel that applies an operation to x, y and z, as far as it has operands."""
    spec = TABLE[name]
    function = Function("k", [PointerType(F64)] * 4, (), ["x", "y", "z", "out"])
    b = Builder.at_end(function.body)
    index = b.arange(start=0, end=COUNT)

    def at(pointer):
        return b.addptr(b.splat(pointer, result=TileType((COUNT,), pointer.type)), index)

    loaded = [b.load(at(pointer)) for pointer in function.arguments[:3]]
    if name == "select":
        operands = [b.cmp(loaded[2], b.constant_like(TILE, 0.0), predicate="lt"), *loaded[:2]]
    elif name == "ldexp":
        operands = [loaded[0], b.cast(loaded[1], result=TileType((COUNT,), I32))]
    else:
        operands = loaded[: len(spec.operands)]
    b.store(at(function.arguments[3]), getattr(b, spec.python_name)(*operands))
    b.return_([])
    module = Module()
    module.add(function)
    return module


@pytest.mark.parametrize("name", PARTIALS)
def test_partial_derivatives_are_those_of_the_operation(name: str) -> None:
    module, rng = of_operation(name), np.random.default_rng(1)
    low, high = DOMAINS.get(name, (-2.0, 2.0))
    inputs = [rng.uniform(low, high, COUNT) for _ in range(3)]
    tangents = [rng.uniform(-1, 1, COUNT) for _ in range(3)]
    cotangent = rng.uniform(-1, 1, COUNT)

    def value(step: float) -> np.ndarray:
        moved = [x + step * t for x, t in zip(inputs, tangents, strict=True)]
        out = np.zeros(COUNT)
        run(module, [*moved, out], (1, 1, 1))
        return out

    expected = (value(1e-6) - value(-1e-6)) / 2e-6
    found, cotangents = np.zeros(COUNT), [np.zeros(COUNT) for _ in range(3)]
    names = ("x", "y", "z")
    forward = jvp(module, TangentRequest(names, ("out",)))
    run(forward, [*inputs, np.zeros(COUNT), *tangents, found], (1, 1, 1))
    adjoint = vjp(module, AdjointRequest(("out",), names))
    run(adjoint, [*inputs, np.zeros(COUNT), cotangent, *cotangents], (1, 1, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    reverse = sum(c @ t for c, t in zip(cotangents, tangents, strict=True))
    assert reverse == pytest.approx(cotangent @ found, rel=1e-12, abs=1e-12)


def extremum_at(name: str, a: float, b: float, **attributes: str) -> tuple[float, float]:
    """The derivatives of an extremum by its operands."""
    module = of_operation(name)
    extremum = next(operation for operation in module.walk() if operation.name == name)
    extremum.attributes.update(attributes)
    adjoint = vjp(module, AdjointRequest(("out",), ("x", "y")))
    inputs = [np.full(COUNT, number) for number in (a, b, 0.0)]
    dx, dy = np.zeros(COUNT), np.zeros(COUNT)
    run(adjoint, [*inputs, np.zeros(COUNT), np.ones(COUNT), dx, dy], (1, 1, 1))
    return float(dx[0]), float(dy[0])


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("max", 1.0, 2.0, (0.0, 1.0)),
        ("max", 2.0, 2.0, (0.5, 0.5)),
        ("max", 0.0, -0.0, (0.5, 0.5)),
        ("min", 1.0, 2.0, (1.0, 0.0)),
        ("max", float("nan"), 2.0, (0.0, 1.0)),
        ("min", 2.0, float("nan"), (1.0, 0.0)),
    ],
)
def test_an_extremum_hands_its_cotangent_to_the_operand_that_it_is(
    name: str, a: float, b: float, expected: tuple[float, float]
) -> None:
    assert extremum_at(name, a, b) == expected


def singular(write: Callable[[Builder, object], object]) -> np.ndarray:
    """The cotangent of x where only the first half of the results is stored."""
    function = Function("k", [PointerType(F64)] * 2, (), ["x", "out"])
    b = Builder.at_end(function.body)
    index = b.arange(start=0, end=COUNT)
    mask = b.cmp(index, b.constant_like(index.type, COUNT // 2), predicate="lt")
    x, out = (
        b.addptr(b.splat(pointer, result=TileType((COUNT,), pointer.type)), index)
        for pointer in function.arguments
    )
    shared = b.splat(b.load(function.arguments[0]), result=TILE)
    value = write(b, b.mul(b.load(x, mask=mask), shared))
    b.store(out, value, mask)
    b.return_([])
    module = Module()
    module.add(function)
    adjoint = vjp(module, AdjointRequest(("out",), ("x",)))
    dx = np.zeros(COUNT)
    values = [np.linspace(1, 2, COUNT), np.zeros(COUNT), np.ones(COUNT), dx]
    run(adjoint, values, (1, 1, 1))
    return dx


@pytest.mark.parametrize(
    ("write", "slope"),
    [
        (lambda b, x: b.log(x), lambda x: 1 / x),
        (lambda b, x: b.log2(x), lambda x: 1 / (x * np.log(2))),
        (lambda b, x: b.rsqrt(x), lambda x: -(x**-1.5) / 2),
        (lambda b, x: b.sqrt(x), lambda x: x**-0.5 / 2),
        (lambda b, x: b.div(b.constant_like(TILE, 1.0), x), lambda x: -1 / x**2),
    ],
    ids=["log", "log2", "rsqrt", "sqrt", "reciprocal"],
)
def test_masked_off_lanes_add_nothing_to_a_cotangent_that_sums_over_lanes(write, slope) -> None:
    """In masked-off lanes the derivative is infinite; one NaN there would spoil the sum."""
    x = np.linspace(1, 2, COUNT)
    used = np.arange(COUNT) < COUNT // 2
    expected = np.where(used, slope(x * x[0]) * x[0], 0.0)
    expected[0] += (slope(x * x[0]) * x)[used].sum()
    np.testing.assert_allclose(singular(write), expected, rtol=1e-12)


def test_a_saturated_sigmoid_has_a_derivative_of_zero() -> None:
    """``exp`` overflows where the result is 0, and its derivative is 0 times infinity."""
    function = Function("k", [PointerType(F64)] * 2, (), ["x", "out"])
    b = Builder.at_end(function.body)
    x = b.load(function.arguments[0])
    one = b.constant_like(F64, 1.0)
    b.store(function.arguments[1], b.div(one, b.add(one, b.exp(b.neg(x)))))
    b.return_([])
    module = Module()
    module.add(function)
    adjoint = vjp(module, AdjointRequest(("out",), ("x",)))
    for number, expected in ((-1000.0, 0.0), (0.0, 0.25), (1000.0, 0.0)):
        dx = np.zeros(1)
        run(adjoint, [np.array([number]), np.zeros(1), np.ones(1), dx], (1, 1, 1))
        assert dx[0] == expected
