"""Arguments, addresses, descriptors, atomics, prints and asserts."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.ir import Region
from tilewright.ir.types import (
    BF16,
    F8E5M2,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    U8,
    U32,
    U64,
    DescriptorType,
    PointerType,
    TileType,
)
from tilewright.reference import numerics
from tilewright.reference.interpreter import DescriptorValue
from tilewright.reference.operations import atomics


def const(b, value, type_=I32):
    return b.constant(value=value, result=type_)


def copy_kernel(kernels, n, type_=F32, start=0):
    def body(b, source, target):
        b.line(3)
        value = b.load(
            b.addptr(
                b.splat(source, result=TileType((n,), source.type)),
                b.arange(start=start, end=start + n),
            )
        )
        b.line(4)
        b.store(kernels.addresses(b, target, (n,)), value)

    return kernels.make([PointerType(type_)] * 2, body, ["source", "target"])


@pytest.mark.parametrize("type_", [I1, I8, I64, BF16, F8E5M2, F16, F64, PointerType(F32)], ids=str)
def test_every_type_in_memory(type_, kernels, rng):
    dtype = numerics.numpy_dtype(type_)
    x = rng.integers(0, 2 if type_ is I1 else 100, 9).astype(dtype)
    out = np.zeros(9, dtype)
    kernels.run(copy_kernel(kernels, 9, type_), [x, out], (1, 1, 1))
    assert np.array_equal(x.view(np.uint8), out.view(np.uint8))


def test_a_boolean_is_any_byte_but_zero(kernels):
    out = np.zeros(3, np.uint8)
    kernels.run(copy_kernel(kernels, 3, I1), [np.array([0, 2, 255], np.uint8), out], (1, 1, 1))
    assert out.tolist() == [0, 1, 1]


def test_views_reach_all_of_their_allocation(kernels, rng):
    """A kernel may walk from a view's first element through the array it is part of, backwards
    too."""
    base = rng.normal(size=(6, 8)).astype(np.float32)
    out = np.zeros(8, np.float32)
    kernels.run(copy_kernel(kernels, 8), [base[2:4, ::3], out], (1, 1, 1))
    assert np.array_equal(out, base[2])
    kernels.run(copy_kernel(kernels, 8, start=-8), [base[2:4, ::3], out], (1, 1, 1))
    assert np.array_equal(out, base[1])
    kernels.run(copy_kernel(kernels, 8), [base[::-1], out[::-1][7:]], (1, 1, 1))
    assert np.array_equal(out, base[5])


def test_an_element_that_is_half_inside_is_outside(kernels):
    x, out = np.zeros(11, np.uint8), np.zeros(2, np.float32)
    kernels.run(copy_kernel(kernels, 1, start=1), [x, out], (1, 1, 1))
    for start in (2, -1):
        with pytest.raises(KernelError, match="load outside the memory of every argument"):
            kernels.run(copy_kernel(kernels, 1, start=start), [x, out], (1, 1, 1))
    for behind in (x[4:], x[8:]):
        with pytest.raises(KernelError, match="store outside the memory of every argument"):
            kernels.run(copy_kernel(kernels, 2), [out, behind], (1, 1, 1))


def test_torch_tensors(kernels):
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    out = torch.zeros(4, dtype=torch.bfloat16)
    kernels.run(copy_kernel(kernels, 4, BF16), [x[1], out], (1, 1, 1))
    assert out.tolist() == [4, 5, 6, 7]
    kernels.run(copy_kernel(kernels, 4, BF16, start=-4), [x[1], out], (1, 1, 1))
    assert out.tolist() == [0, 1, 2, 3]
    with pytest.raises(KernelError, match="8 bytes past the end of argument source"):
        kernels.run(copy_kernel(kernels, 4, BF16, start=5), [x[1], out], (1, 1, 1))


class Interface:
    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Pointer:
    def __init__(self, array):
        self.array, self.nbytes = array, array.nbytes

    def data_ptr(self):
        return self.array.ctypes.data


class Packed:
    """Only ``__dlpack__``, as some libraries' arrays are."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [Interface, Pointer, Packed])
def test_other_array_protocols(wrap, kernels, rng):
    x, out = rng.normal(size=5).astype(np.float32), np.zeros(5, np.float32)
    kernels.run(copy_kernel(kernels, 5), [wrap(x), wrap(out)], (1, 1, 1))
    assert np.array_equal(out, x)


