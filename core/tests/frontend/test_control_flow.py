"""Control flow: what it means, and that loops carry and branches merge what they must and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir import Module, Operation


def operations(module: Module, name: str) -> list[Operation]:
    return [operation for operation in module.walk() if operation.name == name]


def result(made: Any, *arguments: Any, **types: Any) -> int:
    """What the kernel stores at ``out``."""
    out = np.full(1, -1, np.int32)
    made.run([out, *arguments], out="*i32", **types)
    return int(out[0])


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
    (loop,) = operations(module, "for")
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
    (loop,) = operations(made.compile(out="*i32", n="i32"), "for")
    assert loop.attributes == {"num_stages": 3, "unroll": 4, "single_accumulator": True, "flatten": True, "warp_specialize": True, "no_licm": True}


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
    (loop,) = operations(made.compile(out="*i32", n="i32"), "while")
    assert loop.attributes == {"no_licm": True}
    assert result(made, 5, n="i32") == 6


@pytest.mark.parametrize(("start", "stop", "step"), [(10, 0, -3), (10, 1, -3), (0, 10, -1), (5, -5, -1), (3, 3, -2), (-2, -9, -4)])
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
    assert operations(module, "for")
    out = np.zeros(32, np.int32)
    made.interpret(module, [out, start, stop])
    expected = [*range(start, stop, step), 99]
    assert out[: len(expected)].tolist() == expected


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
def test_the_variable_of_a_range_has_the_promoted_type(source: Any, lower: str, upper: str, expected: str) -> None:
    made = source(
        """
        @jit
        def kernel(out, lower, upper):
            step = (upper - upper).to(lower.dtype) + 1
            for i in range(lower, upper, step):
                tl.store(out, i)
        """
    )
    (loop,) = operations(made.compile(out="*i64", lower=lower, upper=upper), "for")
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
    assert result(made, 4, n="i32") == 60


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
    assert result(made, 4, n="i32") == 3
    assert result(made, 0, n="i32") == 77


def test_a_break_stops_at_bounds_where_the_variable_would_wrap_around(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, start, stop, limit):
            count = 0
            for i in range(start, stop, 1000000000):
                if count == limit:
                    break
                count += 1
            tl.store(out, count)
        """
    )
    types = {"start": "i32", "stop": "i32", "limit": "i32"}
    lowest, highest = -(2**31), 2**31 - 1
    assert result(made, lowest, highest, 9, **types) == 5
    assert result(made, lowest, highest, 3, **types) == 3
    assert result(made, highest - 1, highest, 9, **types) == 1
    assert result(made, highest, lowest, 9, **types) == 0


def test_continue_alone_keeps_the_for(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            acc = 0
            for i in range(n):
                if i % 2 == 0:
                    continue
                if i == 5:
                    acc += 100
                    continue
                acc += i
            tl.store(out, acc)
        """
    )
    module = made.compile(out="*i32", n="i32")
    assert operations(module, "for") and not operations(module, "while")
    assert result(made, 10, n="i32") == 1 + 3 + 100 + 7 + 9


def test_a_break_that_is_known_not_to_be_reached_keeps_the_for(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n, EARLY: tl.constexpr):
            acc = 0
            for i in range(n):
                if EARLY and acc > 5:
                    break
                if EARLY:
                    if acc > 3:
                        return
                acc += i
            tl.store(out, acc)
        """
    )
    assert operations(made.compile(out="*i32", n="i32", EARLY=False), "for")
    assert operations(made.compile(out="*i32", n="i32", EARLY=True), "while")


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


def test_return_from_nested_loops(source: Any) -> None:
    made = source(
        """
        @jit
        def find(p, rows, columns, wanted):
            for i in range(rows):
                for j in range(columns):
                    if tl.load(p + i * columns + j) == wanted:
                        return i * 100 + j
            return -1

        @jit
        def kernel(out, p, rows, columns, wanted):
            tl.store(out, find(p, rows, columns, wanted))
        """
    )
    data = np.arange(12, dtype=np.int32) * 3
    types = {"p": "*i32", "rows": "i32", "columns": "i32", "wanted": "i32"}
    assert result(made, data, 3, 4, 21, **types) == 103
    assert result(made, data, 3, 4, 0, **types) == 0
    assert result(made, data, 3, 4, 1, **types) == -1


def test_return_of_a_tuple_and_of_tiles_from_a_loop(source: Any) -> None:
    made = source(
        """
        @jit
        def first_above(n, limit):
            total = tl.zeros((4,), tl.int32)
            for i in range(n):
                total += tl.arange(0, 4) * i
                if i > limit:
                    return total, i
            return total, -1

        @jit
        def kernel(out, n, limit):
            total, i = first_above(n, limit)
            tl.store(out + tl.arange(0, 4), total)
            tl.store(out + 4, i)
        """
    )
    out = np.zeros(5, np.int32)
    made.run([out, 9, 2], out="*i32", n="i32", limit="i32")
    assert out.tolist() == [0, 6, 12, 18, 3]
    made.run([out, 3, 7], out="*i32", n="i32", limit="i32")
    assert out.tolist() == [0, 3, 6, 9, -1]


