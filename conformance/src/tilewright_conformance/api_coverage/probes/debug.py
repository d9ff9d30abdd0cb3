"""Printing and checking, while compiling and while running."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError, TilewrightError
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@contextlib.contextmanager
def output_of_kernels() -> Iterator[io.StringIO]:
    """Capture what Python and native code print; the buffer is filled when the block ends."""
    result = io.StringIO()
    python = io.StringIO()
    flush = ctypes.CDLL(None).fflush if os.name == "posix" else lambda _: None
    sys.stdout.flush()
    flush(None)
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with contextlib.redirect_stdout(python):
                yield result
        finally:
            flush(None)
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            result.write(python.getvalue() + file.read().decode())


def refusal(launch: Any, *args: Any, **keywords: Any) -> CompilationError:
    """The error of a kernel that must not compile.

    Raises:
        AssertionError: it compiles.
    """
    try:
        launch(*args, **keywords)
    except CompilationError as error:
        return error
    raise AssertionError("the kernel was compiled, and must not be")


@tw.jit
def printing_compiler(x, N: tl.constexpr):
    tl.static_print("N =", N, sep="", end="!\n")
    tl.store(x, N)


@probe("tl.static_print")
def static_print(on: Machine, rng: Any) -> None:
    x, n = (
        np.zeros(1, np.int32),
        1000 + int.from_bytes(os.urandom(3), "big"),
    )  # a number that no kernel in the cache was compiled for
    with output_of_kernels() as printed:
        on(printing_compiler)[(1,)](x, N=n)
    assert f"N ={n}!\n" in printed.getvalue()
    assert x[0] == n


@tw.jit
def only_even(x, N: tl.constexpr):
    tl.static_assert(N % 2 == 0, "N must be even")
    tl.store(x, N)


@probe("tl.static_assert")
def static_assert(on: Machine, rng: Any) -> None:
    x = np.zeros(1, np.int32)
    on(only_even)[(1,)](x, N=8)
    assert x[0] == 8
    error = refusal(on(only_even)[(1,)], x, N=7)
    assert "N must be even" in str(error)


@tw.jit
def printing(x, N: tl.constexpr):
    tl.device_print("x", tl.load(x + tl.arange(0, N)))
    tl.device_print("bits", tl.load(x), hex=True)
    print("plain", tl.program_id(0))


@probe("tl.device_print", "python.print", feature="print")
def device_print(on: Machine, rng: Any) -> None:
    x = rng.integers(10, 99, 4).astype(np.int32)
    with output_of_kernels() as printed:
        on(printing)[(1,)](x, N=4)
    found = {
        tuple(map(int, match))
        for match in re.findall(r"pid \(0, 0, 0\) idx \(\s*(\d)\) x:? *(\d+)", printed.getvalue())
    }
    assert found == set(enumerate(x.tolist())), printed.getvalue()
    assert re.search(rf"bits:? *0x0*{int(x[0]):x}\b", printed.getvalue()), printed.getvalue()
    assert re.search(r"plain:? *0\b", printed.getvalue()), printed.getvalue()


@tw.jit
def checked(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.device_assert(value > 0, "a value is not positive", mask=at < N // 2)
    assert N == 16, "N is 16"
    tl.store(out + at, value)


@probe("tl.device_assert", "syntax.assert", feature="assert")
def device_assert(on: Machine, rng: Any) -> None:
    x, out = rng.integers(1, 99, 16).astype(np.int32), np.zeros(16, np.int32)
    x[12] = -1
    on(checked)[(1,)](x, out, N=16, debug=True)
    np.testing.assert_array_equal(out, x)
    x[3] = -5
    on(checked)[(1,)](x, out, N=16)  # outside of debug mode nothing is checked
    np.testing.assert_array_equal(out, x)
    if on.kind == on.backend or not on.runs:  # a failure on a GPU leaves its context unusable
        try:
            on(checked)[(1,)](x, out, N=16, debug=True)
        except TilewrightError as error:
            assert "a value is not positive" in str(error)
        else:
            raise AssertionError("the assertion did not fail")
