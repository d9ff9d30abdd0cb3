"""print, assert, assume, barrier, inline assembly, functions of other libraries."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.errors import LoweringError
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I8,
    I16,
    I32,
    I64,
    INTEGERS,
    U8,
    U32,
    U64,
    FloatType,
    TileType,
    Type,
)
from tilewright_conformance.op_samples.kernel import ANY, SPECIAL, Draw, SampleKernel
from tilewright_cpu.codegen.ops.debug import PRINT_SYMBOL
from tilewright_cpu.status import ASSERTION_FAILED

_X86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the assembly is that of x86"
)

_PRINT = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.c_char_p,
    *[ctypes.c_int32] * 3,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.c_int32,
)
Call = tuple[str, str, tuple[int, int, int], tuple[int, ...], int, bool]


def _printed(compiled: Any, sample: Any, arguments: list[Any]) -> list[Call]:
    """The calls a launch makes to the print function."""
    calls: list[Call] = []

    def note(
        prefix: bytes,
        element: bytes,
        x: int,
        y: int,
        z: int,
        index: Any,
        rank: int,
        bits: int,
        hexadecimal: int,
    ) -> None:
        calls.append(
            (
                prefix.decode(),
                element.decode(),
                (x, y, z),
                tuple(index[:rank]) if rank else (),
                bits,
                bool(hexadecimal),
            )
        )

    callback = _PRINT(note)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    compiled(sample.module, imports={PRINT_SYMBOL: address})(arguments, sample.grid)
    return calls


@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)], ids=str)
def test_print_gives_every_element_once_in_order(
    element: Type, shape: tuple[int, ...], compiled: Any
) -> None:
    kernel = SampleKernel("print", grid=(2, 1, 2))
    value = kernel.load(element, shape)
    kernel.b.print([value], prefix='a "b" \\ c', hex=element is U32)
    sample = kernel.finish()
    arguments = sample.make_arguments(np.random.default_rng(0))
    calls = _printed(compiled, sample, arguments)
    flat = arguments[0].ravel()
    raw = (
        flat.astype(np.int64).view(np.uint64)
        if flat.dtype.kind in "bui"
        else flat.view(f"u{flat.itemsize}").astype(np.uint64)
    )
    head = f'idx ({", ".join(f"%{len(str(extent - 1))}d" for extent in shape)}) a "b" \\ c: '
    expected = []
    for x, z in ((0, 0), (1, 0), (0, 1), (1, 1)):
        for place, index in enumerate(np.ndindex(shape)):
            expected.append((head, str(element), (x, 0, z), index, int(raw[place]), element is U32))
    assert calls == expected


def test_print_of_several_values_and_of_none(compiled: Any) -> None:
    kernel = SampleKernel("print")
    kernel.b.print([kernel.scalar(I32, Draw(-7, -7)), kernel.constant(F64, 0.5)], prefix="p")
    kernel.b.print([], prefix="nothing")
    sample = kernel.finish()
    bits = int(np.array([0.5]).view(np.uint64)[0])
    assert _printed(compiled, sample, [-7]) == [
        ("idx () p: (operand 0) ", "i32", (0, 0, 0), (), 2**64 - 7, False),
        ("idx () p: (operand 1) ", "f64", (0, 0, 0), (), bits, False),
        ("nothing", "", (0, 0, 0), (), 0, False),
    ]


@pytest.mark.parametrize("shape", [(), (1,), (40,), (3, 70)], ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_assert(shape: tuple[int, ...], masked: bool, compiled: Any) -> None:
    """The first program that fails is reported; what follows the assertion does not run in it."""
    kernel = SampleKernel("assert", grid=(6, 1, 1))
    b = kernel.b
    condition = kernel.load(I1, shape)
    mask = kernel.load(I1, shape) if masked else None
    program = b.program_id(axis=0)
    here = b.cmp(program, kernel.scalar(I32), predicate="ne")
    spread = b.splat(here, result=condition.type) if shape else here
    b.assert_(b.or_(condition, spread), mask, message="no luck")
    out = kernel.pointer(I32, (6,), output=True)
    b.store(b.addptr(out, program), kernel.constant(I32, 1))
    sample = kernel.finish()
    run = compiled(sample.module)
    (message,) = run.code.metadata["asserts"]
    assert "no luck" in str(message)
    count = max(1, int(np.prod(shape)))
    for bad in sorted({0, count // 2, count - 1}):
        for hidden in (False, True):
            conditions, masks = np.ones(count, np.bool_), np.ones(count, np.bool_)
            conditions[bad] = False
            masks[bad] = not hidden
            result = np.zeros(6, np.int32)
            arguments = [conditions, *([masks] if masked else []), 2, result]
            run(arguments, sample.grid)
            passes = masked and hidden
            assert run.status[0] == (0 if passes else ASSERTION_FAILED)
            assert result[2] == passes and result[:2].all()
            if not passes:
                assert list(run.status[1:5]) == [0, 2, 0, 0]


def test_assume_and_barrier_change_nothing(agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("assume")
    x = kernel.load(I32, (), Draw(1, 9))
    kernel.b.assume(kernel.b.cmp(x, kernel.constant(I32, 0), predicate="gt"))
    kernel.b.barrier()
    kernel.store(kernel.b.add(x, x))
    agree(kernel.finish())


def test_llvm_is_told_what_is_assumed(compiled: Any) -> None:
    kernel = SampleKernel("assume")
    x = kernel.load(I32, (), Draw(1, 9))
    kernel.b.assume(kernel.b.cmp(x, kernel.constant(I32, 0), predicate="gt"))
    kernel.store(kernel.b.add(x, x))
    assert "call void @llvm.assume(i1 %" in compiled(kernel.finish().module).code.stages["llir"]


# ---- assembly


@pytest.mark.each_value
@_X86
@pytest.mark.parametrize("shape", [(), (1,), (37,), (4, 6)], ids=str)
@pytest.mark.parametrize(
    ("element", "suffix"), [(I32, "l"), (U32, "l"), (I64, "q"), (U64, "q")], ids=str
)
def test_assembly_on_words(
    element: Type, suffix: str, shape: tuple[int, ...], compiled: Any, guarded: Any
) -> None:
    kernel = SampleKernel("inline_asm")
    x, y = (kernel.load(element, shape) for _ in range(2))
    text = f'mov{suffix} $1, $0\n\tadd{suffix} $2, $0 # "sum"'
    kernel.store(kernel.b.inline_asm([x, y], assembly=text, constraints="=&r, r, r", result=x.type))
    sample = kernel.finish()
    a, b, out = guarded(
        compiled(sample.module), sample.make_arguments(np.random.default_rng(0)), sample.grid
    )
    assert np.array_equal(out, a + b)


@_X86
def test_assembly_on_floats_in_vector_registers(compiled: Any, guarded: Any) -> None:
    for element, suffix in ((F32, "ss"), (F64, "sd")):
        kernel = SampleKernel("inline_asm")
        x, y = (kernel.load(element, (19,)) for _ in range(2))
        text = f"mov{'aps' if element is F32 else 'apd'} $1, $0; mul{suffix} $2, $0"
        kernel.store(
            kernel.b.inline_asm([x, y], assembly=text, constraints="=&x,x,x", result=x.type)
        )
        sample = kernel.finish()
        a, b, out = guarded(
            compiled(sample.module), sample.make_arguments(np.random.default_rng(0)), sample.grid
        )
        assert np.array_equal(out, a * b)


@pytest.mark.sampled(5)
@_X86
@pytest.mark.parametrize(
    ("element", "pack"),
    [
        (I8, 4),
        (U8, 4),
        (U8, 2),
        (U8, 1),
        (I16, 2),
        (F16, 2),
        (BF16, 2),
        (FloatType("f8e5m2"), 4),
        (I8, 8),
        (I32, 2),
    ],
    ids=str,
)
def test_narrow_elements_share_an_operand(
    element: Type, pack: int, compiled: Any, guarded: Any
) -> None:
    """All bits flipped, 32 at a time; the count is no multiple of the pack."""
    for count in (4 * pack, 4 * pack + 1, 1):
        kernel = SampleKernel("inline_asm")
        x = kernel.load(element, (count,))
        operands = max(1, pack * x.type.element.bits // 32)
        text = "; ".join(f"movl ${operands + i}, ${i}; notl ${i}" for i in range(operands))
        constraints = ",".join(["=&r"] * operands + ["r"] * operands)
        kernel.store(
            kernel.b.inline_asm(
                [x], assembly=text, constraints=constraints, pack=pack, result=x.type
            )
        )
        sample = kernel.finish()
        a, out = guarded(
            compiled(sample.module), sample.make_arguments(np.random.default_rng(0)), sample.grid
        )
        assert np.array_equal(out.view(f"u{out.itemsize}"), ~a.view(f"u{a.itemsize}"))


@_X86
def test_assembly_with_several_results_and_without_inputs(compiled: Any, guarded: Any) -> None:
    kernel = SampleKernel("inline_asm")
    x = kernel.load(I32, (10,))
    results = [x.type, TileType((10,), I64)]
    for value in kernel.b.inline_asm(
        [x], assembly="movl $2, $0; movslq $2, $1", constraints="=&r,=&r,r", results=results
    ):
        kernel.store(value)
    kernel.store(
        kernel.b.inline_asm([], assembly="movl $$42, $0", constraints="=r", pure=False, result=I32)
    )
    sample = kernel.finish()
    a, same, wide, number = guarded(
        compiled(sample.module), sample.make_arguments(np.random.default_rng(0)), sample.grid
    )
    assert np.array_equal(same, a) and np.array_equal(wide, a.astype(np.int64)) and number[0] == 42


# ---- functions of the C library


@pytest.mark.parametrize("shape", [(), (5,), (4, 8)], ids=str)
@pytest.mark.parametrize(
    ("element", "symbol"), [(F32, "hypotf"), (F64, "hypot"), (F64, "atan2")], ids=str
)
def test_function_of_two_floats(
    element: Type, symbol: str, shape: tuple[int, ...], compiled: Any, guarded: Any
) -> None:
    kernel = SampleKernel("extern")
    x, y = kernel.load(element, shape, ANY), kernel.load(element, shape, SPECIAL)
    kernel.store(kernel.b.extern([x, y], symbol=symbol, library="m", result=x.type))
    sample = kernel.finish()
    a, b, out = guarded(
        compiled(sample.module), sample.make_arguments(np.random.default_rng(0)), sample.grid
    )
    with np.errstate(all="ignore"):
        expected = {"hypotf": np.hypot, "hypot": np.hypot, "atan2": np.arctan2}[symbol](a, b)
    np.testing.assert_allclose(out, expected, rtol=1e-6 if element is F32 else 1e-14)


def test_function_of_a_float_and_an_integer(compiled: Any, guarded: Any) -> None:
    kernel = SampleKernel("extern")
    x, n = kernel.load(F64, (9,)), kernel.load(I32, (9,), Draw(-5, 5))
    kernel.store(kernel.b.extern([x, n], symbol="ldexp", result=x.type))
    kernel.store(
        kernel.b.extern(
            [kernel.load(I32, (7,), Draw(-100, 100))], symbol="abs", result=TileType((7,), I32)
        )
    )
    sample = kernel.finish()
    arguments = guarded(
        compiled(sample.module), sample.make_arguments(np.random.default_rng(0)), sample.grid
    )
    assert np.array_equal(arguments[2], np.ldexp(arguments[0], arguments[1]))
    assert np.array_equal(arguments[4], np.abs(arguments[3])) or np.array_equal(
        arguments[3], np.abs(arguments[4])
    )


def test_missing_function_is_named(compiled: Any) -> None:
    kernel = SampleKernel("extern")
    kernel.store(
        kernel.b.extern(
            [kernel.load(F32, ())], symbol="tilewright_has_no_such_function", result=F32
        )
    )
    with pytest.raises(LoweringError):
        compiled(kernel.finish().module)