def test_accesses_outside_say_where_and_how_far(kernels):
    x, out = np.zeros(4, np.float32), np.zeros(8, np.float32)
    with pytest.raises(
        KernelError,
        match=(
            r"^kernel\.py:3:4 in kernel: load outside the memory of every argument: .*; program "
            r"\(0, 0, 0\), lane 4\n"
        ),
    ):
        kernels.run(copy_kernel(kernels, 8), [x, out], (1, 1, 1))
    with pytest.raises(KernelError, match=r"^kernel\.py:4:4 .*store"):
        kernels.run(copy_kernel(kernels, 8), [out, x], (1, 1, 1))


@pytest.mark.parametrize("address", [0, 8, -8, 2**47 - 16, 2**63 - 8, -(2**63)])
def test_null_and_wild_pointers_raise(address, kernels):
    def load(b, source, target):
        b.store(target, b.load(b.bitcast(source, result=PointerType(F64))))

    def store(b, source, target):
        b.store(b.bitcast(source, result=PointerType(F64)), b.load(target))

    out = np.zeros(1)
    for body in (load, store):
        module = kernels.make(
            [I64, PointerType(F64)], body
        )  # made of an integer, so that raw access is allowed
        with pytest.raises(KernelError):
            kernels.run(module, [address, out], (1, 1, 1))
    with pytest.raises(KernelError):
        kernels.run(copy_kernel(kernels, 1, F64), [address, out], (1, 1, 1))
    with pytest.raises(KernelError, match="null pointer"):
        kernels.run(copy_kernel(kernels, 1, F64), [None, out], (1, 1, 1))


def test_pointers_loaded_from_memory(kernels, rng):
    """A table of pointers to arrays that are no arguments: read and written, page by page."""
    arrays = [rng.normal(size=3000).astype(np.float32) for _ in range(4)]
    targets = [np.zeros(3000, np.float32) for _ in range(4)]
    table = np.array(
        [[a.ctypes.data, t.ctypes.data] for a, t in zip(arrays, targets, strict=True)], np.int64
    )

    def body(b, pointers):
        here = b.addptr(pointers, b.mul(b.program_id(axis=0), const(b, 2)))
        source, target = b.load(here), b.load(b.addptr(here, const(b, 1)))
        b.store(
            kernels.addresses(b, target, (3000,)), b.load(kernels.addresses(b, source, (3000,)))
        )

    module = kernels.make([PointerType(PointerType(F32))], body)
    kernels.run(module, [table], (4, 1, 1))
    assert all(np.array_equal(a, t) for a, t in zip(arrays, targets, strict=True))
    table[2, 1] = 64
    with pytest.raises(KernelError, match="store of memory that this process may not write"):
        kernels.run(module, [table], (4, 1, 1))
    table[2, 1], table[1, 0] = targets[2].ctypes.data, 0
    with pytest.raises(KernelError, match="may not read: the null pointer"):
        kernels.run(module, [table], (4, 1, 1))


def test_read_only_memory_is_not_written(kernels):
    frozen = np.frombuffer(bytes(16), np.float32)
    x = np.ones(4, np.float32)
    kernels.run(copy_kernel(kernels, 4), [frozen, x], (1, 1, 1))
    assert x.tolist() == [0] * 4
    with pytest.raises(KernelError, match="store to read-only memory"):
        kernels.run(copy_kernel(kernels, 4), [np.ones(4, np.float32), frozen], (1, 1, 1))
    assert frozen.tolist() == [0] * 4
    text = ctypes.create_string_buffer(b"constant")
    kernels.run(
        copy_kernel(kernels, 8, U8),
        [np.frombuffer(b"changed!", np.uint8), np.frombuffer(text, np.uint8, 8)],
        (1, 1, 1),
    )
    assert text.value == b"changed!"


def test_misaligned_addresses(kernels, rng):
    data = rng.integers(0, 256, 40).astype(np.uint8)
    out = np.zeros(30, np.uint8)

    def body(b, source, target):
        at = b.bitcast(b.addptr(source, const(b, 3)), result=PointerType(F32))
        to = b.bitcast(b.addptr(target, const(b, 1)), result=PointerType(F32))
        b.store(kernels.addresses(b, to, (5,)), b.load(kernels.addresses(b, at, (5,))))

    kernels.run(kernels.make([PointerType(U8)] * 2, body), [data, out], (1, 1, 1))
    assert np.array_equal(out[1:21], data[3:23]) and not out[0] and not out[21:].any()


