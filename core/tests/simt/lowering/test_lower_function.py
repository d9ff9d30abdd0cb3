"""Lowering of operations where samples do not reach: loops at the limits of their types,
combinations whose order counts, reports, foreign code."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.ir.core import Region, Value
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    IntType,
    TileType,
    Type,
)
from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.passes.clone import clone_module
from tilewright.passes.decompose.decomposition import positions
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.analysis.xor_exchange import xor_distance
from tilewright.simt.compile import compile_kernel
from tilewright.simt.layouts.linear_layout import LinearLayout, blocked
from tilewright.simt.layouts.scan_plan import plan_scan, scan_layout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shuffles import exchange, words_of
from tilewright.testing import random_layouts
from tilewright_conformance.op_samples import check_outputs, samples
from tilewright_conformance.op_samples.kernel import ANY, INTEGRAL, Draw, Sample, SampleKernel

MACHINES = ((1, 4), (2, 4), (8, 4), (4, 8), (2, 16))


def check(sample: Sample, seed: int) -> None:
    """The sample in random layouts against the reference."""
    rng = random.Random(seed)
    expected, found = (sample.make_arguments(np.random.default_rng(seed)) for _ in range(2))
    run_reference(sample.module, expected, sample.grid)
    random_layouts.run(sample.module, found, sample.grid, rng, *MACHINES[seed % len(MACHINES)])
    check_outputs(sample, expected, found)


# ---- loops


def limits(type_: IntType) -> list[tuple[int, int, int]]:
    top, low = type_.maximum, type_.minimum
    return [
        (top - 5, top, 3),
        (top - 5, top, 4),
        (top - 1, top, top),
        (low, low + 7, 2),
        (top, low, 1),
        (low, low, 1),
        (0, top, top // 2 + 1),
        (low, top, top // 2 + 1),
        (low, top, top // 3),
    ]


@pytest.mark.parametrize("constant", [False, True], ids=["arguments", "constants"])
@pytest.mark.parametrize("type_", [I8, U8, I16, U16, I32, U32, I64, U64], ids=str)
def test_a_loop_ends_at_the_limits_of_its_type(type_: IntType, constant: bool) -> None:
    kernel = SampleKernel(f"limits/{type_}")
    b = kernel.b
    for bounds in limits(type_):
        values = [
            kernel.constant(type_, bound)
            if constant
            else kernel.scalar(type_, Draw(array=lambda rng, n, bound=bound: [bound]))
            for bound in bounds
        ]
        region = kernel.region(
            (type_, I32, type_),
            lambda i, count, last: (
                b.add(count, kernel.constant(I32, 1)),
                b.add(b.mul(last, last), i),
            ),
        )
        for result in b.region_op(
            "for", *values, [kernel.constant(I32, 0), kernel.constant(type_, 3)], regions=[region]
        ).results:
            kernel.store(result)
    sample = kernel.finish()
    arguments = sample.make_arguments(np.random.default_rng(0))
    random_layouts.run(sample.module, arguments, (1, 1, 1), random.Random(0), 1, 4)
    outputs = [int(arguments[position][0]) for position in sample.outputs]
    for number, (first, stop, step) in enumerate(limits(type_)):
        last = 3
        for i in range(first, stop, step):
            last = type_.wrap(last * last + i)
        assert outputs[2 * number : 2 * number + 2] == [len(range(first, stop, step)), last], (
            first,
            stop,
            step,
        )


@pytest.mark.parametrize("type_", [I32, U32, I64], ids=str)
def test_a_loop_whose_step_is_not_positive_does_not_run(type_: IntType) -> None:
    kernel = SampleKernel(f"steps/{type_}")
    b = kernel.b
    steps = [3, 0] if type_ is U32 else [3, 0, -2]
    for step in steps:
        given = kernel.scalar(type_, Draw(array=lambda rng, n, step=step: [step]))
        region = kernel.region((type_, I32), lambda i, count: b.add(count, kernel.constant(I32, 1)))
        bounds = [kernel.constant(type_, 0), kernel.constant(type_, 10), given]
        kernel.store(
            b.region_op("for", *bounds, [kernel.constant(I32, 0)], regions=[region]).results[0]
        )
    sample = kernel.finish()
    arguments = sample.make_arguments(np.random.default_rng(0))
    random_layouts.run(sample.module, arguments, (1, 1, 1), random.Random(0), 1, 4)
    assert [int(arguments[position][0]) for position in sample.outputs] == [
        4,
        *[0] * (len(steps) - 1),
    ]


# ---- scans and reductions whose order counts


def affine(kernel: SampleKernel) -> Region:
    """Composition of x -> a*x + b modulo 2**32: associative, not commutative."""
    b = kernel.b
    return kernel.region((U32,) * 4, lambda a, c, d, e: (b.mul(a, d), b.add(b.mul(c, d), e)))


def leftmost(kernel: SampleKernel, type_: Type) -> Region:
    """The earlier of two numbers that are not zero; their position goes along."""
    b = kernel.b

    def choose(x: Value, i: Value, y: Value, j: Value) -> Any:
        left = b.cmp(x, kernel.constant(type_, 0), predicate="ne")
        return b.select(left, x, y), b.select(left, i, j)

    return kernel.region((type_, I64, type_, I64), choose)


@pytest.mark.each_value
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((64,), 0),
        ((4, 16), 1),
        ((16, 4), 0),
        ((2, 8, 4), 1),
        ((128,), 0),
        ((1, 32), 1),
        ((8, 1), 1),
    ],
)
def test_a_scan_keeps_the_order_of_its_elements(
    shape: tuple[int, ...], axis: int, reverse: bool
) -> None:
    for seed in range(3):
        kernel = SampleKernel("scan/affine")
        tiles = [kernel.load(U32, shape), kernel.load(U32, shape)]
        for result in kernel.b.region_op(
            "scan", tiles, regions=[affine(kernel)], axis=axis, reverse=reverse
        ).results:
            kernel.store(result)
        check(kernel.finish(), 7 * seed + axis + len(shape))


def scan_through_every_kind(
    registers: Sequence[int], lanes: Sequence[int], warps: Sequence[int], *, reverse: bool
) -> None:
    """A scan of 256 elements in a layout given by the bits that registers, lanes and warps move."""
    layout = LinearLayout(
        (256,), *(tuple(1 << bit for bit in bits) for bits in (registers, lanes, warps))
    )
    assert plan_scan(layout, 0) is not None and scan_layout(layout, 0) is layout
    kernel = SampleKernel("scan/kinds")
    tiles = [kernel.load(U32, (256,)), kernel.load(U32, (256,))]
    for result in kernel.b.region_op(
        "scan", tiles, regions=[affine(kernel)], axis=0, reverse=reverse
    ).results:
        kernel.store(result)
    sample = kernel.finish()

    expected, found = (sample.make_arguments(np.random.default_rng(1)) for _ in range(2))
    run_reference(sample.module, expected, sample.grid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_layouts, "random_layout", lambda *given: layout)
        random_layouts.run(
            sample.module, found, sample.grid, random.Random(0), 1 << len(warps), 1 << len(lanes)
        )
    check_outputs(sample, expected, found)


@pytest.mark.each_value
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(
    ("registers", "lanes", "warps"),
    [
        ((0, 1, 2), (3, 4, 5), (6, 7)),
        ((0, 1, 7), (2, 3, 4), (5, 6)),
        ((0, 3, 7), (1, 2), (4, 5, 6)),
        ((5, 6, 7), (0, 1, 2), (3, 4)),
        ((7, 0, 5), (2, 4, 3, 1), (6,)),
        ((1, 3, 5, 7), (0, 2, 4, 6), ()),
        ((0, 1, 2, 3, 4, 5, 6, 7), (), ()),
        ((3, 1, 2, 0), (), (4, 7, 6, 5)),
        ((4, 6, 5, 7), (), (0, 3, 2, 1)),
    ],
)
def test_a_scan_through_registers_lanes_and_warps_in_any_order_of_bits(
    registers: Any, lanes: Any, warps: Any, reverse: bool
) -> None:
    scan_through_every_kind(registers, lanes, warps, reverse=reverse)


def test_layouts_that_a_scan_refuses_are_replaced() -> None:
    mixed = LinearLayout((8, 8), (1, 2), (4 ^ 8, 8), (16, 32))
    lanes_above_warps = LinearLayout((64,), (1, 2), (16, 32), (4, 8))
    twice = LinearLayout((8,), (1, 2), (4, 4), ())
    for layout, axis in ((mixed, 1), (lanes_above_warps, 0), (twice, 0)):
        assert plan_scan(layout, axis) is None
        other = scan_layout(layout, axis)
        assert plan_scan(other, axis) is not None and other.covers
        assert (other.shape, len(other.lanes), len(other.warps)) == (
            layout.shape,
            len(layout.lanes),
            len(layout.warps),
        )
    assert plan_scan(mixed, 0) is None
    kept = blocked((32, 64), (1, 0), 4, 16, 4)
    assert scan_layout(kept, 0) is kept and scan_layout(kept, 1) is kept


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type_", [F64, F32, F16, BF16, I64, U16, I8, I1], ids=str)
def test_several_operands_of_different_widths_are_scanned_and_reduced(type_: Type) -> None:
    for seed in range(3):
        kernel = SampleKernel(f"leftmost/{type_}")
        b, shape = kernel.b, (4, 32)
        draw = (
            Draw(array=lambda rng, n: rng.integers(0, 2, n) * rng.integers(0, 2, n))
            if type_ is not BF16
            else Draw(0, 1, integral=True)
        )
        tiles = [
            kernel.load(type_, shape, draw),
            b.cast(kernel.offsets(shape), result=TileType(shape, I64)),
        ]
        for result in b.region_op("scan", tiles, regions=[leftmost(kernel, type_)], axis=1).results:
            kernel.store(result)

        def least(x: Value, i: Value, y: Value, j: Value) -> Any:
            """Combine to the nonzero number with the minimum index.

            The code is not recognized as commutative.
            """
            zero = kernel.constant(type_, 0)
            better = b.or_(
                b.cmp(y, zero, predicate="eq"),
                b.and_(b.cmp(x, zero, predicate="ne"), b.cmp(i, j, predicate="lt")),
            )
            return b.select(better, x, y), b.select(better, i, j)

        for result in b.region_op(
            "reduce", tiles, regions=[kernel.region((type_, I64, type_, I64), least)], axis=1
        ).results[:1]:
            kernel.store(result)
        check(kernel.finish(), seed)


def test_a_combination_with_control_flow() -> None:
    kernel = SampleKernel("reduce/branch")
    b = kernel.b

    def longer(x: Value, y: Value) -> Value:
        then, otherwise = (
            kernel.region((), lambda: b.add(y, kernel.constant(I32, 0))),
            kernel.region((), lambda: x),
        )
        value: Value = b.region_op(
            "if", b.cmp(x, y, predicate="lt"), regions=[then, otherwise], results=[I32]
        ).result
        return value

    tile = kernel.load(I32, (8, 16))
    kernel.store(
        b.region_op("reduce", [tile], regions=[kernel.region((I32, I32), longer)], axis=0).result
    )
    kernel.store(
        b.region_op("scan", [tile], regions=[kernel.region((I32, I32), longer)], axis=1).result
    )
    sample = kernel.finish()
    for seed in range(5):
        check(sample, seed)


@pytest.mark.parametrize("symmetric", [False, True])
def test_every_thread_has_the_same_bits_of_a_reduction(symmetric: bool) -> None:
    """Each thread compares its own result, whose bits follow the order of combination, with that of
    the first thread."""
    for seed in range(12):
        kernel = SampleKernel("reduce/uniform")
        b = kernel.b
        tile = kernel.load(F32 if symmetric else U32, (64,))
        region = (
            kernel.region((F32, F32), b.add)
            if symmetric
            else kernel.region((U32, U32), lambda x, y: b.add(b.mul(x, kernel.constant(U32, 3)), y))
        )
        total = b.region_op("reduce", [tile], regions=[region], axis=0).result
        out = kernel.pointer(total.type, (1,), output=True)
        b.store(out, total)
        b.barrier()
        b.assert_(
            b.cmp(b.load(out, volatile=True), total, predicate="eq"),
            message="another thread has another result",
        )
        sample = kernel.finish()
        arguments = sample.make_arguments(np.random.default_rng(seed))
        random_layouts.run(
            sample.module,
            arguments,
            (1, 1, 1),
            random.Random(seed),
            *MACHINES[seed % len(MACHINES)],
        )


# ---- exchanges of any type


@pytest.mark.parametrize(
    ("type_", "count", "words"),
    [
        ("i1", 5, 2),
        ("i8", 3, 1),
        ("i16", 3, 2),
        ("half", 2, 1),
        ("float", 2, 2),
        ("double", 1, 2),
        ("ptr", 1, 2),
    ],
)
def test_values_of_any_type_are_exchanged_in_few_words(type_: str, count: int, words: int) -> None:
    module = ModuleWriter("nounwind")
    w = module.function("f", [(type_, f"x{i}") for i in range(count)] + [("ptr", "out")])
    sent: list[str] = []

    def shuffle(words: list[str]) -> list[str]:
        sent.extend(words)
        return [w.emit(f"xor i32 {word}, 0") for word in words]

    for i, name in enumerate(exchange(w, type_, [f"%x{i}" for i in range(count)], shuffle)):
        w.do(f"store {type_} {name}, ptr {w.gep(type_, '%out', i)}")
    w.ret()
    from tilewright.llvm.codegen.compile import parse

    parse(module.text())
    assert len(sent) == words == words_of(type_, count)


# ---- reports


def test_prints_are_the_lines_that_every_backend_prints(capfd: pytest.CaptureFixture[str]) -> None:
    for number, sample in enumerate(
        sample for sample in samples("print") if sample.name != "print/ptr"
    ):
        expected: list[str] = []
        arguments = sample.make_arguments(np.random.default_rng(number))
        run_reference(sample.module, arguments, sample.grid, printer=expected.append)
        capfd.readouterr()
        random_layouts.run(
            sample.module,
            arguments,
            sample.grid,
            random.Random(number),
            *MACHINES[number % len(MACHINES)],
        )
        _flush()
        assert sorted(capfd.readouterr().out.splitlines()) == sorted(
            "\n".join(expected).splitlines()
        ), sample.name


def _flush() -> None:
    import ctypes

    ctypes.CDLL(None).fflush(None)


@pytest.mark.parametrize(("warps", "lanes"), [(1, 4), (2, 8), (4, 32)])
def test_prints_of_each_thread_repeat_all_but_tiles(
    capfd: pytest.CaptureFixture[str], warps: int, lanes: int
) -> None:
    kernel = SampleKernel("print/each_thread", grid=(1, 2, 1))
    tile = kernel.load(I32, (4,))
    kernel.b.print([tile, kernel.b.constant(value=7, result=I32)], prefix="x: ", each_thread=True)
    kernel.b.print([], prefix="here", each_thread=True)
    _flush()
    capfd.readouterr()
    random_layouts.run(
        kernel.finish().module,
        [np.arange(4, dtype=np.int32)],
        (1, 2, 1),
        random.Random(warps),
        warps,
        lanes,
    )
    _flush()
    expected: list[str] = []
    for program in ("pid (0, 0, 0)", "pid (0, 1, 0)"):
        expected += [f"{program} idx ({i}) x: (operand 0) {i}" for i in range(4)]
        expected += [f"{program} idx () x: (operand 1) 7", f"{program} here"] * (warps * lanes)
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)


def test_percent_signs_and_nan_are_printed_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = SampleKernel("print/percent")
    kernel.b.print([kernel.load(F32, (4,))], prefix="100%d %s")
    _flush()
    capfd.readouterr()
    random_layouts.run(
        kernel.finish().module,
        [np.array([np.nan, -np.nan, np.inf, -np.inf], np.float32)],
        (1, 1, 1),
        random.Random(0),
        1,
        4,
    )
    _flush()
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == [
        f"pid (0, 0, 0) idx ({i}) 100%d %s: {text}"
        for i, text in enumerate(("nan", "nan", "inf", "-inf"))
    ]


def test_several_values_and_none_are_printed_as_everywhere(
    capfd: pytest.CaptureFixture[str],
) -> None:
    kernel = SampleKernel("print/several")
    tile = kernel.load(I32, (2, 16))
    kernel.b.print([tile, kernel.b.constant(value=7, result=I32)], prefix="x: ")
    kernel.b.print([], prefix="100% done")
    _flush()
    capfd.readouterr()
    x = np.arange(32, dtype=np.int32).reshape(2, 16)
    random_layouts.run(kernel.finish().module, [x], (1, 1, 1), random.Random(1), 1, 4)
    _flush()
    lines = capfd.readouterr().out.splitlines()
    expected = [
        f"pid (0, 0, 0) idx ({i}, {j:2}) x: (operand 0) {x[i, j]}"
        for i in range(2)
        for j in range(16)
    ]
    assert sorted(lines) == sorted(
        [*expected, "pid (0, 0, 0) idx () x: (operand 1) 7", "pid (0, 0, 0) 100% done"]
    )


@pytest.mark.parametrize("masked", [False, True])
def test_an_assertion_fails_where_its_mask_holds(masked: bool) -> None:
    kernel = SampleKernel("assert")
    b, x = kernel.b, kernel.load(I32, (4, 8))
    mask = b.cmp(x, kernel.constant(x.type, 5), predicate="ne") if masked else None
    b.assert_(
        b.cmp(x, kernel.constant(x.type, 5), predicate="lt"), mask=mask, message="x is too great"
    )
    module = kernel.finish().module
    values = np.zeros((4, 8), np.int32)
    values[2, 3] = 5
    for seed in range(3):
        if masked:
            random_layouts.run(module, [values], (1, 1, 1), random.Random(seed), *MACHINES[seed])
            continue
        with pytest.raises(KernelError, match=r"x is too great \(samples.py:2 in assert\)"):
            random_layouts.run(module, [values], (1, 1, 1), random.Random(seed), *MACHINES[seed])


# ---- foreign code


@pytest.mark.parametrize("shape", [(), (16,), (4, 8)])
def test_a_library_function_is_called_for_each_element(shape: tuple[int, ...]) -> None:
    kernel = SampleKernel("extern")
    tiles = [kernel.load(F32, shape), kernel.load(F32, shape)]
    kernel.store(kernel.b.extern(tiles, symbol="hypotf", library="m", result=tiles[0].type))
    sample = kernel.finish()
    arguments = sample.make_arguments(np.random.default_rng(0))
    random_layouts.run(sample.module, arguments, (1, 1, 1), random.Random(0), 2, 4)
    np.testing.assert_allclose(arguments[2], np.hypot(arguments[0], arguments[1]), rtol=1e-6)


@pytest.mark.parametrize(
    ("type_", "pack"),
    [(U8, 4), (I16, 2), (F16, 4), (F32, 1), (I32, 2), (I64, 1), (U8, 1), (I8, 8)],
    ids=str,
)
def test_assembly_gets_packed_operands(
    type_: Type, pack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assembly of the test adds 1 to each element of its operands: what it gets is checked by
    what comes out."""
    calls: list[int] = []

    def increment(
        context: SimtContext,
        text: str,
        constraints: str,
        results: Sequence[AssemblyOperand],
        operands: Sequence[AssemblyOperand],
    ) -> list[str]:
        assert (text, constraints) == ("add", "=r,r") and [
            replace(operand, name="") for operand in operands
        ] == list(results)
        calls.append(len(operands))
        w, found = context.writer, []
        bits = max(8, getattr(type_, "bits", 32))
        for operand in operands:
            kind, name = operand.type, operand.name
            if bits >= 32 or kind != "i32":
                found.append(
                    w.emit(
                        f"{'fadd' if kind in ('float', 'double') else 'add'} {kind} {name}, "
                        f"{'1.0' if kind in ('float', 'double') else 1}"
                    )
                )
                continue
            vector = f"<{32 // bits} x {'half' if type_ is F16 else f'i{bits}'}>"
            one = "0xH3C00" if type_ is F16 else "1"
            parts = w.emit(f"bitcast i32 {name} to {vector}")
            added = w.emit(
                f"{'fadd' if type_ is F16 else 'add'} {vector} {parts}, splat "
                f"({'half' if type_ is F16 else f'i{bits}'} {one})"
            )
            found.append(w.emit(f"bitcast {vector} {added} to i32"))
        return found

    monkeypatch.setattr(
        emulator.EmulatedTarget,
        "assembly",
        SimpleNamespace(emit=increment, is_uniform=lambda text: False),
    )
    for shape in ((4, 8), (64,), (2,)):
        kernel = SampleKernel("asm")
        tile = kernel.load(type_, shape, INTEGRAL)
        kernel.store(
            kernel.b.inline_asm(
                [tile], assembly="add", constraints="=r, r", pack=pack, result=tile.type
            )
        )
        sample = kernel.finish()
        arguments = sample.make_arguments(np.random.default_rng(0))
        random_layouts.run(sample.module, arguments, (1, 1, 1), random.Random(3), 1, 4)
        np.testing.assert_array_equal(arguments[1], arguments[0] + arguments[0].dtype.type(1))
    assert calls


