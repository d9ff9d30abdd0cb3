"""Rules that are easily got wrong silently: constants declared twice or assigned again, tuples
compared, warnings' places, wrong arguments of builtins."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tilewright.frontend.compile import compile_function
from tilewright.frontend.generator import ModuleGenerator
from tilewright.ir.verifier import VerificationError


def test_a_constant_is_not_declared_where_its_name_has_a_value(source: Any) -> None:
    for first in ("n: tl.constexpr = 3", "n = 3", "n, m = 1, 2"):
        made = source(
            f"@jit\ndef kernel(out):\n    {first}\n    n: tl.constexpr = 4\n    tl.store(out, n)\n"
        )
        error = made.error(out="*i32")
        assert error.message.startswith("n is already defined. constexpr cannot be reassigned."), (
            first
        )
        assert error.line == made.kernel.definition_line + 2


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ("n = 4", 4),
        ("n = min(x, n)", 3),
        ("n += x", 10),
        ("n, m = 5, 2", 5),
        ("tl.store(out, (n := 6))", 6),
        ("for i in range(x): n += i", 24),
        ("if x > 3: n = x * 2", 14),
        ("for i in tl.static_range(2): n *= x", 147),
    ],
)
def test_a_declared_constant_becomes_a_variable_where_it_is_assigned_again(
    source: Any, again: str, expected: int
) -> None:
    made = source(
        "@jit\ndef kernel(out, x):\n    n: tl.constexpr = 3\n    tl.static_assert(n == 3)\n"
        f"    {again}\n    tl.store(out, n)\n"
    )
    out = np.zeros(1, np.int32)
    made.run([out, 7], out="*i32", x="i32")
    assert out[0] == expected


def test_a_constant_of_one_branch_leaves_the_name_free_in_the_other(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x):
            if x > 0:
                n: tl.constexpr = 3
                tl.store(out, n)
            else:
                n = x * 2
                tl.store(out, n)
        """
    )
    out = np.zeros(1, np.int32)
    made.run([out, -4], out="*i32", x="i32")
    assert out[0] == -8


@pytest.mark.parametrize(("a", "b", "same"), [(3, 4, True), (3, 5, False), (0, 4, False)])
def test_tuples_of_run_time_scalars_are_compared_at_run_time(
    source: Any, a: int, b: int, same: bool
) -> None:
    made = source(
        """
        @jit
        def kernel(out, a, b):
            left, right = (a, (b, None)), (3, (4, None))
            if left == right:
                tl.store(out, 1)
            if left != right:
                tl.store(out + 1, 1)
            tl.static_assert((a, 1) != (a, 1, 2))
            tl.static_assert((a, tl.constexpr("x")) != (a, tl.constexpr("y")))
            tl.static_assert((a, b) == (a, b))
        """
    )
    out = np.zeros(2, np.int32)
    made.run([out, a, b], out="*i32", a="i32", b="i32")
    assert out.tolist() == [same, not same]


def test_tuples_of_tiles_are_not_compared(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out):
            x = tl.arange(0, 4)
            if (x, 1) == (x + 0, 1):
                tl.store(out, 1)
        """
    )
    assert made.error(out="*i32").message.startswith(
        "== of tuples compares scalars, not a value of type <[4], int32>"
    )


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (
            "y = x and x",
            (
                "`and` of tiles is computed element by element, both sides of it; write `&`, and "
                "comparisons in brackets"
            ),
        ),
        ("y = x or x", "write `|`, and comparisons in brackets"),
        ("y = tl.where(tl.arange(0, 4), 1, 2)", "where: a condition of type int32 is deprecated"),
        ("y = tl.arange(0, 4) << 40", "shift by 40 of a value of 32 bits"),
        ("y = x[:, :]", "index has 2 `:` for a tensor of 1 axes"),
        ("y = x.view(2, 2)", "view is deprecated"),
        (
            "y = 1 if tl.full((1,), 1, tl.int1) else 2",
            "a condition of type <\\[1\\], int1> is used as a scalar",
        ),
    ],
)
def test_a_warning_is_at_the_line_of_the_kernel(source: Any, statement: str, text: str) -> None:
    made = source(
        f"@jit\ndef kernel(out):\n    x = tl.arange(0, 4) > 1\n    {statement}\n"
        "    tl.store(out, 1)\n"
    )
    with pytest.warns(Warning, match=text) as found:
        made.compile(out="*i32")
    assert {(warning.filename, warning.lineno) for warning in found} == {
        (made.__file__, made.kernel.definition_line + 2)
    }


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (
            "tl.minimum(x, x, tl.PropagateNan.ALL, 3)",
            "minimum() takes 3 positional arguments at most, not 4",
        ),
        ("tl.exp(x, x)", "exp() takes 1 positional argument at most, not 2"),
        ("x.to(tl.float32, None, False, 1)", "to() takes 4 positional arguments at most, not 5"),
        ("tl.reduce(x, 0, None)", "a function of the language is expected here, not None"),
        (
            "tl.associative_scan(x, 0, tl.maximum)",
            "a function of the language is expected here, not function maximum",
        ),
        ("tl.map_elementwise(3, x)", "a function of the language is expected here, not 3"),
        (
            "not tl.sum(x)",
            (
                "Cannot bitcast data-type of size 32 to data-type of size 1: `not` works on "
                "int1, not on int32"
            ),
        ),
    ],
)
def test_wrong_arguments_are_told_plainly(source: Any, statement: str, text: str) -> None:
    made = source(f"@jit\ndef kernel(out):\n    x = tl.arange(0, 4)\n    {statement}\n")
    assert made.error(out="*i32").message.splitlines()[0] == text


def test_nothing_warns_of_plain_kernels(source: Any) -> None:
    made = source(
        "@jit\ndef kernel(out, n):\n    x = tl.arange(0, 4)\n"
        "    if n > 2 and n < 9 or not n == 3:\n"
        "        tl.store(out + x, x, mask=(x < n) & (x > 0))\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.compile(out="*i32", n="i32")


def test_members_of_enumerations_are_constants(source: Any) -> None:
    made = source(
        """
        import enum

        class Mode(enum.Enum):
            FAST = 1
            EXACT = 2

        class Level(enum.IntEnum):
            LOW = 3

        @jit
        def kernel(out, mode: tl.constexpr):
            if mode == Mode.FAST:
                tl.store(out, 1)
            elif mode is Mode.EXACT:
                tl.store(out, Mode.EXACT.value)
            tl.store(out + 1, Level.LOW)
        """
    )
    for mode in made.Mode:
        out = np.zeros(2, np.int32)
        made.run([out], out="*i32", mode=("constexpr", mode))
        assert out.tolist() == [mode.value, 3]


def test_what_the_frontend_writes_is_verified(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source("@jit\ndef kernel(out):\n    tl.store(out, 1)\n")
    written = ModuleGenerator.kernel

    def unfinished(self: Any, fn: Any, function: Any, scope: Any) -> None:
        written(self, fn, function, scope)
        function.body.terminator.erase()

    monkeypatch.setattr(ModuleGenerator, "kernel", unfinished)
    with pytest.raises(VerificationError, match="terminator"):
        compile_function(made.kernel, {"out": "*i32"})
