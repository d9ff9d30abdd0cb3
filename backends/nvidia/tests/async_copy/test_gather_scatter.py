"""Rows that numbers name, by the TMA unit of compute capability 10.0 on: where it puts them, what
is written, what maps say. No GPU has run them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir.types import F16, F32, U8, Type
from tilewright.language.definitions.callable import device_function
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes import pipeline
from tilewright.plugins.manifest import PORTABLE_OPTIONS, CodeObject
from tilewright.simt.layouts.linear_layout import SharedLayout, row_major
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.async_copy.swizzle_atoms import SPANS, SwizzleAtoms, swizzled_layout
from tilewright_nvidia.async_copy.tensor_maps import TensorMap
from tilewright_nvidia.async_copy.tma_boxes import row_boxes
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.toolchain.linking import assemble


@device_function
def moved(d, e, index, column, ROWS: tl.constexpr):
    rows = tl.load(index + tl.arange(0, ROWS))
    e.scatter(d.gather(rows, column) + 1, rows * 2, 16)


@device_function
def read(d, out, index, column, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.arange(0, ROWS)
    tl.store(
        out + at[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :],
        d.gather(tl.load(index + at), column),
    )


@device_function
def made(p, q, index, m, n, trips, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.load(index + tl.arange(0, ROWS))
    for i in range(trips):
        d = tl.make_tensor_descriptor(p + i * m * n, [m, n], [n, 1], [1, WIDTH])
        e = tl.make_tensor_descriptor(q + i * m * n, [m, n], [n, 1], [1, WIDTH])
        e.scatter(d.gather(rows, 0), rows, 0)


def compiled(
    kernel: Any,
    types: dict[str, str],
    arch: str,
    constants: dict[str, int],
    known: dict[str, int] | None = None,
    **options: Any,
) -> CodeObject:
    """Code that ptxas takes; descriptors, pointers and extents are multiples of 16 unless ``known``
    says otherwise."""
    facts = {
        name: {"divisibility": (known or {}).get(name, 16), "extent_divisibility": 16}
        for name in types
    }
    module = compile_function(
        kernel,
        types,
        constants,
        {name: {k: v for k, v in one.items() if v > 1} for name, one in facts.items()},
    )
    pipeline.run(module, pipeline.STANDARD)
    code = lower(module, target_of(ARCHITECTURES[arch]), {**PORTABLE_OPTIONS, **OPTIONS, **options})
    assemble(code.stages["ptx"], arch)
    return code


def instructions(code: CodeObject) -> list[str]:
    return re.findall(r"^\s*(cp\.async\.bulk\.tensor\S*)", str(code.stages["ptx"]), re.M)


GATHER = "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
SCATTER = "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"


# ---- where rows are


def placed(
    starts: Any, box: tuple[int, int], span: int, shape: tuple[int, int], size: int
) -> np.ndarray[Any, Any]:
    """What the engine writes: of a start the four rows of a box after each other, 16 bytes of each
    exchanged by where the row is (the PTX ISA's swizzling modes); by bytes, the number of the
    element in the tile whose first byte is there, or -1."""
    memory = np.full(shape[0] * shape[1] * size, -1)
    for offset, (row, column) in starts:
        assert offset % 128 == 0
        for i in range(4):
            for j in range(box[1]):
                address = offset + (i * box[1] + j) * size
                address ^= (address >> 7 & {0: 0, 32: 1, 64: 3, 128: 7}[span]) << 4
                assert memory[address] == -1
                memory[address] = (row + i) * shape[1] + column + j
    return memory


@pytest.mark.each_value
@pytest.mark.parametrize("span", [*SPANS, 0])
@pytest.mark.parametrize(
    ("shape", "element"),
    [((32, 64), F16), ((8, 128), F32), ((64, 256), U8), ((16, 512), U8), ((128, 64), F32)],
)
def test_four_rows_are_where_the_layout_has_them(
    shape: tuple[int, int], element: Type, span: int
) -> None:
    size = storage_size(element)
    layout = (
        swizzled_layout(shape, size, SwizzleAtoms(1, span))
        if span
        else SharedLayout.row_major(shape)
    )
    if layout is None:
        return
    found = row_boxes(layout, element)
    if not span and shape[1] > 256:
        assert found is None, "rows cut into boxes are not side by side"
        return
    assert found is not None and found.shape[0] == 1 and found.span == span
    memory = placed(found.starts, found.shape, span, shape, size)
    for row in range(shape[0]):
        for column in range(shape[1]):
            assert (
                memory[size * layout.offset(row_major((row, column), shape))]
                == row * shape[1] + column
            )


@pytest.mark.parametrize(
    ("shape", "element"), [((8, 16), F16), ((2, 512), F16), ((8, 8, 64), F16), ((128, 16), U8)]
)
def test_tiles_that_the_engine_cannot_put_together(shape: tuple[int, ...], element: Type) -> None:
    """Too small for a slot, not four rows, not of rank 2, or four rows of less than 128 bytes."""
    assert row_boxes(SharedLayout.row_major(shape), element) is None


# ---- what is written


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("arch", "scatters"),
    [("sm_100a", True), ("sm_103a", True), ("sm_120a", False), ("sm_121a", False)],
)
@pytest.mark.parametrize(("rows", "width", "each"), [(8, 64, 2), (64, 128, 16), (32, 256, 8)])
def test_rows_of_the_launchs_descriptors(
    arch: str, scatters: bool, rows: int, width: int, each: int
) -> None:
    type_ = f"tensordesc<fp16[1,{width}]>"
    code = compiled(
        moved, {"d": type_, "e": type_, "index": "*i32", "column": "i32"}, arch, {"ROWS": rows}
    )
    found = instructions(code)
    maps = [TensorMap.of(facts) for facts in code.metadata["tensor_maps"]]
    gathers = [one for one in found if one == GATHER]
    assert [one for one in found if one != GATHER] == [SCATTER] * (
        each * (width // maps[-1].box[1]) if scatters else 0
    )
    assert len(gathers) == each * (width // maps[0].box[1])
    assert [one.box[0] for one in maps] == [1] * (1 + scatters)
    # the numbers are read four at a time, and those of the scattered rows are others
    assert len(re.findall(r"ld\.shared\.v4\.b32", str(code.stages["ptx"]))) >= each * (1 + scatters)
    text = str(code.stages["ptx"])
    # a proxy fence follows the threads' stores to the slot of a scatter
    assert not scatters or text.rindex(GATHER) < text.rindex(
        "fence.proxy.async.shared::cta;"
    ) < text.index(SCATTER)
    (expected,) = set(re.findall(r"expect_tx\S* _, \[\S+\], (\S+);", text))
    told = dict(re.findall(r"mov\.b32 \t(%r\d+), (\d+);", str(code.stages["ptx"])))
    assert told.get(expected, expected) == str(rows * width * 2)


@pytest.mark.parametrize(("arch", "scatters"), [("sm_100a", 2), ("sm_120a", 0)])
def test_rows_of_descriptors_that_the_kernel_makes(arch: str, scatters: int) -> None:
    types = {"p": "*fp16", "q": "*fp16", "index": "*i32", "m": "i32", "n": "i32", "trips": "i32"}
    code = compiled(made, types, arch, {"ROWS": 8, "WIDTH": 64})
    assert instructions(code).count(GATHER) == 2 and instructions(code).count(SCATTER) == scatters
    text = str(code.stages["llir"])
    for axis, extent in ((0, 64), (1, 1)):
        boxes = re.findall(
            rf"tensormap\.replace\.tile\.box_dim\S* \[\$0\], {axis}, \$1;\".*i32 (\d+)\)", text
        )
        assert set(boxes) == {str(extent)} and len(boxes) == (2 if scatters else 1)


# ---- what threads do


@pytest.mark.parametrize(
    ("arch", "own"),
    [
        ("sm_90a", {}),
        ("sm_89", {}),
        ("sm_100a", {"asynchronous": False}),
        ("sm_100a", {"index": "*i64"}),
        ("sm_100a", {"known": {"column": 4}}),
        ("sm_100a", {"known": {"d": 1}}),
        ("sm_100a", {"width": 32}),
    ],
    ids=str,
)
def test_others_are_accessed_by_threads(arch: str, own: dict[str, Any]) -> None:
    own = dict(own)
    width, index, known = own.pop("width", 64), own.pop("index", "*i32"), own.pop("known", {})
    types = {"d": f"tensordesc<fp16[1,{width}]>", "out": "*fp16", "index": index, "column": "i32"}
    code = compiled(read, types, arch, {"ROWS": 8, "WIDTH": width}, known, **own)
    assert not instructions(code) and not code.metadata["tensor_maps"]


def test_the_same_kernel_is_read_by_the_engine_otherwise() -> None:
    types = {"d": "tensordesc<fp16[1,64]>", "out": "*fp16", "index": "*i32", "column": "i32"}
    assert instructions(compiled(read, types, "sm_100a", {"ROWS": 8, "WIDTH": 64})) == [GATHER] * 2


@device_function
def both(d, index, ROWS: tl.constexpr):
    rows = tl.load(index + tl.arange(0, ROWS))
    d.scatter(d.gather(rows, 0), rows * 2, 0)


@pytest.mark.parametrize(("arch", "count"), [("sm_100a", 2), ("sm_120a", 0)])
def test_of_one_tensor_all_is_by_the_engine_or_by_threads(arch: str, count: int) -> None:
    code = compiled(both, {"d": "tensordesc<fp16[1,64]>", "index": "*i32"}, arch, {"ROWS": 8})
    assert instructions(code).count(GATHER) == instructions(code).count(SCATTER) == count
    assert len(code.metadata["tensor_maps"]) == (1 if count else 0)
