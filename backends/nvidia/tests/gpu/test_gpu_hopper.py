"""Hopper's mechanisms on the device, one at a time: mbarrier, TMA copy, wgmma, pipelined matmuls.

Results are compared with NumPy in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gpu_support import launch_on_gpu, prepare
from hopper_gpu import agree, aligned, hopper_is_there, operand, tensor, within_patience
from hopper_support import (
    ASYNCHRONOUS,
    Operand,
    Text,
    barrier_kernel,
    compiled,
    load_kernel,
    product_kernel,
    shifted_module,
    store_kernel,
)
from tma_kernels import UPDATES, updated_module
from warpgroup_kernels import KINDS, SIZES, matmul_module, persistent_module

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.launch import make_launcher
from tilewright.gpu_host.memory import DeviceMemory
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright_nvidia.async_copy.swizzle_atoms import SwizzleAtoms
from tilewright_nvidia.host.driver import driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]


def run(text: Text, arguments: Sequence[Any], what: str) -> None:
    """Run a kernel in the toolkit's operations as one program."""
    code = compiled(text)
    cuda = driver()
    launch = make_launcher(LoadedKernel(code, 0, cuda), text.parameters, ASYNCHRONOUS)
    within_patience(
        what, lambda: launch_on_gpu(launch, DeviceMemory(0, cuda), arguments, (1, 1, 1))
    )


# ---- barrier objects


@pytest.mark.parametrize("arrivals", [0, 1, 2, 7])
def test_barrier_objects(arrivals: int) -> None:
    out = np.zeros(256, np.int32)
    run(barrier_kernel(arrivals), [out], f"a kernel of {arrivals} arrivals")
    agree(out, np.arange(7, 263, dtype=np.int32))


# ---- copies


def expected_block(
    array: np.ndarray[Any, Any], offsets: Sequence[int], block: Sequence[int], padding: str
) -> np.ndarray[Any, Any]:
    outside = np.nan if padding == "nan" else 0
    found = np.full(block, outside, array.dtype)
    for inside in np.ndindex(*block):
        point = tuple(a + b for a, b in zip(offsets, inside, strict=True))
        if all(0 <= at < extent for at, extent in zip(point, array.shape, strict=True)):
            found[inside] = array[point]
    return found


COPIES = [
    ((64, 64), "f16", SwizzleAtoms(1, 0)),
    ((64, 64), "f16", SwizzleAtoms(1, 128)),
    ((64, 64), "f16", SwizzleAtoms(1, 64)),
    ((64, 64), "f16", SwizzleAtoms(1, 32)),
    ((16, 128), "f32", SwizzleAtoms(1, 128)),
    ((64, 128), "u8", SwizzleAtoms(1, 64)),
    ((1024,), "f32", SwizzleAtoms(0, 0)),
    ((4, 16, 64), "f16", SwizzleAtoms(2, 128)),
    ((2, 2, 4, 8, 16), "f32", SwizzleAtoms(4, 64)),
]
_DTYPES = {"f16": np.float16, "f32": np.float32, "u8": np.uint8}


