"""The error of the math functions, measured on compiled code, and their special values."""

import ctypes
import math
import os
import struct

import mpmath
import numpy as np
import pytest

from tilewright.ir import Module, verify
from tilewright.ir.types import F32, F64, I1, FloatType, IntType
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.writer import ModuleWriter, float_constant
from tilewright.passes.math.math_library import MATH, math_function

WIDTH = 8
NAMES = ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "rsqrt")
DTYPES = {F32: np.float32, F64: np.float64}


# ---- evaluating a scalar function of the IR on arrays, through LLVM


def llvm_type(type_):
    return {F32: "float", F64: "double"}.get(type_) or f"i{type_.bits}"


def vector(type_):
    return f"<{WIDTH} x {llvm_type(type_)}>"


PREDICATES = {
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    **{p: (f"o{p}", f"s{p}", f"u{p}") for p in ("lt", "le", "gt", "ge")},
}
BINARY = {
    "add": ("fadd", "add"),
    "sub": ("fsub", "sub"),
    "mul": ("fmul", "mul"),
    "div": ("fdiv", None),
    "and": (None, "and"),
    "or": (None, "or"),
    "xor": (None, "xor"),
    "shl": (None, "shl"),
}
UNARY = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "copysign": "copysign",
    "fma": "fma",
    "round_even": "roundeven",
}


def emit(writer, operation, operands):
    name, type_ = operation.name, operation.result.type
    vec = vector(type_)
    source = operation.operands[0].type if operation.operands else None
    if name in BINARY:
        return writer.emit(
            f"{BINARY[name][isinstance(type_, IntType)]} {vec} {operands[0]}, {operands[1]}"
        )
    if name == "shr":
        return writer.emit(
            f"{'ashr' if type_.signed else 'lshr'} {vec} {operands[0]}, {operands[1]}"
        )
    if name == "neg":
        return writer.emit(
            f"fneg {vec} {operands[0]}"
            if isinstance(type_, FloatType)
            else f"sub {vec} zeroinitializer, {operands[0]}"
        )
    if name == "mulhi":
        wide, bits = f"<{WIDTH} x i{2 * type_.bits}>", type_.bits
        a, b = (writer.emit(f"zext {vec} {x} to {wide}") for x in operands)
        high = writer.emit(
            f"lshr {wide} {writer.emit(f'mul {wide} {a}, {b}')}, splat (i{2 * bits} {bits})"
        )
        return writer.emit(f"trunc {wide} {high} to {vec}")
    if name in UNARY:
        return writer.intrinsic(f"llvm.{UNARY[name]}", vec, [(vec, x) for x in operands])
    if name == "exp":
        return inlined(writer, math_function("exp", type_), operands)
    if name == "ldexp":
        ints = vector(operation.operands[1].type)
        return writer.intrinsic(
            "llvm.ldexp", vec, [(vec, operands[0]), (ints, operands[1])], [vec, ints]
        )
    if name == "cmp":
        floating = isinstance(source, FloatType)
        predicate = PREDICATES[operation.attribute("predicate")][
            0 if floating else 1 if source.signed else 2
        ]
        return writer.emit(
            f"{'f' if floating else 'i'}cmp {predicate} {vector(source)} {operands[0]}, "
            f"{operands[1]}"
        )
    if name == "select":
        return writer.emit(
            f"select <{WIDTH} x i1> {operands[0]}, {vec} {operands[1]}, {vec} {operands[2]}"
        )
    if name == "bitcast":
        return (
            operands[0]
            if llvm_type(source) == llvm_type(type_)
            else writer.emit(f"bitcast {vector(source)} {operands[0]} to {vec}")
        )
    if name == "cast":
        if isinstance(source, IntType) and isinstance(type_, IntType):
            if source.bits == type_.bits:
                return operands[0]
            how = "trunc" if source.bits > type_.bits else "sext" if source.signed else "zext"
        elif isinstance(source, IntType):
            how = "sitofp" if source.signed else "uitofp"
        elif isinstance(type_, IntType):
            how = "fptosi" if type_.signed else "fptoui"
        else:
            how = "fpext" if type_.bits > source.bits else "fptrunc"
        return writer.emit(f"{how} {vector(source)} {operands[0]} to {vec}")
    raise AssertionError(name)


