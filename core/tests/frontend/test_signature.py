"""Signatures: parameter types as text, and the IR arguments they become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.frontend import compile_function

EVERY = [
    ("*fp32", "ptr<f32>"),
    ("*kfp16", "ptr<f16>"),
    ("**i8", "ptr<ptr<i8>>"),
    ("*u1", "ptr<i8>"),
    ("*bf16", "ptr<bf16>"),
    ("*fp8e4nv", "ptr<f8e4m3fn>"),
    ("i1", "i1"),
    ("u1", "i1"),
    ("B", "i1"),
    ("i8", "i8"),
    ("u16", "u16"),
    ("i64", "i64"),
    ("u64", "u64"),
    ("fp16", "f16"),
    ("bf16", "bf16"),
    ("fp32", "f32"),
    ("fp64", "f64"),
    ("fp8e5", "f8e5m2"),
    ("tensordesc<fp16[64,32]>", "desc<64x32xf16>"),
]


@pytest.mark.parametrize(("text", "expected"), EVERY)
def test_types_of_parameters(source: Any, text: str, expected: str) -> None:
    made = source("@jit\ndef kernel(x):\n    pass\n")
    kernel = made.compile(x=text).kernel
    assert [(argument.name, str(argument.type)) for argument in kernel.arguments] == [
        ("x", expected)
    ]


def test_tuples_are_flattened_and_constants_left_out(source: Any) -> None:
    made = source(
        """
        Point = namedtuple("Point", ["x", "y"])

        @jit
        def kernel(out, t, N: tl.constexpr, p, last):
            tl.store(out, t[0] * 1000 + t[1][0] * 100 + t[1][1] * 10 + N + p.x + p.y + t[2] + last)
        """
    )
    point = made.Point("i32", "constexpr")
    signature = {
        "out": "*i32",
        "t": ("i32", ("i32", "constexpr"), "constexpr"),
        "N": "constexpr",
        "p": point,
        "last": "i32",
    }
    constants = {"t.1.1": 3, "t.2": 4, "N": 5, "p": made.Point(None, 6)}
    attributes = {"out": {"divisibility": 16}, "t.1.0": {"divisibility": 16}}
    module = compile_function(made.kernel, signature, constants, attributes)
    kernel = module.kernel
    assert [argument.name for argument in kernel.arguments] == [
        "out",
        "t.0",
        "t.1.0",
        "p.0",
        "last",
    ]
    assert kernel.argument_attributes == [{"divisibility": 16}, {}, {"divisibility": 16}, {}, {}]
    out = np.zeros(1, np.int32)
    made.interpret(module, [out, 1, 2, 7, 9])
    assert out[0] == 1000 + 200 + 30 + 5 + 7 + 6 + 4 + 9


def test_a_boolean_is_an_i1(source: Any) -> None:
    made = source("@jit\ndef kernel(out, flag):\n    if flag:\n        tl.store(out, 1)\n")
    out = np.zeros(1, np.int32)
    made.run([out, False], out="*i32", flag="u1")
    assert out[0] == 0
    made.run([out, True], out="*i32", flag="u1")
    assert out[0] == 1


def test_a_pointer_to_constants_is_not_written(source: Any) -> None:
    made = source("@jit\ndef kernel(p):\n    tl.store(p, 1.0)\n")
    made.compile(p="*fp32")
    assert "Cannot store to a constant pointer" in str(made.error(p="*kfp32"))


def test_descriptors_are_read_and_written(source: Any) -> None:
    from tilewright.reference.interpreter import DescriptorValue

    made = source("@jit\ndef kernel(a, b, x):\n    b.store([x, 0], a.load([x, 0]) * 2)\n")
    module = made.compile(a="tensordesc<fp32[2,4]>", b="tensordesc<fp32[2,4]>", x="i32")
    a, b = np.arange(24, dtype=np.float32).reshape(6, 4), np.zeros((6, 4), np.float32)
    made.interpret(
        module, [DescriptorValue(a, (6, 4), (4, 1)), DescriptorValue(b, (6, 4), (4, 1)), 2]
    )
    expected = np.zeros((6, 4), np.float32)
    expected[2:4] = a[2:4] * 2
    assert np.array_equal(b, expected)


def test_what_does_not_fit_is_refused(source: Any) -> None:
    made = source("@jit\ndef kernel(x, N: tl.constexpr, y=2):\n    tl.static_assert(y == 2)\n")
    compile_function(made.kernel, {"x": "i32", "N": "constexpr"}, {"N": 1})  # y is its default
    for signature, constants, message in (
        ({"x": "i32"}, {}, "the signature has no type for parameter 'N'"),
        ({"x": "i32", "N": "constexpr"}, {}, "no value is given for the constexpr 'N'"),
        (
            {"x": "i32", "N": "i32"},
            {},
            "parameter 'N' is a tl.constexpr, but its type in the signature is 'i32'",
        ),
        ({"x": "i32", "N": "constexpr", "z": "i32"}, {"N": 1}, "kernel has no parameter 'z'"),
    ):
        with pytest.raises(TypeError, match=message):
            compile_function(made.kernel, signature, constants)
    with pytest.raises(ValueError, match="'i33' is not the type of a kernel's parameter"):
        compile_function(made.kernel, {"x": "i33", "N": "constexpr"}, {"N": 1})
    with pytest.raises(TypeError, match="kernel has no argument 'N' to describe"):
        compile_function(
            made.kernel, {"x": "i32", "N": "constexpr"}, {"N": 1}, {"N": {"divisibility": 16}}
        )


def test_the_kernel_knows_its_name_and_place(source: Any) -> None:
    made = source("@jit\ndef my_kernel(x):\n    pass\n")
    module = made.compile("my_kernel", x="i32")
    assert module.kernel.name == "my_kernel"
    assert (module.kernel.location.file, module.kernel.location.line) == (made.__file__, 6)
