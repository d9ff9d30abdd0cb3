"""The pass: types of what it leaves, memory in other representations, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir import verify
from tilewright.ir.core import Module
from tilewright.ir.ops.arithmetic import Bitcast
from tilewright.ir.ops.memory import Load
from tilewright.ir.parser import parse_module
from tilewright.ir.types import FloatType, element_type
from tilewright.passes.exact.context import ExactOptions
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.report import report
from tilewright.passes.exact.rewrite import exact
from tilewright.passes.exact.ring import ring
from tilewright.testing.exact import embed, exact_mode, fractions


def parsed(text: str) -> Module:
    module = parse_module(f"tilewright.ir 1.0\n{text}")
    verify(module)
    return module


def rewritten(text: str, **options) -> Module:
    module = parsed(text)
    exact(module, ExactOptions(**options))
    verify(module)
    return module


def parameter_types(module: Module) -> list[str]:
    return [str(argument.type) for argument in module.kernel.arguments]


EXP = """kernel @k(%p: ptr<f32>, %s: f32) {
  %x = load %p : f32
  %y = mul %x, %s : f32
  %z = exp %y : f32
  store %p, %z
  return
}"""


def test_floats_are_only_moved_between_operations() -> None:
    module = rewritten(EXP)
    made = [
        operation
        for operation in module.walk()
        if any(isinstance(element_type(value.type), FloatType) for value in operation.results)
    ]
    assert all(isinstance(operation, Bitcast | Load) for operation in made)
    assert parameter_types(module) == ["ptr<f32>", "u32"]


def test_no_float_is_left_with_integers() -> None:
    module = rewritten(EXP, carry="int")
    values = [v for operation in module.walk() for v in (*operation.results, *operation.operands)]
    assert not any(isinstance(element_type(value.type), FloatType) for value in values)
    assert parameter_types(module) == ["ptr<u32>", "u32"]


@pytest.mark.parametrize(
    ("options", "message"), [({"carry": "bits"}, "carry must be"), ({"dot": "f8"}, "dot must be")]
)
def test_options_are_checked(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        ExactOptions(**options)


UPDATES = """kernel @k(%p: ptr<f32>, %q: ptr<f32>, %x: f32, %c: i1) {{
  %r = select %c, %p, %p : ptr<f32>
  %0 = atomic_rmw %r, %x {{kind = {0}}} : f32
  {1}
  return
}}"""


def test_memory_that_is_added_to_holds_sums() -> None:
    module = rewritten(UPDATES.format("add", "store %q, %x"))
    assert parameter_types(module) == ["ptr<i64>", "ptr<f32>", "u32", "i1"]


@pytest.mark.parametrize("kind", ["min", "max"])
def test_memory_of_extrema_holds_keys(kind) -> None:
    module = rewritten(UPDATES.format(kind, "%1 = load %p : f32\n  store %q, %1"))
    assert parameter_types(module) == ["ptr<i32>", "ptr<f32>", "u32", "i1"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("%1 = atomic_rmw %p, %x {kind = max} : f32", "another atomic operation updates as"),
        ("%1 = atomic_cas %p, %x, %x : f32", "an atomic cas of floats in memory"),
        ("%1 = bitcast %p : ptr<i32>\n  %2 = load %1 : i32", "cast from another type"),
        ("%1 = bitcast %p : i64", "cast to an integer"),
    ],
)
def test_memory_with_sums_is_reached_in_one_way(more, message) -> None:
    with pytest.raises(ExactModeError, match=message) as caught:
        rewritten(UPDATES.format("add", more))
    assert caught.value.remedy in str(caught.value)


def test_errors_have_a_location_and_a_remedy() -> None:
    text = """kernel @k(%p: ptr<f32>) {
  %x = load %p : f32
  %y = inline_asm %x {assembly = "f", constraints = "=f,f", pure = false} : f32
  store %p, %y
  return
}"""
    module = parsed(text)
    with pytest.raises(ExactModeError, match="inline_asm with floats has effects") as caught:
        exact(module)
    assert "functions of the language" in caught.value.remedy


def test_a_report_names_what_is_uninterpreted() -> None:
    found = report(
        parsed(
            """kernel @k(%p: ptr<f32>) {
  %x = load %p : f32
  %y = floor %x : f32
  %z = log %y : f32
  %i = cast %z : i32
  %j = cast %i : f32
  store %p, %j
  return
}"""
        )
    )
    assert [one.operation for one in found.uninterpreted] == ["floor", "cast"]
    assert found.loses_digit
    assert "exp(log(a)) = a" in found.breaks


@tw.jit
def update(x_ptr, out_ptr, kind: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x = tl.load(x_ptr + place)
    if kind == "add":
        tl.atomic_add(out_ptr + place % 2, x)
    elif kind == "max":
        tl.atomic_max(out_ptr + place % 2, x)
    elif kind == "min":
        tl.atomic_min(out_ptr + place % 2, x)
    else:
        tl.atomic_xchg(out_ptr + place, x)


@pytest.mark.parametrize("carry", ["float", "int"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("kind", "start", "expected"),
    [
        ("add", [1, 2], [1 - 6, 2 + 7.5]),
        ("max", [-100, np.nan], [4, 9.5]),
        ("min", [100, np.inf], [-9, -2]),
        ("max", [np.inf, 1], ["inf", 9.5]),
        ("add", [np.inf, 1], ["inf", 8.5]),
    ],
)
def test_atomic_updates_of_floats(kind, start, expected, dtype, carry) -> None:
    if kind != "add" and dtype is np.float16:
        pytest.skip("the language has no atomic extrema of f16")
    x = np.array([-9, -2, 4, 0, -1, 9.5, 0, 0], dtype)
    if kind != "add":  # extrema order integers alone
        expected = [np.rint(e) if isinstance(e, float) else e for e in expected]
        x = np.rint(x)
    payloads, out = embed(x), embed(np.array(start, dtype))
    with exact_mode("reference", carry=carry):
        update[(1,)](payloads, out, kind, 8)
    assert [str(value) for value in fractions(out)] == [
        str(fractions(embed(np.array([value], dtype)))[0]) if value != "inf" else value
        for value in expected
    ]


def test_an_array_that_is_updated_overlaps_no_other() -> None:
    out = np.zeros(8, np.float32)
    with exact_mode("reference"), pytest.raises(tw.LaunchError, match="overlaps another argument"):
        update[(1,)](out, out, "max", 8)


def test_memory_between_the_elements_of_a_view_is_kept() -> None:
    x, whole = embed(np.ones(8, np.float32)), embed(np.arange(9, dtype=np.float32))

    @tw.jit
    def strided(x_ptr, out_ptr, stride, COUNT: tl.constexpr):
        place = tl.arange(0, COUNT)
        tl.atomic_add(out_ptr + place * stride, tl.load(x_ptr + place))

    with exact_mode("reference"):
        strided[(1,)](x, whole[::2], 2, 4)
    assert [int(value) for value in fractions(whole)] == [1, 1, 3, 3, 5, 5, 7, 7, 8]


@tw.jit
def padded(x_ptr, out_ptr, rows, columns, padding: tl.constexpr):
    tensor = tl.make_tensor_descriptor(
        x_ptr, [rows, columns], [columns, 1], [4, 8], padding_option=padding
    )
    place = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out_ptr + place, tensor.load([1, -3]))


@pytest.mark.parametrize(("padding", "outside"), [("zero", "0"), ("nan", "nan")])
def test_descriptors_pad(padding, outside) -> None:
    x, out = embed(np.arange(1, 13, dtype=np.float32).reshape(3, 4)), np.zeros((4, 8), np.float32)
    with exact_mode("reference"):
        padded[(1,)](x, out, 3, 4, padding)
    expected = np.full((4, 8), outside, dtype=object)
    expected[:2, 3:7] = np.arange(5, 13).reshape(2, 4).astype(str)
    assert (fractions(out).astype(str) == expected).all()


@pytest.mark.parametrize("value", [0.001, 1e-5, 0.5, -1e30, 3.0, 1 / 3])
def test_float_arguments_are_recognized(value) -> None:
    @tw.jit
    def constant(out_ptr, s):
        tl.store(out_ptr, s)

    out = np.zeros(1, np.float32)
    with exact_mode("reference"):
        constant[(1,)](out, value)
    expected = {0.001: "1/1000", 1e-5: "1/100000", 0.5: "1/2", -1e30: "-inf", 3.0: "3"}
    (found,) = out.view(np.uint32)
    number = expected.get(value, "1/3")
    if number == "-inf":
        assert found == ring(32).negative_infinity
    else:
        from fractions import Fraction

        assert found == ring(32).residue(Fraction(number))


@tw.jit
def opaque_kernel(x_ptr, out_ptr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x = tl.load(x_ptr + place)
    y = tl.inline_asm_elementwise("ex2 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + place, y)


def test_code_of_the_target_is_a_function_of_its_operands() -> None:
    x, out = embed(np.array([1, 2, 1, 2], np.float32)), np.zeros(4, np.float32)
    with exact_mode("reference") as reports:
        opaque_kernel[(1,)](x, out, 4)
    bits = out.view(np.uint32)
    assert bits[0] == bits[2] != bits[1] == bits[3]
    assert [one.operation for one in reports[0].uninterpreted] == ["inline_asm"]
