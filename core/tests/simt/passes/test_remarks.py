"""Missed-optimization remarks with their reasons, and warnings on request."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir.core import Function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt.compile import compile_kernel, kernel_of
from tilewright.simt.dialect.attributes import SHARED_BYTES, notes_of
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.linear_layout import blocked, replicated
from tilewright.simt.lowering.emission.context import UNWRITTEN
from tilewright.simt.report import describe, report


def compiled(
    fn: Any,
    signature: dict[str, str],
    *,
    aligned: tuple[str, ...] = (),
    copy_widths: tuple[int, ...] = (4, 8, 16),
    stages: int = 3,
    warps: int = 4,
    **constants: Any,
) -> tuple[str, Function, str]:
    """(LLVM IR, kernel, report) for the emulated machine; arguments named in ``aligned`` are
    multiples of 16."""
    module = compile_function(
        fn,
        {**signature, **dict.fromkeys(constants, "constexpr")},
        constants,
        {name: {"divisibility": 16} for name in aligned},
    )
    run_passes(module)
    target = EmulatedTarget(32, copy_widths=copy_widths)
    text = compile_kernel(module, target, {"num_warps": warps, "num_stages": stages})
    return text, kernel_of(module), report(kernel_of(module), target)


def notes(kernel: Function) -> list[str]:
    return [note for _, note in notes_of(kernel)]


@tw.jit
def copy(x, z, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + offsets, tl.load(x + offsets * stride, mask=offsets < n), mask=offsets < n)


@tw.jit
def walk(x, z, n, BLOCK: tl.constexpr):
    pointers = x + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(n):
        total += tl.load(pointers)
        pointers += BLOCK
    tl.store(z + tl.arange(0, BLOCK), total)


COPY = {"x": "*fp32", "z": "*fp32", "n": "i32", "stride": "i32"}


@tw.jit
def product(a, b, c, K, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    rows, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(
            a + rows[:, None] * K + k + inner[None, :], mask=k + inner[None, :] < K, other=OTHER
        )
        right = tl.load(
            b + (k + inner[:, None]) * BLOCK + rows[None, :], mask=k + inner[:, None] < K, other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], total)


PRODUCT = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "K": "i32"}
ALIGNED = ("a", "b", "c", "K")


def test_wide_accesses_are_not_noted() -> None:
    _, kernel, text = compiled(
        copy, {**COPY, "stride": "constexpr"}, aligned=("x", "z", "n"), BLOCK=1024, stride=1
    )
    assert notes(kernel) == []
    assert "2 accesses of 16 bytes a thread" in text and "no missed optimizations" in text


@pytest.mark.parametrize(
    ("aligned", "stride", "expected"),
    [
        (
            ("z", "n"),
            1,
            [
                (
                    r"load moves 4 bytes at once instead of 16: addresses are not known to be "
                    r"multiples of 16 bytes"
                )
            ],
        ),
        (
            ("x", "z"),
            1,
            [
                r"load moves 4 bytes .* the mask is not known to be the same for 4 elements",
                r"store moves 4 bytes .* the mask is not known",
            ],
        ),
        (
            ("x", "z", "n"),
            3,
            [
                (
                    r"load moves 4 bytes at once instead of 16: no two addresses are known to be "
                    r"consecutive"
                )
            ],
        ),
    ],
)
def test_narrow_accesses_say_why(
    aligned: tuple[str, ...], stride: int, expected: list[str]
) -> None:
    _, kernel, text = compiled(
        copy, {**COPY, "stride": "constexpr"}, aligned=aligned, BLOCK=1024, stride=stride
    )
    found = notes(kernel)
    for pattern in expected:
        assert any(re.search(pattern, note) for note in found), found
    assert "missed optimizations:" in text and found[0] in text


@tw.jit
def transposed(x, z, BLOCK: tl.constexpr):
    here, there = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(z + here * BLOCK + there, tl.load(x + here * BLOCK + there).T)


@pytest.mark.parametrize(("warps", "size"), [(4, 32), (1, 16)])
def test_an_access_that_a_shared_layout_narrows_names_the_axis(warps: int, size: int) -> None:
    arguments = {"x": "*fp32", "z": "*fp32"}
    narrow, wide = (
        notes(compiled(transposed, arguments, aligned=("x", "z"), warps=warps, BLOCK=block)[1])
        for block in (size, 2 * size)
    )
    (found,) = narrow
    assert re.fullmatch(
        r"(load|store) moves 4 bytes at once instead of 16: a thread has 1 consecutive element in "
        r"the layout that the access shares with other operations; use a block of more than "
        rf"{size} elements along axis 0 of the {size}x{size} tile",
        found,
    )
    assert not wide


@pytest.mark.parametrize(
    ("stride", "moved"),
    [
        (1, ""),
        (2, "moves 2"),
        (-1, ""),
        (8, "moves 8"),
        (3, "moves 3"),
        (0, ""),
        (None, "may move up to 8"),
    ],
)
def test_reports_say_how_much_memory_moves_for_what_is_used(stride: int | None, moved: str) -> None:
    """4-byte elements use the part of 32-byte sectors that their stride allows.

    An unknown stride is reported as the worst case, and one number for all lanes is read once.
    """
    constants = {} if stride is None else {"stride": stride}
    signature = COPY if stride is None else {**COPY, "stride": "constexpr"}
    _, _, text = compiled(copy, signature, aligned=("x", "z", "n"), BLOCK=1024, **constants)
    (load,) = [line for line in text.splitlines() if "= load" in line]
    assert load.endswith(
        f"accesses of {16 if stride == 1 else 4} bytes a thread"
        + (f", for which memory {moved} times the bytes" if moved else "")
    )


@tw.jit
def transpose_rows(x, z, M, N, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for column in range(N):
        tl.store(
            z + column * M + rows,
            tl.load(x + rows * N + column, mask=rows < M),
            mask=rows < M,
        )


@tw.jit
def transpose_columns(x, z, M, N, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for row in range(M):
        tl.store(z + columns * M + row, tl.load(x + row * N + columns))


@tw.jit
def transpose_tiles(x, z, M, N, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(z + columns[:, None] * M + rows[None, :], tile.T)


@tw.jit
def sum_fields(x, z, FIELDS: tl.constexpr, USED: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for field in tl.static_range(USED):
        total += tl.load(x + offsets * FIELDS + field)
    tl.store(z + offsets, total)


@tw.jit
def gather(x, z, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = tl.load(z + offsets).to(tl.int32)
    tl.store(z + offsets, tl.load(x + places * n))


_MATRIX = {"x": "*fp32", "z": "*fp32", "M": "i32", "N": "i32"}
_ARRAYS = {"x": "*fp32", "z": "*fp32"}


@pytest.mark.parametrize(
    ("fn", "signature", "constants", "expected"),
    [
        (
            transpose_rows,
            _MATRIX,
            {},
            [
                (
                    "load may move up to 8 times the bytes that it uses: neighbouring elements of "
                    "the tile are `N` elements apart in memory; load a 2-D tile whose last axis is "
                    "contiguous in memory, and transpose the tile (tl.trans) if the result needs "
                    "the other order"
                )
            ],
        ),
        (
            transpose_columns,
            _MATRIX,
            {},
            [
                (
                    "store may move up to 8 times the bytes that it uses: neighbouring elements of "
                    "the tile are `M` elements apart in memory; store a 2-D tile whose last axis "
                    "is contiguous in memory, and transpose the tile (tl.trans) before the store "
                    "if it has the other order"
                )
            ],
        ),
        (transpose_tiles, _MATRIX, {}, []),
        (gather, {**_ARRAYS, "n": "i32"}, {}, []),
        (sum_fields, _ARRAYS, {"FIELDS": 2, "USED": 1}, []),  # half of the bytes are used
        (
            sum_fields,
            _ARRAYS,
            {"FIELDS": 8, "USED": 1},
            ["load moves 8 times the bytes that it uses: .* are 8 elements apart in memory"],
        ),
        # loads side by side use the bytes between each other's
        (sum_fields, _ARRAYS, {"FIELDS": 8, "USED": 8}, []),
    ],
)
def test_strided_accesses_that_waste_bytes_say_why_and_what_to_do(
    fn: Any, signature: dict[str, str], constants: dict[str, int], expected: list[str]
) -> None:
    block = 32 if fn is transpose_tiles else 128
    _, kernel, _ = compiled(fn, signature, aligned=tuple(signature), BLOCK=block, **constants)
    found = [note for note in notes(kernel) if " times the bytes that it uses" in note]
    assert len(found) == len(expected), found
    for pattern, note in zip(expected, found, strict=True):
        assert note == pattern or re.match(pattern, note), note


def test_small_tiles_have_no_wider_access() -> None:
    _, kernel, _ = compiled(copy, {**COPY, "stride": "constexpr"}, aligned=(), BLOCK=128, stride=1)
    assert notes(kernel) == []


def test_products_and_loops_say_why() -> None:
    _, kernel, text = compiled(product, PRODUCT, aligned=ALIGNED, BLOCK=32, OTHER=0.0)
    assert [note for note in notes(kernel) if "pipelined" in note] == []
    assert any(
        re.match(r"no matrix instruction for tile<32x32xf32> by .*: multiplied and added", note)
        for note in notes(kernel)
    )
    assert re.search(r"asynchronous copies \(\S+\) of 16 bytes a thread", text)
    for other in (0.0, 1.0):  # what goes through registers may be filled with anything
        _, kernel, text = compiled(
            product, PRODUCT, aligned=ALIGNED, copy_widths=(), BLOCK=32, OTHER=other
        )
        assert [note for note in notes(kernel) if "pipelined" in note] == []
        assert "simt.load_start" in text and "asynchronous copies" not in text
    _, kernel, _ = compiled(product, PRODUCT, aligned=ALIGNED, BLOCK=32, OTHER=1.0)
    assert any(
        "load is not pipelined: asynchronous copies fill with zeros" in note
        for note in notes(kernel)
    )
    _, kernel, _ = compiled(product, PRODUCT, aligned=ALIGNED, BLOCK=32, OTHER=0.0, stages=1)
    assert [note for note in notes(kernel) if "pipelined" in note] == []


def test_narrow_loads_of_products_are_not_pipelined() -> None:
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}
    _, kernel, _ = compiled(product, signature, BLOCK=32, OTHER=0.0)
    assert any(
        "load is not pipelined: it reads 2 bytes at once, and asynchronous copies take 4, 8, 16"
        in note
        for note in notes(kernel)
    )


def test_warnings_are_given_once_a_kernel_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.jit
    def warned(x, z, n, stride, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(z + offsets, tl.load(x + offsets))

    monkeypatch.delenv("TILEWRIGHT_WARN_SLOW", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(warned, COPY, BLOCK=512)
    monkeypatch.setenv("TILEWRIGHT_WARN_SLOW", "1")
    with pytest.warns(RuntimeWarning) as found:
        compiled(warned, COPY, BLOCK=512)
    for one, name in zip(found, ("load", "store"), strict=True):
        assert re.search(
            rf"kernel warned, .*test_remarks\.py:\d+.* {name} moves 4 bytes", str(one.message)
        )
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(warned, COPY, BLOCK=512)


def test_registers_that_nothing_reads_are_not_written() -> None:
    """Of 64 registers of a tile a thread has 16 masks: one is read of each run of four. Loops carry
    no others either."""
    text, _, _ = compiled(
        copy, {**COPY, "stride": "constexpr"}, aligned=("x", "z", "n"), BLOCK=8192, stride=1
    )
    assert UNWRITTEN not in text
    assert len(re.findall(r"icmp slt i32 %t\d+, %a2", text)) == 16
    text, _, _ = compiled(
        walk, {"x": "*fp32", "z": "*fp32", "n": "i32"}, aligned=("x", "z"), BLOCK=2048
    )
    assert UNWRITTEN not in text
    assert (
        len(re.findall(r"= phi float ", text)) == 2 * 16
    )  # the sums, at the loop's top and after it
    assert len(re.findall(r"= phi ptr ", text)) == 2 * 4  # a pointer for each four


def test_layouts_in_words() -> None:
    assert (
        describe(blocked((64, 64), (1, 0), 4, 32, 4))
        == "a thread has 8x4 (4 in a row along axis 1), lanes span 2x16, warps span 4x1"
    )
    assert describe(replicated((8,), 32, 2)) == (
        "a thread has 8 (8 in a row along axis 0), lanes span 1, warps span 1, each element "
        "is in 64 threads"
    )


def test_conversions_tell_their_cost() -> None:
    @tw.jit
    def transposed(x, z, BLOCK: tl.constexpr):
        rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
        tile = tl.load(x + rows[:, None] * BLOCK + columns[None, :])
        tl.store(z + rows[:, None] * BLOCK + columns[None, :], tl.trans(tile))

    _, kernel, text = compiled(
        transposed, {"x": "*fp32", "z": "*fp32"}, aligned=("x", "z"), BLOCK=64
    )
    (line,) = [line for line in text.splitlines() if "simt.convert" in line]
    assert re.search(
        (
            r"from L\d+; 16384 bytes through 16384 bytes of shared memory; written in \d+ "
            r"accesses of \d+ bytes a thread, \d+ turns a warp"
        ),
        line,
    )
    assert kernel.attributes[SHARED_BYTES] == 16384
