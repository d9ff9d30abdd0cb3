"""Functions that have a derivative of their own, and gradients that are stopped."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives.forward_mode import TangentRequest, jvp
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.frontend.compile import compile_function
from tilewright.ir.printer import print_module
from tilewright.language.semantic import Options
from tilewright.reference.interpreter import run

COUNT = 16


@tw.custom_vjp
def rounded(x):
    return tl.extra.libdevice.rint(x)


@rounded.vjp
def rounded_vjp(x, y, dy):
    return tl.where(tl.abs(x) < 1, dy, 0.0)


@rounded.jvp
def rounded_jvp(x, y, dx):
    return tl.where(tl.abs(x) < 1, dx, 0.0)


@tw.jit
def rounded_plainly(x):
    return tl.extra.libdevice.rint(x)


@tw.custom_vjp
def products(pair, place, w, K: tl.constexpr):
    a, b = pair
    return a * b * w + place * K, (a * a, place)


@products.vjp
def products_vjp(pair, place, w, K: tl.constexpr, r, s, dr, ds):
    a, b = pair
    return (dr * b * w + 2 * a * ds[0], dr * a * w), None, dr * a * b


@products.jvp
def products_jvp(pair, place, w, K: tl.constexpr, r, s, dpair, dw):
    a, b = pair
    da, db = dpair
    return (da * b + a * db) * w + a * b * dw, (2 * a * da, None)


@tw.custom_vjp
def reversed_only(x):
    return x * x


@reversed_only.vjp
def reversed_only_vjp(x, y, dy):
    return 2 * x * dy


@tw.custom_vjp
def without_rule(x):
    return x * x


@tw.custom_vjp
def cubed(x):
    return x * x * x


@cubed.vjp
def cubed_vjp(x, y, dy):
    return 3 * x * x * dy


@cubed.jvp
def cubed_jvp(x, y, dx):
    return 3 * x * x * dx


@tw.custom_vjp
def ignored(x):
    return x


@ignored.vjp
def ignored_vjp(x, y, dy):
    return dy * 0.0


@ignored.jvp
def ignored_jvp(x, y, dx):
    return dx * 0.0


@tw.jit
def add_ignored(a, b):
    return a + ignored(b)


@tw.jit
def multiply_cubed(a, b):
    return a * cubed(b)


@tw.jit
def kernel(x, w, out, B: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    u = tl.load(w + at)
    if KIND == "rounded":
        r = rounded(v) * u
    elif KIND == "rounded plainly":
        r = rounded_plainly(v) * u
    elif KIND == "products":
        first, second = products((v, u), at, v, 3)
        r = first * second[0] + second[1] * u
    elif KIND == "of a scalar":
        r = v * cubed(tl.sum(u, axis=0))
    elif KIND == "in a loop":
        r = v
        for _ in range(3):
            r = 0.3 * cubed(r) + u
    elif KIND == "in a branch":
        r = v
        if tl.program_id(0) == 0:
            r = cubed(u) * v
    elif KIND == "in a map":
        r = tl.map_elementwise(cubed, v) * u
    elif KIND == "in a reduction":
        r = u * tl.reduce(v, 0, multiply_cubed)
    elif KIND == "in a scan":
        r = u * tl.associative_scan(v, 0, add_ignored)
    elif KIND == "stopped":
        r = v * tl.stop_gradient(v * u) + tl.stop_gradient(2.0) * u
    elif KIND == "stopped bits":
        bits = tl.stop_gradient(v).to(tl.int64, bitcast=True)
        r = v * u + bits.to(tl.float64, bitcast=True)
    elif KIND == "reversed only":
        r = reversed_only(v) * u
    elif KIND == "without rule":
        r = without_rule(v) * u
    tl.store(out + at, r)


def module_of(kind: str, *, differentiated: bool = True):
    signature = {**dict.fromkeys(("x", "w", "out"), "*fp64"), "B": "constexpr", "KIND": "constexpr"}
    options = Options(differentiated=differentiated)
    constants = {"B": COUNT, "KIND": kind}
    return compile_function(kernel, signature, constants, options=options)


def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-1.5, 1.5, COUNT) for _ in range(2)]


def gradients(kind: str, backend: str = "reference") -> tuple[np.ndarray, np.ndarray]:
    """The gradients of the sum of the results, checked against forward mode."""
    x, w = inputs()
    out, dx, dw, tout = (np.zeros(COUNT) for _ in range(4))
    tx, tw_ = np.cos(np.arange(COUNT)), np.sin(np.arange(COUNT))
    with tw.backend(backend):
        adjoint = tw.vjp(kernel, outputs="out", wrt=("x", "w"))
        adjoint[(1,)](x, w, out, COUNT, kind, d_out=np.ones(COUNT), d_x=dx, d_w=dw)
        tangent = tw.jvp(kernel, inputs=("x", "w"), outputs="out")
        tangent[(1,)](x, w, out, COUNT, kind, t_x=tx, t_w=tw_, t_out=tout)
    assert dx @ tx + dw @ tw_ == pytest.approx(tout.sum(), rel=1e-12)
    return dx, dw


def differences(kind: str) -> list[np.ndarray]:
    """Central differences of the sum of the results."""
    values, found = inputs(), []
    with tw.backend("reference"):
        for i in range(2):
            slopes = np.zeros(COUNT)
            for at in range(COUNT):
                results = []
                for step in (1e-6, -1e-6):
                    moved = [value.copy() for value in values]
                    moved[i][at] += step
                    out = np.zeros(COUNT)
                    kernel[(1,)](*moved, out, COUNT, kind)
                    results.append(out.sum())
                slopes[at] = (results[0] - results[1]) / 2e-6
            found.append(slopes)
    return found


EXACT = ("products", "of a scalar", "in a loop", "in a branch", "in a map", "in a reduction")


@pytest.mark.parametrize("kind", EXACT)
def test_rules_that_are_the_derivative_give_the_gradient(kind: str) -> None:
    found, expected = gradients(kind), differences(kind)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-6)


def test_a_rule_is_used_instead_of_the_derivative_of_the_body() -> None:
    x, w = inputs()
    dx, dw = gradients("rounded")
    np.testing.assert_array_equal(dx, np.where(np.abs(x) < 1, w, 0.0))
    np.testing.assert_array_equal(dw, np.rint(x))
    assert not gradients("rounded plainly")[0].any()


def test_a_rule_is_used_inside_of_a_combination() -> None:
    _, w = inputs()
    dx, _ = gradients("in a scan")
    np.testing.assert_allclose(dx, np.where(np.arange(COUNT) > 0, 0, w.sum()), rtol=1e-12)


def test_the_cpu_computes_the_same() -> None:
    pytest.importorskip("tilewright_cpu")
    for kind in ("products", "rounded"):
        for found, expected in zip(gradients(kind, "cpu"), gradients(kind), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_stopped_gradient_is_that_of_a_constant() -> None:
    x, w = inputs()
    dx, dw = gradients("stopped")
    np.testing.assert_array_equal(dx, x * w)
    np.testing.assert_array_equal(dw, np.full(COUNT, 2.0))
    dx, dw = gradients("stopped bits")
    np.testing.assert_array_equal(dx, w)
    np.testing.assert_array_equal(dw, x)


def test_ordinary_kernels_have_no_call() -> None:
    texts = [
        print_module(module_of(kind, differentiated=False), locations=False)
        for kind in ("rounded", "rounded plainly")
    ]
    assert texts[0] == texts[1]
    assert "call" not in texts[0]
    assert "call" not in print_module(module_of("stopped", differentiated=False))


def test_derived_modules_have_no_call_unless_they_keep_them() -> None:
    module = module_of("in a loop")
    for derive, request in (
        (vjp, AdjointRequest(("out",), ("x",))),
        (jvp, TangentRequest(("x",), ("out",))),
    ):
        assert [*derive(module, request).functions] == [f"kernel_{derive.__name__}"]


def test_second_derivatives_derive_the_rule() -> None:
    x, w = inputs()
    out, cotangent, dx = np.zeros(COUNT), np.ones(COUNT), np.zeros(COUNT)
    first = vjp(module_of("rounded"), AdjointRequest(("out",), ("x",), keep_calls=True))
    tangent = jvp(first, TangentRequest(("w",), ("d_x",)))
    found, direction = np.zeros(COUNT), np.cos(np.arange(COUNT))
    run(tangent, [x, w, out, cotangent, dx, direction, found], (1, 1, 1))
    np.testing.assert_array_equal(found, np.where(np.abs(x) < 1, direction, 0.0))
    adjoint = vjp(first, AdjointRequest(("d_x",), ("w",), prefix="dd_"))
    found = np.zeros(COUNT)
    run(adjoint, [x, w, out, cotangent, dx, direction, found], (1, 1, 1))
    np.testing.assert_array_equal(found, np.where(np.abs(x) < 1, direction, 0.0))


# ---- errors


def refused(kind: str, derive) -> tw.DerivativeError:
    with pytest.raises(tw.DerivativeError) as caught:
        derive(module_of(kind))
    return caught.value


def test_a_mode_without_rule_is_refused_where_the_function_is_called() -> None:
    error = refused("reversed only", lambda m: jvp(m, TangentRequest(("x",), ("out",))))
    assert error.reason == "call: reversed_only has no rule of forward mode"
    assert error.remedy == "give it one by @reversed_only.jvp"
    assert error.location.function == "kernel"
    error = refused("without rule", lambda m: vjp(m, AdjointRequest(("out",), ("x",))))
    assert error.reason == "call: without_rule has no rule of reverse mode"
    vjp(module_of("without rule"), AdjointRequest(("out",), ("w",)))  # it is a constant there


@tw.custom_vjp
def wrong_number(x, y):
    return x * y


@wrong_number.vjp
def wrong_number_vjp(x, y, r, dr):
    return dr * y


@tw.custom_vjp
def wrong_shape(x):
    return x


@wrong_shape.vjp
def wrong_shape_vjp(x, r, dr):
    return tl.sum(dr, axis=0)


@tw.custom_vjp
def of_integer(x, n):
    return x * n


@of_integer.vjp
def of_integer_vjp(x, n, r, dr):
    return dr * n, dr * x


@tw.custom_vjp
def wrong_parameters(x):
    return x


@wrong_parameters.vjp
def wrong_parameters_vjp(x, dr):
    return dr


@tw.custom_vjp
def from_memory(x, at):
    return tl.load(x + at)


@from_memory.vjp
def from_memory_vjp(x, at, y, dy):
    return None, None


@tw.jit
def wrong(x, out, B: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    if KIND == "number":
        v = wrong_number(v, v)
    elif KIND == "shape":
        v = wrong_shape(v)
    elif KIND == "integer":
        v = of_integer(v, at)
    elif KIND == "parameters":
        v = wrong_parameters(v)
    elif KIND == "memory":
        v = from_memory(x, at)
    tl.store(out + at, v)


@pytest.mark.parametrize(
    ("kind", "place", "message"),
    [
        (
            "number",
            wrong_number_vjp,
            "the vjp rule of wrong_number returns 1 cotangents for 2: x, y",
        ),
        (
            "shape",
            wrong_shape_vjp,
            "the vjp rule of wrong_shape returns a value of type fp64 as the cotangent of x, which "
            "must be a value of type <[16], fp64>",
        ),
        (
            "integer",
            of_integer_vjp,
            "the vjp rule of of_integer returns a value of type <[16], fp64> as the cotangent of "
            "n, which must be None, since it is no float",
        ),
        (
            "parameters",
            wrong_parameters_vjp,
            "the rule of wrong_parameters does not fit it: wrong_parameters_vjp() takes 2 "
            "positional arguments, not 3",
        ),
    ],
)
def test_a_rule_that_does_not_fit_its_function_is_refused_at_the_rule(kind, place, message) -> None:
    x = np.zeros(COUNT)
    adjoint = tw.vjp(wrong, outputs="out", wrt="x")
    with pytest.raises(tw.CompilationError) as caught, tw.backend("reference"):
        adjoint[(1,)](x, x.copy(), COUNT, kind, d_out=x.copy(), d_x=x.copy())
    assert message in str(caught.value)
    assert caught.value.line == place.definition_line


def test_a_function_with_a_rule_computes_values_from_values() -> None:
    x = np.zeros(COUNT)
    adjoint = tw.vjp(wrong, outputs="out", wrt="x")
    with pytest.raises(tw.DerivativeError, match="from_memory") as caught, tw.backend("reference"):
        adjoint[(1,)](x, x.copy(), COUNT, "memory", d_out=x.copy(), d_x=x.copy())
    assert caught.value.remedy == "load outside of the function, and pass it what was loaded"


def test_the_key_of_a_kernel_depends_on_the_rules() -> None:
    def own(x):
        return x

    function = tw.custom_vjp(own)
    before = function.cache_key
    function.vjp(rounded_vjp)
    assert function.cache_key != before
