"""Intel AMX, a matrix unit: eight tile registers of 16 rows of 64 bytes, and their matmul.

Tile registers are the thread's, as vector registers are, but exist only while it has a
configuration: using one without it ends the process. Other code in the same thread may release it,
PyTorch's matmuls among them, so a matmul configures its tiles and releases them again; it calls
nothing in between. Both take 50 ns.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and the
instructions' pages in volume 2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.gemm.plan import Extent

#: Rows of a tile, and bytes of one of them.
ROWS: Final = 16
ROW_BYTES: Final = 64
_TILES: Final = 8

#: Palette 1; bytes of a row of each tile from byte 16 on, two bytes each; rows of each tile from
#: byte 48 on.
_CONFIGURATION: Final = bytes(
    [1, *[0] * 15, *[ROW_BYTES, 0] * _TILES, *[0] * 16, *[ROWS] * _TILES, *[0] * 8]
)


@contextlib.contextmanager
def configured(w: FunctionWriter) -> Iterator[None]:
    """Configure tile registers for the ``with`` block, which must not leave the function.

    It must call nothing either.
    """
    text = "".join(f"\\{byte:02X}" for byte in _CONFIGURATION)
    w.module.add_global(
        f"@tiles.configuration = private unnamed_addr constant [{len(_CONFIGURATION)} x i8] "
        f'c"{text}", align 64'
    )
    _do(w, "ldtilecfg", ("ptr", "@tiles.configuration"))
    yield
    _do(w, "tilerelease")


def zero(w: FunctionWriter, tile: int) -> None:
    """Clear a tile."""
    _do(w, "tilezero", ("i8", tile))


def load(w: FunctionWriter, tile: int, pointer: str, stride: Extent) -> None:
    """Fill a tile with the rows from an address on, ``stride`` bytes apart."""
    _do(w, "tileloadd64", ("i8", tile), ("ptr", pointer), ("i64", stride))


def store(w: FunctionWriter, tile: int, pointer: str, stride: Extent) -> None:
    """Write the rows of a tile, ``stride`` bytes apart."""
    _do(w, "tilestored64", ("i8", tile), ("ptr", pointer), ("i64", stride))


def multiply_add(w: FunctionWriter, how: str, total: int, a: int, b: int) -> None:
    """Add the matmul of two tiles to a third.

    Row r of ``a`` has 16 K-groups of 4 bytes, row k of ``b`` the K-groups k of 16 columns. ``how``
    is the instruction: ``dpbf16ps`` for pairs of bf16 and accumulators in f32; ``dpbssd``,
    ``dpbsud``, ``dpbusd``, ``dpbuud`` for quads of bytes and accumulators in i32, where s and u
    state the signedness of ``a`` and of ``b``.
    """
    _do(w, f"t{how}", ("i8", total), ("i8", a), ("i8", b))


def _do(w: FunctionWriter, name: str, *operands: tuple[str, Extent]) -> None:
    w.call(f"llvm.x86.{name}", "void", [(type_, str(value)) for type_, value in operands])