def constant(value, type_):
    if type_ is I1:
        return f"splat (i1 {str(value).lower()})"
    if isinstance(type_, FloatType):
        return f"splat ({llvm_type(type_)} {float_constant(llvm_type(type_), value)})"
    return f"splat ({llvm_type(type_)} {value})"


def inlined(writer, function, operands):
    """The result of a function, written in place."""
    names = dict(zip(function.arguments, operands, strict=True))
    for operation in function.body:
        if operation.name == "constant":
            names[operation.result] = constant(operation.attribute("value"), operation.result.type)
        elif operation.name != "return":
            names[operation.result] = emit(
                writer, operation, [names[x] for x in operation.operands]
            )
    return names[function.body.last.operands[0]]


class Compiled:
    """A scalar function of the IR on arrays whose length is a multiple of WIDTH."""

    def __init__(self, function):
        module = Module()
        module.add(function)
        verify(module)
        text = ModuleWriter('nounwind "prefer-vector-width"="512"')
        writer = text.function(
            "f",
            [("ptr", f"x{i}") for i in range(len(function.arguments))]
            + [("ptr", "y"), ("i64", "n")],
        )
        with writer.loop("0", "%n", WIDTH) as loop:
            loaded = []
            for i, argument in enumerate(function.arguments):
                address = writer.emit(
                    f"getelementptr {llvm_type(argument.type)}, ptr %x{i}, i64 {loop.index}"
                )
                loaded.append(writer.load(vector(argument.type), address))
            self.result = function.body.last.operands[0].type
            value = inlined(writer, function, loaded)
            writer.store(
                vector(self.result),
                value,
                writer.emit(f"getelementptr {llvm_type(self.result)}, ptr %y, i64 {loop.index}"),
            )
        writer.ret()
        triple, cpu, features = host_target()
        self.loaded = load_object(
            compile_to_object(text.text(), triple=triple, cpu=cpu, features=features), ["f"]
        )
        self.call = ctypes.CFUNCTYPE(
            None, *[ctypes.c_void_p] * (len(function.arguments) + 1), ctypes.c_int64
        )(self.loaded.address("f"))

    def __call__(self, *arrays):
        length = len(arrays[0])
        padded = [np.concatenate([a, np.repeat(a[-1:], -length % WIDTH)]) for a in arrays]
        result = np.empty(len(padded[0]), DTYPES.get(self.result) or f"u{self.result.bits // 8}")
        self.call(*[a.ctypes.data for a in padded], result.ctypes.data, len(result))
        return result[:length]


_compiled = {}


def compiled(name, element, **options):
    key = (name, element, *options.items())
    if key not in _compiled:
        function = math_function.__wrapped__(name, element, **options)
        _compiled[key] = Compiled(function)
    return _compiled[key]


class Library:
    """A function of the C library in double precision, on arrays."""

    def __init__(self, name):
        text = ModuleWriter()
        writer = text.function("f", [("ptr", "x"), ("ptr", "y"), ("i64", "n")])
        with writer.loop("0", "%n", 1) as loop:
            x = writer.load(
                "double", writer.emit(f"getelementptr double, ptr %x, i64 {loop.index}")
            )
            writer.store(
                "double",
                writer.call(name, "double", [("double", x)]),
                writer.emit(f"getelementptr double, ptr %y, i64 {loop.index}"),
            )
        writer.ret()
        triple, cpu, features = host_target()
        self.loaded = load_object(
            compile_to_object(text.text(), triple=triple, cpu=cpu, features=features), ["f"]
        )
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            self.loaded.address("f")
        )

    def __call__(self, x):
        x = np.ascontiguousarray(x)
        y = np.empty_like(x)
        self.call(x.ctypes.data, y.ctypes.data, len(x))
        return y


_libraries = {}


def exact64(name, x):
    """The function in double precision, for f32 arguments."""
    with np.errstate(all="ignore"):
        if name == "rsqrt":
            return 1 / np.sqrt(x)
        if name not in _libraries:
            _libraries[name] = Library(name)
        return _libraries[name](x)


