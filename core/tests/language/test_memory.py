"""Loads, stores, block pointers and atomics."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function as jit
from tilewright.plugins.manifest import Capabilities

# -- load and store --------------------------------------------------------------------------------


def test_load_of_a_scalar_and_of_a_tensor(bench: Any) -> None:
    assert bench(tl.load, bench.value("*fp16")).type is tl.float16
    assert bench(tl.load, bench.value("*fp16", [8])).type is tl.block_type(tl.float16, [8])
    assert bench.names == ["load", "load"]


def test_mask_and_other(bench: Any) -> None:
    p, mask = bench.value("*fp16", [8], "p"), bench.value(tl.int1, [8], "m")
    bench(tl.load, p, mask, 0, cache_modifier=".cg", eviction_policy="evict_last", volatile=True)
    load = bench.last
    assert load.operand("mask") is mask.handle
    assert str(load.operand("other").type) == "tile<8xf16>"
    assert [load.attribute(name) for name in ("cache", "eviction", "volatile")] == [
        "cg",
        "last",
        True,
    ]
    bench(tl.load, p, mask=tl.constexpr(None), other=tl.constexpr(None))
    assert bench.last.segments == (1, 0, 0)
    bench.verify()


def test_mask_broadcasts_pointers_of_a_load(bench: Any) -> None:
    p, mask = bench.value("*fp32", [8, 1]), bench.value(tl.int1, [1, 4])
    assert bench(tl.load, p, mask).extents == (8, 4)
    assert bench(tl.load, p, True).extents == (8, 1)
    bench.verify()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda b: (b.value(tl.int32),), "Unsupported ptr type int32 in `tl.load`"),
        (
            lambda b: (b.value("*fp32"), None, 0.0),
            "^`other` cannot be provided without `mask`\n  help: .* give a mask, or leave it out$",
        ),
        (
            lambda b: (b.value("*fp32"), b.value(tl.int1, [4])),
            "Mask argument cannot be block type if pointer argument is not a block",
        ),
        (
            lambda b: (b.value("*fp32"), True, b.value(tl.float32, [4])),
            "Other argument cannot be block type if pointer argument is not a block",
        ),
        (
            lambda b: (b.value("*fp32", [4]), b.value(tl.int32, [4])),
            "Mask must have boolean scalar type, not int32",
        ),
        (
            lambda b: (b.value("*fp32", [4]), None, None, (0,)),
            "`boundary_check` argument is not supported for loading a tensor of pointers",
        ),
        (
            lambda b: (b.value("*fp32", [4]), None, None, (), "zero"),
            "`padding_option` or `boundary_check` argument is not supported",
        ),
        (
            lambda b: (b.value("*fp32"), None, None, (), "", ".wb"),
            "Cache modifier .wb not supported",
        ),
        (
            lambda b: (b.value("*fp32"), None, None, (), "", "", "last"),
            "Eviction policy last not supported",
        ),
    ],
)
def test_loads_that_are_refused(bench: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench(tl.load, *arguments(bench))


def test_store_casts_and_broadcasts(bench: Any) -> None:
    p = bench.value("*fp16", [8, 4])
    bench(
        tl.store,
        p,
        bench.value(tl.float32, [1, 4]),
        bench.value(tl.int1, [8, 1]),
        eviction_policy="evict_first",
        cache_modifier=".wt",
    )
    store = bench.last
    assert [str(operand.type) for operand in store.operands] == [
        "tile<8x4xptr<f16>>",
        "tile<8x4xf16>",
        "tile<8x4xi1>",
    ]
    assert (store.attribute("cache"), store.attribute("eviction")) == ("wt", "first")
    bench(tl.store, bench.value("*i32"), 2.9)
    assert str(bench.last.operands[1].type) == "i32"
    bench.verify()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda b: (b.value(tl.int32), 1), "Unsupported ptr type int32 in `tl.store`"),
        (lambda b: (b.value("*kfp32"), 1.0), "^Cannot store to a constant pointer$"),
        (
            lambda b: (b.value("*fp32"), b.value(tl.float32, [4])),
            "Value argument cannot be block type if pointer argument is not a block",
        ),
        (
            lambda b: (b.value("*fp32", [4]), b.value(tl.float32, [8, 4])),
            r"^Expected pointer argument to have shape \[8, 4\] but got \[4\]$",
        ),
        (
            lambda b: (b.value("*fp32", [4, 1]), 1.0, b.value(tl.int1, [1, 4])),
            r"Expected pointer argument to have shape \[4, 4\] but got \[4, 1\]",
        ),
        (
            lambda b: (b.value("*fp32", [4]), 1.0, b.value(tl.uint8, [4])),
            "Mask must have boolean scalar type, not uint8",
        ),
        (lambda b: (b.value("*fp32", [4]), 1.0, None, (0,)), "storing a tensor of pointers"),
        (lambda b: (b.value("*fp32"), 1.0, None, (), ".ca"), "Cache modifier .ca not supported"),
    ],
)
def test_stores_that_are_refused(bench: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench(tl.store, *arguments(bench))


@jit
def boolean_kernel(x, y, z):
    i = tl.arange(0, 8)
    b = tl.load(x + i, mask=i < 6, other=True)
    tl.store(y + i, ~b)
    tl.store(z + i, b.to(tl.int32) + 10)


def test_booleans_in_memory_are_bytes(run: Callable[..., None]) -> None:
    x = np.array([1, 0, 255, 2, 0, 1, 0, 0], np.uint8).view(np.bool_)
    y, z = np.zeros(8, np.bool_), np.zeros(8, np.int32)
    run(boolean_kernel, x, y, z)
    truth = np.array([1, 0, 1, 1, 0, 1, 1, 1], bool)
    assert np.array_equal(y.view(np.uint8), (~truth).astype(np.uint8))
    assert np.array_equal(z, truth + 10)


@jit
def boolean_store_kernel(x, y):
    i = tl.arange(0, 8)
    tl.store(y + i, tl.load(x + i))


def test_any_value_but_zero_is_stored_as_true(run: Callable[..., None]) -> None:
    x, y = np.array([256, 0, -1, 3, 1, 0, 512, 7], np.int32), np.zeros(8, np.bool_)
    run(boolean_store_kernel, x, y)
    assert np.array_equal(y.view(np.uint8), x != 0)


def test_barrier(bench: Any) -> None:
    bench(tl.debug_barrier)
    assert bench.names == ["barrier"]


# -- block pointers --------------------------------------------------------------------------------


@jit
def copy_blocks(
    x,
    y,
    M,
    N,
    stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHECK: tl.constexpr,
    PADDING: tl.constexpr,
    STEPS: tl.constexpr,
):
    source = tl.make_block_ptr(x, (M, N), (stride, 1), (0, 0), (ROWS, COLUMNS), (1, 0))
    target = tl.make_block_ptr(
        y, (ROWS, COLUMNS * STEPS), (COLUMNS * STEPS, 1), (0, 0), (ROWS, COLUMNS), (1, 0)
    )
    for _ in range(STEPS):
        tl.store(
            target,
            tl.load(source, boundary_check=CHECK, padding_option=PADDING),
            boundary_check=(0, 1),
        )
        source = tl.advance(source, (0, COLUMNS))
        target = target.advance((0, COLUMNS))


@pytest.mark.filterwarnings("ignore:block pointers are deprecated")
@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(("m", "n"), [(8, 16), (5, 13), (1, 4), (8, 9)])
def test_block_pointers(run: Callable[..., None], m: int, n: int, padding: str) -> None:
    x = np.random.default_rng(m * n).standard_normal((m, n + 3)).astype(np.float32)
    y = np.full((8, 16), 7, np.float32)
    run(copy_blocks, x, y, m, n, n + 3, ROWS=8, COLUMNS=4, CHECK=(0, 1), PADDING=padding, STEPS=4)
    expected = np.full((8, 16), 0 if padding == "zero" else np.nan, np.float32)
    expected[:m, :n] = x[:, :n]
    assert np.array_equal(y, expected, equal_nan=True)


@jit
def choose_block(x, y, flag, n, far, FORM: tl.constexpr):
    if FORM == "branch":
        if flag > 0:
            p = tl.make_block_ptr(x, (4, 4), (4, 1), (0, 0), (4, 4), (1, 0))
        else:
            p = tl.make_block_ptr(x, (n, 4), (2 * n * n, 1), (far, 1), (4, 4), (1, 0))
    else:
        a = tl.make_block_ptr(x, (4, 4), (4, 1), (0, 0), (4, 4), (1, 0))
        b = tl.make_block_ptr(x, (n, 4), (2 * n * n, 1), (far, 1), (4, 4), (1, 0))
        p = a if flag > 0 else b
    i = tl.arange(0, 4)
    tl.store(
        y + i[:, None] * 4 + i[None, :], tl.load(p, boundary_check=(0, 1), padding_option="zero")
    )


@pytest.mark.parametrize("form", ["branch", "conditional"])
@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.filterwarnings("ignore:block pointers are deprecated")
def test_block_pointers_of_other_kinds_of_numbers_meet(
    run: Callable[..., None], flag: int, form: str
) -> None:
    x, y = np.arange(16, dtype=np.float32).reshape(4, 4), np.full((4, 4), 7, np.float32)
    run(choose_block, x, y, flag, 2, 1, FORM=form)
    expected = x.copy()
    if not flag:
        expected[:] = 0
        expected[0, :3] = x[2, 1:]
    np.testing.assert_array_equal(y, expected)


@jit
def stored_blocks(x, M, N):
    p = tl.make_block_ptr(x, (M, N), (N, 1), (-1, -2), (4, 8), (1, 0))
    tl.store(p, 1, boundary_check=(0, 1))


@pytest.mark.filterwarnings("ignore:block pointers are deprecated")
def test_block_pointers_check_both_ends(run: Callable[..., None]) -> None:
    x = np.zeros((6, 7), np.int32)
    run(stored_blocks, x, 6, 7)
    expected = np.zeros((6, 7), np.int32)
    expected[:3, :6] = 1
    assert np.array_equal(x, expected)


def block_pointer(bench: Any, type_: str = "*fp32", offsets: Any = (0, 0)) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return bench(
            tl.make_block_ptr,
            bench.value(type_),
            (bench.value(tl.int32), 64),
            (64, 1),
            offsets,
            (8, 16),
            (1, 0),
        )


def test_block_pointers_are_deprecated(bench: Any) -> None:
    with pytest.warns(DeprecationWarning, match="block pointers are deprecated"):
        bench(tl.make_block_ptr, bench.value("*fp32"), (8,), (1,), (0,), (8,), (0,))


def test_block_pointers_are_carried_with_what_changes(bench: Any) -> None:
    p = block_pointer(bench, offsets=(bench.value(tl.int64), 0))
    moved = bench(tl.advance, p, (0, 16))
    assert moved.type == p.type
    assert [str(type_) for type_ in p.type.flatten()] == ["ptr<f32>", "i32", "i64", "i64"]
    again = p.type.unflatten(iter(moved.flatten()))
    assert again.flatten() == moved.flatten()
    assert again.strides[1].value == 1
    assert block_pointer(bench).type != p.type


def test_accesses_without_checks_have_no_mask(bench: Any) -> None:
    bench(tl.load, block_pointer(bench))
    assert bench.last.segments == (1, 0, 0)
    assert "cmp" not in bench.names
    bench(tl.load, block_pointer(bench), boundary_check=(1,))
    assert bench.last.segments == (1, 1, 0)
    assert bench.names.count("cmp") == 2
    bench.verify()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda b: b(tl.load, block_pointer(b), True),
            "`mask` and `other` arguments cannot be specified for loading block pointers",
        ),
        (
            lambda b: b(tl.store, block_pointer(b), 1.0, True),
            "`mask` argument cannot be specified for storing to block pointers",
        ),
        (
            lambda b: b(tl.load, block_pointer(b), boundary_check=(2,)),
            "boundary_check names axis 2, but the block has axes 0 to 1",
        ),
        (
            lambda b: b(tl.load, block_pointer(b), boundary_check=(1, 1)),
            "Duplicate dimension in `boundary_check`",
        ),
        (
            lambda b: b(tl.load, block_pointer(b), padding_option="one"),
            "Padding option one not supported",
        ),
        (
            lambda b: b(
                tl.load, block_pointer(b, "*i32"), boundary_check=(0,), padding_option="nan"
            ),
            "`nan` is not supported for int32",
        ),
        (lambda b: b(tl.advance, block_pointer(b), (0,)), "Expected offsets to have 2 entries"),
        (
            lambda b: b(tl.advance, b.value("*fp32"), (0,)),
            "advance moves a block pointer, not pointer<fp32>",
        ),
        (lambda b: block_pointer(b, offsets=(0, 1.5)), "Expected offsets to hold scalar integers"),
        (
            lambda b: b(tl.store, block_pointer(b, "*kfp32"), 1.0),
            "Cannot store to a constant pointer",
        ),
        (
            lambda b: b(tl.make_block_ptr, b.value("*fp32", [4]), (8,), (1,), (0,), (8,), (0,)),
            "Expected `base` to be a pointer type",
        ),
        (
            lambda b: b(tl.make_block_ptr, b.value("*fp32"), (8,), (1,), (0,), (8,), (1,)),
            "Expected a permutation",
        ),
        (
            lambda b: b(tl.make_block_ptr, b.value("*fp32"), (8,), (1,), (0,), (6,), (0,)),
            "must be a power of 2",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:block pointers are deprecated")
def test_block_pointers_that_are_refused(bench: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(bench)


def test_the_result_of_advance_must_be_used() -> None:
    assert "must be used" in tl.advance._must_use_result  # type: ignore[attr-defined]


# -- atomics ---------------------------------------------------------------------------------------

WIDE = ("int32", "uint32", "int64", "uint64")
ELEMENTS = {
    "add": (*WIDE, "fp16", "bf16", "fp32", "fp64"),
    "max": (*WIDE, "fp32", "fp64"),
    "min": (*WIDE, "fp32", "fp64"),
    "and": WIDE,
    "or": WIDE,
    "xor": WIDE,
    "xchg": (*WIDE, "fp32", "fp64"),
}


@pytest.mark.parametrize("kind", ELEMENTS)
def test_atomics_have_their_element_types(bench: Any, kind: str) -> None:
    atomic = getattr(tl, f"atomic_{kind}")
    for name in (*tl.dtype.SINT_TYPES, *tl.dtype.UINT_TYPES, *tl.dtype.FP_TYPES):
        element = tl.dtype(name)
        pointer = bench.value(tl.pointer_type(element), [4])
        if name in ELEMENTS[kind]:
            assert bench(atomic, pointer, 1).type is tl.block_type(element, [4])
            assert bench.last.attribute("kind") == kind
        else:
            with pytest.raises(ValueError, match=f"^atomic_{kind} does not support {name}"):
                bench(atomic, pointer, 1)
    bench.verify()


@pytest.mark.parametrize(
    ("sem", "order"),
    [(None, "acq_rel"), ("acquire", "acquire"), ("release", "release"), ("relaxed", "relaxed")],
)
@pytest.mark.parametrize(
    ("scope", "ir_scope"),
    [(None, "device"), ("gpu", "device"), ("cta", "program"), ("sys", "system")],
)
def test_orders_and_scopes(bench: Any, sem: Any, order: str, scope: Any, ir_scope: str) -> None:
    bench(tl.atomic_add, bench.value("*i32"), 1, sem=tl.constexpr(sem), scope=scope)
    assert (bench.last.attribute("order"), bench.last.attribute("scope")) == (order, ir_scope)
    bench(tl.atomic_cas, bench.value("*i32"), 0, 1, sem, scope)
    assert (bench.last.attribute("order"), bench.last.attribute("scope")) == (order, ir_scope)


@pytest.mark.parametrize(("sem", "order"), [(None, None), ("relaxed", "relaxed")])
def test_reads_and_writes_in_order(bench: Any, sem: Any, order: str | None) -> None:
    pointer, mask = bench.value("*i16", [8]), bench.value(tl.int1, [8])
    assert bench(tl.atomic_load, pointer, mask, sem, "sys").type is tl.block_type(tl.int16, [8])
    assert (bench.last.name, bench.last.attribute("order"), bench.last.attribute("scope")) == (
        "atomic_load",
        order or "acquire",
        "system",
    )
    assert bench.last.operand("mask") is mask.handle
    assert bench(pointer.atomic_store, 3, sem=sem, scope="cta") is None
    assert (bench.last.name, bench.last.attribute("order"), bench.last.attribute("scope")) == (
        "atomic_store",
        order or "release",
        "program",
    )
    assert str(bench.last.operand("value").type) == "tile<8xi16>"
    assert (
        bench(tl.atomic_load, bench.value("*ki32")).type is tl.int32
    )  # reading a constant is fine
    assert bench(tl.atomic_load, bench.value("*u1")).type is tl.int1  # a byte in memory
    bench.verify()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda b: b(tl.atomic_load, b.value("*i32"), sem="release"),
            "Memory semantic release not supported; one of 'acquire', 'relaxed'",
        ),
        (
            lambda b: b(tl.atomic_store, b.value("*i32"), 1, sem="acq_rel"),
            "Memory semantic acq_rel not supported; one of 'release', 'relaxed'",
        ),
        (lambda b: b(tl.atomic_store, b.value("*ki32"), 1), "Cannot store to a constant pointer"),
        (
            lambda b: b(tl.atomic_load, b.value("*i32", [4]), b.value(tl.int1, [8])),
            "incompatible dimensions",
        ),
        (
            lambda b: b(tl.atomic_load, b.value("*i32"), b.value(tl.int1, [8])),
            "Mask argument cannot be block type",
        ),
        (
            lambda b: b(tl.atomic_poll, b.value("*i32"), 1, sem="release"),
            "Memory semantic release not supported",
        ),
        (
            lambda b: b(tl.atomic_poll, b.value("*i32", [4]), b.value(tl.int32, [8])),
            "incompatible dimensions",
        ),
        (
            lambda b: b(tl.atomic_poll, b.value("*i32"), 1, timeout_ns=-1),
            "must not be negative, got -1",
        ),
        (
            lambda b: b(tl.atomic_poll, b.value("*i32"), 1, timeout_ns=0.5),
            "must be an integer scalar, got fp32",
        ),
    ],
)
def test_ordered_accesses_that_are_refused(bench: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(bench)


def test_masks_of_atomics(bench: Any) -> None:
    pointer, mask = bench.value("*fp32", [8]), bench.value(tl.int1, [8])
    bench(pointer.atomic_max, 2, mask=mask)
    assert bench.last.operand("mask") is mask.handle
    assert bench(tl.atomic_xchg, bench.value("*u64"), 3).type is tl.uint64
    assert bench.last.operand("mask") is None
    bench.verify()


@pytest.mark.parametrize("name", ["int8", "fp8e5"])
def test_cas_of_bytes_is_refused(bench: Any, name: str) -> None:
    with pytest.raises(ValueError, match=r"only supports elements with width {16, 32, 64}"):
        bench(tl.atomic_cas, bench.value(tl.pointer_type(tl.dtype(name))), 0, 1)


def test_cas_casts_and_broadcasts(bench: Any) -> None:
    assert bench(
        tl.atomic_cas, bench.value("*fp16", [4]), 0, bench.value(tl.float32)
    ).type is tl.block_type(tl.float16, [4])
    assert [str(operand.type) for operand in bench.last.operands] == [
        "tile<4xptr<f16>>",
        "tile<4xf16>",
        "tile<4xf16>",
    ]
    bench.verify()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b(tl.atomic_add, b.value("*ki32"), 1), "Cannot store to a constant pointer"),
        (lambda b: b(tl.atomic_cas, b.value("*ki32"), 1, 2), "Cannot store to a constant pointer"),
        (lambda b: b(tl.atomic_add, b.value(tl.int32), 1), "takes a pointer"),
        (
            lambda b: b(tl.atomic_add, b.value("*i32"), b.value(tl.int32, [4])),
            "Value argument cannot be block type",
        ),
        (
            lambda b: b(tl.atomic_add, b.value("*i32", [4]), 1, b.value(tl.int32, [4])),
            "Mask must have boolean scalar type",
        ),
        (
            lambda b: b(tl.atomic_add, b.value("*i32"), 1, sem="seq_cst"),
            "Memory semantic seq_cst not supported",
        ),
        (
            lambda b: b(tl.atomic_add, b.value("*i32"), 1, scope="world"),
            "Memory scope world not supported",
        ),
    ],
)
def test_atomics_that_are_refused(bench: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(bench)


def test_atomics_the_target_lacks(make_bench: Callable[..., Any]) -> None:
    capabilities = Capabilities(frozenset({"i32", "f32"}), atomics={"i32": frozenset({"add"})})
    bench = make_bench(capabilities=capabilities)
    bench(tl.atomic_add, bench.value("*i32"), 1)
    for call in (
        lambda: bench(tl.atomic_xchg, bench.value("*i32"), 1),
        lambda: bench(tl.atomic_add, bench.value("*fp32"), 1),
        lambda: bench(tl.atomic_cas, bench.value("*i32"), 1, 2),
    ):
        with pytest.raises(ValueError, match=r"does not support .* on backend small"):
            call()


@jit
def atomic_kernel(x, old, y):
    i = tl.arange(0, 8)
    tl.store(old + i, tl.atomic_max(x + i, tl.load(y + i), mask=i != 3))
    tl.atomic_add(x + (i & 1), 1)


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32", "float64"])
def test_values_of_atomics(run: Callable[..., None], dtype: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(0, 100, 8).astype(dtype) for _ in range(2))
    old, before = np.zeros(8, dtype), x.copy()
    run(atomic_kernel, x, old, y)
    expected = np.where(np.arange(8) == 3, before, np.maximum(before, y))
    expected[:2] += 4
    assert np.array_equal(x, expected)
    assert np.array_equal(np.delete(old, 3), np.delete(before, 3))