def test_an_early_return_takes_the_rest_into_the_other_branch(source: Any, ir_text: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            if n < 0:
                return
            tl.store(out, n)
        """
    )
    assert ir_text(made.compile(out="*i32", n="i32")) == "\n".join(
        [
            "kernel @kernel(%out: ptr<i32>, %n: i32) {",
            "  %0 = constant 0 : i32",
            "  %1 = cmp %n, %0 {predicate = lt} : i1",
            "  if %1 then {",
            "    yield",
            "  } else {",
            "    store %out, %n",
            "    yield",
            "  }",
            "  return",
            "}",
        ]
    )


def test_a_while_test_is_not_evaluated_after_a_break(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, p, n):
            i = 0
            while tl.load(p + i) > 0:
                i += 1
                if i == n:
                    i = 1000000000
                    break
            tl.store(out, i)
        """
    )
    data = np.array([1, 1, 0, 1], np.int32)
    assert result(made, data, 9, p="*i32", n="i32") == 2
    # Evaluating the test again would read far outside of the array, which the interpreter refuses.
    assert result(made, data, 1, p="*i32", n="i32") == 1000000000


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
    assert result(made, 20, n="i32") == (10 + 5 + 2 + 1) * 100


@pytest.mark.parametrize("loop", ["for i in range(n):", "for i in tl.static_range(6):", "for i in (0, 1, 2, 3, 4, 5):"])
def test_the_else_of_a_loop_runs_unless_it_breaks(source: Any, loop: str) -> None:
    made = source(
        f"""
        @jit
        def kernel(out, n, stop):
            acc = 0
            {loop}
                if i == stop:
                    break
                acc += i
            else:
                acc += 1000
            tl.store(out, acc)
        """
    )
    assert result(made, 6, 3, n="i32", stop="i32") == 3
    assert result(made, 6, 9, n="i32", stop="i32") == 1015


def test_the_else_of_a_loop_without_break_always_runs(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            acc = 0
            while acc < n:
                acc += 1
            else:
                acc += 100
            tl.store(out, acc)
        """
    )
    assert not operations(made.compile(out="*i32", n="i32"), "if")
    assert result(made, 6, n="i32") == 106


def test_while_true_with_only_returns_needs_nothing_after_it(source: Any) -> None:
    made = source(
        """
        @jit
        def collatz(n):
            steps = 0
            while True:
                if n == 1:
                    return steps
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                steps += 1

        @jit
        def kernel(out, n):
            tl.store(out, collatz(n))
        """
    )
    assert result(made, 27, n="i32") == 111


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


def test_only_the_taken_side_of_a_constant_condition_is_visited(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, bias, N: tl.constexpr):
            if bias is None:
                value = N
            else:
                value = N + bias.nonsense
            if N > 3 and bias is None:
                value = value + 1
            elif tl.load(out + 1, other=1.0) > 0:
                value = undefined
            tl.store(out, value if N == 4 else nothing)
        """
    )
    assert result(made, bias=None, N=4) == 5


def test_a_variable_of_one_branch_may_be_used_inside_it_and_reassigned_later(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            if n > 3:
                y = n * 2
                tl.store(out, y)
            y = 1.5
            tl.store(out + 1, y)
        """
    )
    out = np.zeros(2, np.int32)
    made.run([out, 5], out="*i32", n="i32")
    assert out.tolist() == [10, 1]


def test_an_unread_variable_may_differ_in_type(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            temporary = 1
            for i in range(n):
                temporary = i * 1.5
                tl.store(out, temporary)
            if n > 3:
                temporary = tl.arange(0, 4)
            temporary = n
            tl.store(out, temporary)
        """
    )
    assert result(made, 5, n="i32") == 5


def test_only_the_values_that_differ_are_merged(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, a, b):
            c = a + b
            if a > b:
                c = c
                d = a
            else:
                d = b
            tl.store(out, c + d + a)
        """
    )
    (branch,) = operations(made.compile(out="*i32", a="i32", b="i32"), "if")
    assert len(branch.results) == 1


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
    assert result(made, 5, n="i32") == 5008
    assert result(made, 7, n="i32") == 21013


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
    assert result(made, 5, n="i32", MODE=("constexpr", "double")) == 8
    assert result(made, 5, n="i32", MODE=("constexpr", "single")) == 4


def test_a_tensor_of_one_element_is_a_condition_with_a_warning(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            one = tl.full((1,), 1, tl.int32) * n
            if one > 3:
                tl.store(out, 1)
            else:
                tl.store(out, 0)
        """
    )
    with pytest.warns(UserWarning, match="used as a scalar"):
        assert result(made, 5, n="i32") == 1


