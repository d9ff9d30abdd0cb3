"""The functions of ``tl.extra.libdevice`` on CPU, GPU and reference: their errors, special values and roundings, against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.language.device_math.accuracy import ULP
from tilewright.language.extra import libdevice
from tilewright_conformance.cases.libdevice.exact import OPERATIONS
from tilewright_conformance.cases.libdevice.values import ANY_ZERO, DOMAINS, PAIRS, SETTLED, pairs_of_special_numbers
from tilewright_conformance.cases.libdevice.values import spread as spread_by
from tilewright_conformance.oracles.rounding import rounded

RNG = np.random.default_rng(22)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    global RNG
    RNG = np.random.default_rng(22)


TYPES = [np.float32, np.float64]
INF, NAN = math.inf, math.nan


@tw.jit
def apply(x_ptr, y_ptr, z_ptr, w_ptr, out_ptr, n, FUNCTION: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    z = tl.load(z_ptr + at, mask=mask)
    w = tl.load(w_ptr + at, mask=mask)
    operands = (x, y, z, w)
    tl.store(out_ptr + at, FUNCTION(*operands[:COUNT]), mask=mask)


@pytest.fixture
def values(launch: Callable[..., None]) -> Callable[..., Any]:
    """``values(name, *operands, out=dtype)``: what the device gives, which is what the reference gives to within 8 ULP."""

    def run(name: str, *operands: Any, out: Any = None) -> Any:
        n = len(operands[0])
        result = np.full(n, 77, out or operands[0].dtype)
        given = [*operands, *(operands[:1] * (4 - len(operands)))]
        bound = 8 * np.finfo(result.dtype).eps if result.dtype.kind == "f" else 0
        close = {"rtol": bound, "atol": bound, "exact": True}
        launch(apply, (-(-n // 64),), *given, result, n, FUNCTION=getattr(libdevice, name), COUNT=len(operands), BLOCK=64, **close)
        return result

    return run


def spread(count: int, low: float, high: float) -> Any:
    return spread_by(RNG, count, low, high)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", sorted(set(DOMAINS) & set(ULP) - {"pow"}))
def test_accuracy(values: Any, name: str, dtype: Any) -> None:
    mp = pytest.importorskip("mpmath")
    mp.mp.dps = 30
    exact = {
        "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
        "exp10": lambda x: mp.power(10, x),
        "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x),
        "normcdf": mp.ncdf,
        "lgamma": lambda x: mp.log(abs(mp.gamma(x))) if x < 100 else mp.loggamma(x),
        "tgamma": mp.gamma,
        "cyl_bessel_i0": lambda x: mp.besseli(0, x),
        "cyl_bessel_i1": lambda x: mp.besseli(1, x),
    }.get(name) or getattr(mp, name)
    x = DOMAINS[name](RNG, 85 if dtype is np.float32 else 700)[0].astype(dtype)
    found = values(name, x)
    worst = max(
        abs(mp.mpf(float(f)) - e) / mp.mpf(float(np.spacing(dtype(abs(float(e))))))
        for f, e in ((f, exact(mp.mpf(float(v)))) for f, v in zip(found, x, strict=True))
    )
    assert worst <= ULP[name][dtype is np.float64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["j0", "j1", "y0", "y1"])
def test_bessel_functions(values: Any, name: str, dtype: Any) -> None:
    mp = pytest.importorskip("mpmath")
    x = np.abs(spread(200, 1e-3, 1e3)).astype(dtype)
    kind = mp.besselj if name[0] == "j" else mp.bessely
    exact = np.array([float(kind(int(name[1]), float(v))) for v in x])
    # Between its zeros a function is as large as 1 / sqrt(x); the error is told in parts of that.
    size = np.maximum(np.abs(exact), 1 / np.sqrt(np.maximum(x, 1)))
    assert (np.abs(values(name, x) - exact) <= size * (2e-7 if dtype is np.float32 else 4e-15)).all()


@tw.jit
def any_order(n_ptr, x_ptr, j_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(j_ptr + at, libdevice.jn(tl.load(n_ptr + at), tl.load(x_ptr + at)))
    tl.store(y_ptr + at, libdevice.yn(tl.load(n_ptr + at), tl.load(x_ptr + at)))


def test_bessel_functions_of_any_order(launch: Any) -> None:
    mp = pytest.importorskip("mpmath")
    n, x = RNG.integers(0, 20, 64).astype(np.int32), np.abs(spread(64, 0.1, 60))
    n[:4], x[:4] = [-1, 3, 0, 2], [1.0, 0.0, 0.0, INF]
    j, y = np.full(64, 77.0), np.full(64, 77.0)
    launch(any_order, (1,), n, x, j, y, N=64, rtol=1e-13, atol=1e-14, exact=True)
    assert np.array_equal(j[:4], [NAN, 0, 1, 0], equal_nan=True)
    assert np.array_equal(y[:4], [NAN, -INF, -INF, 0], equal_nan=True)
    for i in range(4, 64):
        assert j[i] == pytest.approx(float(mp.besselj(int(n[i]), x[i])), rel=1e-13, abs=1e-15 if n[i] > x[i] else 1e-14)
        assert y[i] == pytest.approx(float(mp.bessely(int(n[i]), x[i])), rel=1e-12, abs=1e-13)


def test_order_inverts_erfc(values: Any) -> None:
    mp = pytest.importorskip("mpmath")
    mp.mp.dps = 30
    q = np.concatenate([10.0 ** RNG.uniform(-300, 0, 60), RNG.uniform(0, 2, 60), 1 + spread(30, 1e-12, 0.1)])
    for name, forth in (("erfcinv", mp.erfc), ("normcdfinv", mp.ncdf)):
        p = q if name == "erfcinv" else q / 2
        for y, wanted in zip(values(name, p), p, strict=True):
            exact = mp.findroot(lambda t, wanted=wanted: mp.log(forth(t) / mp.mpf(float(wanted))), mp.mpf(float(y)))
            assert abs(float(y) - exact) <= 8 * np.spacing(abs(float(y)))


@pytest.mark.parametrize("dtype", TYPES)
def test_powers(values: Any, dtype: Any) -> None:
    mp = pytest.importorskip("mpmath")
    mp.mp.dps = 40
    x = np.abs(spread(300, 1e-6, 1e6)).astype(dtype)
    y = (RNG.uniform(-1, 1, 300) * (80 if dtype is np.float32 else 690) / np.maximum(np.abs(np.log(x.astype(float))), 0.05)).astype(dtype)
    found = values("pow", x, y)
    exact = [mp.power(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    worst = max(abs(mp.mpf(float(f)) - e) / mp.mpf(float(np.spacing(dtype(float(e))))) for f, e in zip(found, exact, strict=True))
    assert worst <= ULP["pow"][dtype is np.float64]


@pytest.mark.parametrize("name", [*PAIRS, "nextafter"])
def test_special_values_of_two_operands(values: Any, name: str) -> None:
    x, y, exact = pairs_of_special_numbers(name, np.float64)
    for a, b, f, e in zip(x, y, values(name, x, y), exact, strict=True):
        if e != e:
            assert f != f, (a, b, f, e)
        else:
            assert f == pytest.approx(e, rel=1e-15, abs=0) and math.copysign(1, f) == math.copysign(1, e), (a, b, f, e)


@pytest.mark.parametrize(("name", "expected"), SETTLED.items())
@pytest.mark.parametrize("dtype", TYPES)
def test_special_values(values: Any, name: str, expected: tuple[float, ...], dtype: Any) -> None:
    found = values(name, np.array([0.0, -0.0, INF, -INF, NAN], dtype))
    np.testing.assert_allclose(found, np.array(expected, dtype), rtol=1e-6 if dtype is np.float32 else 1e-15)
    known = [i for i, e in enumerate(expected) if e == 0 and name not in ANY_ZERO]
    assert [math.copysign(1, found[i]) for i in known] == [math.copysign(1, expected[i]) for i in known]


# -- directed rounding --------------------------------------------------------------------------------------------------------------------------------


def text(dtype: Any) -> str:
    return f"f{8 * np.dtype(dtype).itemsize}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_directed_operations(values: Any, name: str, mode: str, dtype: Any) -> None:
    a, b, c = (spread(150, 1e-6, 1e6).astype(dtype) for _ in range(3))
    a[:10], b[:10], c[:10] = 3.0, 0.5, spread(10, 1e-20, 1e-10)
    count = 1 if name == "rcp" else 3 if name == "fma" else 2
    found = values(f"{name}_{mode}", *(a, b, c)[:count])
    for x, y, z, f in zip(a, b, c, found, strict=True):
        exact = OPERATIONS[name](*(Fraction(float(v)) for v in (x, y, z)[:count]))
        assert f == rounded(exact, mode, text(dtype)), (x, y, z)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
def test_directed_roots(values: Any, mode: str, dtype: Any) -> None:
    x = np.abs(spread(150, 1e-6, 1e6)).astype(dtype)
    x[:3] = [4.0, 2.25, 0.0]
    for value, found in zip(x, values(f"sqrt_{mode}", x), strict=True):
        exact, step = Fraction(float(value)), dtype(INF)
        f = Fraction(float(found))
        above, below = Fraction(float(np.nextafter(found, step))), Fraction(float(np.nextafter(found, -step)))
        if mode == "rn":
            assert max(below + f, 0) ** 2 / 4 <= exact <= (f + above) ** 2 / 4
        elif mode == "ru":
            assert f * f >= exact and (below < 0 or below * below < exact)
        else:
            assert f * f <= exact < above * above


@pytest.mark.parametrize(("mode", "expected"), [("rn", INF), ("rz", 3.4028234663852886e38), ("rd", 3.4028234663852886e38), ("ru", INF)])
def test_overflow_follows_the_direction(values: Any, mode: str, expected: float) -> None:
    large = np.array([3e38, 3e38, INF, NAN], np.float32)
    np.testing.assert_array_equal(values(f"mul_{mode}", large, large), np.array([expected, expected, INF, NAN], np.float32))
    np.testing.assert_array_equal(values(f"add_{mode}", large[:1], -large[:1]), [0.0])
    assert np.signbit(values(f"add_{mode}", large[:1], -large[:1]))[0] == (mode == "rd")


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize(("name", "integer"), [("int", np.int32), ("uint", np.uint32), ("ll", np.int64), ("ull", np.uint64)])
def test_conversions(values: Any, mode: str, name: str, integer: Any) -> None:
    limits = np.iinfo(integer)
    whole = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[mode]
    for floating, dtype in (("float", np.float32), ("double", np.float64)):
        x = np.concatenate([spread(100, 0.1, 1e6), [0.5, 1.5, -0.5, 1e30, -1e30, NAN, INF, -INF]]).astype(dtype)
        expected = [
            0 if v != v else int(min(max(whole(v), limits.min), limits.max)) if abs(v) < 1e25 else limits.max if v > 0 else limits.min for v in x.astype(float)
        ]
        assert [int(v) for v in values(f"{floating}2{name}_{mode}", x, out=integer)] == [int(integer(v)) for v in expected]
        if floating == "double" and limits.bits == 32 and mode != "rn":
            continue
        i = RNG.integers(limits.min, limits.max, 100, dtype=integer, endpoint=True) >> RNG.integers(0, limits.bits - 2, 100).astype(integer)
        i[:2] = limits.min, limits.max
        found = values(f"{name}2{floating}_{mode}", i, out=dtype)
        assert [float(f) for f in found] == [rounded(Fraction(int(v)), mode, text(dtype)) for v in i]


@pytest.mark.parametrize("mode", ["rn", "rz", "rd", "ru"])
def test_narrowing(values: Any, mode: str) -> None:
    x = np.concatenate([spread(100, 1e-44, 1e38), [0.1, -0.1, 1 + 2.0**-24, 1 + 3 * 2.0**-24]])
    found = values(f"double2float_{mode}", x, out=np.float32)
    assert [float(f) for f in found] == [rounded(Fraction(float(v)), mode, "f32") for v in x]


# -- parts and bits -----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_parts_of_floats(values: Any, dtype: Any) -> None:
    x = np.concatenate([spread(100, 1e-38, 1e30), [0.0, INF, NAN, 1.0, 0.99999994, 1e-40]]).astype(dtype)
    expected = [-(2**31) if v != v or v == 0 else 2**31 - 1 if abs(v) == INF else math.frexp(v)[1] - 1 for v in x.astype(float)]
    assert values("ilogb", x, out=np.int32).tolist() == expected
    y = spread(len(x), 1e-3, 1e3).astype(dtype)
    exact = [NAN if v != v or abs(v) == INF else math.remainder(v, w) for v, w in zip(x.astype(float), y.astype(float), strict=True)]
    np.testing.assert_array_equal(values("remainder", x, y), np.array(exact, dtype))
    ties = np.array([0.5, 1.5, -2.5, 2.4999, -0.5], dtype)
    assert values("llround", ties, out=np.int64).tolist() == [1, 2, -3, 2, -1]
    np.testing.assert_array_equal(values("nextafter", x, y), np.nextafter(x, y))


def test_bits(values: Any) -> None:
    x, y, s = (RNG.integers(0, 2**32, 64, dtype=np.uint32) for _ in range(3))
    for dtype in (np.uint32, np.int32):
        assert [int(v) % 2**32 for v in values("brev", x.view(dtype))] == [int(f"{v:032b}"[::-1], 2) for v in x]
    wide = RNG.integers(0, 2**64, 64, dtype=np.uint64)
    assert values("brev", wide).tolist() == [int(f"{int(v):064b}"[::-1], 2) for v in wide]
    pool = [(int(b) << 32 | int(a)).to_bytes(8, "little") for a, b in zip(x, y, strict=True)]
    chosen = [int.from_bytes(bytes(p[int(k) >> 4 * i & 7] for i in range(4)), "little") for p, k in zip(pool, s, strict=True)]
    assert values("byte_perm", x, y, s).tolist() == chosen
    a, b, c = (v.view(np.int32) for v in (x, y, s))
    assert values("hadd", a, b).tolist() == [(int(p) + int(q)) >> 1 for p, q in zip(a, b, strict=True)]
    assert values("rhadd", x, y).tolist() == [(int(p) + int(q) + 1) >> 1 for p, q in zip(x, y, strict=True)]
    assert [int(v) % 2**32 for v in values("sad", a, b, c)] == [(abs(int(p) - int(q)) + int(r)) % 2**32 for p, q, r in zip(a, b, c, strict=True)]
    low = lambda v: (int(v) & 0xFFFFFF) - (int(v) >> 23 & 1) * 2**24  # noqa: E731
    assert [int(v) % 2**32 for v in values("mul24", a, b)] == [low(p) * low(q) % 2**32 for p, q in zip(a, b, strict=True)]


def test_reinterpretation(values: Any) -> None:
    f, d = spread(64, 1e-9, 1e9).astype(np.float32), spread(64, 1e-9, 1e9)
    np.testing.assert_array_equal(values("float_as_int", f, out=np.int32), f.view(np.int32))
    np.testing.assert_array_equal(values("float_as_uint", f, out=np.uint32), f.view(np.uint32))
    np.testing.assert_array_equal(values("int_as_float", f.view(np.int32), out=np.float32), f)
    np.testing.assert_array_equal(values("uint_as_float", f.view(np.uint32), out=np.float32), f)
    np.testing.assert_array_equal(values("double_as_longlong", d, out=np.int64), d.view(np.int64))
    np.testing.assert_array_equal(values("longlong_as_double", d.view(np.int64), out=np.float64), d)
    halves = np.ascontiguousarray(d.view(np.int32).reshape(-1, 2).T)
    np.testing.assert_array_equal(values("double2loint", d, out=np.int32), halves[0])
    np.testing.assert_array_equal(values("double2hiint", d, out=np.int32), halves[1])
    np.testing.assert_array_equal(values("hiloint2double", halves[1], halves[0], out=np.float64), d)


def test_other_names(values: Any) -> None:
    x, y, z, w = (np.abs(spread(64, 1e-3, 50)).astype(np.float32) for _ in range(4))
    for name, expected in {
        "fast_sinf": np.sin(x),
        "fast_expf": np.exp(x),
        "fast_logf": np.log(x),
        "fast_tanhf": np.tanh(x),
        "rcbrt": 1 / np.cbrt(x),
        "rsqrt_rn": 1 / np.sqrt(x),
        "saturatef": np.clip(x, 0, 1),
    }.items():
        np.testing.assert_allclose(values(name, x), expected, rtol=1e-6, err_msg=name)
    x64, y64, z64, w64 = (v.astype(float) for v in (x, y, z, w))
    for name, count, expected in (
        ("hypot", 2, np.hypot(x64, y64)),
        ("rhypot", 2, 1 / np.hypot(x64, y64)),
        ("norm3d", 3, np.sqrt(x64**2 + y64**2 + z64**2)),
        ("rnorm4d", 4, 1 / np.sqrt(x64**2 + y64**2 + z64**2 + w64**2)),
        ("fast_dividef", 2, x64 / y64),
        ("fast_powf", 2, None),
    ):
        if expected is not None:
            np.testing.assert_allclose(values(name, *(x, y, z, w)[:count]), expected, rtol=3e-7, err_msg=name)
    huge = np.array([1e38, 1e-40, 3e38, INF, NAN], np.float32)
    np.testing.assert_allclose(values("hypot", huge, huge), [math.sqrt(2) * 1e38, math.sqrt(2) * 1e-40, INF, INF, NAN], rtol=1e-4)