@pytest.mark.parametrize("programs", [1, 3])
def test_masks_keep_lanes_off_memory(programs, kernels, rng):
    """Masked-off lanes have wild addresses; other and mask differ among lanes and programs."""
    n = 10
    x = rng.normal(size=(programs, n)).astype(np.float32)
    out = np.full((programs, n), 7, np.float32)

    def body(b, source, target):
        pid = b.program_id(axis=0)
        lanes = b.arange(start=0, end=n)
        tile = TileType((n,), I32)
        mask = b.cmp(lanes, b.splat(b.add(pid, const(b, 4)), result=tile), predicate="lt")
        wild = b.select(mask, lanes, b.splat(const(b, 10**9), result=tile))
        offset = b.mul(pid, const(b, n))
        loaded = b.load(
            b.addptr(b.splat(b.addptr(source, offset), result=TileType((n,), source.type)), wild),
            mask=mask,
            other=b.cast(lanes, result=TileType((n,), F32)),
        )
        plain = b.load(
            b.addptr(b.splat(b.addptr(source, offset), result=TileType((n,), source.type)), wild),
            mask=mask,
        )
        even = b.cmp(
            b.and_(lanes, b.splat(const(b, 1), result=tile)),
            b.splat(const(b, 0), result=tile),
            predicate="eq",
        )
        b.store(
            kernels.addresses(b, b.addptr(target, offset), (n,)),
            b.add(loaded, b.sub(plain, plain)),
            mask=even,
        )

    kernels.run(kernels.make([PointerType(F32)] * 2, body), [x, out], (programs, 1, 1))
    for p in range(programs):
        want = np.where(np.arange(n) < p + 4, x[p], np.arange(n))
        assert np.array_equal(out[p], np.where(np.arange(n) % 2 == 0, want, 7).astype(np.float32))


# -- descriptors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("host", [False, True])
def test_descriptor_blocks_over_the_edges(padding, host, kernels, rng):
    rows, columns, pitch = 5, 7, 9
    x = rng.normal(size=(rows, pitch)).astype(np.float32)
    block = DescriptorType((4, 4), F32)
    out = np.zeros((3 * 3, 4, 4), np.float32)
    copy = np.full((rows, pitch), 3, np.float32)

    def describe(b, base):
        return b.make_descriptor(
            base,
            [const(b, rows, I64), const(b, columns, I64)],
            [const(b, pitch, I64), const(b, 1, I64)],
            padding=padding,
            result=block,
        )

    def body(b, source, target, copied):
        source = source if host else describe(b, source)
        i, j = b.program_id(axis=0), b.program_id(axis=1)
        offsets = [b.sub(b.mul(v, const(b, 4)), const(b, 2)) for v in (i, j)]
        value = b.descriptor_load(source, offsets)
        here = b.mul(b.add(i, b.mul(j, const(b, 3))), const(b, 16))
        b.store(kernels.addresses(b, b.addptr(target, here), (4, 4)), value)
        b.descriptor_store(describe(b, copied), offsets, value)

    module = kernels.make(
        [block if host else PointerType(F32), PointerType(F32), PointerType(F32)], body
    )
    source = DescriptorValue(x, (rows, columns), (pitch, 1), padding) if host else x
    kernels.run(module, [source, out, copy], (3, 3, 1))
    padded = np.full((16, 16), np.nan if padding == "nan" else 0, np.float32)
    padded[2 : 2 + rows, 2 : 2 + columns] = x[:, :columns]
    for i in range(3):
        for j in range(3):
            assert np.array_equal(
                out[i + 3 * j], padded[4 * i : 4 * i + 4, 4 * j : 4 * j + 4], equal_nan=True
            )
    assert np.array_equal(copy[:, :columns], x[:, :columns])
    assert (copy[:, columns:] == 3).all()


