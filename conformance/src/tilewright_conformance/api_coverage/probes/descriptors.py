"""Tensor descriptors, made in the kernel and on the host."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@tw.jit
def doubled_blocks(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(
        x, shape=[rows, columns], strides=[columns, 1], block_shape=[M, N]
    )
    target = tl.make_tensor_descriptor(
        out, shape=[rows, columns], strides=[columns, 1], block_shape=[M, N]
    )
    tl.static_assert(isinstance(source, tl.tensor_descriptor))
    tl.static_assert(isinstance(source.type, tl.tensor_descriptor_type))
    place = [tl.program_id(0) * M, tl.program_id(1) * N]
    target.store(place, 2 * source.load(place))


@probe(
    "tl.make_tensor_descriptor",
    "tl.tensor_descriptor",
    "tl.tensor_descriptor_type",
    "tensor_descriptor.load",
    "tensor_descriptor.store",
    feature="descriptors",
)
def make_tensor_descriptor(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal((21, 12), dtype=np.float32), np.zeros((21, 12), np.float32)
    on(doubled_blocks)[(3, 2)](x, out, 21, 12, M=8, N=8)
    np.testing.assert_array_equal(out, 2 * x)


@tw.jit
def padded_copy(source, out, M: tl.constexpr, N: tl.constexpr):
    block = tl.load_tensor_descriptor(source, [tl.program_id(0) * M, 0])
    tl.static_assert(
        source.dtype == tl.float32
        and source.block_shape[1] == N
        and source.block_type.shape[0] == M
    )
    tl.store_tensor_descriptor(
        out, [tl.program_id(0) * M, 0], block + source.shape[0] + source.strides[0]
    )


@probe(
    "tl.load_tensor_descriptor",
    "tl.store_tensor_descriptor",
    "tensor_descriptor.shape",
    "tensor_descriptor.strides",
    "tensor_descriptor.block_shape",
    "tensor_descriptor.block_type",
    "tensor_descriptor.dtype",
    "tilewright.TensorDescriptor",
    feature="descriptors",
)
def host_descriptors(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal((13, 8), dtype=np.float32), np.zeros((16, 16), np.float32)
    source = tw.TensorDescriptor(x, shape=[13, 8], strides=[8, 1], block_shape=[4, 16])
    target = tw.TensorDescriptor(out, shape=[16, 16], strides=[16, 1], block_shape=[4, 16])
    on(padded_copy)[(4,)](source, target, M=4, N=16)
    np.testing.assert_allclose(out, np.pad(x, ((0, 3), (0, 8))) + 13 + 8, rtol=1e-6)


@tw.jit
def reduced(start, total, low, high, N: tl.constexpr):
    value = tl.load(start + tl.program_id(0) * N + tl.arange(0, N))
    total.atomic_add([0], value)
    low.atomic_min([0], value)
    high.atomic_max([0], value)


@probe(
    "tensor_descriptor.atomic_add",
    "tensor_descriptor.atomic_min",
    "tensor_descriptor.atomic_max",
    feature="descriptors",
)
def descriptor_atomics(on: Machine, rng: Any) -> None:
    x = rng.integers(-99, 99, (5, 16)).astype(np.int32)
    total, low, high = (
        np.zeros(16, np.int32),
        np.full(16, 999, np.int32),
        np.full(16, -999, np.int32),
    )
    blocks = [
        tw.TensorDescriptor(array, shape=[16], strides=[1], block_shape=[16])
        for array in (total, low, high)
    ]
    on(reduced)[(5,)](x, *blocks, N=16)
    np.testing.assert_array_equal(total, x.sum(0))
    np.testing.assert_array_equal(low, x.min(0))
    np.testing.assert_array_equal(high, x.max(0))


@tw.jit
def reduced_bits(start, both, either, odd, N: tl.constexpr):
    value = tl.load(start + tl.program_id(0) * N + tl.arange(0, N))
    both.atomic_and([0], value)
    either.atomic_or([0], value)
    odd.atomic_xor([0], value)


@probe(
    "tensor_descriptor.atomic_and",
    "tensor_descriptor.atomic_or",
    "tensor_descriptor.atomic_xor",
    feature="descriptors",
)
def descriptor_bit_atomics(on: Machine, rng: Any) -> None:
    x = rng.integers(0, 2**31, (5, 16)).astype(np.int32)
    both, either, odd = np.full(16, -1, np.int32), np.zeros(16, np.int32), np.zeros(16, np.int32)
    blocks = [
        tw.TensorDescriptor(array, shape=[16], strides=[1], block_shape=[16])
        for array in (both, either, odd)
    ]
    on(reduced_bits)[(5,)](x, *blocks, N=16)
    np.testing.assert_array_equal(both, np.bitwise_and.reduce(x))
    np.testing.assert_array_equal(either, np.bitwise_or.reduce(x))
    np.testing.assert_array_equal(odd, np.bitwise_xor.reduce(x))


@tw.jit
def rows_by_number(source, target, order, ROWS: tl.constexpr):
    rows = tl.load(order + tl.arange(0, ROWS))
    target.scatter(source.gather(rows, 8), tl.arange(0, ROWS), 0)


@probe("tensor_descriptor.gather", "tensor_descriptor.scatter", feature="descriptors")
def gather_and_scatter(on: Machine, rng: Any) -> None:
    x, out, order = (
        rng.standard_normal((20, 24), dtype=np.float32),
        np.zeros((16, 16), np.float32),
        rng.permutation(20)[:16].astype(np.int32),
    )
    source = tw.TensorDescriptor(x, shape=[20, 24], strides=[24, 1], block_shape=[1, 16])
    target = tw.TensorDescriptor(out, shape=[16, 16], strides=[16, 1], block_shape=[1, 16])
    on(rows_by_number)[(1,)](source, target, order, ROWS=16)
    np.testing.assert_array_equal(out, x[order, 8:])
