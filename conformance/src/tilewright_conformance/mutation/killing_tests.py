"""For each bug of lowering and of argument passing, a kernel whose results it changes.

Most are samples of the operations; the other bugs have kernels of their own here.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.ir import Value
from tilewright.ir.types import F16, F32, F64, I1, I32, I64, U8, U32, PointerType, TileType, Type
from tilewright_conformance.op_samples import check_outputs, samples
from tilewright_conformance.op_samples.kernel import ZEROS, Draw, Sample, SampleKernel

#: switch -> the name of the sample that shows it
_BY_SAMPLE: dict[str, str] = {
    "sub-swapped": "sub/f16/scalar",
    "div-swapped": "div/f16/scalar",
    "rem-swapped": "rem/f16/scalar",
    "cmp-swapped": "cmp/f16/4x8/lt",
    "shift-swapped": "shl/i8/scalar",
    "select-swapped": "select/i1_f16/scalar",
    "copysign-swapped": "copysign/f32/scalar",
    "cmp-strict": "cmp/f64/128/le",
    "nan-ne-ordered": "cmp/bf16/4x8/ne",
    "nan-compares-true": "cmp/f16/4x8/lt",
    "min-max-nan-rule": "min/bf16/4x8/nan_ignore",
    "min-max-nan-second": "min/bf16/4x8/nan_ignore",
    "subnormals-flushed": "mul/f64/4x8",
    "integer-division-floors": "div/i8/16/small",
    "division-unsigned": "div/i8/scalar/small",
    "shift-right-logical": "shr/i8/16",
    "shift-right-arithmetic": "shr/u8/1x16",
    "comparison-signed": "cmp/u8/8x1/lt",
    "min-max-signed": "min/u8/1x16",
    "mulhi-signed": "mulhi/u32/4x8",
    "shift-amount-modulo-32": "shl/i64/64",
    "addition-saturates": "add/i8/scalar",
    "mul-in-32-bits": "mul/i64/64",
    "magnitude-saturates": "abs/i8/16",
    "leading-zeros-of-zero": "clz/i8/16",
    "fma-rounded-twice": "fma/f16/16",
    "division-by-reciprocal": "div/f32/2x4x8",
    "double-as-single": "add/f64/scalar",
    "half-sum-truncated": "add/f16/2x2x2",
    "exponential-inaccurate": "exp/f32/scalar",
    "logarithm-inaccurate": "log/f32/scalar",
    "sine-poorly-reduced": "sin/f32/16",
    "tanh-saturates-early": "tanh/f32/16",
    "root-approximate": "sqrt/f32/16",
    "round-half-away": "round_even/f32/32/settled",
    "floor-truncates": "floor/f32/16",
    "cast-truncates": "cast/f16_f8e4m3fn/8x1",
    "cast-ignores-rtz": "cast/f16_f8e4m3fn/64/rtz",
    "fp8-through-half": "cast/f32_f8e4m3fn/2x4x8",
    "bfloat16-truncated": "cast/f32_bf16/32x4",
    "fp8-overflows": "cast/f16_f8e4m3fn/64/overflow",
    "fp8-nan-lost": "cast/f16_f8e4m3fn/64/overflow",
    "fp8-subnormals-flushed": "cast/f16_f8e4m3fn/64/small",
    "float-to-integer-rounds": "cast/f16_i8/1x16",
    "convert-unsigned-as-signed": "cast/u8_bf16/4x8",
    "sign-extension-lost": "cast/i8_i16/4x8",
    "integer-cast-saturates": "cast/i16_i8/2x2x2",
    "boolean-of-lowest-bit": "cast/i8_i1/32x4",
    "mask-off-by-one": "load/f32/tail",
    "mask-one-too-many": "store/i8/16/mask",
    "store-last-element-lost": "store/i8/16",
    "atomic-store-lost": "atomic_store/i8/scalar",
    "masked-load-zero": "load/i16/2x4x8/other",
    "masked-load-garbage": "load/i16/2x4x8/masked_off",
    "atomic-returns-new": "atomic_rmw/add/i32/scalar",
    "atomic-not-atomic": "atomic_rmw/add/i32/collisions",
    "cas-ignores-compare": "atomic_cas/i16/16",
    "atomic-extreme-signed": "atomic_rmw/min/u32/16",
    "atomic-xor-as-or": "atomic_rmw/xor/i32/scalar",
    "descriptor-padding-zero": "make_descriptor/f16/20/nan",
    "descriptor-strides-dense": "make_descriptor/f32/strided",
    "descriptor-load-inside": "descriptor_load/i32/made/20/10",
    "descriptor-store-inside": "descriptor_store/u8/made/20/10",
    "descriptor-negative-offset": "descriptor_load/f64/made/20/-3",
    "descriptor-reduce-stores": "descriptor_reduce/add/i32/20",
    "descriptor-gather-column": "descriptor_gather/f16/16x8/16",
    "descriptor-gather-clamps": "descriptor_gather/f16/16x8/16",
    "descriptor-extent-less-one": "descriptor_extent/i8/argument/32/0",
    "permute-inverted": "permute/i1/2x4x8/2x0x1",
    "permute-reshapes": "permute/i32/4x8/1x0",
    "reshape-by-columns": "reshape/i32/4x8_32",
    "join-concatenates": "join/i32/16",
    "split-halves": "split/i32/16x2",
    "cat-swapped": "cat/f32/16_16/0",
    "arange-from-zero": "arange/-4_4",
    "gather-index-clamped": "gather/f32_i32/16_16/0",
    "histogram-mask-ignored": "histogram/i32/16_8_mask",
    "histogram-overflow-counted": "histogram/i32/16_8",
    "dot-half-accumulator": "dot/f16/fractions",
    "dot-bfloat16-result": "dot/bf16/fractions",
    "dot-tf32": "dot/f32/fractions",
    "dot-accumulator-lost": "dot/f32_f32_f32/16x16x16",
    "dot-left-transposed": "dot/f32_f32_f32/16x16x16",
    "dot-right-transposed": "dot/f32_f32_f32/16x16x16",
    "dot-last-term-lost": "dot/f32_f32_f32/16x16x16",
    "dot-first-batch": "dot/bf16_bf16_f32/2x16x16x16",
    "dot-scale-lost": "dot_scaled/e2m1_e2m1/scale_u8/16x16x64",
    "for-one-too-few": "for/i32/0_5_1",
    "for-bounds-signed": "for/u32/2147483646_2147483651_2",
    "for-results-exchanged": "for/swapped",
    "if-always-then": "if/f32/scalar",
    "if-results-exchanged": "if/several_results",
    "reduce-last-lost": "reduce/sum/f32/16/0",
    "reduce-zero-identity": "reduce/product/i32/2x4x8/1",
    "argmax-last": "reduce/argmax/f32/32/0",
    "scan-one-behind": "scan/sum/f32/16/0",
    "scan-reverse-ignored": "scan/sum/f32/4x8/1/reverse",
    "scan-operands-swapped": "scan/affine/u32",
    "map-pack-reversed": "map/i32/pack2",
    "num-programs-first-axis": "num_programs/axis1",
    "print-lost": "print/i32/scalar",
    "print-tiles-lost": "print/u64/4",
    "assert-mask-ignored": "assert/4x8/mask",
    "grid-y-ignored": "program_id/axis0",
    "grid-z-ignored": "program_id/axis0",
    "store-last-program-lost": "load/f32/tail",
}


def _given(*numbers: Any) -> Draw:
    """Values that repeat ``numbers``."""
    return Draw(array=lambda rng, count: np.resize(np.array(numbers), count))


def _negative_zero() -> SampleKernel:
    kernel = SampleKernel("own/negative_zero")
    b, x = kernel.b, kernel.load(F32, (16,), _given(0.0, -1.0, 1.0, -0.0))
    for value in (b.neg(x), b.mul(x, kernel.constant(x.type, -0.0))):
        kernel.store(b.bitcast(value, result=TileType((16,), U32)))
    return kernel


def _philox() -> SampleKernel:
    """Three rounds of Philox-4x32."""
    kernel = SampleKernel("own/philox")
    b, words = kernel.b, [kernel.load(U32, (16,)) for _ in range(4)]
    keys = [kernel.load(U32, (16,)) for _ in range(2)]
    multipliers = [kernel.constant(words[0].type, number) for number in (0xD2511F53, 0xCD9E8D57)]
    for _ in range(3):
        (a, c), (x, y, z, w) = multipliers, words
        words = [
            b.xor(b.xor(b.mulhi(c, z), y), keys[0]),
            b.mul(c, z),
            b.xor(b.xor(b.mulhi(a, x), w), keys[1]),
            b.mul(a, x),
        ]
        keys = [
            b.add(key, kernel.constant(key.type, step))
            for key, step in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True)
        ]
    for word in words:
        kernel.store(word)
    return kernel


def _near_ties() -> SampleKernel:
    """Just above the middle of two f16 numbers, by less than f32 can tell."""
    kernel = SampleKernel("own/near_ties")
    x = kernel.load(F64, (8,), _given(1 + 2**-11 + 2**-40, 1 + 3 * 2**-11 - 2**-40))
    kernel.store(kernel.b.cast(x, result=TileType((8,), F16)))
    return kernel


def _window() -> SampleKernel:
    """A block of 8 x 8 of which 5 rows and 6 columns are there."""
    kernel = SampleKernel("own/window")
    b, shape = kernel.b, (8, 8)
    at = [
        b.broadcast(b.expand_dims(kernel.offsets((8,)), axis=1 - axis), result=TileType(shape, I32))
        for axis in (0, 1)
    ]
    rows, columns = (
        b.cmp(place, kernel.constant(place.type, extent), predicate="lt")
        for place, extent in zip(at, (5, 6), strict=True)
    )
    source = kernel.pointers(kernel.pointer(F32, shape), shape)
    kernel.store(
        b.load(source, mask=b.and_(rows, columns), other=kernel.constant(TileType(shape, F32), 0.0))
    )
    return kernel


def _after_store() -> SampleKernel:
    kernel = SampleKernel("own/after_store")
    b = kernel.b
    target = kernel.pointers(kernel.pointer(I32, (16,), ZEROS, output=True), (16,))
    b.store(target, kernel.load(I32, (16,), Draw(1, 100)))
    b.barrier()
    kernel.store(b.load(target))
    return kernel


def _after_atomic() -> SampleKernel:
    kernel = SampleKernel("own/after_atomic")
    b = kernel.b
    target = kernel.pointers(kernel.pointer(I32, (16,), ZEROS, output=True), (16,))
    b.atomic_rmw(target, kernel.load(I32, (16,), Draw(1, 100)), kind="add")
    b.barrier()
    kernel.store(b.load(target))
    return kernel


def _row_of_square() -> SampleKernel:
    kernel = SampleKernel("own/row_of_square")
    kernel.store(kernel.b.broadcast(kernel.load(F32, (1, 8)), result=TileType((8, 8), F32)))
    return kernel


def _large_bytes() -> SampleKernel:
    kernel = SampleKernel("own/large_bytes")
    a, b_ = kernel.load(U8, (16, 16), Draw(100, 255)), kernel.load(U8, (16, 16), Draw(100, 255))
    kernel.store(kernel.b.dot(a, b_, kernel.constant(TileType((16, 16), I32), 0)))
    return kernel


def _never() -> SampleKernel:
    """A while loop whose condition is false at once."""
    kernel = SampleKernel("own/never")
    b, limit = kernel.b, kernel.scalar(I32, _given(0))
    before = kernel.region((I32,), lambda i: (b.cmp(i, limit, predicate="lt"), i), "condition")
    after = kernel.region((I32,), lambda i: b.add(i, kernel.constant(I32, 1)))
    kernel.store(
        b.region_op(
            "while", [kernel.constant(I32, 0)], regions=[before, after], results=[I32]
        ).result
    )
    return kernel


def _many_programs() -> SampleKernel:
    count = (1 << 16) + 3
    kernel = SampleKernel("own/many_programs", grid=(count, 1, 1))
    b, pid = kernel.b, kernel.b.program_id(axis=0)
    b.store(b.addptr(kernel.pointer(I32, (count,), ZEROS, output=True), pid), pid)
    return kernel


def _broken_assertion() -> SampleKernel:
    kernel = SampleKernel("own/broken_assertion")
    x = kernel.load(I32, (8,), _given(1, 2, -3))
    kernel.b.assert_(
        kernel.b.cmp(x, kernel.constant(x.type, 0), predicate="gt"), message="x is positive"
    )
    return kernel


def _scalars(name: str, type_: Type, *numbers: Any) -> Callable[[], SampleKernel]:
    """Arguments that are stored as they are."""

    def make() -> SampleKernel:
        kernel = SampleKernel(f"own/{name}")
        for number in numbers:
            value: Value = kernel.scalar(type_, _given(number))
            kernel.store(kernel.b.cast(value, result=I32) if type_ is I1 else value)
        return kernel

    return make


def _multiply_add() -> SampleKernel:
    kernel = SampleKernel("own/multiply_add")
    x, y, z = (kernel.load(F32, (64,), Draw(0.5, 2.0)) for _ in range(3))
    kernel.store(kernel.b.add(kernel.b.mul(x, y), z))
    return kernel


def _wide_grid() -> SampleKernel:
    """The ids of the programs of a 4 x 2 grid, with room for those of a 2 x 4 grid."""
    kernel = SampleKernel("own/wide_grid", grid=(4, 2, 1))
    b = kernel.b
    x, y = b.program_id(axis=0), b.program_id(axis=1)
    b.store(
        b.addptr(
            kernel.pointer(I32, (16,), ZEROS, output=True),
            b.add(x, b.mul(y, kernel.constant(I32, 4))),
        ),
        b.sub(x, y),
    )
    return kernel


def _boundless() -> SampleKernel:
    """Pointers behind the middle of an array, at u8 offsets of 128 and more."""
    kernel = SampleKernel("own/boundless")
    b = kernel.b
    middle = b.addptr(kernel.pointer(F32, (512,)), kernel.constant(I32, 128))
    pointers: Value = b.splat(middle, result=TileType((16,), PointerType(F32)))
    kernel.store(b.load(b.addptr(pointers, kernel.load(U8, (16,), Draw(128, 255)))))
    return kernel


#: switch -> what makes the kernel that shows it
_OWN: dict[str, Callable[[], SampleKernel]] = {
    "negative-zero-lost": _negative_zero,
    "philox-round-missing": _philox,
    "cast-rounds-twice": _near_ties,
    "mask-last-axis-ignored": _window,
    "load-before-store": _after_store,
    "load-before-atomic": _after_atomic,
    "offset-sign-extended": _boundless,
    "broadcast-other-axis": _row_of_square,
    "dot-bytes-signed": _large_bytes,
    "while-runs-once": _never,
    "program-id-16-bits": _many_programs,
    "program-id-axes-swapped": _wide_grid,
    "assert-lost": _broken_assertion,
    "error-swallowed": _broken_assertion,
    "scalar-32-bits": _scalars("wide_scalars", I64, 2**40 + 5, -(2**40) - 5),
    "scalar-not-sign-extended": _scalars("negative_scalars", I64, -5),
    "float-argument-half": _scalars("float_scalars", F32, 0.1, 1e5),
    "boolean-argument-true": _scalars("boolean_scalars", I1, False, True),
    "late-scalar-zero": _scalars("many_scalars", I32, *range(1, 21)),
    "fusion-not-disabled": _multiply_add,
}


@functools.cache
def witness(switch: str) -> Sample | None:
    """The kernel that shows a switch; None where no single launch of a module does."""
    if switch in _OWN:
        return _OWN[switch]().finish()
    name = _BY_SAMPLE.get(switch)
    return (
        next(sample for sample in samples(name.partition("/")[0]) if sample.name == name)
        if name is not None
        else None
    )


@dataclass(frozen=True)
class Observation:
    """The effects of a launch: its arguments, the lines it printed, the error it raised.

    The lines are those of all programs, sorted, without addresses.
    """

    arguments: list[Any]
    printed: list[str]
    error: str

    @classmethod
    def of(
        cls, sample: Sample, run: Callable[[Sample, list[Any]], None], seed: int = 0
    ) -> Observation:
        """Make the sample's arguments and run it on them."""
        arguments, error, text = (
            sample.make_arguments(np.random.default_rng(seed)),
            "",
            io.StringIO(),
        )
        with contextlib.redirect_stdout(text), np.errstate(all="ignore"):
            try:
                run(sample, arguments)
            except TilewrightError as found:
                error = type(found).__name__
        lines = re.sub(r"address: 0x[0-9a-f]{16}", "address", text.getvalue()).splitlines()
        return cls(arguments, sorted(lines), error)

    def difference(self, sample: Sample, other: Observation) -> str:
        """Describe the difference of ``other``; empty where there is none."""
        if self.error != other.error:
            return f"{self.error or 'no error'} in one, {other.error or 'no error'} in the other"
        if self.printed != other.printed:
            return f"printed {self.printed} in one, {other.printed} in the other"
        try:
            check_outputs(sample, self.arguments, other.arguments)
        except AssertionError as found:
            return str(found)
        return ""


def on_reference(sample: Sample, arguments: list[Any]) -> None:
    """Interpret a sample."""
    from tilewright.reference.interpreter import run

    run(sample.module, arguments, sample.grid)


def on_backend(name: str) -> Callable[[Sample, list[Any]], None]:
    """Return a function that runs a sample on a backend, as the runtime would."""
    from tilewright_conformance.suite.session import Session, Subject

    session = Session(Subject(name), "witness")
    return lambda sample, arguments: session.run_module(sample.module, arguments, sample.grid)
