"""``for`` and ``while``: what they mean, and that they carry what they must and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.language.options import Options
from tilewright.plugins.manifest import Capabilities, Target


def test_a_for_loop_carries_only_what_is_assigned_and_live(source: Any, ir_text: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            acc = 0
            unused = 5
            for i in range(n):
                scratch = i * 2
                unused = i
                acc += scratch
            tl.store(out, acc)
        """
    )
    module = made.compile(out="*i32", n="i32")
    (loop,) = made.operations(module, "for")
    assert len(loop.group("inits")) == 1
    assert ir_text(module) == "\n".join(
        [
            "kernel @kernel(%out: ptr<i32>, %n: i32) {",
            "  %acc = constant 0 : i32",
            "  %unused = constant 5 : i32",
            "  %0 = constant 0 : i32",
            "  %1 = constant 1 : i32",
            "  %acc#1 = for %0, %n, %1, inits=[%acc] : i32 body(%i: i32, %acc#2: i32) {",
            "    %2 = constant 2 : i32",
            "    %scratch = mul %i, %2 : i32",
            "    %acc#3 = add %acc#2, %scratch : i32",
            "    yield %acc#3",
            "  }",
            "  store %out, %acc#1",
            "  return",
            "}",
        ]
    )


def test_the_options_of_range_go_to_the_loop(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            for i in tl.range(0, n, 2, num_stages=3, loop_unroll_factor=4, disallow_acc_multi_buffer=True, flatten=True,
                              warp_specialize=True, disable_licm=True):
                tl.store(out + i, i)
        """
    )
    (loop,) = made.operations(made.compile(out="*i32", n="i32"), "for")
    assert loop.attributes == {
        "num_stages": 3,
        "unroll": 4,
        "single_accumulator": True,
        "flatten": True,
        "warp_specialize": True,
        "no_licm": True,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for a in range(3): pass", 2),
        ("for a in tl.range(2, N, 3): pass", 5),
        ("for a in range(10, 0, -3): pass", 1),
        ("for a in tl.static_range(3): pass", 2),
        ("for a in tl.range(tl.to_tensor(0), tl.cast(4, tl.int64)): pass", 3),
        ("k = 4\nfor a in range(k): pass", 3),
        ("for a in range(3): a += n", 9),
        ("for k in range(3):\n    for b in range(2): a = k * 10 + b", 21),
        ("for k in range(3):\n    if n == 7: a = k\n    else: a = 9", 2),
        ("for a in range(5):\n    if a == n - 4: break", 3),
        ("for k in range(5):\n    a = k * 2\n    if k == n - 4: break\n    a += 1", 6),
        ("for k in range(5):\n    a = k\n    if k == n - 3: continue\n    a = 30", 4),
        ("for k in tl.static_range(5):\n    a = k\n    if k == n - 5: break\n    a = 30", 2),
        ("for k in tl.static_range(5):\n    a = k\n    if k == n - 3: continue\n    a = 30", 4),
        ("for k in range(5):\n    if n == 8: return\n    a = k", 4),
        ("k = 0\nwhile True:\n    a = k * 2\n    if k > n: break\n    k += 1", 16),
        ("for k in range(3): a, b = k, (n, tl.arange(0, 4))\na += b[0] + tl.sum(b[1])", 15),
        ("for k in range(3):\n    pass\nelse:\n    a = k", 2),
        ("for k in range(2):\n    a: tl.constexpr = 4\ntl.static_assert(a == 4)", 4),
    ],
)
def test_what_a_loop_that_surely_runs_assigns_is_read_after_it(
    source: Any, text: str, expected: int
) -> None:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    made = source(f"@jit\ndef kernel(out, n, N: tl.constexpr):\n{lines}    tl.store(out, a)\n")
    assert made.result(7, n="i32", N=7) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "for a in range(n): pass",
            (
                "is assigned only inside the loop at line 7, which may run zero times; assign it "
                "before the loop"
            ),
        ),
        (
            "for a in range(0): pass",
            (
                "is assigned only inside the loop at line 7, which may run zero times; assign it "
                "before the loop"
            ),
        ),
        (
            "for a in range(3, 3, -1): pass",
            (
                "is assigned only inside the loop at line 7, which may run zero times; assign it "
                "before the loop"
            ),
        ),
        (
            "for k in range(5):\n    if k == n: continue\n    a = 3",
            (
                "is assigned only inside the loop at line 7, which a `break` or `continue` may "
                "leave before it; assign it before the loop"
            ),
        ),
        (
            "for k in range(3):\n    if n == 7: a = k",
            (
                "is assigned only in the then block of the `if` at line 8; assign it on both "
                "paths, or before the `if`"
            ),
        ),
    ],
)
def test_what_a_loop_may_leave_without_a_value_is_not_read_after_it(
    source: Any, text: str, reason: str
) -> None:
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    error = source(f"@jit\ndef kernel(out, n):\n{lines}    tl.store(out, a)\n").error(
        out="*i32", n="i32"
    )
    assert error.message == f"a is not defined here: it {reason}"


def test_a_loop_carries_no_variable_that_nothing_reads_after_it(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out):
            for i in range(3):
                y = i + 1
                tl.store(out, y)
        """
    )
    (loop,) = made.operations(made.compile(out="*i32"), "for")
    assert not loop.results


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(10, 0, -3), (10, 1, -3), (0, 10, -1), (5, -5, -1), (3, 3, -2), (-2, -9, -4)],
)
def test_a_negative_step_counts_down(source: Any, start: int, stop: int, step: int) -> None:
    made = source(
        f"""
        @jit
        def kernel(out, start, stop):
            position = 0
            for i in range(start, stop, {step}):
                tl.store(out + position, i)
                position += 1
            tl.store(out + position, 99)
        """
    )
    module = made.compile(out="*i32", start="i32", stop="i32")
    assert made.operations(module, "for")
    out = np.zeros(32, np.int32)
    made.interpret(module, [out, start, stop])
    expected = [*range(start, stop, step), 99]
    assert out[: len(expected)].tolist() == expected


