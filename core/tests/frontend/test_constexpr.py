"""Compile-time evaluation: constants, decay, annotations, f-strings, Python's builtins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.errors import CompilationError


def stored(made: Any, *arguments: Any, dtype: Any = np.int32, count: int = 1, **types: Any) -> Any:
    out = np.zeros(count, dtype)
    text = {np.int32: "*i32", np.int64: "*i64", np.float32: "*fp32", np.float64: "*fp64"}[dtype]
    made.run([out, *arguments], out=text, **types)
    return out.tolist() if count > 1 else out.tolist()[0]


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("7", "i32"),
        ("-7", "i32"),
        ("2**31 - 1", "i32"),
        ("2**31", "u32"),
        ("-2**31 - 1", "i64"),
        ("2**63", "u64"),
        ("True", "i1"),
        ("1.5", "f32"),
        ("1e300", "f64"),
        ("1e-40", "f64"),
        ("0.0", "f32"),
        ("float('inf')", "f32"),
    ],
)
def test_a_plain_assignment_of_a_number_gives_a_tensor(source: Any, value: str, type_: str) -> None:
    made = source(
        f"""
        @jit
        def kernel(n):
            x = {value}
            tl.static_assert(isinstance(x, tl.tensor))
        """
    )
    (constant,) = [
        operation
        for operation in made.compile(n="i32").walk()
        if operation.name == "constant" and operation.result.name == "x"
    ]
    assert str(constant.result.type) == type_


def test_dtypes_none_functions_and_text_stay_what_they_are(source: Any) -> None:
    made = source(
        """
        @jit
        def double(x):
            return x * 2

        @jit
        def kernel(out, DT: tl.constexpr):
            kind = DT
            nothing = None
            text = "abc"
            fn = double
            tl.static_assert(kind == tl.float32 and nothing is None and text == "abc")
            tl.store(out, fn(tl.full((), 3.0, kind)))
        """
    )
    from tilewright.language import float32

    assert stored(made, DT=float32) == 6


def test_annotated_names_stay_constexpr(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, N: tl.constexpr):
            M: tl.constexpr = N * 2
            K: "tl.constexpr" = M + 1
            later: tl.constexpr
            later = M // 2
            shape: tl.constexpr = (M, 2)
            tl.static_assert(K == 9 and later == 4 and shape[1] == 2)
            tl.store(out + tl.arange(0, M), tl.sum(tl.full(shape, 1, tl.int32), axis=1))
        """
    )
    assert stored(made, count=8, N=4) == [2] * 8


def test_arithmetic_of_constants_is_pythons(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, N: tl.constexpr):
            tl.static_assert(-N // 2 == -4 and -N % 4 == 1 and N / 2 == 3.5 and N**2 == 49 and N << 2 == 28 and ~N == -8)
            tl.static_assert(not N == 8 and (N & 3 | 8 ^ 1) == 11 and +N == 7 and 2 * 2.5 == 5.0)
            tl.static_assert("a" + "b" == "ab" and "abc"[1] == "b" and "abc".upper() == "ABC" and (1, 2)[0] == 1)
            tl.store(out, N)
        """
    )
    assert stored(made, N=7) == 7


def test_builtins_of_python(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x, N: tl.constexpr):
            t = (x, N, x)
            tl.static_assert(len(t) == 3 and len("ab") == 2 and len(tl.arange(0, 8)) == 8)
            tl.static_assert(min(N, 3) == 3 and max(N, 3, 9) == 9 and max((1, 5, 2)) == 5 and abs(-N) == 4)
            tl.static_assert(int(2.7) == 2 and float(2) == 2.0 and bool(0) == False and str(N) == "4")
            tl.static_assert(isinstance(x, tl.tensor) and isinstance(N, int) and not isinstance(N, float) and isinstance(N, tl.constexpr))
            tl.static_assert(isinstance(t, tuple) and isinstance(t, tl.tuple) and isinstance(N, (float, int)))
            tl.static_assert(hasattr(x, "dtype") and not hasattr(x, "nonsense") and getattr(x, "nonsense", 5) == 5)
            tl.static_assert(getattr(x, "dtype") == tl.int32 and any((False, N == 4)) and all((True, N == 4)))
            tl.static_assert(N in (1, 4) and N not in (2, 3) and "a" in "abc" and 2 in range(3))
            acc = 0
            for i, (a, b) in enumerate(zip(t, reversed((1, 2, 3)))):
                acc += (i + 1) * b
            tl.store(out, acc + max(x, 100) + min(x, 3) + abs(x))
        """
    )
    assert stored(made, 5, x="i32", N=4) == 3 + 4 + 3 + 100 + 3 + 5


