"""Specialization of launches: arguments that share a kernel, and arguments of the launcher."""

import collections
import enum

import numpy as np
import pytest
from ml_dtypes import bfloat16
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright.runtime.arguments.array_protocols import ArgumentError, ArrayView
from tilewright.runtime.arguments.descriptor import TensorDescriptor


def test_the_documented_count_of_compilations(recorder, fresh, one_int, kernels):
    kernel = fresh(one_int)
    x = np.zeros(1, np.int32)
    for value in (1, 2, 4, 8, 16, 32):
        kernel[(1,)](x, value)
    assert len(kernels(kernel)) == 3
    assert len(kernel.device_caches[0][0]) == 3
    assert [launch[2] for launch in recorder.launches] == [
        (x,),
        (x, 2),
        (x, 4),
        (x, 8),
        (x, 16),
        (x, 32),
    ]


def test_the_count_where_an_annotation_fixes_the_type(recorder, types_of, kernels):
    @tw.jit
    def kernel(x, i: tl.int32):
        tl.store(x, i)

    for value in (1, 8, 16, 17):
        compiled = kernel[(1,)](np.zeros(1, np.int32), value)
        assert types_of(compiled)["i"] == "i32"
    assert len(kernels(kernel)) == 3


class Colour(enum.IntEnum):
    RED = 5


@pytest.mark.parametrize(
    ("value", "type_", "divisible", "launched"),
    [
        (0, "i32", True, 0),
        (3, "i32", False, 3),
        (8, "i32", False, 8),
        (2**32 + 8, "i64", False, 2**32 + 8),
        (2**63 + 8, "u64", False, 2**63 + 8),
        (-16, "i32", True, -16),
        (2**31 - 1, "i32", False, 2**31 - 1),
        (-(2**31), "i32", True, -(2**31)),
        (2**31, "i64", True, 2**31),
        (2**31 + 1, "i64", False, 2**31 + 1),
        (-(2**63), "i64", True, -(2**63)),
        (2**63, "u64", True, 2**63),
        (2**64 - 1, "u64", False, 2**64 - 1),
        (True, "u1", False, True),
        (False, "u1", False, False),
        (1.0, "fp32", False, 1.0),
        (float("nan"), "fp32", False, None),
        (np.int32(7), "i32", False, 7),
        (np.uint8(32), "i32", True, 32),
        (np.float64(1.5), "fp64", False, 1.5),
        (np.float32(1.5), "fp32", False, 1.5),
        (np.float16(1.5), "fp16", False, 1.5),
        (bfloat16(1.5), "bf16", False, 1.5),
        (np.bool_(True), "u1", False, True),
        (Colour.RED, "i32", False, 5),
    ],
)
def test_scalars(recorder, value, type_, divisible, launched, one_int, types_of):
    x = np.zeros(1, np.float64)
    for _ in range(2):  # the first launch compiles, the second has a plan
        compiled = one_int[(1,)](x, value)
        assert types_of(compiled)["i"] == type_
        facts = (
            {"divisibility": 16} if divisible else {"untyped": 1} if type(value) is float else None
        )
        assert compiled.src.attributes.get("i") == facts
        assert (compiled.parameters[1].divisibility == 16) == divisible
        got = recorder.launches[-1][2][1]
        assert got == launched or launched is None
        assert type(got) in (int, float, bool, Colour)


@tw.jit
def scaled(x, y, s, t, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at) * (s * 2)
    if s > t:
        v += t
    tl.store(y + at, v)


@tw.jit
def scaled_in_fp32(x, y, s, t, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.load(x + at) * (s * 2) + t)
    tl.store(y + at + B, (tl.load(x + at).to(tl.float32) * s).to(tl.float64))


@pytest.mark.parametrize("s", [0.1, np.float64(0.1)])
def test_floats_that_meet_fp64_alone_are_fp64(s):
    x, y = np.full(4, 3.0), np.zeros(4)
    for _ in range(2):
        scaled[(1,)](x, y, s, 0.01, B=4, backend="reference")
        assert y.tolist() == [3.0 * (0.1 * 2) + 0.01] * 4
    scaled[(1,)](x, y, s, (0.02), B=4, backend="reference")
    assert y[0] == 3.0 * (0.1 * 2) + 0.02


