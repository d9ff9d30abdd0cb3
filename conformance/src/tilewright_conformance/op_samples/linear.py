"""Samples of matmuls.

Operands are small integers, so that every order of accumulation and every precision has the same
result; or positive fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.ir.ops.linear import SCALED_FORMATS
from tilewright.ir.types import BF16, F16, F32, F64, I8, I32, U8, FloatType, IntType, TileType, Type
from tilewright_conformance.op_samples.kernel import (
    ANY,
    FP8_KINDS,
    INTEGRAL,
    Draw,
    Sample,
    SampleKernel,
    shape_text,
)

Samples = Iterator[Sample]
Extents = tuple[int, ...]

#: (M, N, K) after leading batch axes
_SIZES: tuple[Extents, ...] = (
    (16, 16, 16),
    (32, 16, 64),
    (16, 32, 8),
    (64, 64, 32),
    (1, 16, 16),
    (16, 1, 4),
    (4, 2, 1),
    (2, 16, 16, 16),
    (3, 4, 8, 2),
)
_E4M3, _E5M2 = FloatType("f8e4m3fn"), FloatType("f8e5m2")
_PAIRS: tuple[tuple[Type, Type, Type], ...] = (
    (F32, F32, F32),
    (F16, F16, F32),
    (F16, F16, F16),
    (BF16, BF16, F32),
    (F64, F64, F64),
    (I8, I8, I32),
    (U8, U8, I32),
    (I8, U8, I32),
    (U8, I8, I32),
    *((kind, kind, F32) for kind in FP8_KINDS),
    (_E4M3, _E5M2, F32),
    (_E5M2, _E4M3, F16),
)


def _draw(type_: Type) -> Draw:
    if isinstance(type_, IntType):
        return Draw(-100 if type_.signed else 0, 100)
    if type_ is FloatType("f8e4b15"):
        return Draw(-1, 1, integral=True)  # its largest number is below 2
    return Draw(-3, 3, integral=True)


def _matmul(
    kernel: SampleKernel,
    types: tuple[Type, Type, Type],
    size: Extents,
    draws: tuple[Draw, Draw, Draw],
    **attributes: Any,
) -> None:
    *batch, m, n, k = size
    a = kernel.load(types[0], (*batch, m, k), draws[0])
    b = kernel.load(types[1], (*batch, k, n), draws[1])
    c = kernel.load(types[2], (*batch, m, n), draws[2])
    kernel.store(kernel.b.dot(a, b, c, **attributes))


def _dot() -> Samples:
    for index, types in enumerate(_PAIRS):
        draws = (_draw(types[0]), _draw(types[1]), Draw(-3, 3) if types[2] is I32 else INTEGRAL)
        text = "_".join(map(str, types))
        for size in dict.fromkeys(
            (
                _SIZES[0],
                _SIZES[(2 * index + 1) % len(_SIZES)],
                _SIZES[(2 * index + 2) % len(_SIZES)],
            )
        ):
            kernel = SampleKernel(f"dot/{text}/{shape_text(size)}")
            _matmul(kernel, types, size, draws)
            yield kernel.finish()
    for precision in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"):
        kernel = SampleKernel(f"dot/f32/{precision}")
        _matmul(
            kernel,
            (F32, F32, F32),
            (16, 16, 32),
            (INTEGRAL, INTEGRAL, INTEGRAL),
            precision=precision,
        )
        yield kernel.finish()
    for type_, accumulator in ((F32, F32), (F64, F64), (F16, F32), (BF16, F32)):
        # Positive terms: no cancellation, so that the error stays below K roundings of the
        # accumulator.
        kernel = SampleKernel(f"dot/{type_}/fractions")
        positive = Draw(0.5, 2.0)
        _matmul(kernel, (type_, type_, accumulator), (16, 16, 64), (positive, positive, positive))
        yield kernel.finish(ulp=64)
    kernel = SampleKernel("dot/f8e4m3fn/max_imprecise")
    _matmul(
        kernel,
        (_E4M3, _E4M3, F32),
        (16, 16, 64),
        (_draw(_E4M3), _draw(_E4M3), INTEGRAL),
        max_imprecise=32,
    )
    yield kernel.finish()
    yield _accumulated()


def _accumulated() -> Sample:
    """A matmul accumulated over a loop, the operands' rows strided."""
    kernel = SampleKernel("dot/f16/loop")
    b, steps = kernel.b, 4
    inputs = [kernel.pointer(F16, (steps, 16, 16), INTEGRAL) for _ in range(2)]
    tiles = [kernel.pointers(pointer, (16, 16)) for pointer in inputs]

    def body(i: Any, accumulator: Any) -> Any:
        start = b.mul(i, kernel.constant(I32, 256))
        moved = [
            b.load(b.addptr(tile, b.splat(start, result=kernel.offsets((16, 16)).type)))
            for tile in tiles
        ]
        return b.dot(moved[0], b.permute(moved[1], order=(1, 0)), accumulator)

    kernel.offsets((16, 16))
    zero = kernel.constant(TileType((16, 16), F32), 0.0)
    region = kernel.region((I32, zero.type), body, names=("i", "acc"))
    bounds = [kernel.constant(I32, value) for value in (0, steps, 1)]
    kernel.store(b.region_op("for", *bounds, [zero], regions=[region]).result)
    return kernel.finish()


