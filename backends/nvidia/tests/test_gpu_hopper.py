"""Hopper's mechanisms on the device, one at a time, the smallest first: a barrier object, a copy, a product, pipelined products, against NumPy in float64."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from gpu_support import gpu_is_there, launch_on_gpu, prepare
from hopper_support import ASYNCHRONOUS, Operand, Text, barrier_kernel, compiled, load_kernel, product_kernel, shifted_module, store_kernel
from test_warpgroups import matmul_module

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.callable import device_function
from tilewright.passes import pipeline
from tilewright.simt.host.kernels import LoadedKernel
from tilewright.simt.host.launch import make_launcher
from tilewright.simt.host.memory import DeviceMemory
from tilewright_nvidia.driver import driver
from tilewright_nvidia.slabs import Slabs


def hopper_is_there() -> bool:
    if not gpu_is_there():
        return False
    from tilewright_nvidia.devices import capability_of

    return capability_of(driver(), 0) == 90


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here")]

#: Seconds after which a kernel is taken to wait for what never comes.
PATIENCE = 120


def within_patience(what: str, action: Callable[[], None]) -> None:
    """Run a launch. One that does not end cannot be stopped: the process says so and ends."""
    failed: list[BaseException] = []

    def body() -> None:
        try:
            action()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        os.write(2, f"\n{what} has not ended after {PATIENCE} s: a barrier object's phase, or a barrier of threads, does not end\n".encode())
        os._exit(70)
    if failed:
        raise failed[0]


def run(text: Text, arguments: Sequence[Any], what: str) -> None:
    """Run a kernel in the toolkit's operations as one program."""
    code = compiled(text)
    cuda = driver()
    launch = make_launcher(LoadedKernel(code, 0, cuda), text.parameters, ASYNCHRONOUS)
    within_patience(what, lambda: launch_on_gpu(launch, DeviceMemory(0, cuda), arguments, (1, 1, 1)))