STEPS = """
        @jit
        def kernel(out, n, step):
            for i in range(0, n, step):
                tl.store(out + i, i)
            for i in range(0, n, step):
                if i > 3:
                    break
            for i in range(0, n, 4):
                tl.store(out + i, i)
            for i in range(0, n, tl.num_programs(0)):
                tl.store(out + i, i)
        """


@pytest.mark.parametrize(
    ("debug", "features", "asserted"),
    [(False, (), 0), (True, (), 2), (False, ("implied_asserts",), 2)],
)
def test_a_step_of_the_run_time_is_asserted_where_that_costs_nothing(
    source: Any, debug: bool, features: tuple[str, ...], asserted: int
) -> None:
    capabilities = Capabilities(frozenset({"i32"}), features=frozenset(features))
    options = Options(
        target=Target("maker", "some", kind="cpu", capabilities=capabilities), debug=debug
    )
    made = source(STEPS)
    module = made.compile(options=options, out="*i32", n="i32", step="i32")
    assert len(made.operations(module, "assert")) == asserted


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("step", [0, -1])
def test_a_step_of_the_run_time_that_is_not_positive_stops_the_kernel(
    source: Any, step: int, jump: bool
) -> None:
    made = source(
        f"""
        @jit
        def kernel(out, n, step):
            for i in range(0, n, step):
                tl.store(out, i)
                {"if i > 100:" if jump else "for j in range(i):"}
                    {"break" if jump else "tl.store(out, j)"}
        """
    )
    module = made.compile(options=Options(debug=True), out="*i32", n="i32", step="i32")
    with pytest.raises(
        KernelError,
        match="the step of a range must be positive where it is known at run time alone",
    ):
        made.interpret(module, [np.zeros(1, np.int32), 10, step])


@pytest.mark.parametrize("step", [0, -1])
def test_a_loop_that_may_be_left_does_not_run_where_its_step_is_not_positive(
    source: Any, step: int
) -> None:
    made = source(
        """
        @jit
        def kernel(out, n, step):
            for i in range(0, n, step):
                tl.store(out, i + 1)
                if i > 100:
                    break
        """
    )
    module = made.compile(out="*i32", n="i32", step="i32")
    assert not made.operations(module, "assert")
    out = np.zeros(1, np.int32)
    made.interpret(module, [out, 10, step])
    assert out[0] == 0


@pytest.mark.parametrize(
    "step",
    [
        "tl.full((), 0.5, tl.float32).to(tl.int32)",
        "tl.full((), 1 << 31, tl.uint32).to(tl.int32)",
        "tl.num_programs(0).to(tl.int8)",
    ],
)
def test_a_step_that_a_cast_makes_unknown_or_not_positive_is_asserted(
    source: Any, step: str
) -> None:
    made = source(
        f"""
        @jit
        def kernel(out, n):
            for i in range(0, n, {step}):
                tl.store(out, i)
        """
    )
    module = made.compile(options=Options(debug=True), out="*i32", n="i32")
    assert len(made.operations(module, "assert")) == 1


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        ("i32", "i32", "i32"),
        ("i32", "i64", "i64"),
        ("u32", "i32", "u32"),
        ("u8", "i16", "i16"),
        ("i64", "u32", "i64"),
        ("u64", "i64", "u64"),
        ("u16", "u8", "u16"),
    ],
)
def test_the_variable_of_a_range_has_the_promoted_type(
    source: Any, lower: str, upper: str, expected: str
) -> None:
    made = source(
        """
        @jit
        def kernel(out, lower, upper):
            step = (upper - upper).to(lower.dtype) + 1
            for i in range(lower, upper, step):
                tl.store(out, i)
        """
    )
    (loop,) = made.operations(made.compile(out="*i64", lower=lower, upper=upper), "for")
    assert str(loop.regions[0].arguments[0].type) == expected


