"""Every function of ``tl.math`` and libdevice has a derivative, or there is a reason why not."""

from __future__ import annotations

import importlib
import inspect
import zlib
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives.forward_mode import TangentRequest, jvp
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.frontend.compile import compile_function
from tilewright.language import libdevice, math
from tilewright.language.binding import is_builtin
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.definitions.custom_derivative import CustomDerivative
from tilewright.language.device_math.partials import PARTIALS
from tilewright.language.semantic import Options
from tilewright.reference.interpreter import run

COUNT = 16

#: Functions that compute no floats from floats -> why.
NO_DERIVATIVE = {
    **dict.fromkeys(
        [
            "brev",
            "byte_perm",
            "clz",
            "ffs",
            "hadd",
            "mul24",
            "mulhi",
            "popc",
            "rhadd",
            "sad",
            "umulhi",
        ],
        "of integers",
    ),
    **dict.fromkeys(["finitef", "isfinited", "isinf", "isnan", "signbit"], "a truth"),
    **dict.fromkeys(["ilogb", "llrint", "llround"], "an integer"),
    "hiloint2double": "the bits of integers",
    "int_as_float": "the bits of integers",
    "uint_as_float": "the bits of integers",
    "longlong_as_double": "the bits of integers",
}
#: Functions that take floats apart: a kernel that makes floats of what they return is refused.
BITS = (
    "double2hiint",
    "double2loint",
    "double_as_longlong",
    "float_as_int",
    "float_as_uint",
)
#: Functions of arguments that are not all floats -> the value of the one that is none.
WITH_INTEGER = {"ldexp": 1, "scalbn": 1, "jn": 0, "yn": 0}
#: Functions of fp32 alone, or whose result is coarse: differences of them say nothing.
COARSE = ("rcp64h", "double2float_rn", "double2float_rz", "double2float_rd", "double2float_ru")
F32_ONLY = ("saturatef", "sqrt_rn", "div_rn")

DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "rsqrt_rn", "pow"), (0.2, 3.0)),
    **dict.fromkeys((f"sqrt_{mode}" for mode in ("rn", "rz", "rd", "ru")), (0.2, 3.0)),
    "acosh": (1.1, 4.0),
    **dict.fromkeys(("atanh", "asin", "acos"), (-0.9, 0.9)),
    "erfinv": (-0.95, 0.95),
    "erfcinv": (0.05, 1.95),
    "normcdfinv": (0.05, 0.95),
    "log1p": (-0.8, 3.0),
    **dict.fromkeys(("y0", "y1", "yn"), (0.5, 12.0)),
    "erfcx": (-3.0, 15.0),
    "lgamma": (-3.8, 12.0),
    "tgamma": (-3.8, 4.5),
}


def functions() -> dict[str, Any]:
    """Every public function, by name; those of both modules are the same."""
    found = {name: getattr(libdevice, name) for name in libdevice.__all__}
    own = vars(math).items()
    return {**{name: value for name, value in own if is_builtin(value)}, **found}


def parameters(function: Any) -> list[str]:
    if isinstance(function, JitCallable):
        return function.arg_names
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "_semantic" and parameter.default is inspect.Parameter.empty
    ]


def is_conversion(name: str) -> bool:
    return name.partition("2")[0] in ("float", "double", "int", "uint", "ll", "ull") and "2" in name


def differentiable() -> list[str]:
    return [
        name
        for name in sorted(functions())
        if name not in NO_DERIVATIVE
        and name not in BITS
        and (not is_conversion(name) or name.startswith("double2float"))
    ]