def tensor(array: np.ndarray[Any, Any], padding: str = "zero") -> Any:
    strides = [step // array.itemsize for step in array.strides]
    return SimpleNamespace(base=array, shape=list(array.shape), strides=strides, padding=padding)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Zeros whose rows are multiples of 16 bytes apart, in memory that allows no more than that."""
    width = -(-shape[-1] * np.dtype(dtype).itemsize // 16) * 16 // np.dtype(dtype).itemsize
    return np.zeros((*shape[:-1], width), dtype)[..., : shape[-1]]


def differences(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    """Where two arrays of numbers differ, the first ones, and where what was found stands in what was expected."""
    same = (found == expected) | (np.isnan(found.astype(np.float64)) & np.isnan(expected.astype(np.float64)))
    wrong = np.argwhere(~same)
    lines = [f"{len(wrong)} of {found.size} elements differ"]
    for point in wrong[:12]:
        at = tuple(int(i) for i in point)
        lines.append(f"  {at}: {found[at]!r} for {expected[at]!r}; that stands at {[tuple(map(int, p)) for p in np.argwhere(expected == found[at])[:3]]}")
    return "\n".join(lines)


def agree(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert np.array_equal(found, expected, equal_nan=found.dtype.kind == "f"), differences(found, expected)


# ---- barrier objects


@pytest.mark.parametrize("arrivals", [0, 1, 2, 7])
def test_barrier_objects(arrivals: int) -> None:
    out = np.zeros(256, np.int32)
    run(barrier_kernel(arrivals), [out], f"a kernel of {arrivals} arrivals")
    agree(out, np.arange(7, 263, dtype=np.int32))


# ---- copies


def expected_block(array: np.ndarray[Any, Any], offsets: Sequence[int], block: Sequence[int], padding: str) -> np.ndarray[Any, Any]:
    outside = np.nan if padding == "nan" else 0
    found = np.full(block, outside, array.dtype)
    for inside in np.ndindex(*block):
        point = tuple(a + b for a, b in zip(offsets, inside, strict=True))
        if all(0 <= at < extent for at, extent in zip(point, array.shape, strict=True)):
            found[inside] = array[point]
    return found


COPIES = [
    ((64, 64), "f16", Slabs(1, 0)),
    ((64, 64), "f16", Slabs(1, 128)),
    ((64, 64), "f16", Slabs(1, 64)),
    ((64, 64), "f16", Slabs(1, 32)),
    ((16, 128), "f32", Slabs(1, 128)),
    ((64, 128), "u8", Slabs(1, 64)),
    ((1024,), "f32", Slabs(0, 0)),
    ((4, 16, 64), "f16", Slabs(2, 128)),
    ((2, 2, 4, 8, 16), "f32", Slabs(4, 64)),
]
_DTYPES = {"f16": np.float16, "f32": np.float32, "u8": np.uint8}


@pytest.mark.parametrize(("block", "element", "slabs"), COPIES, ids=str)
@pytest.mark.parametrize("place", ["inside", "across the end", "before the beginning"])
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_a_block_is_copied(block: tuple[int, ...], element: str, slabs: Slabs, place: str, padding: str) -> None:
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
    run(load_kernel(block, element, slabs, padding), [tensor(array, padding), out, *offsets], f"a copy of {block} {element} in {slabs}")
    agree(out.reshape(block), expected_block(array, offsets, block, padding))


@pytest.mark.parametrize(("block", "element", "slabs"), COPIES, ids=str)
@pytest.mark.parametrize("across", [False, True], ids=["inside", "across the end"])
def test_a_block_is_copied_back(block: tuple[int, ...], element: str, slabs: Slabs, across: bool) -> None:
    array = aligned(tuple(extent + 16 for extent in block), _DTYPES[element])
    array[...] = 99
    offsets = [16 + extent // 2 for extent in block] if across else [*[8] * (len(block) - 1), 16 // array.itemsize]
    x = (np.arange(int(np.prod(block))) % 97).astype(array.dtype)
    expected = array.copy()
    for inside in np.ndindex(*block):
        point = tuple(a + b for a, b in zip(offsets, inside, strict=True))
        if all(at < extent for at, extent in zip(point, array.shape, strict=True)):
            expected[point] = x.reshape(block)[inside]
    run(store_kernel(block, element, slabs), [tensor(array), x, *offsets], f"a copy of {block} {element} in {slabs} to a tensor")
    agree(array, expected)


def moved(x: Any, y: Any, BM: tl.constexpr, BN: tl.constexpr) -> None:
    for column in range(0, 2 * BN, BN):
        at = [tl.program_id(0) * BM, column]
        y.store(at, x.load(at) * 2)


@pytest.mark.parametrize("block", [(64, 64), (16, 128), (128, 16)], ids=str)
@pytest.mark.parametrize(("dtype", "element"), [("fp16", np.float16), ("fp32", np.float32), ("i32", np.int32)])
def test_blocks_through_the_language(block: tuple[int, int], dtype: str, element: Any) -> None:
    constants = {"BM": block[0], "BN": block[1]}
    type_ = f"tensordesc<{dtype}{list(block)}>"
    facts = {"divisibility": 16}
    module = compile_function(device_function(moved), {"x": type_, "y": type_, **dict.fromkeys(constants, "constexpr")}, constants, {"x": facts, "y": facts})
    pipeline.run(module)
    x, y = (aligned((3 * block[0] - 5, 2 * block[1] - 3), element) for _ in range(2))
    x[...] = (np.arange(x.size) % 1019).reshape(x.shape)
    launch, memory = prepare(module, asynchronous=True, num_warps=4, num_stages=2)
    within_patience(f"blocks of {block}", lambda: launch_on_gpu(launch, memory, [tensor(x), tensor(y)], (3, 1, 1)))
    agree(y, x * 2)


@pytest.mark.parametrize(("shift", "divisor"), [(0, 16), (16, 16), (-8, 8), (8, 1), (3, 1), (-3, 1)])
def test_blocks_from_anywhere(shift: int, divisor: int) -> None:
    x, y = aligned((80, 80), np.float16), aligned((64, 64), np.float16)
    x[...] = (np.arange(x.size) % 1019).reshape(x.shape)
    launch, memory = prepare(shifted_module(divisor), asynchronous=True, num_warps=4, num_stages=2)
    within_patience(f"a block from {shift}", lambda: launch_on_gpu(launch, memory, [tensor(x), tensor(y), shift], (1, 1, 1)))
    agree(y, expected_block(x, (shift, shift), (64, 64), "zero"))


# ---- products


def operand(rng: np.random.Generator, shape: tuple[int, int], element: str, transposed: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(what is in memory, the operand in float64): small integers, whose products are exact."""
    values = rng.integers(0 if element == "u8" else -4, 5, shape)
    memory = values.T if transposed else values
    if element == "bf16":
        bits = (np.ascontiguousarray(memory.astype(np.float32)).view(np.uint32) >> 16).astype(np.uint16)
        return bits, values.astype(np.float64)
    if element.startswith("f8"):
        mantissa, bias = (3, 7) if element == "f8e4m3fn" else (2, 15)
        codes = {}
        for value in range(-4, 5):
            size = abs(value)
            exponent = size.bit_length() - 1
            code = 0 if not size else exponent + bias << mantissa | (size << mantissa >> exponent) - (1 << mantissa)
            codes[value] = code | (0x80 if value < 0 else 0)
        return np.ascontiguousarray(np.vectorize(codes.get)(memory).astype(np.uint8)), values.astype(np.float64)
    dtype = {"f16": np.float16, "f32": np.float32, "i8": np.int8, "u8": np.uint8}[element]
    return np.ascontiguousarray(memory.astype(dtype)), values.astype(np.float64)


def multiplied(shape: tuple[int, int], k: int, a: str, b: str, sums: str, x: Operand, y: Operand, warps: int, kind: str = "ss") -> None:
    rng = np.random.default_rng(0)
    (m, n) = shape
    (left, first), (right, second) = operand(rng, (m, k), a, x.transposed), operand(rng, (k, n), b, y.transposed)
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
    ("shape", "k", "warps"), [((64, 256), 64, 4), ((128, 128), 128, 4), ((128, 256), 64, 8), ((64, 128), 64, 8), ((256, 64), 64, 8)], ids=str
)
@pytest.mark.parametrize("y", [False, True], ids=["b", "b transposed"])
def test_a_product_of_several_instructions(shape: tuple[int, int], k: int, warps: int, y: bool) -> None:
    multiplied(shape, k, "f16", "f16", "f32", Operand(), Operand(y), warps)


