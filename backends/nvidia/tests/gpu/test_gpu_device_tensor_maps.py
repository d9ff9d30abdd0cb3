"""Tensor maps that kernels make, on the device: of tensors that are loaded from memory, made anew
in loops, of every rank and type, for loads, stores and updates."""

from __future__ import annotations

import math
from typing import Any

import device_descriptor_kernels
import pytest
from hopper_gpu import hopper_is_there, within_patience

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]

grouped, copied, surrounded, updated, batched, kept = (
    tw.jit(getattr(device_descriptor_kernels, name))
    for name in ("grouped", "copied", "surrounded", "updated", "batched", "kept")
)
#: The language's types: PyTorch's, and bytes of an element.
TYPES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1, "uint8": 1, "int16": 2,
    "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float8e4nv": 1, "float8e5": 1,
}  # fmt: skip
#: PyTorch's name of what has the same bytes, where it has no such type, or none that compares.
_AS = {
    "uint16": "int16",
    "uint32": "int32",
    "uint64": "int64",
    "float8e4nv": "uint8",
    "float8e5": "uint8",
}


def dtype_of(name: str) -> Any:
    import torch

    return getattr(torch, _AS.get(name, name))


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, made: int, **options: Any) -> Any:
    """Launch a kernel, which must have made so many descriptors; what was compiled."""
    import torch

    found = []

    def body() -> None:
        found.append(kernel[grid](*arguments, **options))
        torch.cuda.synchronize()

    within_patience(str(kernel), body)
    (compiled,) = found
    assert compiled.asm["simt"].count("simt.make_descriptor") == made
    return compiled


def addresses_of(*tensors: Any) -> Any:
    import torch

    return torch.tensor(
        [[tensor.data_ptr() for tensor in row] for row in zip(*tensors, strict=True)], device="cuda"
    )


def table(rows: Any) -> Any:
    import torch

    return torch.tensor(rows, dtype=torch.int32, device="cuda")


SMALL = (64, 64, 64, 4, 3)
GREAT = (128, 128, 64, 8, 3)


@pytest.mark.parametrize("blocks", [SMALL, GREAT, (128, 256, 64, 8, 3)], ids=str)
@pytest.mark.parametrize("programs", [1, 132, 500])
@pytest.mark.parametrize("width", [1, 8])
def test_products_of_groups(blocks: tuple[int, ...], programs: int, width: int) -> None:
    torch = pytest.importorskip("torch")
    m, n, k, warps, stages = blocks
    torch.manual_seed(programs)
    sizes = [
        (256, 512, 384),
        (100, 200, 72),
        (1, 8, 8),
        (300, 136, 0),
        (640, 264, 1000),
        (64, 64, 64),
    ]
    for _ in range(3):
        lefts = [
            torch.randn(rows, max(8, depth), device="cuda", dtype=torch.float16)
            for rows, _, depth in sizes
        ]
        rights = [
            torch.randn(columns, max(8, depth), device="cuda", dtype=torch.float16)
            for _, columns, depth in sizes
        ]
        results = [
            torch.full((rows, columns), float("nan"), device="cuda", dtype=torch.float16)
            for rows, columns, _ in sizes
        ]
        constants = {
            "TYPE": tl.float16,
            "PROGRAMS": programs,
            "M": m,
            "N": n,
            "K": k,
            "WIDTH": width,
        }
        arguments = addresses_of(lefts, rights, results), table(sizes), len(sizes)
        launch(
            grouped,
            (programs,),
            *arguments,
            **constants,
            num_warps=warps,
            num_stages=stages,
            made=3 if width == 8 else 2,
        )
        for left, right, result, (_, _, depth) in zip(lefts, rights, results, sizes, strict=True):
            expected = left[:, :depth].double() @ right[:, :depth].double().T
            torch.testing.assert_close(result.double(), expected, atol=0.1, rtol=1e-2)