def test_descriptor_rows_and_reductions(kernels, rng):
    x = rng.integers(0, 99, (6, 8)).astype(np.int32)
    rows = np.array([5, -1, 0, 6, 2, 2], np.int32)
    out, sums = np.zeros((6, 4), np.int32), np.zeros((6, 8), np.int32)
    line = DescriptorType((1, 4), I32)

    def body(b, source, index, target, accumulated):
        shape, strides = [const(b, 6, I64), const(b, 8, I64)], [const(b, 8, I64), const(b, 1, I64)]
        wanted = b.load(kernels.addresses(b, index, (6,)))
        picked = b.descriptor_gather(
            b.make_descriptor(source, shape, strides, result=line), wanted, const(b, 6)
        )
        b.store(kernels.addresses(b, target, (6, 4)), picked)
        other = b.make_descriptor(accumulated, shape, strides, result=line)
        b.descriptor_scatter(other, wanted, const(b, -1), picked)
        whole = b.make_descriptor(accumulated, shape, strides, result=DescriptorType((6, 4), I32))
        b.descriptor_reduce(whole, [const(b, 0), const(b, 5)], picked, kind="max")

    kernels.run(kernels.make([PointerType(I32)] * 4, body), [x, rows, out, sums], (1, 1, 1))
    padded = np.zeros((8, 12), np.int32)
    padded[:6, :8] = x
    gathered = np.where(((rows >= 0) & (rows < 6))[:, None], padded[np.clip(rows, 0, 5), 6:10], 0)
    assert np.array_equal(out, gathered)
    want = np.zeros((6, 8), np.int32)
    for row, values in zip(rows, gathered, strict=True):
        if 0 <= row < 6:
            want[row, :3] = values[1:]
    want[:, 5:] = np.maximum(want[:, 5:], gathered[:, :3])
    assert np.array_equal(sums, want)


# -- atomics ---------------------------------------------------------------------------------------

KINDS = {
    "add": lambda old, v, wrap: wrap(old + v),
    "min": lambda old, v, wrap: min(old, v),
    "max": lambda old, v, wrap: max(old, v),
    "and": lambda old, v, wrap: old & v,
    "or": lambda old, v, wrap: old | v,
    "xor": lambda old, v, wrap: old ^ v,
    "xchg": lambda old, v, wrap: v,
}