@pytest.mark.parametrize(
    ("a", "b", "sums"), [("bf16", "bf16", "f32"), ("f32", "f32", "f32"), ("f8e4m3fn", "f8e5m2", "f32"), ("i8", "u8", "i32"), ("i8", "i8", "i32")]
)
def test_a_product_of_each_kind(a: str, b: str, sums: str) -> None:
    span = 128 if a in ("bf16", "f32") else 64
    multiplied((64, 64), 32 if a == "f32" else 64, a, b, sums, Operand(span=span), Operand(True, span), 4)


@pytest.mark.parametrize(("a", "b", "sums"), [("f16", "f16", "f32"), ("f32", "f32", "f32"), ("f8e4m3fn", "f8e5m2", "f32"), ("i8", "u8", "i32")])
@pytest.mark.parametrize("warps", [4, 8])
def test_a_product_with_a_in_registers(a: str, b: str, sums: str, warps: int) -> None:
    multiplied((128, 64), 32 if a == "f32" else 64, a, b, sums, Operand(span=64), Operand(True, 64), warps, "rs")


# ---- pipelined products


@pytest.mark.parametrize("turned", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
@pytest.mark.parametrize(("block", "warps"), [((64, 64, 64), 4), ((128, 128, 64), 4), ((128, 256, 64), 8), ((128, 128, 32), 8)], ids=str)
@pytest.mark.parametrize("k", [1, 64, 200, 1000])
@pytest.mark.parametrize("stages", [2, 3])
def test_a_pipelined_product(turned: bool, parts: bool, block: tuple[int, int, int], warps: int, k: int, stages: int) -> None:
    bm, bn, _ = block
    m, n = 2 * bm, 2 * bn
    rng = np.random.default_rng(1)
    a, b = aligned((m, k), np.float16), aligned((n, k) if turned else (k, n), np.float16)
    a[...], b[...] = rng.standard_normal(a.shape), rng.standard_normal(b.shape)
    out = np.full((m, n), np.nan, np.float32)
    module = matmul_module(turned, parts, block, n)
    # rows of a whole number of 16 bytes, whatever K is
    launch, memory = prepare(module, asynchronous=True, num_warps=warps, num_stages=stages)
    what = f"{'parts' if parts else 'blocks'} of {block}, K = {k}, {stages} stages"
    within_patience(what, lambda: launch_on_gpu(launch, memory, [tensor(a), tensor(b), out, k], (2, 2, 1)))
    wide = a.astype(np.float64) @ (b.T if turned else b).astype(np.float64)
    error = np.abs(out - wide)
    limit = 1e-5 * (np.abs(a).astype(np.float64) @ np.abs(b.T if turned else b).astype(np.float64)) + 1e-6
    wrong = ~(error <= limit)
    rows, columns = np.nonzero(wrong)
    assert not wrong.any(), (
        f"{what}: {wrong.sum()} of {wrong.size} sums are wrong, rows {rows.min()} to {rows.max()}, columns {columns.min()} to {columns.max()}; "
        f"the first is {out[wrong][0]} for {wide[wrong][0]}, the largest error {np.nanmax(error)}"
    )
