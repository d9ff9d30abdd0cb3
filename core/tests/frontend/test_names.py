"""Name resolution: readable globals, attributes of modules, captured variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def test_a_plain_global_is_allowed_by_the_environment(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = source("SIZE = 16\n@jit\ndef kernel(out):\n    tl.store(out, SIZE)\n")
    assert "Cannot access global variable SIZE" in str(made.error(out="*i32"))
    monkeypatch.setenv("TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS", "1")
    out = np.zeros(1, np.int32)
    made.run([out], out="*i32")
    assert out[0] == 16


def test_globals_that_may_be_read(source: Any) -> None:
    made = source(
        """
        import enum
        import tilewright.language.math as tlmath
        from tilewright.language import float32, load, store, arange as numbers
        from tilewright.language.definitions.aggregate import aggregate

        N = tl.constexpr(4)
        KIND = tl.float32
        Pair = namedtuple("Pair", "a b")

        @aggregate
        class Box:
            x: tl.tensor

        @jit
        def helper(x):
            return x

        @constexpr_function
        def twice(n):
            return n * 2

        @jit
        def kernel(out):
            i = numbers(0, N)
            pair = Pair(helper(i), Box(i))
            x = pair.a.to(KIND) + pair.b.x.to(float32) + twice(N) + tlmath.exp2(0.0)
            store(out + i, x.to(tl.int32))
        """
    )
    out = np.zeros(4, np.int32)
    made.run([out], out="*i32")
    assert out.tolist() == [9, 11, 13, 15]


def test_numbers_of_modules_may_be_read(source: Any) -> None:
    made = source("@jit\ndef kernel(out):\n    tl.store(out, math.pi * 100)\n")
    out = np.zeros(1, np.int32)
    made.run([out], out="*i32")
    assert out[0] == 314


def test_locals_shadow_globals_and_builtins(source: Any) -> None:
    made = source(
        """
        N = tl.constexpr(4)

        @jit
        def kernel(out, min):
            N = 7
            len = N + min
            tl.store(out, len)
        """
    )
    out = np.zeros(1, np.int32)
    made.run([out, 5], out="*i32", min="i32")
    assert out[0] == 12


@pytest.mark.parametrize("value", ["3", "'text'", "(1, 2)", "[1]", "None", "{'a': 1}", "object()"])
def test_globals_that_may_not_be_read(source: Any, value: str) -> None:
    made = source(f"VALUE = {value}\n@jit\ndef kernel(x):\n    y = VALUE\n")
    error = made.error(x="i32")
    assert str(error).startswith(
        "Cannot access global variable VALUE"
    ) and "VALUE is not defined" in str(error)
    assert isinstance(error.__cause__, NameError)


def test_default_values_may_come_from_any_global(source: Any) -> None:
    made = source(
        """
        SIZE = 4

        @jit
        def helper(x, n=SIZE, kind=tl.float32):
            return (x + tl.arange(0, n)).to(kind)

        @jit
        def kernel(out, n=SIZE):
            tl.store(out + tl.arange(0, n), helper(1).to(tl.int32))
        """
    )
    out = np.zeros(4, np.int32)
    made.run([out], out="*i32")
    assert out.tolist() == [1, 2, 3, 4]
