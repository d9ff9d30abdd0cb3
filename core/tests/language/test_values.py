"""Compile-time values and tuples."""

from __future__ import annotations

import itertools
import operator
from collections import namedtuple
from typing import Any

import pytest

import tilewright.language as tl
from tilewright.language.value_types.values import constexpr_type, unwrap_if_constexpr

NUMBERS = (0, 1, 7, -3, 2.5, True)
BINARY = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
]


@pytest.mark.parametrize("name", BINARY)
def test_operators_are_those_of_the_values(name: str) -> None:
    apply = getattr(operator, name)
    tried = 0
    for a, b in itertools.product(NUMBERS, NUMBERS):
        try:
            wanted = apply(a, b)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            with pytest.raises(type(error)):
                apply(tl.constexpr(a), tl.constexpr(b))
            continue
        for left, right in (
            (tl.constexpr(a), tl.constexpr(b)),
            (tl.constexpr(a), b),
            (a, tl.constexpr(b)),
        ):
            result = apply(left, right)
            assert type(result) is tl.constexpr
            assert result.value == wanted
            assert type(result.value) is type(wanted)
        tried += 1
    assert tried > 5


def test_unary_operators_and_conversions() -> None:
    x = tl.constexpr(6)
    assert ((-x).value, (+x).value, (~x).value, x.not_().value) == (-6, 6, -7, False)
    assert (int(x), float(x), bool(x), [0] * x == [0] * 6, hex(x)) == (6, 6.0, True, True, "0x6")
    assert (x.logical_and(0).value, x.logical_or(0).value) == (0, 6)
    assert tl.constexpr([1, 2, 3])[tl.constexpr(1)].value == 2
    assert [type(item) for item in tl.constexpr((1, "a"))] == [tl.constexpr, tl.constexpr]
    assert len(tl.constexpr((1, 2))) == 2
    assert tl.constexpr(max)(3, 4) == 4
    assert repr(tl.constexpr("a")) == "constexpr[a]"


def test_constexprs_of_constexprs_are_flat() -> None:
    assert tl.constexpr(tl.constexpr(tl.constexpr(3))).value == 3
    assert unwrap_if_constexpr([tl.constexpr(1), (tl.constexpr(2), 3)]) == [1, (2, 3)]


def test_constexpr_types_tell_constants_apart() -> None:
    kinds = [constexpr_type(value) for value in (1, 1.0, True, "1", None, float("nan"), tl.float32)]
    for i, a in enumerate(kinds):
        for j, b in enumerate(kinds):
            assert (a == b) is (i == j)
    assert constexpr_type(float("nan")) == constexpr_type(float("nan"))
    assert constexpr_type(tl.constexpr(1)) == constexpr_type(1)
    assert kinds[0].flatten() == []
    assert kinds[0].unflatten(iter(())).value == 1


Point = namedtuple("Point", ["x", "y"])


def test_tuples() -> None:
    t = tl.tuple([1, "a", (2, 3)])
    assert len(t) == 3
    assert t[0].value == 1
    assert t[tl.constexpr(-1)][1].value == 3
    assert [item.value for item in t[:2]] == [1, "a"]
    assert [item.value for item in t[tl.slice(None, tl.constexpr(2), None)]] == [1, "a"]
    assert len(t + (4,)) == 4  # noqa: RUF005
    assert len([0] + t) == 4  # noqa: RUF005
    assert len(t * tl.constexpr(2)) == 6
    assert (t == (1, "a", (2, 3))).value is True
    assert (t == (1, "a")).value is False
    assert (t != (1, "a", (2, 4))).value is True
    with pytest.raises(IndexError, match="index 5 is out of range of a tuple of 3"):
        t[5]
    with pytest.raises(TypeError, match="indexed by a constexpr"):
        t["a"]


def test_named_tuples_keep_their_fields() -> None:
    p = tl.tuple(Point(1, (2, 3)))
    assert p.x.value == 1
    assert p.y[0].value == 2
    assert p.type.fields == ["x", "y"]
    with pytest.raises(AttributeError, match="tuple has no field 'z'; its fields are x, y"):
        p.z
    with pytest.raises(AttributeError):
        tl.tuple([1]).x


def test_tuples_are_carried_by_the_values_of_their_items(bench: Any) -> None:
    x, y = bench.value(tl.int32), bench.value(tl.float32, [4])
    t = tl.tuple(Point(x, (3, y)))
    assert t.flatten() == [x.handle, y.handle]
    assert [str(type_) for type_ in t.type.flatten()] == ["i32", "tile<4xf32>"]
    again = t.type.unflatten(iter(t.flatten()))
    assert again.type == t.type
    assert again.y[0].value == 3
    assert again.y[1].handle is y.handle
    assert t.type != tl.tuple([x, (3, y)]).type
    assert tl.tuple([x, (3, y)]).type != tl.tuple([x, (4, y)]).type


def test_tensors_of_tuples_are_equal_where_they_are_one_value(bench: Any) -> None:
    x, y = bench.value(tl.int32), bench.value(tl.int32)
    assert (tl.tuple([x, 1]) == (x, 1)).value is True
    assert (tl.tuple([x]) == (y,)).value is False


def test_members_of_tensors(bench: Any) -> None:
    x = bench.value(tl.float32, [4, 8])
    assert x.dtype is tl.float32
    assert x.type is tl.block_type(tl.float32, [4, 8])
    assert [extent.value for extent in x.shape] == [4, 8]
    assert type(x.shape[0]) is tl.constexpr
    assert x.numel.value == 32
    scalar = bench.value("*fp16")
    assert (len(scalar.shape), scalar.numel.value, scalar.dtype) == (
        0,
        1,
        tl.pointer_type(tl.float16),
    )
    assert str(x) == "fp32[4, 8]"


@pytest.mark.parametrize(
    "name", ["__add__", "__rsub__", "__eq__", "__neg__", "exp", "to", "reshape"]
)
def test_operators_outside_a_kernel_are_refused(bench: Any, name: str) -> None:
    x = bench.value(tl.float32)
    with pytest.raises(
        ValueError, match=r"can be called only inside a kernel. Did you forget to add @jit\?"
    ):
        getattr(x, name)(*(() if name in ("__neg__", "exp") else (1,)))


def test_a_builtin_needs_the_keyword() -> None:
    with pytest.raises(TypeError, match="must take a keyword parameter _semantic"):
        tl.core.builtin(lambda x: x)
    assert tl.core.is_builtin(tl.load)
    assert not tl.core.is_builtin(len)


def test_custom_builtins_use_members(bench: Any) -> None:
    @tl.core.builtin
    def halve(x: Any, _semantic: Any = None) -> Any:
        return x.to(tl.float32, _semantic=_semantic).__mul__(0.5, _semantic=_semantic)

    assert bench(halve, bench.value(tl.float16, [4])).dtype is tl.float32
    assert bench.names == ["cast", "constant", "splat", "mul"]
