"""Arithmetic of each type as LLVM compiles it, many operations in one kernel, bit for bit what
NumPy and Python's integers give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from wave_kernels import compiled, kernel, launch

Array = np.ndarray[Any, Any]
P = "ptr addrspace(1)"
COUNT = 256
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@dataclass(frozen=True)
class Operation:
    """``ir`` computes %r from %a and %b; ``result`` is its type in LLVM, ``wanted`` the array it
    must give; ``tolerance`` relative, 0 for bit for bit."""

    ir: str
    result: str
    wanted: Callable[[Array, Array], Array]
    tolerance: float = 0.0


def _text(kind: str, operations: dict[str, Operation], declarations: str) -> str:
    """One kernel that stores each operation's result into an array of its own."""
    arguments = [
        f"{P} noalias %x",
        f"{P} noalias %y",
        *(f"{P} noalias %o{i}" for i in range(len(operations))),
    ]
    body = f"""  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %gb = mul i32 %g, 64
  %i = add i32 %gb, %t
  %px = getelementptr {kind}, {P} %x, i32 %i
  %py = getelementptr {kind}, {P} %y, i32 %i
  %a = load {kind}, {P} %px
  %b = load {kind}, {P} %py
"""
    for number, operation in enumerate(operations.values()):
        lines = operation.ir
        for name in ("r", "s", "z", "d", "m", "n", "c"):
            lines = (
                lines.replace(f"%{name} ", f"%{name}{number} ")
                .replace(f"%{name},", f"%{name}{number},")
                .replace(f"%{name}\n", f"%{name}{number}\n")
            )
            lines = lines.replace(f"%{name})", f"%{name}{number})")
            lines = lines + f"{number}" if lines.endswith(f"%{name}") else lines
        body += (
            f"{lines}\n  %p{number} = getelementptr {operation.result}, {P} %o{number}, i32 %i\n"
            f"  store {operation.result} %r{number}, {P} %p{number}\n"
        )
    return kernel(body, ", ".join(arguments), declarations)


def check(
    target: str,
    kind: str,
    x: Array,
    y: Array,
    operations: dict[str, Operation],
    declarations: str = "",
) -> None:
    with np.errstate(all="ignore"):
        wanted = [operation.wanted(x, y) for operation in operations.values()]
    text = compiled(_text(kind, operations, declarations), target)
    outputs, _ = launch(text, [x, y, *(np.zeros_like(w) for w in wanted)], grid=(COUNT // 64, 1, 1))
    for (name, operation), got, want in zip(operations.items(), outputs[2:], wanted, strict=True):
        if operation.tolerance:
            np.testing.assert_allclose(
                got, want, rtol=operation.tolerance, atol=operation.tolerance, err_msg=name
            )
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


def _reals(seed: int, dtype: Any, spread: int) -> Array:
    rng = np.random.default_rng(seed)
    x = (
        rng.standard_normal(COUNT) * np.exp2(rng.integers(-spread, spread, COUNT).astype(float))
    ).astype(dtype)
    x[:8] = [
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        np.finfo(dtype).smallest_subnormal * 5,
        np.finfo(dtype).max,
    ]
    return rng.permutation(x)


def _real_operations(name: str, kind: str) -> tuple[dict[str, Operation], str]:
    def call(intrinsic: str, count: int) -> str:
        return (
            f"  %r = call {kind} "
            f"@llvm.{intrinsic}.{name}({', '.join(f'{kind} %{v}' for v in 'ab'[:count])})"
        )

    f64 = name == "f64"
    operations = {
        "fadd": Operation(f"  %r = fadd {kind} %a, %b", kind, lambda x, y: x + y),
        "fsub": Operation(f"  %r = fsub {kind} %a, %b", kind, lambda x, y: x - y),
        "fmul": Operation(f"  %r = fmul {kind} %a, %b", kind, lambda x, y: x * y),
        "fdiv": Operation(f"  %r = fdiv {kind} %a, %b", kind, lambda x, y: x / y),
        "fneg": Operation(f"  %r = fneg {kind} %a", kind, lambda x, y: -x),
        "sqrt": Operation(call("sqrt", 1), kind, lambda x, y: np.sqrt(x), 1e-15 if f64 else 0),
        "floor": Operation(call("floor", 1), kind, lambda x, y: np.floor(x)),
        "ceil": Operation(call("ceil", 1), kind, lambda x, y: np.ceil(x)),
        "trunc": Operation(call("trunc", 1), kind, lambda x, y: np.trunc(x)),
        "rint": Operation(call("rint", 1), kind, lambda x, y: np.rint(x)),
        "minnum": Operation(call("minnum", 2), kind, lambda x, y: np.fmin(x, y)),
        "maxnum": Operation(call("maxnum", 2), kind, lambda x, y: np.fmax(x, y)),
        "minimum": Operation(call("minimum", 2), kind, lambda x, y: np.minimum(x, y)),
        "maximum": Operation(call("maximum", 2), kind, lambda x, y: np.maximum(x, y)),
    }
    comparisons: dict[str, Callable[[Array, Array], Array]] = {
        "olt": lambda x, y: x < y,
        "ult": lambda x, y: ~(x >= y),
        "one": lambda x, y: (x < y) | (x > y),
        "une": lambda x, y: x != y,
        "uno": lambda x, y: np.isnan(x) | np.isnan(y),
        "oge": lambda x, y: x >= y,
    }
    for predicate, function in comparisons.items():
        line = f"  %c = fcmp {predicate} {kind} %a, %b\n  %r = zext i1 %c to i32"
        operations[f"fcmp {predicate}"] = Operation(
            line, "i32", lambda x, y, function=function: function(x, y).astype(np.int32)
        )  # type: ignore[misc]
    declared = [(n, 1) for n in ("sqrt", "floor", "ceil", "trunc", "rint")] + [
        (n, 2) for n in ("minnum", "maxnum", "minimum", "maximum")
    ]
    return operations, "\n".join(
        f"declare {kind} @llvm.{n}.{name}({', '.join([kind] * count)})" for n, count in declared
    )


@pytest.mark.each_value
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "kind", "dtype", "spread"),
    [
        ("f32", "float", np.float32, 40),
        ("f16", "half", np.float16, 8),
        ("f64", "double", np.float64, 300),
    ],
)
def test_reals(target: str, name: str, kind: str, dtype: Any, spread: int) -> None:
    operations, declarations = _real_operations(name, kind)
    check(
        target, kind, _reals(1, dtype, spread), _reals(2, dtype, spread), operations, declarations
    )


