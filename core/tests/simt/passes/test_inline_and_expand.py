"""Expansion to plain operations: the expanded kernel does what the kernel did, on the reference
interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Builder, verify
from tilewright.ir.core import Value
from tilewright.ir.ops.linear import SCALED_FORMATS
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import F16, F32, I1, I32, I64, U8, DescriptorType
from tilewright.reference.interpreter import DescriptorValue
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt.emulator import EmulatedMatrix, EmulatedTarget, EmulatedTma
from tilewright.simt.passes.inline_and_expand import prepare
from tilewright_conformance.op_samples import check_outputs, samples
from tilewright_conformance.op_samples.kernel import INTEGRAL, ZEROS, Draw, Sample, SampleKernel

DESCRIPTORS = (
    "make_descriptor",
    "descriptor_extent",
    "descriptor_stride",
    "descriptor_load",
    "descriptor_store",
    "descriptor_reduce",
)
EXPANDED = (*DESCRIPTORS, "descriptor_gather", "descriptor_scatter", "dot_scaled", "call")
BLOCK = DescriptorType((4, 8), F32)


def check(sample: Sample, seed: int = 0) -> Any:
    """Run the sample as it is and expanded; the expanded kernel."""
    module = parse_module(print_module(sample.module))
    prepare(module, EmulatedTarget())
    verify(module)
    assert len(module.functions) == 1
    values = [
        value for operation in module.walk() for value in (*operation.results, *operation.operands)
    ]
    assert not any(
        isinstance(value.type, DescriptorType) for value in (*values, *module.kernel.arguments)
    )
    assert not {operation.name for operation in module.walk()} & set(EXPANDED)
    expected, found = (sample.make_arguments(np.random.default_rng(seed)) for _ in range(2))
    run_reference(sample.module, expected, sample.grid)
    flat: list[Any] = []
    for declared, argument in zip(sample.arguments, found, strict=True):
        flat += (
            [argument.base, *map(int, argument.shape), *map(int, argument.strides)]
            if declared.kind == "descriptor"
            else [argument]
        )
    run_reference(module, flat, sample.grid)
    check_outputs(sample, expected, found)
    return module.kernel


@pytest.mark.parametrize("operation", EXPANDED)
def test_samples_mean_the_same(operation: str) -> None:
    for seed, sample in enumerate(samples(operation)):
        check(sample, seed)


def two(kernel: SampleKernel) -> tuple[Value, Value]:
    return kernel.descriptor(F32, (8, 16), (4, 8), INTEGRAL), kernel.descriptor(
        F32, (6, 10), (4, 8), INTEGRAL
    )


def zeros(kernel: SampleKernel) -> list[Value]:
    return [kernel.constant(I32, 0), kernel.constant(I32, 4)]


def carried_by_for(kernel: SampleKernel) -> None:
    """Two descriptors and a sum change places in each iteration."""
    b, (x, y) = kernel.b, two(kernel)
    at = zeros(kernel)

    def body(i: Value, first: Value, total: Value, second: Value) -> Any:
        weight = b.splat(
            b.cast(b.add(i, kernel.constant(I32, 1)), result=F32), result=BLOCK.block_type
        )
        return second, b.add(total, b.mul(weight, b.descriptor_load(first, at))), first

    region = kernel.region((I32, BLOCK, BLOCK.block_type, BLOCK), body)
    bounds = [kernel.constant(I32, value) for value in (0, 3, 1)]
    loop = b.region_op(
        "for", *bounds, [x, kernel.constant(BLOCK.block_type, 0.0), y], regions=[region]
    )
    kernel.store(loop.results[1])
    kernel.store(b.descriptor_load(loop.results[0], at))
    kernel.store(b.descriptor_extent(loop.results[2], axis=1))


def carried_by_while(kernel: SampleKernel) -> None:
    b, (x, y) = kernel.b, two(kernel)
    at = zeros(kernel)
    limit = kernel.constant(I32, 5)

    def before(i: Value, first: Value, second: Value) -> Any:
        return b.cmp(i, limit, predicate="lt"), first, i, second

    def after(first: Value, i: Value, second: Value) -> Any:
        return b.add(i, kernel.constant(I32, 2)), second, first

    regions = [
        kernel.region((I32, BLOCK, BLOCK), before, "condition"),
        kernel.region((BLOCK, I32, BLOCK), after),
    ]
    loop = b.region_op(
        "while", [kernel.constant(I32, 0), x, y], regions=regions, results=[BLOCK, I32, BLOCK]
    )
    kernel.store(b.descriptor_load(loop.results[0], at))
    kernel.store(loop.results[1])
    kernel.store(b.descriptor_stride(loop.results[2], axis=0))


def carried_by_if(kernel: SampleKernel) -> None:
    b, (x, y) = kernel.b, two(kernel)
    regions = [
        kernel.region((), lambda: (x, b.descriptor_extent(x, axis=0))),
        kernel.region((), lambda: (y, b.descriptor_extent(y, axis=1))),
    ]
    chosen = b.region_op("if", kernel.load(I1), regions=regions, results=[BLOCK, I64])
    kernel.store(b.descriptor_load(chosen.results[0], zeros(kernel)))
    kernel.store(chosen.results[1])


def made_in_a_loop(kernel: SampleKernel) -> None:
    """A descriptor made anew in each iteration, carried out of an if in it."""
    b = kernel.b
    out = kernel.pointer(F32, (4, 4, 8), ZEROS, output=True)
    extents = [kernel.constant(I64, value) for value in (3, 7)]
    strides = [kernel.constant(I64, value) for value in (8, 1)]
    value = kernel.load(F32, (4, 8))

    def body(i: Value) -> None:
        def made(step: int) -> Callable[[], Value]:
            return lambda: b.make_descriptor(
                b.addptr(out, b.mul(i, kernel.constant(I32, step))), extents, strides, result=BLOCK
            )

        even = b.cmp(b.and_(i, kernel.constant(I32, 1)), kernel.constant(I32, 0), predicate="eq")
        chosen = b.region_op(
            "if",
            even,
            regions=[kernel.region((), made(32)), kernel.region((), made(16))],
            results=[BLOCK],
        )
        b.descriptor_store(chosen.results[0], [kernel.constant(I32, 0)] * 2, value)

    bounds = [kernel.constant(I32, value) for value in (0, 4, 1)]
    b.region_op("for", *bounds, [], regions=[kernel.region((I32,), body)])


def passed_to_a_function(kernel: SampleKernel) -> None:
    from tilewright.ir.core import Function

    b, (x, _) = kernel.b, two(kernel)
    callee = kernel.module.add(
        Function("read", (BLOCK, I32), (BLOCK.block_type, BLOCK), ("d", "i"), kernel=False)
    )
    inner = Builder.at_end(callee.body)
    descriptor, start = callee.arguments
    inner.return_([inner.descriptor_load(descriptor, [start, start]), descriptor])
    tile, same = b.call(
        [x, kernel.constant(I32, 1)], callee="read", results=[BLOCK.block_type, BLOCK]
    )
    kernel.store(tile)
    kernel.store(b.descriptor_load(same, zeros(kernel)))


KERNELS = (carried_by_for, carried_by_while, carried_by_if, made_in_a_loop, passed_to_a_function)


@pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)
def test_descriptors_are_carried_as_several_values(build: Callable[[SampleKernel], None]) -> None:
    kernel = SampleKernel(build.__name__)
    build(kernel)
    sample = kernel.finish()
    for seed in range(4):
        check(sample, seed)


@pytest.mark.parametrize("condition", [True, False])
def test_a_selected_descriptor(condition: bool) -> None:
    kernel = SampleKernel("select")
    b, (x, y) = kernel.b, two(kernel)
    kernel.store(b.descriptor_load(b.select(kernel.scalar(I1), x, y), zeros(kernel)))
    module = kernel.finish().module
    prepare(module, EmulatedTarget())
    rng = np.random.default_rng(0)
    a, c, out = (
        rng.random((8, 16), np.float32),
        rng.random((6, 10), np.float32),
        np.zeros((4, 8), np.float32),
    )
    run_reference(module, [a, 8, 16, 16, 1, c, 6, 10, 10, 1, condition, out], (1, 1, 1))
    expected = a[:4, 4:12] if condition else np.pad(c[:4, 4:], ((0, 0), (0, 2)))
    np.testing.assert_array_equal(out, expected)


def test_arguments_are_base_extents_strides_in_this_order() -> None:
    kernel = SampleKernel("order")
    before = kernel.scalar(I32, Draw(1, 1))
    descriptor = kernel.descriptor(F32, (8, 16), (4, 8))
    kernel.store(
        kernel.b.add(
            before, kernel.b.cast(kernel.b.descriptor_extent(descriptor, axis=1), result=I32)
        )
    )
    expanded = check(kernel.finish())
    texts = [str(argument.type) for argument in expanded.arguments]
    assert texts == ["i32", "ptr<f32>", "i64", "i64", "i64", "i64", "ptr<i32>"]
    assert [argument.name for argument in expanded.arguments][1:6] == [
        "d1.base",
        "d1.extent0",
        "d1.extent1",
        "d1.stride0",
        "d1.stride1",
    ]


def test_what_the_runtime_says_of_a_descriptor_is_passed_on() -> None:
    kernel = SampleKernel("aligned")
    descriptor = kernel.descriptor(F16, (8, 16), (4, 8))
    kernel.store(kernel.b.descriptor_load(descriptor, [kernel.constant(I32, 0)] * 2))
    kernel.function.argument_attributes[0] = {"divisibility": 16, "padding": "nan"}
    module = kernel.finish().module
    prepare(module, EmulatedTarget())
    assert module.kernel.argument_attributes[:5] == [
        {"divisibility": 16},
        {},
        {},
        {"divisibility": 8},
        {},
    ]
    assert not module.kernel.arguments[4].uses, "the last stride is known to be 1"


def test_the_divisibility_of_the_last_extent_is_passed_on() -> None:
    kernel = SampleKernel("wide")
    descriptor = kernel.descriptor(F16, (8, 16), (4, 8))
    kernel.store(kernel.b.descriptor_load(descriptor, [kernel.constant(I32, 0)] * 2))
    kernel.function.argument_attributes[0] = {"divisibility": 16, "extent_divisibility": 8}
    module = kernel.finish().module
    prepare(module, EmulatedTarget())
    assert module.kernel.argument_attributes[:5] == [
        {"divisibility": 16},
        {},
        {"divisibility": 8},
        {"divisibility": 8},
        {},
    ]


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_padding_of_an_argument(padding: str) -> None:
    kernel = SampleKernel("padding")
    descriptor = kernel.descriptor(F32, (3, 5), (4, 8))
    kernel.store(kernel.b.descriptor_load(descriptor, [kernel.constant(I32, 0)] * 2))
    kernel.function.argument_attributes[0] = {"padding": padding} if padding != "zero" else {}
    module = kernel.finish().module
    prepare(module, EmulatedTarget())
    base, out = np.ones((3, 5), np.float32), np.full((4, 8), 7, np.float32)
    run_reference(module, [base, 3, 5, 5, 1, out], (1, 1, 1))
    expected = np.full((4, 8), np.nan if padding == "nan" else 0, np.float32)
    expected[:3, :5] = 1
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("form", ["if", "for", "while", "select"])
def test_descriptors_of_different_padding_meet(form: str) -> None:
    for yes in (False, True):
        kernel = SampleKernel("mixed")
        b, base = kernel.b, kernel.pointer(F32, (8, 16))
        numbers = [kernel.constant(I64, 8)] * 2
        zero, nan = (
            b.make_descriptor(base, numbers, numbers, padding=padding, result=BLOCK)
            for padding in ("zero", "nan")
        )
        flag = kernel.constant(I1, yes)
        if form == "select":
            met = b.select(flag, nan, zero)
        elif form == "if":
            met = b.region_op(
                "if",
                flag,
                regions=[kernel.region((), lambda: nan), kernel.region((), lambda: zero)],
                results=[BLOCK],
            ).results[0]
        elif form == "for":
            bounds = [kernel.constant(I32, number) for number in (0, int(yes), 1)]
            met = b.region_op(
                "for",
                *bounds,
                [zero],
                regions=[kernel.region((I32, BLOCK), lambda _, carried: nan)],
                results=[BLOCK],
            ).results[0]
        else:
            regions = [
                kernel.region(
                    (I1, BLOCK),
                    lambda go, carried: (go, kernel.constant(I1, False), carried),
                    terminator="condition",
                ),
                kernel.region((I1, BLOCK), lambda go, carried: (go, nan)),
            ]
            met = b.region_op("while", [flag, zero], regions=regions, results=[I1, BLOCK]).results[
                1
            ]
        kernel.store(b.descriptor_load(met, [kernel.constant(I32, 6), kernel.constant(I32, 4)]))
        assert "pads" not in str(check(kernel.finish()))


class KeepsLoads(EmulatedTarget):
    def __init__(self) -> None:
        super().__init__()
        self.tma = EmulatedTma(
            self.record, lambda operation, divisors, width: operation.name == "descriptor_load"
        )


def test_a_target_may_keep_descriptors() -> None:
    kernel = SampleKernel("kept")
    source, target = (
        kernel.descriptor(F32, (8, 16), (4, 8), output=output) for output in (False, True)
    )
    tile = kernel.b.descriptor_load(source, [kernel.constant(I32, 0)] * 2)
    kernel.b.descriptor_store(target, [kernel.constant(I32, 4)] * 2, tile)
    module = kernel.finish().module
    prepare(module, KeepsLoads())
    verify(module)
    names = [operation.name for operation in module.walk()]
    assert "descriptor_load" in names and "store" in names and "descriptor_store" not in names
    texts = [str(argument.type) for argument in module.kernel.arguments]
    parts = ["ptr<f32>", "i64", "i64", "i64", "i64"]
    assert texts == ["desc<4x8xf32>", *parts, *parts]
    x, y = np.arange(128, dtype=np.float32).reshape(8, 16), np.zeros((8, 16), np.float32)
    expected = y.copy()
    expected[4:8, 4:12] = x[:4, :8]
    numbers = (8, 16, 16, 1)
    run_reference(
        module, [DescriptorValue(x, (8, 16), (16, 1)), x, *numbers, y, *numbers], (1, 1, 1)
    )
    np.testing.assert_array_equal(y, expected)


def test_what_is_written_by_threads_is_not_read_by_copies() -> None:
    kernel = SampleKernel("kept")
    descriptor = kernel.descriptor(F32, (8, 16), (4, 8), output=True)
    tile = kernel.b.descriptor_load(descriptor, [kernel.constant(I32, 0)] * 2)
    kernel.b.descriptor_store(descriptor, [kernel.constant(I32, 4)] * 2, tile)
    module = kernel.finish().module
    prepare(module, KeepsLoads())
    assert not any(operation.name.startswith("descriptor") for operation in module.walk())


class KeepsPairs(EmulatedTarget):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = EmulatedMatrix(
            keeps_scaled=lambda operation: operation.attribute("a_format") == "e2m1"
        )


def test_a_target_may_keep_scaled_products() -> None:
    kept = {"e2m1": True, "e4m3": False}
    for format_, expected in kept.items():
        kernel = SampleKernel("kept")
        a = kernel.load(SCALED_FORMATS[format_], (16, 32 if format_ == "e2m1" else 64))
        b = kernel.load(SCALED_FORMATS["e4m3"], (64, 16))
        kernel.store(
            kernel.b.dot_scaled(
                a,
                None,
                b,
                None,
                kernel.load(F32, (16, 16), INTEGRAL),
                a_format=format_,
                b_format="e4m3",
            )
        )
        module = kernel.finish().module
        prepare(module, KeepsPairs())
        verify(module)
        assert {operation.name for operation in module.walk()} & {"dot", "dot_scaled"} == {
            "dot_scaled" if expected else "dot"
        }


@pytest.mark.parametrize(
    ("formats", "scaled", "expected"),
    [
        (("e2m1", "e4m3"), True, "bf16"),
        (("bf16", "e5m2"), True, "bf16"),
        (("fp16", "fp16"), False, "f16"),
        (("fp16", "e2m1"), False, "f16"),
        (("fp16", "e5m2"), (False, True), "f16"),
        (("e4m3", "fp16"), (True, False), "f16"),
        (("bf16", "fp16"), False, "f32"),
        (("fp16", "e4m3"), True, "f32"),
    ],
)
def test_scaled_products_are_made_in_the_narrowest_exact_type(
    formats: tuple[str, str], scaled: bool | tuple[bool, bool], expected: str
) -> None:
    kernel = SampleKernel("narrow")
    operands = []
    for name, format_, with_scale in zip(
        "ab", formats, scaled if isinstance(scaled, tuple) else (scaled, scaled), strict=True
    ):
        shape = [16, 64] if name == "a" else [64, 16]
        if format_ == "e2m1":
            shape[1 if name == "a" else 0] //= 2
        operands += [
            kernel.load(SCALED_FORMATS[format_], tuple(shape)),
            kernel.load(U8, (16, 2), Draw(126, 128)) if with_scale else None,
        ]
    kernel.store(
        kernel.b.dot_scaled(
            *operands,
            kernel.load(F32, (16, 16), INTEGRAL),
            a_format=formats[0],
            b_format=formats[1],
        )
    )
    module = kernel.finish().module
    prepare(module, EmulatedTarget())
    dot = next(operation for operation in module.walk() if operation.name == "dot")
    assert {str(operand.type.element) for operand in dot.operands[:2]} == {expected}
