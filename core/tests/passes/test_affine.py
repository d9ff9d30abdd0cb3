"""Affine analysis: random index arithmetic and what loops carry, every claim checked against the
reference's numbers; and the algebra it rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from index_arithmetic import Indices

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.parser import parse_module
from tilewright.ir.types import I1, I32, PointerType, TileType, element_type, shape_of
from tilewright.language.definitions.callable import device_function
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.affine_forms import CoordinateBound, Form, Wrapped
from tilewright.passes.analysis.polynomials import Polynomial, total
from tilewright.passes.analysis.transfer_functions import unit_reshape
from tilewright.passes.pipeline import run as run_passes
from tilewright.reference.interpreter import run

# ---- polynomials

X, Y = Polynomial.unknown(0), Polynomial.unknown(1)


def test_polynomials_that_are_equal_are_equal_objects() -> None:
    left = X.plus(Y).times(X.minus(Y))
    assert left == X.times(X).minus(Y.times(Y)) and hash(left) == hash(
        X.times(X).plus(Y.times(Y), -1)
    )
    assert X.minus(X) == Polynomial() == Polynomial.number(0) and Polynomial().constant == 0
    assert (
        X.constant is None
        and Polynomial.number(-3).constant == -3
        and X.plus(Polynomial.number(1)).constant is None
    )
    assert total([X, Y, X]) == X.scaled(2).plus(Y) and total(left.pieces()) == left


def test_terms_are_divided_where_there_is_no_rest() -> None:
    assert X.times(Y).scaled(6).divided(X.scaled(3)) == Y.scaled(2)
    assert X.scaled(6).divided(Polynomial.number(3)) == X.scaled(2) and X.times(X).divided(X) == X
    assert (
        X.divided(Y) is None
        and X.scaled(5).divided(Polynomial.number(3)) is None
        and X.plus(Y).divided(X) is None
    )


# ---- claims about numbers


class Numbers:
    """Evaluate polynomials for arguments, a program, and iterations of loops."""

    def __init__(
        self, affine: Affine, arguments: dict[Value, int], iterations: dict[Operation, int]
    ) -> None:
        self.affine, self.arguments, self.iterations = affine, arguments, iterations

    def of(self, polynomial: Polynomial) -> int:
        return sum(
            factor * int(np.prod([self._unknown(number) for number in monomial], dtype=object))
            for monomial, factor in polynomial.terms
        )

    def _unknown(self, number: int) -> int:
        atom = self.affine.atom(number)
        if atom.kind == "value":
            return self.arguments[atom.of[0]]
        if atom.kind == "iteration":
            return self.iterations[atom.of[0]]
        if atom.kind in ("program_id", "num_programs"):
            return int(atom.kind == "num_programs")
        a, b = map(self.of, atom.of)
        if atom.kind in ("min", "max"):
            return {"min": min, "max": max}[atom.kind](a, b)
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if atom.kind == "div" else a - b * quotient

    def values(self, form: Form, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """The elements of a form without its base, and where they are known."""
        found, known = np.full(shape, self.of(form.start), np.int64), np.ones(shape, bool)
        places = np.indices(shape)
        for key, step in form.steps:
            if isinstance(key, Wrapped):
                at = self.of(key.start) + places[key.axis]
                known &= (at >= 0) & (at < self.of(key.extent))
                found += self.of(step) * at
            else:
                found += self.of(step) * places[key]
        return found, known

    def inside(self, bounds: list[CoordinateBound | None], shape: tuple[int, ...]) -> Any:
        found, places = np.ones(shape, bool), np.indices(shape)
        for bound in bounds:
            assert bound is not None
            if bound.upper is not None:
                found &= (places[bound.axis] if bound.axis is not None else 0) < self.of(
                    bound.upper
                )
            if bound.lower is not None:
                assert bound.axis is not None
                found &= places[bound.axis] >= self.of(bound.lower)
        return found

    def check(self, value: Value, array: Any) -> bool:
        """Check what is said of a value that has these elements; whether anything is."""
        shape = shape_of(value.type)
        if element_type(value.type) is I1:
            bounds = self.affine.mask_bounds(value)
            if None in bounds:
                return False
            np.testing.assert_array_equal(self.inside(bounds, shape), array)
            return True
        form = self.affine.form(value)
        if form is None:
            return False
        found, known = self.values(form, shape)
        size = 1
        if form.base is not None:
            assert isinstance(form.base.type, PointerType)
            size, array = 2, array - self.arguments[form.base]
        np.testing.assert_array_equal((size * found)[known], array[known])
        for polynomial in form.polynomials():
            assert self.of(polynomial) % self.affine.divisor(polynomial) == 0
            assert not self.affine.is_nonnegative(polynomial) or self.of(polynomial) >= 0
        return True


@pytest.mark.parametrize("seed", range(100))
def test_random_index_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    program = Indices(rng)
    values = program.build()
    splats = [program.b.splat(one, result=TileType((1,), I32)) for one in program.scalars]
    arrays = program.finish([*values, *splats])
    affine = Affine(program.function)
    base, n, s = (
        np.zeros(64, np.float16),
        int(rng.integers(0, 9)) * program.divisibility,
        int(rng.integers(-50, 50)),
    )
    run(program.module, [base, n, s, *arrays], (1, 1, 1))
    p, first, second = program.function.arguments[:3]
    # the reference's addresses are its own: the first pointer tells where they begin
    computed = {
        scalar: int(array[0])
        for scalar, array in zip(program.scalars, arrays[len(values) :], strict=True)
    }
    numbers = Numbers(affine, {**computed, first: n, second: s}, {})
    pointers = program.pointers[0]
    form = affine.form(pointers)
    if form is not None:
        found, known = numbers.values(form, program.shape)
        address = arrays[values.index(pointers)].astype(np.int64) - 2 * found
        numbers.arguments[p] = int(address[known][0]) if known.any() else 0
        if not known.any():
            values = program.pool + program.masks
    said = [
        numbers.check(value, array.astype(np.int64))
        for value, array in zip(values, arrays, strict=False)
    ]
    assert sum(said) >= 5


@device_function
def walk(out, n, s, p):
    lanes = tl.arange(0, 16)
    here, at, turned = s, lanes * s + p, p
    slot = 0
    for i in range(3, n, 2):
        inner = at + i
        for j in range(s):
            inner += 3 * s - 1
            tl.store(out + slot * 16 + lanes, (inner + here) * 2 + j * turned)
            slot += 1
        here += 5 * s
        at += s * p + 2
    tl.store(out + slot * 16 + lanes, at)


def test_what_loops_carry() -> None:
    module = compile_function(walk, {"out": "*i32", "n": "i32", "s": "i32", "p": "i32"}, {})
    run_passes(module)
    function = module.kernel
    affine = Affine(function)
    outer, inner = (operation for operation in function.walk() if operation.name == "for")
    store = next(operation for operation in inner.regions[0] if operation.name == "store")
    n, s, p = 10, 3, 7
    out = np.zeros(13 * 16, np.int32)
    arguments = dict(zip(function.arguments[1:], (n, s, p), strict=True))
    form = affine.form(store.operands[1])
    assert form is not None
    run(module, [out, n, s, p], (1, 1, 1))
    for slot in range(12):
        numbers = Numbers(affine, arguments, {outer: slot // s, inner: slot % s})
        np.testing.assert_array_equal(
            numbers.values(form, (16,))[0], out[slot * 16 : slot * 16 + 16]
        )
    assert not affine.varies(affine.number(function.arguments[1]), outer)
    assert affine.varies(form.start, outer) and affine.varies(form.start, inner)
    # a sum of what one loop carries in another is not known by iterations of both
    address = affine.form(store.operands[0])
    assert address is None or any(
        affine.atom(number).kind == "value" for number in address.start.unknowns()
    )


def function_of(body: str) -> Function:
    head = (
        "tilewright.ir 1.0\nkernel @k(%p: ptr<f16>, %n: i32, %s: i32, %u: u32, %c: i1) {\n"
        "%r = arange {start = 0, end = 8} : tile<8xi32>"
    )
    text = f"{head}\n{body}\nreturn\n}}"
    return parse_module(text).kernel


def called(function: Function, name: str) -> Value:
    return next(
        result
        for operation in function.walk()
        for result in operation.results
        if result.name == name
    )


HELD = "%ns = splat %n : tile<8xi32> %ss = splat %s : tile<8xi32> %at = add %ss, %r : tile<8xi32>"


@pytest.mark.parametrize(
    "body",
    [
        "%x = mul %r, %r : tile<8xi32>",
        (
            "%us = splat %u : tile<8xu32> %v = cast %r : tile<8xu32> %w = add %us, %v : "
            "tile<8xu32> %x = cast %w : tile<8xi64>"
        ),
        "%x = cast %r : tile<8xi8>",
        f"{HELD} %v = bitcast %at : tile<8xu32> %x = cast %v : tile<8xi64>",
        f"{HELD} %b = cmp %at, %ns {{predicate = lt}} : tile<8xi1> %d = cmp %at, %ss {{predicate "
        f"= lt}} : tile<8xi1> %e = and %b, %d : tile<8xi1>"
        " %x = select %e, %at, %r : tile<8xi32>",
        (
            f"{HELD} %b = cmp %at, %ns {{predicate = ge}} : tile<8xi1> %x = select %b, %at, %r : "
            "tile<8xi32>"
        ),
        f"{HELD} %t = add %at, %at : tile<8xi32> %x = rem %t, %ns : tile<8xi32>",
        f"{HELD} %x = max %at, %ns : tile<8xi32>",
    ],
)
def test_what_has_no_form(body: str) -> None:
    function = function_of(body)
    assert Affine(function).form(called(function, "x")) is None


def test_numbers_that_are_not_negative_keep_their_form_in_unsigned_types() -> None:
    unsigned = "%b = bitcast %r : tile<8xu32> %v = cast %r : tile<8xu32> %w = cast %v : tile<8xu64>"
    function = function_of(f"{unsigned} %x = cast %v : tile<8xi64> %y = cast %v : tile<8xi32>")
    affine = Affine(function)
    form, *others = (affine.form(called(function, name)) for name in "rbvwxy")
    assert form is not None and others == [form, form, form, form, None]


@pytest.mark.parametrize(
    "body",
    [
        f"{HELD} %x = rem %at, %ns : tile<8xi32>",
        (
            f"{HELD} %b = cmp %at, %ns {{predicate = lt}} : tile<8xi1> %x = select %b, %at, %r : "
            "tile<8xi32>"
        ),
        (
            f"{HELD} %b = cmp %ns, %at {{predicate = gt}} : tile<8xi1> %x = select %b, %at, %r : "
            "tile<8xi32>"
        ),
        (
            f"{HELD} %i = constant 1 : i32 %m = sub %n, %i : i32 %ms = splat %m : tile<8xi32> %x "
            "= min %ms, %at : tile<8xi32>"
        ),
    ],
)
def test_coordinates_that_end(body: str) -> None:
    function = function_of(body)
    affine = Affine(function)
    form = affine.form(called(function, "x"))
    assert form is not None
    ((key, step),) = form.steps
    n, s = (affine.number(function.arguments[i]) for i in (1, 2))
    assert isinstance(key, Wrapped) and (key.axis, key.start, key.extent, step) == (
        0,
        s,
        n,
        Polynomial.number(1),
    )
    assert key.nonnegative == ("rem" in body)


def test_promises_hold_where_they_are_made() -> None:
    """An assumption in a branch says nothing of the rest, one in a loop something of its
    iterations."""
    body = """
    %z = constant 0 : i32 %one = constant 1 : i32
    %a = cmp %n, %z {predicate = ge} : i1 assume %a
    if %c then { %b = cmp %s, %z {predicate = gt} : i1 assume %b yield } else { yield }
    for %z, %n, %one, inits=[] body(%i: i32) { %q = sub %i, %s : i32 %d = cmp %q, %z {predicate = ge} : i1 assume %d yield }
    """
    function = function_of(body)
    affine = Affine(function)
    n, s = (affine.number(function.arguments[i]) for i in (1, 2))
    assert (
        affine.is_nonnegative(n)
        and affine.is_nonnegative(n.scaled(3))
        and not affine.is_nonnegative(n.scaled(-1))
    )
    assert not affine.is_nonnegative(s)
    assert affine.is_nonnegative(affine.number(called(function, "q")))


def test_deep_expressions() -> None:
    lines = ["%x0 = add %n, %s : i32", *(f"%x{i + 1} = add %x{i}, %s : i32" for i in range(3000))]
    function = function_of("\n".join(lines))
    affine = Affine(function)
    n, s = (affine.number(function.arguments[i]) for i in (1, 2))
    assert affine.number(called(function, "x3000")) == n.plus(s, 3001)


def test_reshapes_that_keep_axes() -> None:
    assert unit_reshape((4, 1, 8), (1, 4, 8, 1)) == {0: 1, 2: 2}
    assert unit_reshape((4, 8), (8, 4)) is None and unit_reshape((4, 8), (32,)) is None