@pytest.mark.parametrize("target", TARGETS)
def test_transcendental_functions(target: str) -> None:
    rng = np.random.default_rng(3)
    functions = {
        "exp2": np.exp2,
        "log2": np.log2,
        "exp": np.exp,
        "log": np.log,
        "sin": np.sin,
        "cos": np.cos,
    }
    operations = {
        n: Operation(
            f"  %r = call float @llvm.{n}.f32(float %a)",
            "float",
            lambda x, y, f=f: f(x.astype(np.float64)).astype(np.float32),
            5e-6,
        )  # type: ignore[misc]
        for n, f in functions.items()
    }
    check(
        target,
        "float",
        rng.uniform(0.01, 6, COUNT).astype(np.float32),
        np.zeros(COUNT, np.float32),
        operations,
        "\n".join(f"declare float @llvm.{n}.f32(float)" for n in functions),
    )


def _python(function: Callable[[int, int], int], bits: int) -> Callable[[Array, Array], Array]:
    """The function of Python's integers on signed arrays, modulo the width."""
    return lambda x, y: np.array(
        [function(int(a), int(b)) & ((1 << bits) - 1) for a, b in zip(x, y, strict=True)],
        f"u{bits // 8}",
    ).view(f"i{bits // 8}")


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.each_value
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers(target: str, bits: int) -> None:
    kind, ones = f"i{bits}", (1 << bits) - 1
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def whole(b: int) -> int:
        return b if b else 7

    def call(name: str, arguments: str = f"{kind} %a, {kind} %b") -> str:
        return f"  %r = call {kind} @llvm.{name}.{kind}({arguments})"

    divisor = f"  %z = icmp eq {kind} %b, 0\n  %d = select i1 %z, {kind} 7, {kind} %b\n"
    amount = f"  %s = and {kind} %b, {bits - 1}\n"
    rows: dict[str, tuple[str, Callable[[int, int], int]]] = {
        "add": (f"  %r = add {kind} %a, %b", lambda a, b: a + b),
        "sub": (f"  %r = sub {kind} %a, %b", lambda a, b: a - b),
        "mul": (f"  %r = mul {kind} %a, %b", lambda a, b: a * b),
        "shl": (f"{amount}  %r = shl {kind} %a, %s", lambda a, b: a << (b & bits - 1)),
        "ashr": (f"{amount}  %r = ashr {kind} %a, %s", lambda a, b: a >> (b & bits - 1)),
        "lshr": (f"{amount}  %r = lshr {kind} %a, %s", lambda a, b: (a & ones) >> (b & bits - 1)),
        "udiv": (
            f"{divisor}  %r = udiv {kind} %a, %d",
            lambda a, b: (a & ones) // (whole(b) & ones),
        ),
        "urem": (
            f"{divisor}  %r = urem {kind} %a, %d",
            lambda a, b: (a & ones) % (whole(b) & ones),
        ),
        "sdiv": (f"{divisor}  %r = sdiv {kind} %a, %d", lambda a, b: _quotient(a, whole(b))),
        "srem": (
            f"{divisor}  %r = srem {kind} %a, %d",
            lambda a, b: a - whole(b) * _quotient(a, whole(b)),
        ),
        "smin": (call("smin"), min),
        "umax": (call("umax"), lambda a, b: max(a & ones, b & ones)),
        "uadd.sat": (call("uadd.sat"), lambda a, b: min((a & ones) + (b & ones), ones)),
        "ssub.sat": (call("ssub.sat"), lambda a, b: max(min(a - b, high), low)),
        "ctpop": (call("ctpop", f"{kind} %a"), lambda a, b: (a & ones).bit_count()),
        "bitreverse": (
            call("bitreverse", f"{kind} %a"),
            lambda a, b: int(f"{a & ones:0{bits}b}"[::-1], 2),
        ),
        "ctlz": (call("ctlz", f"{kind} %a, i1 false"), lambda a, b: bits - (a & ones).bit_length()),
        "cttz": (
            call("cttz", f"{kind} %a, i1 false"),
            lambda a, b: (a & -a).bit_length() - 1 if a else bits,
        ),
        "icmp": (
            f"  %c = icmp slt {kind} %a, %b\n  %r = zext i1 %c to {kind}",
            lambda a, b: int(a < b),
        ),
    }
    operations = {
        n: Operation(ir, kind, _python(function, bits)) for n, (ir, function) in rows.items()
    }
    declarations = "\n".join(
        f"declare {kind} @llvm.{n}.{kind}({kind}, {kind})"
        for n in ("smin", "umax", "uadd.sat", "ssub.sat")
    )
    declarations += "".join(
        f"\ndeclare {kind} @llvm.{n}.{kind}({kind})" for n in ("ctpop", "bitreverse")
    )
    declarations += "".join(
        f"\ndeclare {kind} @llvm.{n}.{kind}({kind}, i1)" for n in ("ctlz", "cttz")
    )
    rng = np.random.default_rng(bits)
    x, y = (rng.integers(low, high, COUNT, dtype=f"i{bits // 8}", endpoint=True) for _ in range(2))
    x[:6], y[:6] = [low, low, 0, -1, high, 1], [-1, low, 0, -1, 1, 3]
    y[64:128] = rng.integers(-20, 20, 64)
    check(target, kind, x, y, operations, declarations)


