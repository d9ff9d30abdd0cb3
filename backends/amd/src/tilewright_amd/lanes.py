"""Values of other lanes: by operands that are read across a row of 16 lanes (DPP), between rows, or through the exchange network of LDS."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.llvm.writer import FunctionWriter
from tilewright_amd.architectures import WMMA, Architecture

#: Controls of a DPP operand, as ``llvm.amdgcn.update.dpp`` takes them.
_QUAD = 0x00  # and two bits for each lane of four: which it reads
_ROTATE = 0x120  # and by how many lanes of a row
_MIRROR, _HALF_MIRROR = 0x140, 0x141  # the lanes of a row, and of half a row, in the opposite order
_ROW_XOR = 0x160  # and the mask; RDNA


def bpermute(w: FunctionWriter, value: str, lane: str) -> str:
    """The i32 ``value`` of any lane."""
    place = w.emit(f"shl i32 {lane}, 2")
    return w.call("llvm.amdgcn.ds.bpermute", "i32", [("i32", place), ("i32", value)])


def exchange(w: FunctionWriter, row: Architecture, value: str, lane: Callable[[], str], mask: int) -> str:
    """The i32 ``value`` of the lane whose number differs in the bits of ``mask``. ``lane`` gives the own number."""
    if row.matrix == WMMA:
        low = _dpp(w, value, _ROW_XOR + (mask & 15)) if mask & 15 else value
        return _other_row(w, low) if mask & 16 else low
    if mask < 16:
        for control in _row_controls(mask):
            value = _dpp(w, value, control)
        return value
    if mask < 32:
        # xor, or and and masks of the lane's number in half a wave
        return w.call("llvm.amdgcn.ds.swizzle", "i32", [("i32", value), ("i32", str(mask << 10 | 31))])
    return bpermute(w, value, w.emit(f"xor i32 {lane()}, {mask}"))


def _row_controls(mask: int) -> list[int]:
    """DPP controls whose effects, one after the other, are an exclusive or of the lane's number with a mask below 16."""
    controls = []
    if mask & 8:
        if mask & 4:
            controls.append(_MIRROR)
            mask ^= 15
        else:
            controls.append(_ROTATE + 8)
            mask ^= 8
    if mask & 4:
        controls.append(_HALF_MIRROR)
        mask ^= 7
    if mask:
        controls.append(_QUAD | sum((lane ^ mask) << 2 * lane for lane in range(4)))
    return controls


def _dpp(w: FunctionWriter, value: str, control: int) -> str:
    operands = [("i32", "poison"), ("i32", value), ("i32", str(control)), ("i32", "15"), ("i32", "15"), ("i1", "true")]
    return w.intrinsic("llvm.amdgcn.update.dpp", "i32", operands)


def _other_row(w: FunctionWriter, value: str) -> str:
    """The value that the same lane of the other row has, of the two rows of a wave of 32 lanes."""
    select = [("i32", str(0x76543210)), ("i32", str(0xFEDCBA98 - (1 << 32)))]
    return w.intrinsic("llvm.amdgcn.permlanex16", "i32", [("i32", "poison"), ("i32", value), *select, ("i1", "false"), ("i1", "false")])