@tw.jit
def scaled_by_a_sum(x, y, narrow, s, t):
    tl.store(y, tl.load(x) * (s + t))
    tl.store(narrow, tl.load(narrow) * s)


def test_a_float_that_is_added_to_one_that_meets_fp32_is_fp32_too():
    x, y, narrow = np.full(1, 3.0), np.zeros(1), np.ones(1, np.float32)
    scaled_by_a_sum[(1,)](x, y, narrow, 0.1, 0.01, backend="reference")
    assert narrow[0] == np.float32(0.1)
    assert y[0] == 3.0 * float(np.float32(0.1) + np.float32(0.01))


def test_floats_that_meet_fp32_too_are_fp32():
    x, y = np.full(4, 3.0), np.zeros(8)
    scaled_in_fp32[(1,)](x, y, 0.1, 0.01, B=4, backend="reference")
    narrow = np.float32(0.1)
    assert y[0] == 3.0 * float(narrow * np.float32(2)) + 0.01
    assert y[4] == np.float32(3.0) * narrow
    scaled_in_fp32[(1,)](x, y, np.float64(0.1), np.float32(0.01), B=4, backend="reference")
    assert y[0] == 3.0 * (0.1 * 2) + float(np.float32(0.01))
    assert y[4] == 3.0 * 0.1


def test_one_and_none_are_constants(recorder, one_int, types_of):
    for value in (1, np.int64(1)):
        compiled = one_int[(1,)](np.zeros(1, np.int32), value)
        assert types_of(compiled)["i"] == "constexpr"
        assert compiled.src.constants == {"i": 1}

    @tw.jit
    def kernel(x, other):
        if other is not None:
            tl.store(x, tl.load(other))

    compiled = kernel[(1,)](np.zeros(1), None)
    assert compiled.src.constants == {"other": None}
    assert types_of(kernel[(1,)](np.zeros(1), np.zeros(1)))["other"] == "*fp64"


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_of_more_than_64_bits(recorder, value, one_int):
    with pytest.raises(OverflowError, match="64 bits"):
        one_int[(1,)](np.zeros(1, np.int32), value)


def test_arrays_specialise_on_type_and_alignment(recorder, scale, fresh, kernels):
    kernel = fresh(scale)
    whole = np.zeros(256, np.float32)
    start = next(i for i in range(4) if whole[i:].ctypes.data % 16 == 0)
    x = whole[start:]
    for view, divisible in ((x, True), (x[1:], False), (x[4:], True), (x[2:], False)):
        compiled = kernel[(1,)](view, 3)
        assert compiled.src.attributes.get("x") == ({"divisibility": 16} if divisible else None)
    assert len(kernels(kernel)) == 2
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        kernel[(1,)](torch.zeros(64, dtype=dtype), 3)
    assert len(kernels(kernel)) == 5  # torch's float32 is the same as NumPy's


def test_const_pointers_and_annotated_pointers(recorder, types_of):
    @tw.jit
    def kernel(x: tl.const, y: "*i8", z: torch.Tensor, o: int):  # noqa: F722
        tl.store(y, tl.load(x).to(tl.int8) + tl.load(z) + o)

    compiled = kernel[(1,)](np.zeros(4, np.float16), np.zeros(4, np.uint8), np.zeros(4, np.int8), 3)
    assert types_of(compiled) == {"x": "*kfp16", "y": "*i8", "z": "*i8", "o": "i32"}