@pytest.mark.parametrize("target", TARGETS)
def test_conversions(target: str) -> None:
    x = _reals(5, np.float32, 30)
    saturating = {
        bits: Operation(
            f"  %r = call i{bits} @llvm.fptosi.sat.i{bits}.f32(float %a)",
            f"i{bits}",
            lambda x, y, bits=bits: np.array(  # type: ignore[misc]
                [0 if v != v else int(max(min(float(v), 2.0**80), -(2.0**80))) for v in x], object
            ).clip(-(1 << bits - 1), (1 << bits - 1) - 1).astype(f"i{bits // 8}"),
        )
        for bits in (16, 32, 64)
    }  # fmt: skip
    operations = {f"to i{bits}": operation for bits, operation in saturating.items()} | {
        "half": Operation(
            "  %r = fptrunc float %a to half", "half", lambda x, y: x.astype(np.float16)
        ),
        "double": Operation(
            "  %r = fpext float %a to double", "double", lambda x, y: x.astype(np.float64)
        ),
        "bfloat": Operation(
            "  %n = call float @llvm.canonicalize.f32(float %b)\n  %r = fptrunc float %n to bfloat",
            "bfloat",
            lambda x, y: y.astype(ml_dtypes.bfloat16).view(np.uint16),
        ),
    }
    declarations = (
        "\n".join(f"declare i{bits} @llvm.fptosi.sat.i{bits}.f32(float)" for bits in (16, 32, 64))
        + "\ndeclare float @llvm.canonicalize.f32(float)"
    )
    check(target, "float", x, np.nan_to_num(_reals(6, np.float32, 30)), operations, declarations)
    integers = (
        np.random.default_rng(6).integers(-(1 << 63), 1 << 63, COUNT, dtype=np.int64)
        >> np.arange(COUNT) % 60
    )
    rows = {
        f"{how} {kind}": Operation(
            f"  %r = {how} i64 %a to {kind}",
            kind,
            lambda x, y, integer=integer, dtype=dtype: x.view(integer).astype(dtype),
        )
        for how, integer in (("sitofp", np.int64), ("uitofp", np.uint64))
        for kind, dtype in (("float", np.float32), ("double", np.float64))
    }
    check(target, "i64", integers, integers, rows)