def test_functions_of_math_are_evaluated(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, N: tl.constexpr):
            K: tl.constexpr = math.ceil(math.log2(N)) + int(math.pi)
            tl.static_assert(math.isinf(math.inf))
            tl.store(out, K)
        """
    )
    assert stored(made, N=9) == 7


def test_f_strings_take_constants(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, N: tl.constexpr):
            text: tl.constexpr = f"N={N:>3}|{N!r}|{N + 0.5:.2f}|{tl.float16}"
            tl.static_assert(text == "N=  4|4|4.50|fp16")
            tl.store(out, len(text))
        """
    )
    assert stored(made, N=4) == 17


def test_constexpr_functions_run_on_plain_values(source: Any) -> None:
    made = source(
        """
        seen = []

        @constexpr_function
        def shape_for(n, dtype=None, *, extra=0):
            seen.append((type(n), type(extra), dtype))
            return (n * 2 + extra, 1)

        @jit
        def kernel(out, N: tl.constexpr):
            S: tl.constexpr = shape_for(N, tl.float32, extra=2)
            tl.store(out, S[0] + shape_for(1)[1])
        """
    )
    from tilewright.language import float32

    assert stored(made, N=3) == 9
    assert made.seen == [(int, int, float32), (int, int, None)]
    assert made.shape_for(4) == (8, 1)


def test_functions_that_are_stated_to_be_constants_are_called_at_compile_time(source: Any) -> None:
    """``@tl.constexpr`` above a plain function: it is given constants and types as the kernel has
    them, and tensors for their types."""
    made = source(
        """
        @tl.constexpr
        def greatest(dtype):
            return 2 ** (dtype.primitive_bitwidth - 1) - 1

        @tl.constexpr
        def bits(dtype):
            assert type(dtype) is tl.constexpr
            return dtype.value.primitive_bitwidth

        @tl.constexpr
        def width(x, *, scale=1):
            return x.dtype.primitive_bitwidth * scale.value

        @tl.constexpr
        def fails(x):
            raise KeyError("of its own")

        @jit
        def kernel(out, x, p, FUNCTION: tl.constexpr, DTYPE: tl.constexpr):
            most: tl.constexpr = greatest(tl.int8) + bits(DTYPE)
            tl.static_assert(greatest(x.dtype) == 32767 and greatest(p.type.element_ty) == 127)
            tl.store(out, most + width(x, scale=FUNCTION(1)))

        @jit
        def wrong(out):
            tl.store(out, fails(1))
        """
    )
    given = {"x": "i16", "p": "*i8", "FUNCTION": lambda n: n.value + 2, "DTYPE": made.tl.int64}
    assert stored(made, 5, np.zeros(1, np.int8), **given) == 127 + 64 + 16 * 3
    with pytest.raises(CompilationError, match="of its own") as caught:
        made.compile("wrong", out="*i32")
    assert "fails(1)" in str(caught.value)


def test_the_key_of_a_kernel_is_also_of_functions_that_are_stated_to_be_constants(
    source: Any,
) -> None:
    made = source(
        """
        LIMIT = 3

        def inner(x):
            return LIMIT + x.value

        @tl.constexpr
        def limit(x):
            return inner(x) if x.value else limit.value(x)

        @jit
        def kernel(out):
            tl.store(out, limit(1))
        """
    )

    def key() -> str:
        made.kernel.hash = None
        found: str = made.kernel.cache_key
        return found

    assert stored(made) == 4
    keys = [key(), key()]
    made.module.LIMIT = 7
    keys.append(key())
    made.module.inner = lambda x: x.value * 2
    keys.append(key())
    assert stored(made) == 2 and len(set(keys)) == 3 and keys[0] == keys[1]