# ---- index tiles


def test_index_tiles_that_begin_anywhere() -> None:
    kernel = SampleKernel("arange")
    for start, count in ((0, 16), (-5, 8), (1000, 32), (2**31 - 64, 64), (-(2**31), 4)):
        kernel.store(kernel.b.arange(start=start, end=start + count))
    sample = kernel.finish()
    for seed in range(6):
        check(sample, seed)


def test_elements_that_all_threads_share_are_literals() -> None:
    """A machine with one thread: whatever integer operations make of index tiles is known while
    they are written."""
    kernel = SampleKernel("literals")
    number, other = kernel.b.arange(start=-3, end=5), kernel.b.arange(start=27, end=35)
    kernel.store(kernel.b.mul(number, other))
    for operation in (kernel.b.shl, kernel.b.shr, kernel.b.div):
        kernel.store(operation(number, other))
    sample = kernel.finish()
    text = compile_kernel(clone_module(sample.module), emulator.EmulatedTarget(1), {"num_warps": 1})
    assert not re.search(r"= (mul|shl|ashr|sdiv) i32 -?\d", text)
    check(sample, 0)


@pytest.mark.parametrize("type_", [I8, U8, I64, U64, I16], ids=str)
def test_histograms_ignore_what_is_in_no_bin(type_: IntType) -> None:
    for seed in range(3):
        kernel = SampleKernel("histogram")
        x = kernel.load(type_, (64,), ANY if seed else Draw(0, 20))
        mask = kernel.load(I1, (64,))
        kernel.store(kernel.b.histogram(x, mask, bins=16))
        kernel.store(kernel.b.histogram(x, bins=256 if seed == 2 else 2))
        check(kernel.finish(), seed)