_SMALL_E4M3 = Draw(-2, 2, integral=True)


def _scale_draw(kind: Type) -> Draw:
    if kind is U8:
        return Draw(125, 129)  # 2**-2 .. 2**2
    return Draw(
        array=lambda rng, count: rng.choice(
            np.array([0x30, 0x38, 0x3C, 0x40, 0x44], np.uint8), count
        )
    )  # 0.5, 1, 1.5, 2, 3


def _scaled(
    a_format: str,
    b_format: str,
    scale: Type | None,
    *,
    batches: tuple[int, ...] = (),
    m: int = 16,
    n: int = 16,
    k: int = 64,
    variant: str = "",
    nan: bool = False,
    **attributes: Any,
) -> Sample:
    kernel = SampleKernel(
        "/".join(
            filter(
                None,
                (f"dot_scaled/{a_format}_{b_format}", f"scale_{scale}", f"{m}x{n}x{k}", variant),
            )
        )
    )

    def operand(name: str, format_: str, outer: int) -> tuple[Any, Any]:
        extents = [outer, k] if name == "a" else [k, outer]
        k_axis = 1 if name == "a" else 0
        if format_ == "e2m1":
            extents[k_axis if attributes.get(f"{name}_pack_k", True) else 1 - k_axis] //= 2
        draw = ANY if format_ == "e2m1" else _SMALL_E4M3
        value = kernel.load(SCALED_FORMATS[format_], (*batches, *extents), draw)
        if scale is None or (format_ in ("bf16", "fp16") and variant == "one_scale"):
            return value, None
        group = 32 if scale is U8 else 16
        draw = (
            Draw(
                array=lambda rng, count: rng.choice(np.array([126, 127, 128, 255], np.uint8), count)
            )
            if nan
            else _scale_draw(scale)
        )
        return value, kernel.load(scale, (*batches, outer, k // group), draw)

    (a, a_scale), (b, b_scale) = operand("a", a_format, m), operand("b", b_format, n)
    c = kernel.load(F32, (*batches, m, n), INTEGRAL)
    kernel.store(
        kernel.b.dot_scaled(
            a, a_scale, b, b_scale, c, a_format=a_format, b_format=b_format, **attributes
        )
    )
    return kernel.finish()


def _dot_scaled() -> Samples:
    for a_format, b_format in (
        ("e2m1", "e2m1"),
        ("e4m3", "e4m3"),
        ("e5m2", "e5m2"),
        ("e2m1", "e4m3"),
        ("e4m3", "e2m1"),
        ("e5m2", "e2m1"),
        ("e4m3", "e5m2"),
    ):
        yield _scaled(a_format, b_format, U8)
    yield _scaled("e2m1", "e2m1", U8, m=32, n=8, k=128)
    yield _scaled("e2m1", "e2m1", _E4M3, k=32)
    yield _scaled("bf16", "e4m3", U8, variant="one_scale")
    yield _scaled("e2m1", "fp16", U8, variant="one_scale")
    yield _scaled("bf16", "bf16", U8)
    yield _scaled("fp16", "fp16", None)
    yield _scaled("e4m3", "e5m2", None)
    yield _scaled("e2m1", "e2m1", U8, variant="a_pack_m", a_pack_k=False)
    yield _scaled("e2m1", "e2m1", U8, variant="b_pack_n", b_pack_k=False)
    for pack in (True, False):
        yield _scaled(
            "e2m1",
            "e2m1",
            U8,
            batches=(2,),
            variant=f"batches_pack_{pack}",
            a_pack_k=pack,
            b_pack_k=not pack,
        )
    yield _scaled("e5m2", "bf16", U8, batches=(2, 2), m=8, n=8, k=32, variant="one_scale")
    yield _scaled("e4m3", "e4m3", U8, variant="nan", nan=True)
    yield _scaled("e4m3", "e4m3", U8, variant="fast_math", fast_math=True)


SAMPLES: dict[str, Callable[[], Samples]] = {"dot": _dot, "dot_scaled": _dot_scaled}
