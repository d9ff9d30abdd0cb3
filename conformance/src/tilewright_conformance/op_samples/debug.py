"""Printing, checks, hints, and code of the target's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.ir.types import BF16, F16, F32, F64, I1, I8, I32, I64, U32, U64, TileType, Type
from tilewright_conformance.op_samples.kernel import (
    ANY,
    SPECIAL,
    Draw,
    Sample,
    SampleKernel,
    shape_text,
)

Samples = Iterator[Sample]


def _print() -> Samples:
    types: tuple[Type, ...] = (I32, U64, F32, I1, F16, BF16, F64, I8)
    for index, type_ in enumerate(types):
        shape = ((), (4,), (2, 2))[index % 3]
        kernel = SampleKernel(f"print/{type_}/{shape_text(shape)}")
        value = kernel.load(type_, shape)
        # An element of a tile is printed once all the same, so that every target prints the same
        # lines.
        kernel.b.print(
            [value], prefix=f"{type_} value", hex=type_ in (I32, U64), each_thread=shape == (2, 2)
        )
        kernel.store(value)
        yield kernel.finish()
    kernel = SampleKernel("print/several", grid=(2, 1, 2))
    kernel.b.print(
        [kernel.load(I32), kernel.load(F32, (4,))], prefix='two values: "quoted" \\ back\n'
    )
    yield kernel.finish()
    kernel = SampleKernel("print/nothing")
    kernel.b.print([], prefix="here")
    yield kernel.finish()
    kernel = SampleKernel("print/ptr")
    kernel.b.print([kernel.pointer(F32, (1,))], prefix="address", hex=True)
    yield kernel.finish()


def _assert() -> Samples:
    for shape in ((), (16,), (4, 8)):
        for masked in (False, True):
            kernel = SampleKernel(f"assert/{shape_text(shape)}{'/mask' if masked else ''}")
            x = kernel.load(I32, shape, Draw(-4, 4))
            zero = kernel.constant(x.type, 0)
            # Masked: only lanes that pass are asked.
            mask = kernel.b.cmp(x, zero, predicate="ge") if masked else None
            bound = zero if masked else kernel.constant(x.type, -4)
            kernel.b.assert_(
                kernel.b.cmp(x, bound, predicate="ge"), mask=mask, message="x is too small"
            )
            kernel.store(x)
            yield kernel.finish()


def _assume() -> Samples:
    kernel = SampleKernel("assume/i32")
    n = kernel.scalar(I32, Draw(16, 64))
    kernel.b.assume(kernel.b.cmp(n, kernel.constant(I32, 0), predicate="gt"))
    kernel.store(kernel.b.mul(n, n))
    yield kernel.finish()


def _hint() -> Samples:
    kernel = SampleKernel("hint/i32/scalar")
    n = kernel.scalar(I32, Draw(64, 64))
    kernel.store(kernel.b.hint(n, divisibility=(16,)))
    yield kernel.finish()
    kernel = SampleKernel("hint/i64/tile")
    kernel.store(
        kernel.b.hint(
            kernel.load(I64, (4, 8), Draw(64, 64)),
            divisibility=(8, 8),
            constancy=(4, 8),
            contiguity=(1, 1),
        )
    )
    yield kernel.finish()
    kernel = SampleKernel("hint/i32/offsets")
    b = kernel.b
    offsets = b.add(
        kernel.offsets((32,)),
        b.splat(kernel.scalar(I32, Draw(32, 32)), result=TileType((32,), I32)),
    )
    base = kernel.pointer(F32, (64,))
    pointers = b.addptr(
        b.splat(base, result=TileType((32,), base.type)),
        b.hint(offsets, divisibility=(32,), contiguity=(32,)),
    )
    kernel.store(b.load(pointers))
    yield kernel.finish()
    kernel = SampleKernel("hint/ptr")
    kernel.store(kernel.b.load(kernel.b.hint(kernel.pointer(F32, (1,)), divisibility=(4,))))
    yield kernel.finish()


def _inline_asm() -> Samples:
    for pack, pure in ((1, True), (4, True), (1, False)):
        kernel = SampleKernel(f"inline_asm/i32/pack{pack}{'' if pure else '/impure'}")
        tiles = [kernel.load(U32, (16,)), kernel.load(U32, (16,))]
        text = 'add.u32 $0, $1, $2; // "sum"\n'
        result = kernel.b.inline_asm(
            tiles, assembly=text, constraints="=r,r,r", pack=pack, pure=pure, result=tiles[0].type
        )
        kernel.store(result)
        yield kernel.finish(runnable=False)
    kernel = SampleKernel("inline_asm/several_results")
    value = kernel.load(I32, ())
    for result in kernel.b.inline_asm(
        [value], assembly="mov $0, $2", constraints="=r,=r,r", results=[I32, F32]
    ):
        kernel.store(result)
    yield kernel.finish(runnable=False)
    kernel = SampleKernel("inline_asm/no_inputs")
    kernel.store(
        kernel.b.inline_asm([], assembly="clock $0", constraints="=r", pure=False, result=I64)
    )
    yield kernel.finish(runnable=False)


def _extern() -> Samples:
    for shape, pure in (((), True), ((4, 8), True), ((16,), False)):
        kernel = SampleKernel(f"extern/f32/{shape_text(shape)}{'' if pure else '/impure'}")
        x, y = kernel.load(F32, shape, ANY), kernel.load(F32, shape, SPECIAL)
        kernel.store(
            kernel.b.extern([x, y], symbol="hypotf", library="m", pure=pure, result=x.type)
        )
        yield kernel.finish(runnable=False)


SAMPLES: dict[str, Callable[[], Samples]] = {
    "print": _print,
    "assert": _assert,
    "assume": _assume,
    "hint": _hint,
    "inline_asm": _inline_asm,
    "extern": _extern,
}