def ulp_error(found, exact, element):
    """Return |found - exact| in units in the last place of exact.

    Infinity counts as the power of two after the maximum number; NaN must match NaN.
    """
    limit = 2.0 ** (element.bias + 1) if element is F32 else np.inf
    found, exact = found.astype(np.float64), np.asarray(exact, np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(exact))
    with np.errstate(invalid="ignore"):
        bounded = np.clip(exact, -limit, limit)
        difference = np.abs(np.clip(found, -limit, limit) - bounded)
    difference[found == exact] = 0
    difference[np.isnan(exact)] = 0
    _, exponent = np.frexp(np.where(np.isfinite(bounded), bounded, 1.0))
    exponent = np.maximum(exponent - 1, 1 - element.bias)
    exponent = np.minimum(exponent, element.bias)
    return np.ldexp(difference, element.mantissa - exponent)


# ---- f32, against double precision


def floats(start, stop, step=1):
    return np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.each_value
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("native", [True, False])
def test_f32_error_over_the_whole_range(name, native):
    """Every 1009th encoding: all exponents, both signs, subnormals, infinities and NaN."""
    x = floats(0, 1 << 32, 1009)
    error = ulp_error(
        compiled(name, F32, native_ldexp=native)(x), exact64(name, x.astype(np.float64)), F32
    )
    assert error.max() <= MATH[name, F32].strict_ulp, x[error.argmax()]


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_functions_made_of_exp_are_as_good_with_the_operation(name):
    """Within the strict bound where exp is; what a machine's own exp and quick division add is left
    to the relaxed one."""
    x = floats(0, 1 << 32, 1009)
    with np.errstate(over="ignore"):
        error = ulp_error(
            compiled(name, F32, native_exp=True)(x), exact64(name, x.astype(np.float64)), F32
        )
    assert error.max() <= MATH[name, F32].strict_ulp, x[error.argmax()]
    operations = {operation.name for operation in math_function(name, F32, native_exp=True).body}
    assert "exp" in operations and "exp" not in {
        operation.name for operation in math_function(name, F32).body
    }


DENSE = {
    "exp": (-104.5, 89.5),
    "exp2": (-151.0, 129.0),
    "log": (0.25, 4.0),
    "log2": (0.25, 4.0),
    "sin": (-200.0, 200.0),
    "cos": (-200.0, 200.0),
    "tanh": (-10.0, 10.0),
    "erf": (-4.5, 4.5),
    "rsqrt": (0.0, 10.0),
}


@pytest.mark.parametrize("name", NAMES)
def test_f32_error_where_the_function_is_lively(name):
    low, high = DENSE[name]
    x = np.random.default_rng(5).uniform(low, high, 1 << 19).astype(np.float32)
    error = ulp_error(compiled(name, F32)(x), exact64(name, x.astype(np.float64)), F32)
    assert error.max() <= MATH[name, F32].strict_ulp, x[error.argmax()]


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("element", [F32, F64])
def test_short_reduction_agrees_up_to_its_limit(name, element):
    limit = MATH[name, element].fast_limit
    x = np.random.default_rng(6).uniform(-limit, limit, 1 << 14).astype(DTYPES[element])
    x[:6] = limit, -limit, math.inf, -math.inf, math.nan, -0.0
    short, full = compiled(name, element, full_range=False)(x), compiled(name, element)(x)
    np.testing.assert_array_equal(short, full)
    beyond = np.asarray([limit * 4.03], DTYPES[element])
    assert (
        ulp_error(
            compiled(name, element)(beyond),
            [float(getattr(mpmath, name)(float(beyond[0])))],
            element,
        )[0]
        <= MATH[name, element].strict_ulp
    )


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("TILEWRIGHT_EXHAUSTIVE") != "1",
    reason="minutes a function: TILEWRIGHT_EXHAUSTIVE=1 runs it",
)
@pytest.mark.parametrize("name", NAMES)
def test_f32_error_over_every_argument(name):
    worst, where, function = 0.0, 0.0, compiled(name, F32)
    for start in range(0, 1 << 32, 1 << 20):
        x = floats(start, start + (1 << 20))
        error = ulp_error(function(x), exact64(name, x.astype(np.float64)), F32)
        if error.max() > worst:
            worst, where = float(error.max()), float(x[error.argmax()])
    print(f"{name}: {worst:.3f} ULP at {where!r}")
    assert worst <= MATH[name, F32].strict_ulp


# ---- f64, against 60 digits