def test_annotations_fix_the_type(recorder, types_of):
    @tw.jit
    def kernel(
        x,
        a: "i64",  # noqa: F821
        b: tl.int8,
        c: "fp64",  # noqa: F821
        d: tl.float16,
        e: "u1",  # noqa: F821
        f: tl.uint16,
    ):
        tl.store(x, a + b + c + d + e.to(tl.int32) + f)

    x = np.zeros(1)
    compiled = kernel[(1,)](x, 32, 3, 2.0, 1, 1, 48)
    assert types_of(compiled) == {
        "x": "*fp64",
        "a": "i64",
        "b": "i8",
        "c": "fp64",
        "d": "fp16",
        "e": "u1",
        "f": "u16",
    }
    assert (
        compiled.src.attributes.get("a") == compiled.src.attributes.get("f") == {"divisibility": 16}
    )
    assert compiled.src.attributes.get("c") is None
    assert recorder.launches[-1][2] == (x, 32, 3, 2.0, 1.0, True, 48)
    assert [type(value) for value in recorder.launches[-1][2][3:]] == [float, float, bool, int]
    with pytest.raises(ArgumentError, match="'a' is annotated i64"):
        kernel[(1,)](x, 1.5, 3, 2.0, 1, 1, 48)


@pytest.mark.parametrize("names", [["i"], [1], ("x", "i")])
def test_do_not_specialize(recorder, names, fresh, one_int, types_of, kernels):
    kernel = fresh(one_int, do_not_specialize=names)
    for value in (1, 2, 16):
        compiled = kernel[(1,)](np.zeros(64, np.int32), value)
        assert types_of(compiled)["i"] == "i32"
        assert "i" not in compiled.src.attributes
    assert len(kernels(kernel)) == 1
    assert types_of(kernel[(1,)](np.zeros(64, np.int32), 2**40))["i"] == "i64"


def test_do_not_specialize_on_alignment(recorder, fresh, one_int, kernels):
    kernel = fresh(one_int, do_not_specialize_on_alignment=["i", 0])
    whole = np.zeros(64, np.int32)
    for view in (whole, whole[1:], whole[2:]):
        for value in (1, 2, 16):
            compiled = kernel[(1,)](view, value)
            assert compiled.src.attributes == {}
    assert len(kernels(kernel)) == 2


def test_a_constexpr_cannot_be_unspecialised(recorder, scale, fresh):
    kernel = fresh(scale, do_not_specialize=["BLOCK"])
    with pytest.raises(CompilationError, match="BLOCK marked as constexpr"):
        kernel[(1,)](np.zeros(4, np.float32), 4)


@tw.jit
def takes_constant(x, VALUE: tl.constexpr):
    tl.store(x, 1)


@tw.jit
def helper(a):
    return a + 1


@tw.jit
def other_helper(a):
    return a + 2


Pair = collections.namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True),
        (0.0, -0.0, 0, False),
        (float("inf"), float("-inf")),
        ("a", "b", ""),
        (None, 0),
        ((1, 2), (1, True), (1.0, 2), Pair(1, 2), (1, (2, 3))),
        (tl.float32, tl.float16, tl.int32),
        (helper, other_helper),
        (Colour.RED, 5),
    ],
    ids=repr,
)
def test_constants_that_differ_compile_differently_and_once_each(recorder, values, fresh, kernels):
    kernel = fresh(takes_constant)
    for _ in range(2):
        for value in values:
            kernel[(1,)](np.zeros(1, np.int32), value)
    assert len(kernels(kernel)) == len(values)
    assert len(recorder.launches) == 2 * len(values)


def test_nan_is_one_constant(recorder, fresh, kernels):
    kernel = fresh(takes_constant)
    for _ in range(3):
        kernel[(1,)](np.zeros(1, np.int32), float("nan"))
    assert len(kernels(kernel)) == 1
    assert len(kernel._plans) == 1


def test_a_constant_must_be_hashable(recorder):
    with pytest.raises(ArgumentError, match="must be hashable"):
        takes_constant[(1,)](np.zeros(1, np.int32), {"a": 1})


def test_constexpr_values_are_unwrapped(recorder, fresh, one_int, kernels):
    kernel = fresh(takes_constant)
    assert kernel[(1,)](np.zeros(1, np.int32), tl.constexpr(8)).src.constants == {"VALUE": 8}
    kernel[(1,)](np.zeros(1, np.int32), 8)
    assert len(kernels(kernel)) == 1
    compiled = one_int[(1,)](np.zeros(1, np.int32), tl.constexpr(9))
    assert compiled.src.constants == {"i": 9}