def test_gathers_along_any_axis_with_any_index_type() -> None:
    for seed, (shape, axis, count, type_) in enumerate(
        (((8, 4), 0, 16, I64), ((8, 4), 1, 2, U8), ((4, 8, 2), 1, 32, I16), ((64,), 0, 4, I8))
    ):
        kernel = SampleKernel("gather")
        index = tuple(count if i == axis else extent for i, extent in enumerate(shape))
        x = kernel.load((F64, BF16, I1, U8)[seed], shape)
        kernel.store(
            kernel.b.gather(x, kernel.load(type_, index, Draw(0, shape[axis] - 1)), axis=axis)
        )
        sample = kernel.finish()
        for other in range(3):
            check(sample, seed + 4 * other)


def test_exchanges_over_every_distance() -> None:
    for seed, (shape, axis, type_) in enumerate(
        (((64,), 0, I64), ((8, 16), 1, F32), ((16, 4), 0, F16), ((4, 8, 2), 1, I8), ((128,), 0, I1))
    ):
        kernel = SampleKernel("exchange")
        x = kernel.load(type_, shape)
        index = TileType(shape, I32)
        for bit in range(shape[axis].bit_length() - 1):
            for distance in (1 << bit, (2 << bit) - 1):
                partner = kernel.b.xor(
                    positions(kernel.b, index, axis),
                    kernel.b.splat(kernel.b.constant(value=distance, result=I32), result=index),
                )
                exchanged = kernel.b.gather(x, partner, axis=axis)
                assert xor_distance(exchanged.definition) == distance * math.prod(shape[axis + 1 :])
                kernel.store(exchanged)
        sample = kernel.finish()
        check(sample, seed)


def test_positions_of_another_axis_are_no_exchange() -> None:
    kernel = SampleKernel("exchange")
    index = TileType((16, 16), I32)
    x = kernel.load(F32, (16, 16))
    partner = kernel.b.xor(
        positions(kernel.b, index, 1),
        kernel.b.splat(kernel.b.constant(value=4, result=I32), result=index),
    )
    gathered = kernel.b.gather(x, partner, axis=0)
    assert xor_distance(gathered.definition) is None
    kernel.store(gathered)
    check(kernel.finish(), 0)


def test_positions_that_are_turned_to_another_axis_are_no_exchange() -> None:
    kernel = SampleKernel("exchange")
    b, row = kernel.b, TileType((1, 16), I32)
    x = kernel.load(F32, (16, 16))
    partner = b.xor(positions(b, row, 1), b.splat(b.constant(value=4, result=I32), result=row))
    turned = b.broadcast(
        b.reshape(partner, result=TileType((16, 1), I32)), result=TileType((16, 16), I32)
    )
    gathered = b.gather(x, turned, axis=1)
    assert xor_distance(gathered.definition) is None
    kernel.store(gathered)
    check(kernel.finish(), 0)