def arguments_f64(name, count=700):
    """Arguments that meet every branch: random encodings, and random numbers of the sizes where the
    function is lively."""
    random = np.random.default_rng(7)
    encodings = random.integers(0, 1 << 64, count, dtype=np.uint64).view(np.float64)
    ranges = {
        "exp": [(-746, 710), (-1, 1), (-1e-8, 1e-8)],
        "exp2": [(-1076, 1025), (-1, 1), (-1e-8, 1e-8)],
        "log": [(0, 4), (0.99, 1.01), (0, 1e300)],
        "log2": [(0, 4), (0.99, 1.01), (0.7, 0.71), (1.41, 1.42)],
        "sin": [(-10, 10), (-1e9, 1e9), (-1e22, 1e22)],
        "cos": [(-10, 10), (-1e9, 1e9), (-1e22, 1e22)],
        "tanh": [(-22, 22), (-1, 1), (0.6, 0.65)],
        "erf": [(-6.5, 6.5), (-1.2, 1.2), (0.95, 1.05)],
        "rsqrt": [(0, 4), (0, 1e300)],
    }
    parts = [encodings, *(random.uniform(low, high, count) for low, high in ranges[name])]
    if name in ("log", "log2", "rsqrt"):
        parts[0] = np.abs(parts[0])
    if name in ("sin", "cos"):
        # next to multiples of pi/2: the remainder is small
        multiples = random.integers(1, 1 << 40, count).astype(np.float64)
        with mpmath.workdps(60):
            parts.append(np.asarray([float(mpmath.pi / 2 * int(m)) for m in multiples]))
    x = np.concatenate(parts)
    return x[np.isfinite(x)]


def exact_error_f64(name, x, found):
    """The error of each result in units in the last place of the exact one."""
    function = {
        "rsqrt": lambda v: 1 / mpmath.sqrt(v),
        "exp2": lambda v: mpmath.mpf(2) ** v,
        "log2": lambda v: mpmath.log(v, 2),
    }.get(name)
    function = function or getattr(mpmath, name)
    errors = []
    with mpmath.workdps(50):
        for argument, result in zip(x.tolist(), found.tolist(), strict=True):
            if name in ("exp", "exp2") and abs(argument) > 5000:
                assert result == (0.0 if argument < 0 else math.inf)
                continue
            with mpmath.workdps(360 if name in ("sin", "cos") and abs(argument) > 1e20 else 50):
                exact = function(mpmath.mpf(argument))
            if exact == 0:
                assert result == 0
                continue
            if abs(exact) >= mpmath.mpf(2) ** 1024:
                assert result == math.copysign(math.inf, exact)
                continue
            exponent = max(int(mpmath.floor(mpmath.log(abs(exact), 2))), -1022)
            shown = mpmath.mpf(2) ** 1024 if math.isinf(result) else mpmath.mpf(result)
            errors.append(float(abs(shown - exact) / mpmath.mpf(2) ** (exponent - 52)))
    return np.asarray(errors)


@pytest.mark.parametrize("name", NAMES)
def test_f64_error(name):
    x = arguments_f64(name)
    errors = exact_error_f64(name, x, compiled(name, F64)(x))
    assert len(errors) > 1000
    assert errors.max() <= MATH[name, F64].strict_ulp, x[errors.argmax()]


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_f64_without_native_ldexp_agrees(name):
    x = arguments_f64(name)
    np.testing.assert_array_equal(
        compiled(name, F64, native_ldexp=False)(x), compiled(name, F64)(x)
    )


def test_worst_case_of_the_reduction():
    """The double nearest to a multiple of pi/2 (V. Lefevre, J.-M. Muller): its remainder is about
    2**-60.9."""
    x = np.asarray([6381956970095103.0 * 2.0**797])
    errors = (
        exact_error_f64("sin", x, compiled("sin", F64)(x)),
        exact_error_f64("cos", x, compiled("cos", F64)(x)),
    )
    assert max(e.max() for e in errors) <= 1.0


# ---- special values