def test_functions_that_are_constants_may_read_what_surrounds_them(source: Any) -> None:
    made = source(
        """
        def factory(n):
            @tl.constexpr
            def shifted(x):
                return x.value + n if x.value < n else later

            @jit
            def kernel(out):
                tl.store(out, shifted(1))

            keys = [kernel.cache_key]
            later = 7
            kernel.hash = None
            return kernel, [*keys, kernel.cache_key]

        kernel, keys = factory(3)
        other, others = factory(4)
        """
    )
    assert stored(made) == 4 and len({*made.keys, *made.others}) == 4


def test_is_compares_the_values_behind_constants(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x, MODE: tl.constexpr):
            tl.static_assert(MODE is None and x is not None and (None is None) and tl.float32 is tl.float32)
            tl.store(out, x)
        """
    )
    assert stored(made, 5, x="i32", MODE=None) == 5


def test_assignments_of_every_form(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x):
            a = b = x + 1
            (c, (d, e)), f = (a, (b, x)), 7
            first, *middle, last = (1, 2, 3, x)
            [g, h] = [first, last]
            a += 1; a -= 2; a *= 6; a //= 2; a %= 100; a |= 8; a &= 0xFF; a ^= 1; a <<= 1; a >>= 1
            f: int = f + 1
            tl.store(out + tl.arange(0, 2), tl.join(tl.full((), 0, tl.int32) + a, b + c * d + e + f))
            tl.store(out + 2, len(middle) * 100 + middle[0] + middle[1])
            tl.store(out + 3, g + h)
            tl.store(out + 4, (y := x * 2) + y)
            i, i = x, 3
            tl.store(out + 5, i)
        """
    )
    a = 6
    a += 1
    a -= 2
    a *= 6
    a //= 2
    a %= 100
    a |= 8
    a ^= 1
    assert stored(made, 5, count=6, x="i32") == [a, 6 + 36 + 5 + 8, 205, 6, 20, 3]


def test_a_constant_may_be_an_argument_and_is_not_decayed(source: Any) -> None:
    made = source(
        """
        @jit
        def width(n, base):
            return n * base

        @jit
        def kernel(out):
            tl.store(out + tl.arange(0, width(2, 4)), width(n=3, base=1))
        """
    )
    assert stored(made, count=8) == [3] * 8


def test_asserts_compile_in_debug_mode_only(source: Any) -> None:
    from tilewright.language.semantic import Options

    made = source(
        """
        @jit
        def kernel(out, n):
            assert n > 0, "n must be positive"
            tl.store(out, n)
        """
    )
    plain = made.compile(out="*i32", n="i32")
    debug = made.compile(options=Options(debug=True), out="*i32", n="i32")
    assert not [operation for operation in plain.walk() if operation.name == "assert"]
    (check,) = [operation for operation in debug.walk() if operation.name == "assert"]
    assert check.attribute("message") == "n must be positive"


def test_print_is_device_print(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(n):
            print("n is", n)
            print(n)
        """
    )
    prefixes = [
        operation.attribute("prefix")
        for operation in made.compile(n="i32").walk()
        if operation.name == "print"
    ]
    assert prefixes == ["n is", ""]


@pytest.mark.parametrize(
    "expression", ["3 << (1 << 40)", "7 ** 10**9", "(-2) ** (1 << 40)", "1 << 65536"]
)
def test_integers_too_large_to_compute_are_refused(source: Any, expression: str) -> None:
    made = source(
        f"""
        @jit
        def kernel(out):
            x: tl.constexpr = {expression}
            tl.store(out, x & 1)
        """
    )
    with pytest.raises(
        CompilationError,
        match=r"the result is an integer of \d+ bits; constants have 65536 at most",
    ):
        made.compile(out="*i32")


def test_large_integers_and_powers_of_one_are_computed(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out):
            x: tl.constexpr = (1 << 65535) >> 65530
            y: tl.constexpr = (-1) ** (1 << 40) + 1 ** (1 << 40) + 0 << (1 << 3)
            tl.store(out, x)
            tl.store(out + 1, y)
            tl.store(out + 2, 0 << (1 << 40))
        """
    )
    assert stored(made, count=3) == [32, 512, 0]
