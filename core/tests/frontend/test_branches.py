"""``if``, conditional expressions, comparisons and ``and``/``or``: what they mean, and that
branches merge what they must and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.errors import CompileTimeAssertionFailure


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
    assert made.result(bias=None, N=4) == 5


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
    assert made.result(5, n="i32") == 5


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
    (branch,) = made.operations(made.compile(out="*i32", a="i32", b="i32"), "if")
    assert len(branch.results) == 1


def test_a_variable_that_both_sides_set_to_one_value_has_that_value(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, a, b, n):
            x = a
            if n > 3:
                x = b
            else:
                x = b
            tl.store(out, x)
            if n > 3:
                y = a
            else:
                y = a
            tl.store(out + 1, y)
        """
    )
    out = np.zeros(2, np.int32)
    made.run([out, 5, 7, 3], out="*i32", a="i32", b="i32", n="i32")
    assert out.tolist() == [7, 5]


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
        assert made.result(5, n="i32") == 1


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
    assert made.result(2, 0.5, n="i32", x="fp32") == 211
    assert made.result(0, 0.0, n="i32", x="fp32") == 0


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
    made.run(
        [out, np.zeros(1, np.int32), 1], out="*i32", p="*i32", n="i32"
    )  # the load would be out of bounds
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
    assert [made.result(n, n="i32") for n in (2, 3, 5, 6)] == [10, 11, 11, 10]


def test_what_stands_between_two_comparisons_is_evaluated_once(source: Any) -> None:
    made = source(
        """
        @jit
        def next_number(counter):
            return tl.atomic_add(counter, 1)

        @jit
        def kernel(counter, out):
            tl.store(out, -1 < next_number(counter) < 5)
        """
    )
    counter, out = np.full(1, 4, np.int32), np.zeros(1, np.int32)
    made.run([counter, out], counter="*i32", out="*i32")
    assert (counter[0], out[0]) == (5, 1)


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
    assert [made.result(n, mask=None, n="i32") for n in (0, 2, 5, 9)] == [-1, 2, -1, 2]


@pytest.mark.parametrize("has", [False, True])
@pytest.mark.parametrize("n", [1, 5])
def test_a_constant_decides_and_and_or_after_a_tensor_too(source: Any, has: bool, n: int) -> None:
    made = source(
        """
        @jit
        def kernel(out, bias, n, HAS: tl.constexpr):
            found = 0
            if n > 2 and HAS:
                found += tl.load(bias)
            if n > 2 or not HAS:
                found += 10
            if HAS and n > 2 and n < 7:
                found += 100
            for i in range(n):
                if i == 1 and HAS:
                    bias += 1
                    found += tl.load(bias)
            tl.static_assert((HAS and n > 2) is False or HAS)
            tl.store(out, found)
        """
    )
    bias = np.array([3, 4], np.int32)
    if has:
        expected = (n > 2) * 3 + (n > 2) * 10 + (2 < n < 7) * 100 + (n > 1) * 4
        assert made.result(bias, n, bias="*i32", n="i32", HAS=True) == expected
    else:
        assert made.result(n, bias=None, n="i32", HAS=False) == 10


def test_the_message_of_a_static_assert_is_evaluated_where_it_fails(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(x, N: tl.constexpr):
            tl.static_assert(N > 3, f"{x} and {missing}")
            tl.static_assert(msg=f"N is {N}", cond=N > 4)
        """
    )
    made.compile(x="i32", N=5)
    error = made.error(x="i32", N=4)
    assert (type(error), error.message) == (CompileTimeAssertionFailure, "N is 4")
    assert made.error(x="i32", N=3).message.startswith(
        "<the message cannot be evaluated: an f-string takes values known at compile time"
    )