SPECIALS = {
    "exp": [
        (math.inf, math.inf),
        (-math.inf, 0.0),
        (0.0, 1.0),
        (-0.0, 1.0),
        (1000.0, math.inf),
        (-1000.0, 0.0),
    ],
    "exp2": [
        (math.inf, math.inf),
        (-math.inf, 0.0),
        (0.0, 1.0),
        (-0.0, 1.0),
        (3.0, 8.0),
        (-2.0, 0.25),
        (2000.0, math.inf),
        (-2000.0, 0.0),
    ],
    "log": [
        (math.inf, math.inf),
        (-math.inf, math.nan),
        (0.0, -math.inf),
        (-0.0, -math.inf),
        (1.0, 0.0),
        (-1.0, math.nan),
        (-1e-40, math.nan),
    ],
    "log2": [
        (math.inf, math.inf),
        (-math.inf, math.nan),
        (0.0, -math.inf),
        (-0.0, -math.inf),
        (1.0, 0.0),
        (8.0, 3.0),
        (0.125, -3.0),
        (-1.0, math.nan),
    ],
    "sin": [(math.inf, math.nan), (-math.inf, math.nan), (0.0, 0.0), (-0.0, -0.0)],
    "cos": [(math.inf, math.nan), (-math.inf, math.nan), (0.0, 1.0), (-0.0, 1.0)],
    "tanh": [
        (math.inf, 1.0),
        (-math.inf, -1.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (50.0, 1.0),
        (-50.0, -1.0),
    ],
    "erf": [
        (math.inf, 1.0),
        (-math.inf, -1.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (50.0, 1.0),
        (-50.0, -1.0),
    ],
    "rsqrt": [(math.inf, 0.0), (0.0, math.inf), (-0.0, -math.inf), (4.0, 0.5), (-1.0, math.nan)],
}


@pytest.mark.parametrize("element", [F32, F64])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("native", [True, False])
def test_special_values(name, element, native):
    quiet = [math.nan, struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]]
    arguments = [x for x, _ in SPECIALS[name]] + quiet
    expected = [y for _, y in SPECIALS[name]] + [math.nan] * len(quiet)
    found = compiled(name, element, native_ldexp=native)(np.asarray(arguments, DTYPES[element]))
    np.testing.assert_array_equal(found, np.asarray(expected, DTYPES[element]))
    np.testing.assert_array_equal(
        np.signbit(found[~np.isnan(found)]), np.signbit(np.asarray(expected)[~np.isnan(expected)])
    )


@pytest.mark.parametrize("element", [F32, F64])
def test_odd_functions_keep_subnormals(element):
    tiny = np.asarray(
        [1, 2, 3, 1 << (element.mantissa - 1), (1 << element.mantissa) - 1], f"u{element.bits // 8}"
    ).view(DTYPES[element])
    for name in ("sin", "tanh"):
        np.testing.assert_array_equal(compiled(name, element)(tiny), tiny)
        np.testing.assert_array_equal(compiled(name, element)(-tiny), -tiny)


@pytest.mark.parametrize("element", [F32, F64])
def test_ldexp_is_exact_for_every_exponent(element):
    dtype, random = DTYPES[element], np.random.default_rng(8)
    x = (
        random.integers(0, 1 << element.bits, 20000, dtype=np.uint64)
        .astype(f"u{element.bits // 8}")
        .view(dtype)
    )
    x = np.concatenate(
        [
            x,
            [
                1.0,
                1.5,
                np.finfo(dtype).max,
                np.finfo(dtype).smallest_subnormal,
                -0.0,
                math.inf,
                math.nan,
            ],
        ]
    ).astype(dtype)
    span = 2 * element.bias + 2 * element.mantissa + 20
    exponent = random.integers(-span, span, len(x)).astype(np.int32)
    exponent[:4] = -(2**31), 2**31 - 1, -(2**31) + 1, 2**30
    with np.errstate(all="ignore"):
        expected = np.ldexp(x, exponent)
    np.testing.assert_array_equal(compiled("ldexp", element)(x, exponent), expected)


def test_unknown_functions_and_elements():
    from tilewright.ir.types import BF16, F16

    assert math_function("exp", F16) is None
    assert math_function("exp", BF16) is None
    assert math_function("floor", F32) is None
    assert math_function("exp", F32) is math_function("exp", F32)
    assert set(MATH) == {(name, element) for name in NAMES for element in (F32, F64)}


@pytest.mark.parametrize("element", [F32, F64])
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_instructions_that_scale_get_no_exponents_near_subnormal_numbers(name, element):
    """They are slow there, and exponentials of -inf would have such an exponent."""
    exponents = {
        native: min(
            operation.attribute("value")
            for operation in math_function(name, element, native_ldexp=native).body
            if operation.name == "constant" and isinstance(operation.result.type, FloatType)
        )
        for native in (True, False)
    }
    smallest = {F32: -149, F64: -1074}[element]
    assert exponents[True] < 4 * smallest < exponents[False] < smallest * math.log(2) + 1