@pytest.mark.parametrize("slots", [1, 3, 200])
@pytest.mark.parametrize("type_", [I32, U32, I64, U64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_integer_atomics_in_lane_order(kind, type_, slots, kernels, rng):
    programs, n = 4, 64
    dtype = numerics.numpy_dtype(type_)
    values = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (programs, n), dtype=dtype)
    places = rng.integers(0, slots, (programs, n)).astype(np.int32)
    keep = rng.integers(0, 4, (programs, n)) > 0
    memory = rng.integers(0, 100, slots).astype(dtype)
    old = np.zeros((programs, n), dtype)
    expected_memory, expected_old = memory.tolist(), np.zeros((programs, n), dtype)
    for p in range(programs):
        for lane in range(n):
            if keep[p, lane]:
                slot = places[p, lane]
                expected_old[p, lane] = expected_memory[slot]
                expected_memory[slot] = KINDS[kind](
                    expected_memory[slot], int(values[p, lane]), type_.wrap
                )

    def body(b, target, index, value, mask, result):
        offset = b.mul(b.program_id(axis=0), const(b, n))

        def part(base):
            return kernels.addresses(b, b.addptr(base, offset), (n,))

        pointers = b.addptr(
            b.splat(target, result=TileType((n,), target.type)), b.load(part(index))
        )
        b.store(
            part(result), b.atomic_rmw(pointers, b.load(part(value)), b.load(part(mask)), kind=kind)
        )

    types = [
        PointerType(type_),
        PointerType(I32),
        PointerType(type_),
        PointerType(I1),
        PointerType(type_),
    ]
    kernels.run(kernels.make(types, body), [memory, places, values, keep, old], (programs, 1, 1))
    assert memory.tolist() == expected_memory
    assert np.array_equal(np.where(keep, old, 0), expected_old)


@pytest.mark.parametrize("slots", [1, 50])
@pytest.mark.parametrize("type_", [F16, BF16, F32, F64], ids=str)
def test_float_atomic_adds_round_every_step(type_, slots, kernels, rng):
    n = 100
    values = numerics.encode(rng.normal(size=n), type_)
    places = rng.integers(0, slots, n).astype(np.int32)
    memory, old = (
        numerics.encode(np.zeros(slots), type_).copy(),
        numerics.encode(np.zeros(n), type_).copy(),
    )
    expected, expected_old = [numerics.encode(np.float64(0), type_)] * slots, []
    for place, value in zip(places, values, strict=True):
        expected_old.append(expected[place])
        total = numerics.decode(expected[place], type_).astype(np.float64) + numerics.decode(
            value, type_
        ).astype(np.float64)
        expected[place] = numerics.encode(total, type_)

    def body(b, target, index, value, result):
        pointers = b.addptr(
            b.splat(target, result=TileType((n,), target.type)),
            b.load(kernels.addresses(b, index, (n,))),
        )
        b.store(
            kernels.addresses(b, result, (n,)),
            b.atomic_rmw(pointers, b.load(kernels.addresses(b, value, (n,))), kind="add"),
        )

    kernels.run(
        kernels.make(
            [PointerType(type_), PointerType(I32), PointerType(type_), PointerType(type_)], body
        ),
        [memory, places, values, old],
        (1, 1, 1),
    )
    assert memory.tolist() == [v.item() for v in expected]
    assert old.tolist() == [v.item() for v in expected_old]


def test_float_atomic_extremes_order_zeros_and_nan(kernels):
    values = np.array([0.0, -0.0, -1.0, np.nan, 2.0], np.float32)
    low, high = np.array([0.0], np.float32), np.array([-0.0], np.float32)

    def body(b, value, smallest, greatest):
        tile = TileType((2,), smallest.type)
        v = b.load(kernels.addresses(b, value, (2,)))
        b.atomic_rmw(b.splat(smallest, result=tile), v, kind="min")
        b.atomic_rmw(b.splat(greatest, result=tile), v, kind="max")

    module = kernels.make([PointerType(F32)] * 3, body)
    kernels.run(module, [values, low, high], (1, 1, 1))
    assert np.signbit(low[0]) and not np.signbit(high[0])
    kernels.run(module, [values[2:], low, high], (1, 1, 1))
    assert low[0] == -1 and np.isnan(high[0])
    bits = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1e-45, 1, np.inf, np.nan], np.float32)
    ordered = atomics.ordered_bits(bits)
    assert (np.diff(ordered.astype(np.int64)) > 0).all()
    assert np.array_equal(
        atomics.floats_of_ordered_bits(ordered, bits.dtype).view(np.int32), bits.view(np.int32)
    )


@pytest.mark.parametrize("type_", [I32, F32, F16, I64], ids=str)
def test_compare_and_swap(type_, kernels):
    """Each lane of each program tries to advance from its number to the next.

    Exactly the next one in order succeeds.
    """
    dtype = numerics.numpy_dtype(type_)
    expected = np.array([[0, 0, 1, 5], [2, 1, 3, 2]], dtype)
    memory, old = np.zeros(1, dtype), np.zeros((2, 4), dtype)

    def body(b, target, compare, result):
        offset = b.mul(b.program_id(axis=0), const(b, 4))
        want = b.load(kernels.addresses(b, b.addptr(compare, offset), (4,)))
        pointers = b.splat(target, result=TileType((4,), target.type))
        one = b.constant_like(want.type, 1)
        b.store(
            kernels.addresses(b, b.addptr(result, offset), (4,)),
            b.atomic_cas(pointers, want, b.add(want, one)),
        )

    kernels.run(kernels.make([PointerType(type_)] * 3, body), [memory, expected, old], (2, 1, 1))
    assert old.tolist() == [[0, 1, 1, 2], [2, 3, 3, 4]]
    assert memory[0] == 4


def test_cas_compares_bits(kernels):
    memory = np.array([-0.0, np.nan], np.float32)

    def body(b, target):
        zero = b.constant(value=0.0, result=F32)
        b.atomic_cas(target, zero, b.constant(value=1.0, result=F32))
        second = b.addptr(target, const(b, 1))
        b.atomic_cas(second, b.load(second), b.constant(value=2.0, result=F32))

    kernels.run(kernels.make([PointerType(F32)], body), [memory], (1, 1, 1))
    assert np.signbit(memory[0]) and memory[0] == 0 and memory[1] == 2