def test_functions_of_the_language_are_constants_anywhere(recorder, kernels):
    @tw.jit
    def kernel(x, function):
        tl.store(x, function(tl.load(x)))

    x = np.zeros(1, np.int32)
    assert kernel[(1,)](x, helper).src.constants["function"] is helper
    kernel[(1,)](x, other_helper)
    kernel[(1,)](x, helper)
    assert len(kernels(kernel)) == 2
    assert recorder.launches[-1][2] == (x,)


@pytest.mark.parametrize(
    "value", ["text", tl.float32, torch.float32, object(), [1, 2], {1: 2}, slice(3)]
)
def test_unsupported_arguments(recorder, value, one_int):
    with pytest.raises(TypeError, match="Unsupported type"):
        one_int[(1,)](np.zeros(1, np.int32), value)


def test_tuples_and_named_tuples(recorder, types_of, kernels):
    @tw.jit
    def kernel(t, p):
        tl.store(t[0], t[1] + p.left + p.right[1] + t[2][0])

    x, y = np.zeros(64, np.int32), np.zeros(64, np.int8)
    for _ in range(2):
        compiled = kernel[(1,)]((x, 16, (1, y, None)), Pair(2.5, (np.int64(3), 5)))
        assert recorder.launches[-1][2] == (x, 16, y, 2.5, 3, 5)
        assert type(recorder.launches[-1][2][4]) is int
    assert types_of(compiled) == {
        "t": ("*i32", "i32", ("constexpr", "*i8", "constexpr")),
        "p": Pair("fp32", ("i32", "i32")),
    }
    assert compiled.src.constants == {"t.2.0": 1, "t.2.2": None}
    assert compiled.src.attributes["t.1"] == {"divisibility": 16}
    assert [parameter.name for parameter in compiled.parameters] == [
        "t.0",
        "t.1",
        "t.2.1",
        "p.0",
        "p.1.0",
        "p.1.1",
    ]
    kernel[(1,)]((x, 17, (1, y, None)), Pair(2.5, (3, 5)))
    assert len(kernels(kernel)) == 2


def test_tensor_descriptors(recorder, types_of, kernels):
    @tw.jit
    def kernel(d, pair):
        d.store([0, 0], d.load([0, 0]) + pair[1])

    tensor = torch.zeros(8, 64, dtype=torch.float16)
    descriptor = TensorDescriptor.from_tensor(tensor, [4, 32])
    compiled = kernel[(1,)](descriptor, (descriptor, 3))
    assert types_of(compiled) == {
        "d": "tensordesc<fp16[4,32]>",
        "pair": ("tensordesc<fp16[4,32]>", "i32"),
    }
    assert recorder.launches[-1][2] == (descriptor, descriptor, 3)
    assert [parameter.type for parameter in compiled.parameters] == [
        "desc<4x32xf16>",
        "desc<4x32xf16>",
        "i32",
    ]
    kernel[(1,)](TensorDescriptor.from_tensor(tensor, [8, 32]), (descriptor, 3))
    kernel[(1,)](
        TensorDescriptor.from_tensor(torch.ones(8, 64, dtype=torch.float16), [4, 32]),
        (descriptor, 3),
    )
    assert len(kernels(kernel)) == 2
    assert compiled.src.attributes["d"]["extent_divisibility"] == 8
    ragged = kernel[(1,)](TensorDescriptor.from_tensor(tensor[:, :63], [4, 32]), (descriptor, 3))
    assert "extent_divisibility" not in ragged.src.attributes["d"]
    assert len(kernels(kernel)) == 3


def test_foreign_arrays_reach_the_launcher_as_views(recorder, scale):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = np.zeros(16, np.float32)
    for _ in range(2):
        scale[(1,)](Foreign(array), 16)
        view = recorder.launches[-1][2][0]
        assert isinstance(view, ArrayView)
        assert view.data_ptr() == array.ctypes.data
