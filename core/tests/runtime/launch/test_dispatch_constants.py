"""Constants of native launches: those that native code distinguishes, and those left to Python."""

import dataclasses
import enum
from typing import NamedTuple

import llvmlite.binding  # noqa: F401  (the native dispatcher is used where LLVM is loaded)
import numpy as np
import pytest
from dispatch_kernels import ignores, is_native, many, two
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.llvm.native import native_functions

pytestmark = pytest.mark.skipif(
    native_functions.layout() is None, reason="native code cannot read this interpreter's objects"
)


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Text(enum.StrEnum):
    PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class Shape:
    rows: int
    scale: float = 1.0
    kind: Color = Color.RED


class Pair(NamedTuple):
    first: object
    second: object


class Opaque:
    """Compared by identity."""


@tw.jit
def twice(x):
    return x + x


def plain(x):
    return x


#: Constants that native code distinguishes, and different ones of the same type.
FROZEN = {
    "enum": (Color.RED, Color.BLUE),
    "int-enum": (Level.LOW, Level.HIGH),
    "flag": (Access.READ | Access.WRITE, Access.READ),
    "text-enum": (Text.PLAIN, "plain"),
    "numpy-scalar": (np.float32(0.5), np.float32(0.25)),
    "numpy-integer": (np.int64(5), np.int32(5)),
    "numpy-type": (np.float32, np.float16),
    "torch-dtype": (getattr(torch, "float32", None), getattr(torch, "float16", None)),
    "dtype": (tl.float32, tl.float16),
    "great-int": (2**70, 2**70 + 1),
    "text": ("".join(["al", "pha"]), "beta"),
    "bytes": (b"alpha", b"beta"),
    "tuple": ((1, 2.0, "x", Level.LOW), (1, 2, "x", Level.LOW)),
    "named-tuple": (Pair(1, (Color.RED, tl.float32)), Pair(1, (Color.BLUE, tl.float32))),
    "frozen-set": (frozenset({1, 2}), frozenset({1, 3})),
    "frozen-dataclass": (Shape(4), Shape(4, 2.0)),
    "class": (Opaque, Pair),
    "opaque": (Opaque(), Opaque()),
    "function": (plain, lambda x: x),
    "jit-function": (twice, two),
    "functions": (Pair(twice, plain), Pair(two, plain)),
}


@pytest.mark.parametrize("kind", FROZEN)
@pytest.mark.parametrize("name", ["BLOCK", "MODE"])
def test_launches_with_frozen_constants_run_no_python(recorder, fresh, count_python, kind, name):
    value, other = FROZEN[kind]
    kernel, x = fresh(many), np.zeros(4, np.float32)
    calls = count_python(kernel)
    given = {"BLOCK": 64, name: value}
    found = [kernel[(3,)](x, x, 7, 8, True, 0.5, None, **given) for _ in range(6)]
    assert is_native(kernel) and len(calls) == 1
    assert all(compiled is found[0] for compiled in found)
    assert kernel[(3,)](x, x, 7, 8, True, 0.5, None, **{**given, name: other}) is not found[0]
    assert len(calls) == 2


def test_equal_texts_are_the_same_constant(recorder, fresh, count_python):
    kernel, x = fresh(many), np.zeros(4, np.float32)
    calls = count_python(kernel)
    for _ in range(6):
        kernel[(3,)](
            x, x, 7, 8, True, 0.5, None, BLOCK=64, MODE="-".join(["a", "text"]), LAST=int("9" * 30)
        )
    assert len(calls) == 1


@dataclasses.dataclass(unsafe_hash=True)
class Loose:
    rows: int


@pytest.mark.parametrize(
    "value", [[1], (1, [2]), Loose(4), (Loose(4),), tl.constexpr(4), Shape(Loose(1))], ids=repr
)
def test_constants_that_may_change_are_left_to_python(recorder, fresh, count_python, value):
    kernel, x = fresh(many), np.zeros(4, np.float32)
    calls = count_python(kernel)
    for _ in range(6):
        kernel[(3,)](x, x, 7, 8, True, 0.5, None, BLOCK=64, MODE=value)
    assert len(calls) == 6


def test_a_function_that_means_something_else_is_another_constant(recorder, fresh, count_python):
    @tw.jit
    def meaning(x):
        return x + 1

    @tw.jit
    def with_default(x, FUNCTION: tl.constexpr = meaning):
        tl.store(x, 1.0)

    x = np.zeros(4, np.float32)
    for kernel, given in (
        (fresh(ignores), {"n": meaning}),
        (fresh(with_default), {}),
        (fresh(with_default), {"FUNCTION": (1, meaning)}),
    ):
        calls = count_python(kernel)
        for _ in range(3):
            kernel[(3,)](x, **given)
        assert len(calls) == 1
        meaning.forget_meaning()
        kernel[(3,)](x, **given)
        assert len(calls) == 2