def test_scalar_atomics_of_a_grid_count_every_program(kernels):
    """Pointer and value are the same in all programs; each must still do its own update and see its
    own old value."""
    counter, tickets = np.zeros(1, np.int32), np.zeros(33, np.int32)

    def body(b, count, out):
        ticket = b.atomic_rmw(count, const(b, 1), kind="add")
        b.store(b.addptr(out, ticket), b.program_id(axis=0))

    kernels.run(kernels.make([PointerType(I32)] * 2, body), [counter, tickets], (33, 1, 1))
    assert counter[0] == 33 and tickets.tolist() == list(range(33))


def test_the_last_program_sees_what_all_wrote(kernels):
    partial, counter, total = np.zeros(16, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)

    def body(b, parts, count, out):
        pid = b.program_id(axis=0)
        b.store(b.addptr(parts, pid), b.mul(pid, pid))
        b.barrier()
        last = b.cmp(b.atomic_rmw(count, const(b, 1), kind="add"), const(b, 15), predicate="eq")
        then, other = Region(), Region()
        with b.at_region(then):
            v = b.load(kernels.addresses(b, parts, (16,)))
            region = Region([I32, I32])
            with b.at_region(region):
                b.yield_([b.add(*region.arguments)])
            b.store(out, b.region_op("reduce", [v], regions=[region], axis=0).result)
            b.yield_([])
        with b.at_region(other):
            b.yield_([])
        b.region_op("if", last, regions=[then, other], results=[])

    kernels.run(kernels.make([PointerType(I32)] * 3, body), [partial, counter, total], (16, 1, 1))
    assert total[0] == sum(p * p for p in range(16))


# -- prints, asserts, target code ------------------------------------------------------------------


def test_prints_in_the_order_of_programs(kernels):
    lines = []

    def body(b):
        pid = b.program_id(axis=0)
        b.print([pid, b.constant(value=-1.5, result=F32)], prefix="x")
        b.print(
            [b.add(b.arange(start=254, end=256), b.splat(pid, result=TileType((2,), I32)))],
            prefix="hex",
            hex=True,
        )
        b.print([b.constant(value=1.0, result=BF16), b.constant(value=True, result=I1)], prefix="y")
        b.print([b.arange(start=10, end=21)], prefix="100%: ")
        b.print([], prefix="end")

    kernels.run(kernels.make([], body), [], (1, 2, 1), printer=lines.append)
    expected = []
    for y in range(2):
        pid = f"pid (0, {y}, 0)"
        expected += [f"{pid} idx () x: (operand 0) 0", f"{pid} idx () x: (operand 1) -1.500000"]
        expected += [f"{pid} idx (0) hex: 0x000000fe", f"{pid} idx (1) hex: 0x000000ff"]
        expected += [f"{pid} idx () y: (operand 0) 1.000000", f"{pid} idx () y: (operand 1) 1"]
        expected += [f"{pid} idx ({i:2}) 100%: {10 + i}" for i in range(11)]
        expected += [f"{pid} end"]
    assert lines == expected


def test_asserts_name_message_line_and_program(kernels):
    def body(b, n):
        lanes = b.arange(start=0, end=4)
        b.line(9)
        pid = b.splat(b.program_id(axis=1), result=lanes.type)
        mask = b.cmp(lanes, b.splat(n, result=lanes.type), predicate="lt")
        getattr(b, "assert_")(
            b.cmp(b.add(lanes, pid), b.constant_like(lanes.type, 4), predicate="lt"),
            mask,
            message="too far",
        )

    module = kernels.make([I32], body)
    kernels.run(module, [2], (1, 3, 1))
    with pytest.raises(
        KernelError,
        match=(
            r"^kernel\.py:9:4 in kernel: device-side assertion failed: too far; program \(0, 1, "
            r"0\), lane 3\n"
        ),
    ):
        kernels.run(module, [4], (1, 3, 1))


def test_code_of_a_target_is_refused(kernels):
    for name, attributes in (
        ("inline_asm", {"assembly": "mov $0, $1;", "constraints": "=r,r"}),
        ("extern", {"symbol": "fast_sinf"}),
    ):

        def body(b, x, name=name, attributes=attributes):
            b.line(5)
            getattr(b, name)([x], result=F32, **attributes)

        with pytest.raises(
            KernelError,
            match=(
                r"^kernel\.py:5:4 in kernel: the reference runs no code of a target's own: "
                r"(inline_asm 'mov|extern function 'fast_sinf')"
            ),
        ):
            kernels.run(kernels.make([F32], body), [1.0], (1, 1, 1))