@pytest.mark.parametrize(
    ("type_", "rank"),
    [
        *((type_, 2) for type_ in TYPES),
        *((type_, rank) for type_ in ("float16", "int8") for rank in (1, 3, 4, 5)),
    ],
)
@pytest.mark.parametrize("whole", [False, True], ids=["any ends", "ends at 16 bytes"])
def test_tensors_of_every_rank_and_type(type_: str, rank: int, whole: bool) -> None:
    """TMA stores rows that end at a multiple of 16 bytes, and threads store the others."""
    torch = pytest.importorskip("torch")
    size = TYPES[type_]
    row = (1024 if rank == 1 else 128) // size
    pitch = 2 * row + 16 // size
    generator = torch.Generator().manual_seed(rank)
    shapes = []
    for number in range(5):
        outer = torch.randint(1, 11 if rank < 4 else 4, (rank - 1,), generator=generator).tolist()
        last = (row, pitch, row + 1, 3, 2 * row)[number]
        shapes.append((*outer, -(-last * size // 16) * 16 // size if whole else last))
    sources = [
        torch.randint(
            0, 256, (*shape[:-1], pitch * size), generator=generator, dtype=torch.uint8
        ).cuda()
        for shape in shapes
    ]
    if type_.startswith(("float", "bfloat")):
        sources = [
            source & 0x3F for source in sources
        ]  # numbers, none of which a copy could take for NaN
    sources = [source.view(dtype_of(type_)) for source in sources]
    results = [torch.full_like(source, 7) for source in sources]
    numbers = table([[*shape[::-1], *[1] * (5 - rank), pitch] for shape in shapes])
    constants = {
        "TYPE": getattr(tl, type_),
        "RANK": rank,
        "B": 8,
        "LAST": row,
        "WIDTH": 16 // size if whole else 1,
    }
    launch(
        copied,
        (2,),
        addresses_of(sources, results),
        numbers,
        len(shapes),
        **constants,
        num_warps=4,
        made=2 if whole else 1,
    )
    for source, result, shape in zip(sources, results, shapes, strict=True):
        expected = torch.full_like(source, 7)
        expected[..., : shape[-1]] = source[..., : shape[-1]]
        assert torch.equal(result, expected), (shape, type_)


@pytest.mark.parametrize(
    ("type_", "padding"),
    [
        ("float16", "zero"),
        ("float16", "nan"),
        ("float32", "nan"),
        ("bfloat16", "nan"),
        ("int32", "zero"),
    ],
)
def test_what_is_outside_of_a_tensor_and_tensors_of_nothing(type_: str, padding: str) -> None:
    torch = pytest.importorskip("torch")
    row = 128 // TYPES[type_]
    shapes = [(3, row), (9, row // 2 - 1), (0, row), (4, 0), (8, 1), (0, 0)]
    sources = [
        (torch.arange(16 * row, device="cuda") % 100).reshape(16, row).to(dtype_of(type_))
        for _ in shapes
    ]
    y = torch.full((8 * len(shapes), row), 7, device="cuda", dtype=dtype_of(type_))
    constants = {"TYPE": getattr(tl, type_), "PADDING": padding, "B": 8, "LAST": row}
    launch(
        surrounded,
        (1,),
        addresses_of(sources),
        table(shapes),
        len(shapes),
        y,
        **constants,
        num_warps=4,
        made=1,
    )
    expected = torch.full(
        (len(shapes), 8, row), float("nan") if padding == "nan" else 0, device="cuda"
    ).to(dtype_of(type_))
    for block, source, (rows, columns) in zip(expected, sources, shapes, strict=True):
        block[1 : 1 + rows, :columns] = source[: min(7, rows), :columns]
    torch.testing.assert_close(y, expected.reshape(-1, row), equal_nan=True, atol=0, rtol=0)


UPDATES = [
    (type_, "add") for type_ in ("float16", "bfloat16", "float32", "int32", "uint32", "uint64")
]
UPDATES += [
    (type_, kind) for type_ in ("int32", "uint32", "int64", "uint64") for kind in ("min", "max")
]
UPDATES += [(type_, kind) for type_ in ("int32", "uint64") for kind in ("and", "or", "xor")]


@pytest.mark.parametrize(("type_", "kind"), UPDATES)
@pytest.mark.parametrize("whole", [False, True], ids=["any ends", "ends at 16 bytes"])
def test_updates(type_: str, kind: str, whole: bool) -> None:
    torch = pytest.importorskip("torch")
    row = 128 // TYPES[type_]
    width = 16 // TYPES[type_]
    shapes = (
        [(8, row), (5, row - width), (0, row), (8, width)]
        if whole
        else [(8, row), (5, row - 3), (0, row), (8, 1)]
    )
    torch.manual_seed(len(kind))
    before = [torch.randint(0, 50, (8, row), device="cuda").to(dtype_of(type_)) for _ in shapes]
    x = torch.randint(0, 50, (8 * len(shapes), row), device="cuda").to(dtype_of(type_))
    found = [one.clone() for one in before]
    constants = {
        "TYPE": getattr(tl, type_),
        "KIND": kind,
        "B": 8,
        "LAST": row,
        "WIDTH": width if whole else 1,
    }
    given = (
        torch.empty_like(x).copy_(x)
        if type_ not in ("uint32", "uint64")
        else x.view(getattr(torch, type_))
    )
    launch(
        updated,
        (1,),
        addresses_of(found),
        table(shapes),
        given,
        len(shapes),
        **constants,
        num_warps=4,
        made=int(whole),
    )
    operations = {
        "add": lambda a, b: a + 3 * b, "min": torch.minimum, "max": torch.maximum,
        "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    }  # fmt: skip
    for one, result, block, (rows, columns) in zip(
        before, found, x.reshape(len(shapes), 8, row), shapes, strict=True
    ):
        expected = one.clone()
        expected[:rows, :columns] = operations[kind](one, block)[:rows, :columns]
        torch.testing.assert_close(result, expected, atol=0, rtol=0)


@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize(
    "sizes", [(3, 300, 200, 136), (7, 129, 128, 64), (2, 64, 72, 0), (40, 128, 256, 1000)], ids=str
)
def test_descriptors_made_anew_for_each_batch(sizes: tuple[int, ...], specialize: bool) -> None:
    torch = pytest.importorskip("torch")
    batches, m, n, k = sizes
    torch.manual_seed(k)
    for programs in (1, 2, 33):
        a, b = (
            torch.randn(batches, rows, max(8, k), device="cuda", dtype=torch.float16)[
                :, :, :k
            ].contiguous()
            for rows in (m, n)
        )
        c = torch.full((batches, m, n), 7, device="cuda", dtype=torch.float16)
        constants = {
            "TYPE": tl.float16,
            "M": 128,
            "N": 128,
            "K": 64,
            "SPECIALIZE": specialize,
            "WIDTH": 8,
        }
        # no memory has no address that the TMA unit takes
        given = [
            x if x.numel() else torch.zeros(8, device="cuda", dtype=torch.float16) for x in (a, b)
        ]
        compiled = launch(
            batched, (programs,), *given, c, *sizes, **constants, num_warps=4, num_stages=3, made=3
        )
        assert compiled.asm["simt"].count("simt.part ") == 2 * specialize
        expected = a.double() @ b.double().transpose(1, 2)
        for batch in range(batches):
            rest = max(0, m - batch)
            torch.testing.assert_close(
                c[batch, :rest].double(), expected[batch, :rest], atol=0.1, rtol=1e-2
            )
            assert bool((c[batch, rest:] == 7).all())


def test_what_was_stored_by_one_descriptor_is_read_by_another() -> None:
    torch = pytest.importorskip("torch")
    count = 50
    sources = [torch.randint(-9, 9, (10, 32), device="cuda").float() for _ in range(count)]
    rows = [1 + number * 7 % 10 for number in range(count)]
    c = torch.zeros(9, 32, device="cuda")
    launch(
        kept, (1,), addresses_of(sources), table(rows), count, c, B=8, LAST=32, num_warps=4, made=2
    )
    expected = torch.zeros(9, 32, device="cuda")
    for number, (source, there) in enumerate(zip(sources, rows, strict=True)):
        expected[number % 2 : number % 2 + min(8, there)] += source[: min(8, there)]
    torch.testing.assert_close(c, expected, atol=0, rtol=0)


def test_more_programs_than_run_at_a_time_take_turns_with_the_places() -> None:
    torch = pytest.importorskip("torch")
    count, row = 20000, 32
    x = torch.randn(count, row, device="cuda")
    y = torch.zeros_like(x)
    numbers = table([[row, 1, 1, 1, 1, row]]).repeat(count, 1)
    distances = 4 * row * torch.arange(count, device="cuda")
    addresses = torch.stack(
        [x.data_ptr() + distances, y.data_ptr() + distances], dim=1
    ).contiguous()
    assert math.gcd(*addresses.flatten()[:8].tolist()) % 16 == 0
    constants = {"TYPE": tl.float32, "RANK": 2, "B": 8, "LAST": row, "WIDTH": 4}
    streams = [torch.cuda.Stream() for _ in range(3)]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for warps in (1, 4):
                copied[(count,)](addresses, numbers, count, **constants, num_warps=warps)
    launch(copied, (count,), addresses, numbers, count, **constants, num_warps=2, made=2)
    assert torch.equal(x, y)


def stored(x: Any, y: Any, ROWS: tl.constexpr, COLUMNS: tl.constexpr) -> None:
    """A block to the beginning of a tensor, and one that is stored and one that is added across the
    ends of its rows."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    block = tl.load(x + rows * COLUMNS + columns)
    y.store([0, 0], block)
    y.store([0, COLUMNS], block)
    y.atomic_add([ROWS, COLUMNS], block)


@pytest.mark.parametrize("columns", [33, 47, 48, 63, 64, 65])
def test_descriptors_of_the_launch_end_their_rows_where_these_end(columns: int) -> None:
    torch = pytest.importorskip("torch")
    x = torch.randint(1, 50, (8, 32), device="cuda").float()
    around = torch.full((20, 80), 7.0, device="cuda")
    expected = around.clone()
    expected[:8, :32] = x
    end = min(columns, 64)
    expected[:8, 32:end] = x[:, : end - 32]
    expected[8:16, 32:end] += x[:, : end - 32]
    tw.jit(stored)[(1,)](
        x, TensorDescriptor(around, [16, columns], [80, 1], [8, 32]), ROWS=8, COLUMNS=32
    )
    torch.testing.assert_close(around, expected, atol=0, rtol=0)