def test_numbers_and_floats_are_conditions(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n, x):
            count = 0
            if n:
                count += 1
            if x:
                count += 10
            while n:
                n -= 1
                count += 100
            tl.store(out, count)
        """
    )
    assert result(made, 2, 0.5, n="i32", x="fp32") == 211
    assert result(made, 0, 0.0, n="i32", x="fp32") == 0


def test_a_static_loop_may_be_left_by_what_is_known_only_at_run_time(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            acc = 0
            for i in tl.static_range(8):
                if i == 2:
                    continue
                if i == n:
                    break
                acc += i * tl.static_range.__len__ if False else i
            tl.store(out, acc)
        """
    )
    for n in (0, 1, 2, 5, 100):
        expected = sum(i for i in range(min(n, 8) if n != 2 else 8) if i != 2)
        assert result(made, n, n="i32") == expected


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


def test_a_ternary_merges_tiles_and_visits_one_side_at_run_time(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, p, n):
            x = tl.load(p + tl.arange(0, 4)) if n > 2 else tl.zeros((4,), tl.int32)
            tl.store(out + tl.arange(0, 4), x)
        """
    )
    out = np.full(4, -1, np.int32)
    made.run([out, np.arange(4, dtype=np.int32), 3], out="*i32", p="*i32", n="i32")
    assert out.tolist() == [0, 1, 2, 3]
    made.run([out, np.zeros(1, np.int32), 1], out="*i32", p="*i32", n="i32")  # the load would be out of bounds
    assert out.tolist() == [0, 0, 0, 0]


def test_chained_comparisons(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            inside = 2 < n <= 5 < 9
            tl.store(out, inside.to(tl.int32) + (10 if 1 < 2 < 3 else 20))
        """
    )
    assert [result(made, n, n="i32") for n in (2, 3, 5, 6)] == [10, 11, 11, 10]


def test_and_and_or_of_constants_decide_what_is_evaluated(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, mask, n):
            use = mask is not None and mask.nonsense
            keep = mask is None or mask.nonsense
            both = n > 1 and n < 4
            if use:
                tl.store(out, 1)
            elif keep and both or n == 9:
                tl.store(out, 2)
        """
    )
    assert [result(made, n, mask=None, n="i32") for n in (0, 2, 5, 9)] == [-1, 2, -1, 2]


def test_a_walrus_in_a_test_keeps_its_value_where_the_loop_is_left_by_a_jump(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, p, n, stop):
            i = 0
            while (x := tl.load(p + i)) > 0 and (n := n - 1) > 0:
                i += 1
                if x == stop:
                    x += 100
                    break
            tl.store(out, x * 10000 + i * 100 + n)
        """
    )
    data = np.array([7, 5, 6, 0], np.int32)
    types = {"p": "*i32", "n": "i32", "stop": "i32"}

    def expected(n: int, stop: int) -> int:
        i = 0
        while True:
            x = int(data[i])
            n -= 1
            if not (x > 0 and n > 0):
                break
            i += 1
            if x == stop:
                x += 100
                break
        return x * 10000 + i * 100 + n

    for n, stop in ((9, 5), (9, 7), (9, 1), (2, 6), (3, 5)):
        assert result(made, data, n, stop, **types) == expected(n, stop)


def test_a_variable_that_a_jump_may_skip_in_an_unrolled_loop_has_no_value_after_it(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n, WAY: tl.constexpr):
            for i in tl.static_range(3):
                if i == n:
                    if WAY == "break":
                        break
                    elif WAY == "continue":
                        continue
                y = i * 2
            tl.store(out, y)
        """
    )
    assert result(made, 1, n="i32", WAY=("constexpr", "none")) == 4
    for way in ("break", "continue"):
        error = made.error(out="*i32", n="i32", WAY=("constexpr", way))
        assert error.message == f"y is not defined here: it may be left without a value by a `{way}` of the loop at line 8; assign it before the loop"


def test_a_long_unrolled_loop_with_breaks_is_not_nested(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, n):
            acc = 0
            for i in tl.static_range(300):
                if acc > n:
                    break
                acc += i
            tl.store(out, acc)
        """
    )
    module = made.compile(out="*i32", n="i32")
    assert max(sum(1 for _ in operation.ancestors()) for operation in module.walk()) <= 3
    assert result(made, 50, n="i32") == 55
    assert result(made, 10**6, n="i32") == sum(range(300))
