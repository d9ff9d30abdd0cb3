"""``break``, ``continue``, ``return`` and the ``else`` of loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


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
    assert made.result(lowest, highest, 9, **types) == 5
    assert made.result(lowest, highest, 3, **types) == 3
    assert made.result(highest - 1, highest, 9, **types) == 1
    assert made.result(highest, lowest, 9, **types) == 0


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
    assert made.operations(module, "for") and not made.operations(module, "while")
    assert made.result(10, n="i32") == 1 + 3 + 100 + 7 + 9


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
    assert made.operations(made.compile(out="*i32", n="i32", EARLY=False), "for")
    assert made.operations(made.compile(out="*i32", n="i32", EARLY=True), "while")


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
    assert made.result(data, 3, 4, 21, **types) == 103
    assert made.result(data, 3, 4, 0, **types) == 0
    assert made.result(data, 3, 4, 1, **types) == -1


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
    assert made.result(data, 9, p="*i32", n="i32") == 2
    # Evaluating the test again would read far outside of the array, which the interpreter refuses.
    assert made.result(data, 1, p="*i32", n="i32") == 1000000000


@pytest.mark.parametrize(
    "loop", ["for i in range(n):", "for i in tl.static_range(6):", "for i in (0, 1, 2, 3, 4, 5):"]
)
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
    assert made.result(6, 3, n="i32", stop="i32") == 3
    assert made.result(6, 9, n="i32", stop="i32") == 1015


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
    assert not made.operations(made.compile(out="*i32", n="i32"), "if")
    assert made.result(6, n="i32") == 106


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
    assert made.result(27, n="i32") == 111


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
        assert made.result(n, n="i32") == expected


@pytest.mark.parametrize("jump", ["break", "return"])
def test_items_after_one_that_always_leaves_a_static_loop_are_not_visited(
    source: Any, jump: str
) -> None:
    """As in Python: what stands there need not have a meaning."""
    made = source(
        f"""
        @jit
        def kernel(out, x, y):
            items = (x, y)
            total = 0
            for i in tl.static_range(5):
                if i == 2:
                    tl.store(out, total)
                    {jump}
                total += items[i]
        """
    )
    assert made.result(30, 4, x="i32", y="i32") == 34


def test_a_static_loop_that_always_returns_needs_nothing_after_it(
    source: Any, recwarn: pytest.WarningsRecorder
) -> None:
    made = source(
        """
        @jit
        def power(x, most: tl.constexpr):
            result = x
            for i in tl.static_range(9):
                if i == most:
                    return result
                result *= x

        @jit
        def kernel(out, x):
            tl.store(out, power(x, 3))
        """
    )
    assert made.result(3, x="i32") == 81
    assert [str(warning.message) for warning in recwarn] == []


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
        assert made.result(data, n, stop, **types) == expected(n, stop)


def test_a_variable_that_a_jump_may_skip_in_an_unrolled_loop_has_no_value_after_it(
    source: Any,
) -> None:
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
    assert made.result(1, n="i32", WAY=("constexpr", "none")) == 4
    for way in ("break", "continue"):
        error = made.error(out="*i32", n="i32", WAY=("constexpr", way))
        assert error.message == (
            f"y is not defined here: it may be left without a value by a `{way}` of the loop "
            "at line 8; assign it before the loop"
        )


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
    assert made.result(50, n="i32") == 55
    assert made.result(10**6, n="i32") == sum(range(300))
