"""Calls: inlining, binding, specialisation, recursion, functions compiled on their own, methods,
aggregates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir import Location


def stored(made: Any, *arguments: Any, count: int = 1, **types: Any) -> Any:
    out = np.zeros(count, np.int32)
    made.run([out, *arguments], out="*i32", **types)
    return out.tolist() if count > 1 else out.tolist()[0]


def test_arguments_bind_as_in_python(source: Any) -> None:
    made = source(
        """
        ONE = tl.constexpr(1)

        @jit
        def f(a, b=20, *rest, c, d=ONE):
            total = a * 1000 + b * 10 + c + d
            for item in rest:
                total += item * 100000
            return total

        @jit
        def kernel(out, x):
            t = (x, 2)
            tl.store(out, f(x, c=3))
            tl.store(out + 1, f(*t, c=3, d=4))
            tl.store(out + 2, f(x, 2, 3, 4, c=0))
            tl.store(out + 3, f(c=1, a=x))
        """
    )
    assert stored(made, 5, count=4, x="i32") == [5204, 5027, 705021, 5202]


def test_a_function_is_specialised_on_types_and_constants(source: Any) -> None:
    made = source(
        """
        @jit
        def describe(x, N: tl.constexpr):
            if x.dtype == tl.float32:
                return 100 + N
            else:
                return 200 + N

        @jit
        def kernel(out, x, y):
            tl.store(out, describe(x, 1))
            tl.store(out + 1, describe(y, 2))
        """
    )
    assert stored(made, 5, 1.5, count=2, x="i32", y="fp32") == [201, 102]


def test_recursion_on_a_constant(source: Any) -> None:
    made = source(
        """
        @jit
        def power(x, N: tl.constexpr):
            if N == 0:
                return 1
            return x * power(x, N - 1)

        @jit
        def kernel(out, x):
            tl.store(out, power(x, 30) + power(x, 2))
        """
    )
    assert stored(made, 1, x="i32") == 2


def test_constant_returns_that_differ_become_tensors(source: Any) -> None:
    made = source(
        """
        @jit
        def sign(x):
            if x < 0:
                return -1
            elif x > 0:
                return 1
            else:
                return 0

        @jit
        def always(x):
            if x > 0:
                return 8
            return 8

        @jit
        def kernel(out, x):
            tl.store(out + tl.arange(0, always(x)), sign(x))
        """
    )
    assert stored(made, -3, count=8, x="i32") == [-1] * 8


def test_functions_are_values(source: Any) -> None:
    made = source(
        """
        @jit
        def add(a, b):
            return a + b

        @jit
        def fold(fn: tl.constexpr, items):
            total = items[0]
            for item in items[1:]:
                total = fn(total, item)
            return total

        @jit
        def kernel(out, x, FN: tl.constexpr):
            tl.store(out, fold(add, (x, 2, x)))
            tl.store(out + 1, fold(FN, (x, 2, x)))
        """
    )
    assert stored(made, 5, count=2, x="i32", FN=made.add) == [12, 12]


def test_operations_know_the_chain_of_calls(source: Any) -> None:
    made = source(
        """
        @jit
        def inner(x):
            return x * 3

        @jit
        def outer(x):
            y = inner(x)
            return y

        @jit
        def kernel(out, x):
            tl.store(out, outer(x))
        """
    )
    module = made.compile(out="*i32", x="i32")
    (multiply,) = [operation for operation in module.walk() if operation.name == "mul"]
    assert [(place.function, place.line, place.column) for place in multiply.location.chain()] == [
        ("inner", 8, 11),
        ("outer", 12, 8),
        ("kernel", 17, 18),
    ]
    assert isinstance(module.kernel.location, Location)
    assert module.kernel.location.line == 16


def test_a_noinline_function_is_compiled_once_for_each_signature(source: Any, ir_text: Any) -> None:
    made = source(
        """
        from tilewright.language.definitions.callable import device_function

        @device_function(noinline=True)
        def scale(p, x, BY: tl.constexpr):
            if x > 100:
                return x, tl.load(p + tl.arange(0, 4))
            return x * BY, tl.zeros((4,), tl.int32)

        @jit
        def kernel(out, p, x):
            a, tile = scale(p, x, 3)
            b, _ = scale(p, a, 3)
            c, _ = scale(p, a, 4)
            tl.store(out, a + b + c)
            tl.store(out + 1 + tl.arange(0, 4), tile)
        """
    )
    module = made.compile(out="*i32", p="*i32", x="i32")
    assert list(module.functions) == ["kernel", "scale", "scale__1"]
    assert 'call %p, %x {callee = "scale"}' in ir_text(module).replace(
        "arguments=[%p, %x]", "%p, %x"
    )
    out, p = np.zeros(5, np.int32), np.arange(4, dtype=np.int32)
    made.interpret(module, [out, p, 5])
    assert out.tolist() == [15 + 45 + 60, 0, 0, 0, 0]
    made.interpret(module, [out, p, 500])
    assert out.tolist() == [1500, 0, 1, 2, 3]


def test_members_of_tensors_are_functions_of_the_language(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, p):
            x = tl.load(p + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :])
            tl.store(out, x.sum(axis=1).max(axis=0))
            tl.store(out + 1, x.T.to(tl.float32).sum().to(tl.int32))
            tl.store(out + 2 + tl.arange(0, 2), x.sum(1))
        """
    )
    assert stored(made, np.arange(8, dtype=np.int32), count=4, p="*i32") == [22, 28, 6, 22]


