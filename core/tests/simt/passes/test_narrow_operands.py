"""Matmuls of widened f32 operands: the ones that become 16-bit matmuls, and their results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.ir import Builder, Function, Module, Value, verify
from tilewright.ir.ops.linear import Dot
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I16,
    U8,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
)
from tilewright.reference.interpreter import run as run_reference
from tilewright.reference.numerics import encode
from tilewright.simt import emulator
from tilewright.simt.compile import compile_kernel, kernel_of, run_stages
from tilewright.simt.target.fma_plan import fma_plan
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan

F8, F8B = FloatType("f8e4m3fn"), FloatType("f8e5m2")
OPTIONS = {"num_warps": 2, "num_stages": 1, "enable_fp_fusion": False}
M, N, K = 16, 8, 32


class Halves(emulator.EmulatedTarget):
    """A machine with an instruction, by name, for operands of some types."""

    def __init__(self, *types: Type) -> None:
        super().__init__(8)
        self._types = types
        self.matrix = emulator.EmulatedMatrix(self._plans)

    def _plans(self, product: Matmul) -> Sequence[MatmulPlan]:
        served = product.a is product.b and product.a in self._types
        return (
            (dataclasses.replace(fma_plan(self, product), name=f"matrix {product.a}"),)
            if served
            else ()
        )


def addresses(builder: Builder, base: Value, shape: tuple[int, ...]) -> Value:
    flat = builder.addptr(
        builder.splat(base, result=TileType((math.prod(shape),), base.type)),
        builder.arange(start=0, end=math.prod(shape)),
    )
    return builder.reshape(flat, result=TileType(shape, base.type))


def widened_product(a: Type, b: Type, precision: str) -> Module:
    """Compute out = f32(a) @ f32(b).T, where ``b`` is transposed after the widening."""
    module = Module()
    function = module.add(
        Function(
            "kernel",
            [PointerType(type_) for type_ in (a, b, F32)],
            argument_names=["a", "b", "out"],
        )
    )
    builder = Builder.at_end(function.body)
    x, y = (
        builder.load(addresses(builder, base, shape))
        for base, shape in zip(function.arguments, ((M, K), (N, K)), strict=False)
    )
    wide = [
        tile
        if tile.type.element is F32
        else builder.cast(tile, result=TileType(tile.type.shape, F32))
        for tile in (x, y)
    ]
    zeros = builder.splat(builder.constant(value=0.0, result=F32), result=TileType((M, N), F32))
    total = builder.dot(wide[0], builder.permute(wide[1], order=(1, 0)), zeros, precision=precision)
    builder.store(addresses(builder, function.arguments[2], (M, N)), total)
    builder.return_()
    verify(module)
    return module


def operands_after(module: Module, target: emulator.EmulatedTarget) -> tuple[Type, Type]:
    run_stages(module, target, OPTIONS, ["prepare", "warps", "narrow"])
    (product,) = (operation for operation in kernel_of(module).walk() if isinstance(operation, Dot))
    return tuple(operand.type.element for operand in (product.a, product.b))


EXACT = {
    "bf16": (BF16, BF16, BF16),
    "f16": (F16, F16, F16),
    "int8 and bf16": (I8, BF16, BF16),
    "bytes and f16": (U8, F16, F16),
    "fp8 of two kinds": (F8, F8B, BF16),
    "fp8 and f16": (F8B, F16, F16),
}


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "bf16x6"])
@pytest.mark.parametrize(("a", "b", "narrow"), EXACT.values(), ids=EXACT)
def test_exact_operands_are_multiplied_in_16_bits(
    a: Type, b: Type, narrow: Type, precision: str
) -> None:
    assert operands_after(widened_product(a, b, precision), Halves(BF16, F16)) == (narrow, narrow)


@pytest.mark.parametrize(("a", "b", "narrow"), EXACT.values(), ids=EXACT)
def test_the_product_is_that_of_the_wide_operands(a: Type, b: Type, narrow: Type) -> None:
    rng = np.random.default_rng(5)

    def numbers(type_: Type, shape: tuple[int, int]) -> np.ndarray:
        if isinstance(type_, IntType):
            return rng.integers(
                0 if type_ is U8 else -128, 256 if type_ is U8 else 128, shape
            ).astype("u1" if type_ is U8 else "i1")
        assert isinstance(type_, FloatType)
        return encode(rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.integers(-3, 4, shape), type_)

    arrays = [numbers(a, (M, K)), numbers(b, (N, K))]
    expected, out = (np.full((M, N), np.nan, np.float32) for _ in range(2))
    run_reference(widened_product(a, b, "tf32"), [*arrays, expected], (1, 1, 1))
    module, target = widened_product(a, b, "tf32"), Halves(BF16, F16)
    text = compile_kernel(module, target, OPTIONS)
    emulator.run_text(
        text,
        target,
        [argument.type for argument in module.kernel.arguments],
        [*arrays, out],
        (1, 1, 1),
        2,
    )
    np.testing.assert_array_equal(out, expected)
    assert np.abs(out).min() >= 0 and np.isfinite(out).all()


KEPT = {
    "f32 products that are to be exact": (BF16, BF16, "ieee", (BF16, F16)),
    "an operand of f32": (F32, BF16, "tf32", (BF16, F16)),
    "two 16-bit types": (F16, BF16, "tf32", (BF16, F16)),
    "integers of 16 bits": (I16, BF16, "tf32", (BF16, F16)),
    "rounded numbers": (F64, BF16, "tf32", (BF16, F16)),
    "no instruction for the type": (BF16, BF16, "tf32", (F16,)),
}


@pytest.mark.parametrize(("a", "b", "precision", "types"), KEPT.values(), ids=KEPT)
def test_other_operands_stay(a: Type, b: Type, precision: str, types: tuple[Type, ...]) -> None:
    assert operands_after(widened_product(a, b, precision), Halves(*types)) == (F32, F32)