@pytest.mark.parametrize(("block", "element", "slabs"), COPIES, ids=str)
@pytest.mark.parametrize("place", ["inside", "across the end", "before the beginning"])
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_a_block_is_copied(
    block: tuple[int, ...], element: str, slabs: SwizzleAtoms, place: str, padding: str
) -> None:
    if padding == "nan" and element == "u8":
        pytest.skip("integers have no NaN")
    array = aligned(tuple(extent + 16 for extent in block), _DTYPES[element])
    array[...] = (np.arange(array.size) % (251 if element == "u8" else 2039)).reshape(array.shape)
    # along rows, boxes begin at multiples of 16 bytes
    aligned_step = 16 // array.itemsize
    offsets = {
        "inside": [*[8] * (len(block) - 1), aligned_step],
        "across the end": [16 + extent // 2 for extent in block],
        "before the beginning": [*[-3] * (len(block) - 1), -aligned_step],
    }[place]
    out = np.full(int(np.prod(block)), 77, array.dtype)
    run(
        load_kernel(block, element, slabs, padding),
        [tensor(array, padding), out, *offsets],
        f"a copy of {block} {element} in {slabs}",
    )
    agree(out.reshape(block), expected_block(array, offsets, block, padding))


@pytest.mark.parametrize(("block", "element", "slabs"), COPIES, ids=str)
@pytest.mark.parametrize("across", [False, True], ids=["inside", "across the end"])
def test_a_block_is_copied_back(
    block: tuple[int, ...], element: str, slabs: SwizzleAtoms, across: bool
) -> None:
    array = aligned(tuple(extent + 16 for extent in block), _DTYPES[element])
    array[...] = 99
    offsets = (
        [16 + extent // 2 for extent in block]
        if across
        else [*[8] * (len(block) - 1), 16 // array.itemsize]
    )
    x = (np.arange(int(np.prod(block))) % 97).astype(array.dtype)
    expected = array.copy()
    for inside in np.ndindex(*block):
        point = tuple(a + b for a, b in zip(offsets, inside, strict=True))
        if all(at < extent for at, extent in zip(point, array.shape, strict=True)):
            expected[point] = x.reshape(block)[inside]
    run(
        store_kernel(block, element, slabs),
        [tensor(array), x, *offsets],
        f"a copy of {block} {element} in {slabs} to a tensor",
    )
    agree(array, expected)


def moved(x: Any, y: Any, BM: tl.constexpr, BN: tl.constexpr) -> None:
    for column in range(0, 2 * BN, BN):
        at = [tl.program_id(0) * BM, column]
        y.store(at, x.load(at) * 2)


@pytest.mark.parametrize("block", [(64, 64), (16, 128), (128, 16)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "element"), [("fp16", np.float16), ("fp32", np.float32), ("i32", np.int32)]
)
def test_blocks_through_the_language(block: tuple[int, int], dtype: str, element: Any) -> None:
    constants = {"BM": block[0], "BN": block[1]}
    type_ = f"tensordesc<{dtype}{list(block)}>"
    facts = {"divisibility": 16}
    module = compile_function(
        device_function(moved),
        {"x": type_, "y": type_, **dict.fromkeys(constants, "constexpr")},
        constants,
        {"x": facts, "y": facts},
    )
    pipeline.run(module)
    x, y = (aligned((3 * block[0] - 5, 2 * block[1] - 3), element) for _ in range(2))
    x[...] = (np.arange(x.size) % 1019).reshape(x.shape)
    launch, memory = prepare(module, asynchronous=True, num_warps=4, num_stages=2)
    within_patience(
        f"blocks of {block}",
        lambda: launch_on_gpu(launch, memory, [tensor(x), tensor(y)], (3, 1, 1)),
    )
    agree(y, x * 2)


@pytest.mark.parametrize(
    ("shift", "divisor"), [(0, 16), (16, 16), (-8, 8), (8, 1), (3, 1), (-3, 1)]
)
def test_blocks_from_anywhere(shift: int, divisor: int) -> None:
    x, y = aligned((80, 80), np.float16), aligned((64, 64), np.float16)
    x[...] = (np.arange(x.size) % 1019).reshape(x.shape)
    launch, memory = prepare(shifted_module(divisor), asynchronous=True, num_warps=4, num_stages=2)
    within_patience(
        f"a block from {shift}",
        lambda: launch_on_gpu(launch, memory, [tensor(x), tensor(y), shift], (1, 1, 1)),
    )
    agree(y, expected_block(x, (shift, shift), (64, 64), "zero"))


@pytest.mark.parametrize(("kind", "element"), UPDATES)
def test_blocks_are_updated(kind: str, element: str) -> None:
    """Four programs update one block, part of which is outside of the tensor."""
    dtype = {
        "u32": np.uint32,
        "i32": np.int32,
        "u64": np.uint64,
        "i64": np.int64,
        "fp32": np.float32,
        "fp16": np.float16,
        "bf16": np.uint16,
    }[element]
    x, y = aligned((128, 60), dtype), aligned((37, 50), dtype)
    rng = np.random.default_rng(5)
    least = -50 if kind in ("min", "max") and element[0] == "i" else 0
    wide = [rng.integers(least, 50, array.shape) for array in (x, y)]
    for array, values in zip((x, y), wide, strict=True):
        # of bf16, small whole numbers are the upper halves of f32
        array[...] = (
            (values.astype(np.float32).view(np.uint32) >> 16) if element == "bf16" else values
        )
    launch, memory = prepare(updated_module(kind, element), asynchronous=True, num_warps=4)
    within_patience(
        f"{kind} of {element}",
        lambda: launch_on_gpu(launch, memory, [tensor(x), tensor(y)], (4, 1, 1)),
    )
    how = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[kind]
    expected = wide[1].copy()
    for program in range(4):
        # what is read outside of x is 0
        block = np.pad(wide[0][32 * program : 32 * program + 32], ((0, 0), (0, 4)))
        expected[8:37, 16:50] = how(expected[8:37, 16:50], block[:29, :34])
    agree(
        worth(y, "bf16") if element == "bf16" else y.astype(np.int64),
        expected.astype(np.float64 if element == "bf16" else np.int64),
    )


# ---- matmuls


def multiplied(
    shape: tuple[int, int],
    k: int,
    a: str,
    b: str,
    sums: str,
    x: Operand,
    y: Operand,
    warps: int,
    kind: str = "ss",
) -> None:
    rng = np.random.default_rng(0)
    (m, n) = shape
    (left, first), (right, second) = (
        operand(rng, (m, k), a, x.transposed),
        operand(rng, (k, n), b, y.transposed),
    )
    out = np.full(m * n, 77, np.float32 if sums == "f32" else np.int32)
    text = product_kernel(shape, k, a, b, sums, x, y, warps, kind)
    run(text, [tensor(left), tensor(right), out], f"a product of {a} and {b}, {x} and {y}")
    agree(out.reshape(shape).astype(np.float64), first @ second)


@pytest.mark.parametrize("span", [128, 64, 32])
@pytest.mark.parametrize("x", [False, True], ids=["a", "a transposed"])
@pytest.mark.parametrize("y", [False, True], ids=["b", "b transposed"])
def test_a_product_of_each_majorness(x: bool, y: bool, span: int) -> None:
    multiplied((64, 64), 64, "f16", "f16", "f32", Operand(x, span), Operand(y, span), 4)


@pytest.mark.parametrize(
    ("shape", "k", "warps"),
    [
        ((64, 256), 64, 4),
        ((128, 128), 128, 4),
        ((128, 256), 64, 8),
        ((64, 128), 64, 8),
        ((256, 64), 64, 8),
    ],
    ids=str,
)
@pytest.mark.parametrize("y", [False, True], ids=["b", "b transposed"])
def test_a_product_of_several_instructions(
    shape: tuple[int, int], k: int, warps: int, y: bool
) -> None:
    multiplied(shape, k, "f16", "f16", "f32", Operand(), Operand(y), warps)


@pytest.mark.parametrize(
    ("a", "b", "sums"),
    [
        ("bf16", "bf16", "f32"),
        ("f32", "f32", "f32"),
        ("f8e4m3fn", "f8e5m2", "f32"),
        ("i8", "u8", "i32"),
        ("i8", "i8", "i32"),
    ],
)
def test_a_product_of_each_kind(a: str, b: str, sums: str) -> None:
    span = 128 if a in ("bf16", "f32") else 64
    multiplied(
        (64, 64), 32 if a == "f32" else 64, a, b, sums, Operand(span=span), Operand(True, span), 4
    )


@pytest.mark.parametrize(
    ("a", "b", "sums"),
    [
        ("f16", "f16", "f32"),
        ("f32", "f32", "f32"),
        ("f8e4m3fn", "f8e5m2", "f32"),
        ("i8", "u8", "i32"),
    ],
)
@pytest.mark.parametrize("warps", [4, 8])
def test_a_product_with_a_in_registers(a: str, b: str, sums: str, warps: int) -> None:
    multiplied(
        (128, 64),
        32 if a == "f32" else 64,
        a,
        b,
        sums,
        Operand(span=64),
        Operand(True, 64),
        warps,
        "rs",
    )


# ---- pipelined matmuls


@pytest.mark.parametrize("transposed", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
@pytest.mark.parametrize(
    ("block", "warps"),
    [((64, 64, 64), 4), ((128, 128, 64), 4), ((128, 256, 64), 8), ((128, 128, 32), 8)],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 64, 200, 1000])
@pytest.mark.parametrize("stages", [2, 3])
def test_a_pipelined_product(
    transposed: bool, parts: bool, block: tuple[int, int, int], warps: int, k: int, stages: int
) -> None:
    bm, bn, _ = block
    m, n = 2 * bm, 2 * bn
    rng = np.random.default_rng(1)
    a, b = aligned((m, k), np.float16), aligned((n, k) if transposed else (k, n), np.float16)
    a[...], b[...] = rng.standard_normal(a.shape), rng.standard_normal(b.shape)
    out = np.full((m, n), np.nan, np.float32)
    module = matmul_module(transposed, parts, block, n)
    # rows of a whole number of 16 bytes, whatever K is
    launch, memory = prepare(module, asynchronous=True, num_warps=warps, num_stages=stages)
    what = f"{'parts' if parts else 'blocks'} of {block}, K = {k}, {stages} stages"
    within_patience(
        what, lambda: launch_on_gpu(launch, memory, [tensor(a), tensor(b), out, k], (2, 2, 1))
    )
    wide = a.astype(np.float64) @ (b.T if transposed else b).astype(np.float64)
    error = np.abs(out - wide)
    limit = (
        1e-5 * (np.abs(a).astype(np.float64) @ np.abs(b.T if transposed else b).astype(np.float64))
        + 1e-6
    )
    wrong = ~(error <= limit)
    rows, columns = np.nonzero(wrong)
    assert not wrong.any(), (
        f"{what}: {wrong.sum()} of {wrong.size} sums are wrong, rows {rows.min()} to "
        f"{rows.max()}, columns {columns.min()} to {columns.max()}; "
        f"the first is {out[wrong][0]} for {wide[wrong][0]}, the largest error {np.nanmax(error)}"
    )


# ---- kinds of operands and sums

#: Bits of the fraction, and what is added to exponents.
_FORMATS = {"fp8e4nv": (3, 7), "fp8e5": (2, 15)}
_NUMPY = {"fp16": np.float16, "fp32": np.float32, "i8": np.int8, "u8": np.uint8, "i32": np.int32}


def worth(codes: np.ndarray[Any, Any], type_: str) -> np.ndarray[Any, Any]:
    """The numbers that bits of a narrow type, or of bf16, stand for, in float64."""
    if type_ == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    fraction, bias = _FORMATS[type_]
    exponent, rest = (
        codes >> fraction & (1 << 7 - fraction) - 1,
        (codes & (1 << fraction) - 1) / (1 << fraction),
    )
    size = np.where(
        exponent > 0,
        (1 + rest) * np.exp2(exponent.astype(np.float64) - bias),
        rest * 2.0 ** (1 - bias),
    )
    return np.where(codes & 0x80, -size, size)


def drawn(
    rng: np.random.Generator, shape: tuple[int, int], type_: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(what is in memory, in rows of a multiple of 16 bytes; the numbers in float64): all bits of a
    type, sizes up to 2 of floats."""
    memory = aligned(
        shape, {"bf16": np.uint16, **dict.fromkeys(_FORMATS, np.uint8)}.get(type_) or _NUMPY[type_]
    )
    if type_ in ("i8", "u8"):
        limits = np.iinfo(_NUMPY[type_])
        memory[...] = rng.integers(limits.min, limits.max + 1, shape)
    elif type_ == "bf16":
        memory[...] = (
            rng.integers(121, 128, shape) << 7
            | rng.integers(0, 128, shape)
            | rng.integers(0, 2, shape) << 15
        ).astype(np.uint16)
    elif type_ in _FORMATS:
        fraction, bias = _FORMATS[type_]
        codes = (
            rng.integers(bias - 6, bias + 1, shape) << fraction
            | rng.integers(0, 1 << fraction, shape)
            | rng.integers(0, 2, shape) << 7
        )
        memory[...] = codes.astype(np.uint8)
    else:
        memory[...] = rng.uniform(-1, 1, shape) * np.exp2(rng.integers(-6, 1, shape))
    return memory, memory.astype(np.float64) if type_ in _NUMPY else worth(memory, type_)


def allowed(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], kinds: tuple[str, str, str, int | None]
) -> np.ndarray[Any, Any]:
    """Return the error bound of each element.

    It allows one unit of the accumulator per term; for f32 operands, the bits that are cut off; and
    for fp8, the loss of accumulation in few bits before promotion.
    """
    type_, _, sums, imprecise = kinds
    terms = a.shape[1]
    if sums == "i32":
        return np.zeros((a.shape[0], b.shape[1]))
    # numbers near 0 of f16 are 2**-24 apart
    least = terms * 2.0**-24 if sums == "fp16" else 1e-12
    relative = (terms + 2) * {"fp32": 2.0**-23, "fp16": 2.0**-10}[sums]
    if type_ == "fp32":
        relative += 2.1 * 2.0**-10  # by TF32
    if type_ in _FORMATS:
        relative += (min(terms, imprecise or terms) // 16 + 2) * 2.0**-12
    return relative * (np.abs(a) @ np.abs(b)) + least


def multiplied_by_language(
    kinds: tuple[str, str, str, int | None],
    transposed: bool,
    parts: bool,
    block: tuple[int, int, int],
    warps: int,
) -> None:
    """Matmuls with K from one step to several blocks, and M and N that are not whole blocks.

    Outside of these, results are 0.
    """
    bm, bn, _ = block
    a_type, b_type, sums, imprecise = kinds
    module = matmul_module(transposed, parts, block, 2 * bn, a_type, b_type, sums, imprecise)
    launch, memory = prepare(module, asynchronous=True, num_warps=warps, num_stages=3)
    rng = np.random.default_rng(2)
    for k in (1, 2, 7, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 1000):
        a, left = drawn(rng, (2 * bm - 5, k), a_type)
        b, right = drawn(rng, (2 * bn - 3, k) if transposed else (k, 2 * bn - 3), b_type)
        right = right.T if transposed else right
        out = np.full((2 * bm, 2 * bn), 77, _NUMPY[sums])
        what = f"{kinds}, {'parts' if parts else 'blocks'} of {block}, K = {k}"

        def launched(a: Any = a, b: Any = b, out: Any = out, k: int = k) -> None:
            launch_on_gpu(launch, memory, [tensor(a), tensor(b), out, k], (2, 2, 1))

        within_patience(what, launched)
        rows, columns = left.shape[0], right.shape[1]
        assert not out[rows:].any() and not out[:, columns:].any(), what
        error = np.abs(out[:rows, :columns].astype(np.float64) - left @ right)
        wrong = ~(error <= allowed(left, right, kinds))
        assert not wrong.any(), (
            f"{what}: {wrong.sum()} of {wrong.size} sums are wrong; the first: "
            f"{np.argwhere(wrong)[0]}; the largest error {np.nanmax(error)}"
        )


@pytest.mark.parametrize("transposed", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_pipelined_products_of_each_kind(
    kinds: tuple[str, str, str, int | None], parts: bool, transposed: bool
) -> None:
    multiplied_by_language(kinds, transposed, parts, (128, 128, 128 // SIZES[kinds[0]]), 8)


@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
def test_operands_of_tf32_products_are_rounded_to_the_nearest(parts: bool) -> None:
    """Times the identity, what is left of f32 is the nearest of 11 significant bits, not what is
    cut off to them."""
    launch, memory = prepare(
        matmul_module(True, parts, (64, 64, 32), 64, "fp32"),
        asynchronous=True,
        num_warps=4,
        num_stages=2,
    )
    a, b = (
        np.random.default_rng(4).standard_normal((64, 64)).astype(np.float32),
        np.eye(64, dtype=np.float32),
    )
    for left, right, whole in ((a, b, a), (b, a, a.T)):
        out = np.full((64, 64), np.nan, np.float32)

        def launched(left: Any = left, right: Any = right, out: Any = out) -> None:
            launch_on_gpu(launch, memory, [tensor(left), tensor(right), out, 64], (1, 1, 1))

        within_patience("a product with the identity", launched)
        assert not np.any(out.view(np.uint32) & 0x1FFF)
        error = np.abs(out.astype(np.float64) - whole) / np.exp2(np.floor(np.log2(np.abs(whole))))
        assert error.max() <= 2.0**-11, f"off by {error.max() * 2**10} units of the last place"


@pytest.mark.parametrize("imprecise", [32, 64, 128])
def test_promoted_sums_by_halves(imprecise: int) -> None:
    """There are no registers for a second set of so many sums."""
    multiplied_by_language(
        ("fp8e4nv", "fp8e4nv", "fp32", imprecise), True, False, (128, 256, 128), 8
    )


def test_promotion_keeps_bits() -> None:
    """Sums over many positive numbers, of which the instructions cut off a little each time."""
    rng = np.random.default_rng(3)
    m, n, k = 128, 256, 16384
    (a, left), (b, right) = (drawn(rng, shape, "fp8e4nv") for shape in ((m, k), (n, k)))
    for memory in (a, b):
        memory &= 0x7F
    exact = np.abs(left) @ np.abs(right).T
    errors = {}
    for imprecise in (None, 128, 32):
        module = matmul_module(True, False, (64, 128, 128), n, "fp8e4nv", imprecise=imprecise)
        launch, device = prepare(module, asynchronous=True, num_warps=4, num_stages=3)
        out = np.full((m, n), np.nan, np.float32)

        def launched(launch: Any = launch, device: Any = device, out: Any = out) -> None:
            launch_on_gpu(launch, device, [tensor(a), tensor(b), out, k], (2, 2, 1))

        within_patience(f"sums promoted after {imprecise}", launched)
        errors[imprecise] = float(np.max(np.abs(out - exact) / exact))
    print(f"largest relative errors of sums over {k} products, by the promotion interval: {errors}")
    assert errors[None] > 4 * errors[128] >= errors[128] >= errors[32], errors
    assert errors[128] < 10 * 2.0**-12


@pytest.mark.parametrize("halves", [False, True], ids=["whole", "halves"])
@pytest.mark.parametrize("flatten", [False, True], ids=["nested", "flattened"])
@pytest.mark.parametrize(
    ("block", "warps", "stages"),
    [((64, 128, 64), 4, 3), ((128, 128, 64), 4, 3), ((128, 256, 64), 8, 3), ((128, 256, 64), 8, 4)],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 64, 129, 1000])
def test_a_persistent_product_stored_by_blocks(
    block: tuple[int, int, int], warps: int, stages: int, flatten: bool, halves: bool, k: int
) -> None:
    """Fewer programs than blocks of the result, whose edges are no multiples of a block's."""
    bm, bn, _ = block
    m, n = 3 * bm - 5, 3 * bn - 8
    rng = np.random.default_rng(k)
    a, b, c = aligned((m, k), np.float16), aligned((k, n), np.float16), aligned((m, n), np.float16)
    a[...], b[...], c[...] = rng.standard_normal(a.shape), rng.standard_normal(b.shape), np.nan
    launch, memory = prepare(
        persistent_module(block, halves, flatten),
        asynchronous=True,
        num_warps=warps,
        num_stages=stages,
    )
    what = f"a persistent product of {block}, K = {k}, {stages} stages"
    within_patience(
        what,
        lambda: launch_on_gpu(
            launch, memory, [tensor(a), tensor(b), tensor(c), m, n, k], (4, 1, 1)
        ),
    )
    wide = a.astype(np.float64) @ b.astype(np.float64)
    limit = 1e-3 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)) + 1e-3
    wrong = ~(np.abs(c - wide) <= limit)
    assert not wrong.any(), (
        f"{what}: {wrong.sum()} of {wrong.size} elements are wrong, the first at "
        f"{np.argwhere(wrong)[0]}"
    )