def test_combine_functions_may_branch(source: Any) -> None:
    made = source(
        """
        @jit
        def pick(a, i, b, j):
            if a > b:
                return a, i
            elif a == b:
                return a, tl.minimum(i, j)
            else:
                return b, j

        @jit
        def kernel(out, p):
            i = tl.arange(0, 8)
            value, index = tl.reduce((tl.load(p + i), i), 0, pick)
            tl.store(out, value * 100 + index)
        """
    )
    assert stored(made, np.array([3, 9, 1, 9, 2, 0, 9, 4], np.int32), p="*i32") == 901


def test_namedtuples_are_made_read_and_passed(source: Any) -> None:
    made = source(
        """
        Point = namedtuple("Point", ["x", "y"])

        @jit
        def mirror(p):
            return Point(p.y, p.x)

        @jit
        def kernel(out, p, n):
            q = mirror(p)
            for i in range(n):
                q = Point(x=q.x + 1, y=q.y)
            tl.store(out, q.x * 100 + q.y)
            tl.store(out + 1, p[0] * 100 + p.y)
        """
    )
    signature = made.Point("i32", "i32")
    assert stored(made, 1, 2, 4, count=2, p=signature, n="i32") == [601, 102]


def test_aggregates(source: Any) -> None:
    made = source(
        """
        from tilewright.language.definitions.aggregate import aggregate

        @aggregate
        class Span:
            start: tl.tensor
            size: tl.constexpr

            @jit
            def __init__(self, start, size: tl.constexpr):
                self.start = start * 2
                self.size = size

            @jit
            def offsets(self, by=0):
                return self.start + tl.arange(0, self.size) + by

        @jit
        def kernel(out, n):
            span = Span(n, 4)
            moved = Span(n + 1, 4)
            if n > 3:
                span = moved
            tl.store(out + span.offsets(by=1), 7)
        """
    )
    assert stored(made, 1, count=16, n="i32") == [0] * 3 + [7] * 4 + [0] * 9
    assert stored(made, 4, count=16, n="i32") == [0] * 11 + [7] * 4 + [0] * 1


def test_comprehensions_go_through_tuples(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x, N: tl.constexpr):
            t = (x, x + 1, x + 2)
            doubled = [item * 2 for item in t]
            shape: tl.constexpr = [N * i for i in (1, 2, 3) if i != 2]
            pairs = tuple(a * b for a in t for b in doubled)
            tl.static_assert(len(pairs) == 9 and shape[1] == 12)
            tl.store(out, doubled[0] + doubled[1] + doubled[2] + pairs[8])
        """
    )
    assert stored(made, 5, x="i32", N=4) == 36 + 7 * 14


def test_a_captured_constant_may_be_read(source: Any) -> None:
    made = source(
        """
        def make(width):
            WIDTH = tl.constexpr(width)

            @jit
            def inner(out):
                tl.store(out + tl.arange(0, WIDTH), WIDTH)

            return inner

        kernel = make(4)
        wide = make(8)
        """
    )
    assert stored(made, count=8) == [4] * 4 + [0] * 4
    assert made.kernel.cache_key != made.wide.cache_key


def test_docstrings_and_bare_expressions_mean_nothing(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x):
            "A kernel."
            x
            ...
            pass
        """
    )
    assert [operation.name for operation in made.compile(out="*i32", x="i32").walk()] == ["return"]