@tw.jit
def kernel(x, y, z, w, out, F: tl.constexpr, ORDER: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    a = tl.load(x + at)
    if ORDER == 0:
        r = F(at // 4, a)
    elif ORDER == 1:
        r = F(a, at // 4)
    elif N == 1:
        r = F(a)
    elif N == 2:
        r = F(a, tl.load(y + at))
    elif N == 3:
        r = F(a, tl.load(y + at), tl.load(z + at))
    else:
        r = F(a, tl.load(y + at), tl.load(z + at), tl.load(w + at))
    tl.store(out + at, r)


def names_of(name: str) -> tuple[str, ...]:
    count = 1 if name in WITH_INTEGER else len(parameters(functions()[name]))
    return ("x", "y", "z", "w")[:count]


def arguments(name: str, values: dict[str, np.ndarray], out: np.ndarray) -> list[Any]:
    count = len(parameters(functions()[name]))
    order = WITH_INTEGER.get(name, -1)
    return [*values.values(), out, functions()[name], order, count, COUNT]


def inputs_of(name: str, dtype: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    low, high = DOMAINS.get(name.removeprefix("fast_").removesuffix("f"), (-3.0, 3.0))
    low, high = DOMAINS.get(name, (low, high))
    drawn = {key: rng.uniform(low, high, COUNT) for key in ("x", "y", "z", "w")}
    return {key: value.astype(np.float32).astype(dtype) for key, value in drawn.items()}


def gradients(name: str, dtype: Any) -> list[np.ndarray]:
    """The gradients by each operand; forward mode must agree with them."""
    values, wrt = inputs_of(name, dtype), names_of(name)
    found = {key: np.zeros(COUNT, dtype) for key in wrt}
    out, tangent = np.zeros(COUNT, dtype), np.zeros(COUNT, dtype)
    ones = np.ones(COUNT, dtype)
    shared = arguments(name, values, out)
    named = {f"d_{key}": value for key, value in found.items()}
    tw.vjp(kernel, outputs="out", wrt=wrt)[(1,)](*shared, d_out=ones, **named)
    forward = tw.jvp(kernel, inputs=wrt, outputs="out")
    forward[(1,)](*shared, t_out=tangent, **{f"t_{key}": ones for key in wrt})
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    total = sum(found.values())
    np.testing.assert_allclose(total, tangent, rtol=tolerance, atol=tolerance)
    return [*found.values()]


def difference(name: str, which: str) -> np.ndarray:
    """The central difference by an operand."""
    values, results = inputs_of(name, np.float64), []
    for step in (1e-6, -1e-6):
        out = np.zeros(COUNT)
        kernel[(1,)](*arguments(name, {**values, which: values[which] + step}, out))
        results.append(out)
    return (results[0] - results[1]) / 2e-6


def test_every_function_is_known_to_this_test() -> None:
    known = functions()
    assert set(NO_DERIVATIVE) | set(BITS) | set(WITH_INTEGER) | set(COARSE) <= set(known)
    assert set(PARTIALS) <= set(known)
    conversions = {name for name in known if is_conversion(name) and name not in BITS}
    assert set(differentiable()) | conversions | set(NO_DERIVATIVE) | set(BITS) == set(known)


SLOW = {name for name in functions() if name.endswith(("_rz", "_rd", "_ru"))}


@pytest.mark.parametrize("name", [name for name in differentiable() if name not in SLOW])
@pytest.mark.sampled(24)
def test_derivatives_of_functions_are_those_of_differences(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", [name for name in differentiable() if name in SLOW])
@pytest.mark.sampled(3)
def test_derivatives_of_rounded_operations_are_those_of_differences(name: str) -> None:
    check(name)


def is_expanded_with_bits(name: str) -> bool:
    """Return whether the function's body makes floats of bits, so that it needs its rule."""
    types = dict.fromkeys(("x", "y", "z", "w", "out"), "*fp32")
    count, order = len(parameters(functions()[name])), WITH_INTEGER.get(name, -1)
    constants = {"F": functions()[name], "ORDER": order, "N": count, "B": COUNT}
    module = compile_function(kernel, {**types, **dict.fromkeys(constants, "constexpr")}, constants)
    try:
        vjp(module, AdjointRequest(("out",), names_of(name)))
    except tw.DerivativeError as error:
        return "bits" in error.reason
    return False


@pytest.mark.parametrize("name", [n for n in differentiable() if n not in (*COARSE, *SLOW)])
@pytest.mark.sampled(12)
def test_gradcheck_takes_functions_that_are_expanded_with_bits(name: str) -> None:
    """It keeps calls of what has a rule, as derivatives do."""
    if not is_expanded_with_bits(name):
        return
    out = np.zeros(COUNT, np.float32)
    arguments_ = arguments(name, inputs_of(name, np.float32), out)
    tw.testing.assert_gradients(kernel, (1,), *arguments_, outputs="out", wrt=names_of(name))


def test_hypot_is_expanded_with_bits() -> None:
    assert is_expanded_with_bits("hypot")
    assert not is_expanded_with_bits("exp")


def test_the_functions_of_triton_are_these() -> None:
    """Kernels of Triton call the functions that have the rules."""
    pytest.importorskip("torch")
    importlib.import_module("tilewright.compat.triton")
    for module in ("math", "extra.libdevice", "extra.cuda.libdevice", "extra.hip.libdevice"):
        found = vars(importlib.import_module(f"triton.language.{module}"))
        builtins = {name: value for name, value in found.items() if is_builtin(value)}
        assert builtins
        for name, value in builtins.items():
            assert value in (getattr(math, name, None), getattr(libdevice, name, None))


def check(name: str) -> None:
    with tw.backend("reference"):
        wide = None
        if name not in F32_ONLY:
            wide = gradients(name, np.float64)
            for which, found in zip(names_of(name), wide, strict=True):
                if name not in COARSE:
                    expected = difference(name, which)
                    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
        if name in COARSE:
            return
        for place, narrow in enumerate(gradients(name, np.float32)):
            if wide is not None:
                scale = 1e-6 * (np.abs(wide[place]) + np.abs(wide[place]).mean())
                assert (np.abs(narrow - wide[place]) <= scale + 1e-6).all()


@pytest.mark.parametrize(
    ("name", "slope"),
    [
        ("saturatef", lambda x: ((x > 0) & (x < 1)).astype(float)),
        ("sqrt_rn", lambda x: 0.5 / np.sqrt(x)),
        ("double2float_rz", np.ones_like),
        ("rcp64h", lambda x: -1 / x**2),
    ],
)
def test_functions_of_one_type_have_their_derivative(name: str, slope: Any) -> None:
    dtype = np.float32 if name in F32_ONLY else np.float64
    with tw.backend("reference"):
        (found,) = gradients(name, dtype)
    np.testing.assert_allclose(found, slope(inputs_of(name, np.float64)["x"]), rtol=1e-6)


@tw.jit
def taken_apart(x, out, F: tl.constexpr, G: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    bits = F(tl.load(x + at)) + 1
    tl.store(out + at, G(bits, bits) if tl.extra.libdevice.hiloint2double == G else G(bits))


@pytest.mark.parametrize("name", BITS)
def test_floats_made_of_the_bits_of_floats_are_refused(name: str) -> None:
    back = {"float_as_int": "int_as_float", "float_as_uint": "uint_as_float"}
    back["double_as_longlong"] = "longlong_as_double"
    dtype = np.float32 if name.startswith("float") else np.float64
    x = np.ones(COUNT, dtype)
    pair = (getattr(libdevice, name), getattr(libdevice, back.get(name, "hiloint2double")))
    adjoint = tw.vjp(taken_apart, outputs="out", wrt="x")
    reason = "bits of one that has a derivative"
    with pytest.raises(tw.DerivativeError, match=reason), tw.backend("reference"):
        adjoint[(1,)](x, x.copy(), *pair, COUNT, d_out=x.copy(), d_x=x.copy())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pow", [(0.0, 2.0), (0.0, 0.0), (2.0, 0.0), (-2.0, 3.0)]),
        ("hypot", [(0.0, 0.0), (3e30, 4e30), (3e-30, 4e-30)]),
        ("atan2", [(3e30, 4e30), (3e-30, 4e-30)]),
    ],
)
def test_gradients_at_edges_are_finite(name: str, values: list[tuple[float, float]]) -> None:
    """As PyTorch's: 0 ** y has slope 0 by y; the length of (0, 0) has slope 0."""
    x, y = (np.resize(np.array(column, np.float32), COUNT) for column in zip(*values, strict=True))
    found = [np.zeros(COUNT, np.float32) for _ in range(2)]
    out, ones = np.zeros(COUNT, np.float32), np.ones(COUNT, np.float32)
    shared = arguments(name, {"x": x, "y": y, "z": x, "w": x}, out)
    with tw.backend("reference"):
        adjoint = tw.vjp(kernel, outputs="out", wrt=("x", "y"))
        adjoint[(1,)](*shared, d_out=ones, d_x=found[0], d_y=found[1])
    number = {
        "pow": [[0.0, 0.0, 0.0, 12.0], [0.0, 0.0, np.log(2), np.nan]],
        "hypot": [[0.0, 0.6, 0.6], [0.0, 0.8, 0.8]],
        "atan2": [[4 / 25e30, 4 / 25e-30], [-3 / 25e30, -3 / 25e-30]],
    }[name]
    for result, expected in zip(found, number, strict=True):
        np.testing.assert_allclose(result[: len(expected)], expected, rtol=3e-6)


@pytest.mark.parametrize("name", ["jn", "yn"])
def test_bessel_functions_of_any_order_have_a_rule(name: str) -> None:
    assert isinstance(functions()[name], CustomDerivative)


def test_second_derivatives_call_rules_of_what_a_rule_calls() -> None:
    """The derivative of pow calls pow, whose bits have no derivative."""
    x, w = np.linspace(0.5, 2, COUNT), np.linspace(-1, 2, COUNT)
    out, cotangent, dx = np.zeros(COUNT), np.ones(COUNT), np.zeros(COUNT)
    signature = {**dict.fromkeys(("x", "w", "out"), "*fp64"), "B": "constexpr"}
    module = compile_function(powers, signature, {"B": COUNT}, options=Options(differentiated=True))
    first = vjp(module, AdjointRequest(("out",), ("x",), keep_calls=True))
    second = jvp(first, TangentRequest(("x",), ("d_x",)))
    found = np.zeros(COUNT)
    run(second, [x, w, out, cotangent, dx, np.ones(COUNT), found], (1, 1, 1))
    np.testing.assert_allclose(found, w * (w - 1) * x ** (w - 2), rtol=1e-12, atol=1e-14)


@tw.jit
def powers(x, w, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.extra.libdevice.pow(tl.load(x + at), tl.load(w + at)))