def test_changing_the_loop_variable_affects_one_iteration(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            acc = 0
            for i in range(n):
                i = i * 10
                acc += i
            tl.store(out, acc)
        """
    )
    assert made.result(4, n="i32") == 60


def test_the_loop_variable_keeps_its_last_value_where_it_was_defined_before(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            i = 77
            for i in range(n):
                pass
            tl.store(out, i)
        """
    )
    assert made.result(4, n="i32") == 3
    assert made.result(0, n="i32") == 77


def test_tuples_descend_through_branches_and_loops(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            pair = (0, 1)
            for i in range(n):
                pair = (pair[1], pair[0] + pair[1])
            if n > 5:
                pair = (pair[1], pair[0])
            tl.store(out, pair[0] * 1000 + pair[1])
        """
    )
    assert made.result(5, n="i32") == 5008
    assert made.result(7, n="i32") == 21013


def test_none_and_strings_pass_through_loops(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n, MODE: tl.constexpr):
            bias = None
            for i in range(n):
                mode = MODE
                if bias is None:
                    tl.store(out, i)
                if mode == "double":
                    tl.store(out, i * 2)
        """
    )
    assert made.result(5, n="i32", MODE=("constexpr", "double")) == 8
    assert made.result(5, n="i32", MODE=("constexpr", "single")) == 4


def test_a_constant_may_be_declared_in_an_unrolled_loop(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out):
            for i in tl.static_range(3):
                WIDTH: tl.constexpr = 2 ** (i + 1)
                tl.store(out + i * 8 + tl.arange(0, WIDTH), WIDTH)
        """
    )
    out = np.zeros(24, np.int32)
    made.run([out], out="*i32")
    assert out.tolist() == [2, 2, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8]


def test_the_condition_of_a_while_takes_an_option(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            i = 0
            while tl.condition(i < n, disable_licm=True):
                i += 2
            tl.store(out, i)
        """
    )
    (loop,) = made.operations(made.compile(out="*i32", n="i32"), "while")
    assert loop.attributes == {"no_licm": True}
    assert made.result(5, n="i32") == 6


def test_a_walrus_in_a_test_defines_its_variable_after_the_loop(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            total = 0
            while (half := n // 2) > 0:
                total += half
                n = half
            tl.store(out, total * 100 + half)
        """
    )
    assert made.result(20, n="i32") == (10 + 5 + 2 + 1) * 100


def test_while_of_a_false_constant_leaves_nothing(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, N: tl.constexpr):
            while N > 4:
                tl.store(out, 1)
        """
    )
    assert [operation.name for operation in made.compile(out="*i32", N=4).walk()] == ["return"]


def test_a_side_known_not_to_be_taken_makes_no_variable_of_a_constant(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n, BLOCK: tl.constexpr, GROW: tl.constexpr):
            for i in range(n):
                if GROW:
                    BLOCK = BLOCK * 2
                tl.store(out + tl.arange(0, BLOCK), i)
        """
    )
    made.compile(out="*i32", n="i32", BLOCK=16, GROW=False)
    error = made.error(out="*i32", n="i32", BLOCK=16, GROW=True)
    assert "arange's arguments must be of type tl.constexpr" in str(error)


def test_truths_are_no_bounds(source: Any) -> None:
    made = source(
        "@jit\ndef kernel(out, go):\n    for i in range(go, go, go):\n        tl.store(out, i)\n"
    )
    error = str(made.error(out="*i32", go="u1"))
    assert (
        "the bounds of a range are booleans" in error
        and "convert them with `.to(tl.int32)`" in error
    )


@pytest.mark.parametrize(
    "loop",
    [
        "range(0, n, 0)",
        "range(0, n, 1 - 1)",
        "tl.range(0, n, 0)",
        "tl.static_range(0, 4, 0)",
        "range(0, 4, STEP)",
        "tl.static_range(0, 4, STEP)",
    ],
)
def test_a_step_of_zero_that_is_known_is_refused(source: Any, loop: str) -> None:
    error = source(
        f"@jit\ndef kernel(out, n, STEP: tl.constexpr):\n    for i in {loop}:\n"
        "        tl.store(out, i)\n"
    ).error(out="*i32", n="i32", STEP=0)
    assert error.message == "the step of a range must not be zero"