def test_a_result_that_must_be_used(source: Any) -> None:
    made = source(
        """
        from tilewright.language.core import must_use_result

        @must_use_result("it moves nothing in place")
        @jit
        def moved(x):
            return x + 1

        @jit
        def kernel(out, x):
            moved(x)

        @jit
        def fine(out, x):
            tl.store(out, moved(x))
        """
    )
    error = made.error(out="*i32", x="i32")
    assert error.message == "the result of moved is dropped\n  help: assign it: x = moved(x)"
    assert (
        str(error).splitlines()[-1]
        == "The result of moved is not being used. it moves nothing in place"
    )
    made.compile("fine", out="*i32", x="i32")


def test_the_function_of_a_call_is_evaluated_once(source: Any) -> None:
    made = source(
        """
        @jit
        def bump(p):
            tl.store(p, tl.load(p) + 1)
            return tl.load(p)

        @jit
        def pair(p):
            return (bump(p), bump(p))

        @jit
        def kernel(out):
            bump(out).to(tl.float32)
            for x in pair(out):
                bump(out)
            tl.store(out, bump(out) * 10)
        """
    )
    assert stored(made) == 60


def test_context_managers_of_the_language(source: Any) -> None:
    made = source(
        """
        log = tl.constexpr([])

        @tl.core.builtin
        def region(name, _semantic=None):
            class Region:
                def __enter__(self):
                    log.value.append("enter " + name.value)
                    return tl.constexpr(name.value + "!")

                def __exit__(self, *error):
                    log.value.append("exit " + name.value)

            return Region()

        @jit
        def kernel(out, n):
            with region("a") as label, region("b"):
                tl.static_assert(label == "a!")
                if n > 3:
                    return
                tl.store(out, n)
            tl.store(out + 1, n)
        """
    )
    assert stored(made, 2, count=2, n="i32") == [2, 2]
    assert made.log.value == ["enter a", "enter b", "exit b", "exit a"]
    assert stored(made, 5, count=2, n="i32") == [0, 0]


def test_fields_are_set_outside_of_control_flow_only(source: Any) -> None:
    made = source(
        """
        from tilewright.language.definitions.aggregate import aggregate

        @aggregate
        class Box:
            x: tl.tensor

            @jit
            def __init__(self, x):
                self.x = x
                self.x += 1
                if x > 3:
                    self.x = x + 1

        @jit
        def kernel(out, n):
            tl.store(out, Box(n).x)

        @jit
        def late(out, n):
            box = Box(n)
            box.x = n
        """
    )
    assert "field 'x' cannot be set inside a conditional or a loop" in str(
        made.error(out="*i32", n="i32")
    )
    assert (
        stored(
            source(Path(made.__file__).read_text().replace("if x > 3", "if x is None")), 4, n="i32"
        )
        == 5
    )


def test_a_type_called_with_a_value_converts_it(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x, n, T: tl.constexpr):
            lowest = tl.float32(-float("inf"))
            tl.static_assert(lowest.dtype == tl.float32)
            tl.store(out, tl.float64(lowest))
            tl.store(out + 1, tl.float64(0.1))
            tl.store(out + 2, T(n))
            tl.store(out + 3 + tl.arange(0, 4), tl.int32(tl.load(x + tl.arange(0, 4))))
            tl.static_assert(tl.float16(n).dtype == tl.float16)
        """
    )
    out = np.zeros(7)
    made.run(
        [out, np.array([1.5, -2.5, 3.75, 4], np.float32), 7],
        out="*fp64",
        x="*fp32",
        n="i32",
        T=made.tl.float64,
    )
    assert out.tolist() == [-np.inf, 0.1, 7, 1, -2, 3, 4]
