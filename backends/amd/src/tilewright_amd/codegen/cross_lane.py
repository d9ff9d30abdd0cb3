"""Cross-lane reads: DPP, ``v_permlane*``, ``ds_bpermute`` and ``ds_swizzle``.

DPP reads operands across a row of 16 lanes, ``v_permlane*`` between rows; ``ds_bpermute`` and
``ds_swizzle`` go through the permute network of LDS, which LLVM takes for accesses of LDS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.capabilities.cross_lane import CrossLane
from tilewright.simt.target.capabilities.thread_hierarchy import ThreadHierarchy
from tilewright_amd.architectures import MFMA, WMMA, Architecture
from tilewright_amd.codegen.kernel_state import kernel_state

#: Controls of a DPP operand, as ``llvm.amdgcn.update.dpp`` takes them.
_QUAD = 0x00  # plus two bits for each lane of a quad: its source lane
_ROTATE = 0x120  # plus the number of lanes of a row
_MIRROR, _HALF_MIRROR = 0x140, 0x141  # reverse the lanes of a row, and of half a row
_ROW_XOR = 0x160  # plus the mask; RDNA


#: The maximum number of values in one statement of :func:`pinned`, all of which are live at once.
_TOGETHER: Final = 8


def pinned(w: FunctionWriter, values: Sequence[str], permute: Callable[[str], str]) -> list[str]:
    """Permute i32 values between two empty inline assemblies, which LLVM keeps in order.

    An LDS permute stays between the assembly of its operands and that of its results. The second
    one reads the results, so LLVM waits for the permute there.
    """
    found: list[str] = []
    for start in range(0, len(values), _TOGETHER):
        operands = _fixed(w, values[start : start + _TOGETHER])
        found += _fixed(w, [permute(value) for value in operands])
    return found


def _fixed(w: FunctionWriter, values: Sequence[str]) -> list[str]:
    """Pass i32 values through an empty inline assembly.

    LLVM moves nothing with side effects across it.
    """
    count = len(values)
    listed = ", ".join(f"i32 {value}" for value in values)
    constraints = ",".join(["=v"] * count + [str(number) for number in range(count)])
    if count == 1:
        return [w.emit(f'call i32 asm sideeffect "", "{constraints}"({listed})')]
    type_ = f"{{ {', '.join(['i32'] * count)} }}"
    together = w.emit(f'call {type_} asm sideeffect "", "{constraints}"({listed})')
    return [w.emit(f"extractvalue {type_} {together}, {number}") for number in range(count)]


def goes_through_lds(row: Architecture, mask: int) -> bool:
    """Return whether :func:`exchange` needs an LDS permute for a mask."""
    return row.matrix == MFMA and mask >= 16 and not row.swaps


def bpermute(w: FunctionWriter, value: str, lane: str) -> str:
    """Read the i32 ``value`` of an arbitrary lane."""
    place = w.emit(f"shl i32 {lane}, 2")
    return w.call("llvm.amdgcn.ds.bpermute", "i32", [("i32", place), ("i32", value)])


def exchange(
    w: FunctionWriter, row: Architecture, value: str, lane: Callable[[], str], mask: int
) -> str:
    """Read the i32 ``value`` of the lane at this lane's index xor ``mask``.

    ``lane`` emits this lane's index.
    """
    if row.matrix == WMMA:
        low = _dpp(w, value, _ROW_XOR + (mask & 15)) if mask & 15 else value
        return _other_row(w, low) if mask & 16 else low
    if mask < 16 or row.swaps:
        for control in _row_controls(mask & 15):
            value = _dpp(w, value, control)
        for rows in (16, 32):
            if mask & rows:
                value = _swapped(w, value, lane(), rows)
        return value
    if mask < 32:
        # the operand holds the xor, or and and masks, applied to the lane index in half a wave
        return w.call(
            "llvm.amdgcn.ds.swizzle", "i32", [("i32", value), ("i32", str(mask << 10 | 31))]
        )
    return bpermute(w, value, w.emit(f"xor i32 {lane()}, {mask}"))


def _row_controls(mask: int) -> list[int]:
    """Return DPP controls that together xor the lane index with a mask below 16."""
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
    operands = [
        ("i32", "poison"),
        ("i32", value),
        ("i32", str(control)),
        ("i32", "15"),
        ("i32", "15"),
        ("i1", "true"),
    ]
    return w.intrinsic("llvm.amdgcn.update.dpp", "i32", operands)


def _other_row(w: FunctionWriter, value: str) -> str:
    """Read the value of the same lane of the other row of a 32-lane wave."""
    select = [("i32", str(0x76543210)), ("i32", str(0xFEDCBA98 - (1 << 32)))]
    return w.intrinsic(
        "llvm.amdgcn.permlanex16",
        "i32",
        [("i32", "poison"), ("i32", value), *select, ("i1", "false"), ("i1", "false")],
    )


def _swapped(w: FunctionWriter, value: str, lane: str, rows: int) -> str:
    """Read the value of the lane whose index differs in the bit ``rows`` (16 or 32).

    ``v_permlane16_swap`` and ``v_permlane32_swap`` exchange the upper lanes of one register with
    the lower lanes of another.
    """
    name, both = f"llvm.amdgcn.permlane{rows}.swap", "{ i32, i32 }"
    w.module.declare(name, both, ["i32", "i32", "i1", "i1"])
    pair = w.emit(f"call {both} @{name}(i32 {value}, i32 {value}, i1 false, i1 false)")
    lower, upper = (w.emit(f"extractvalue {both} {pair}, {number}") for number in range(2))
    is_upper = w.emit(f"icmp ne i32 {w.emit(f'and i32 {lane}, {rows}')}, 0")
    return w.emit(f"select i1 {is_upper}, i32 {lower}, i32 {upper}")


#: LLVM types that one or two ``v_readfirstlane`` instructions read.
_SCALAR: Final = frozenset({"i32", "i64", "float", "double"})


class GcnLanes(CrossLane):
    """Operations among the lanes of a wave."""

    def __init__(self, row: Architecture, threads: ThreadHierarchy) -> None:
        self._row, self._threads = row, threads

    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        return bpermute(w, value, lane)

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        return exchange(w, self._row, value, lambda: self._threads.lane(w), mask)

    def shuffle_all(self, w: FunctionWriter, values: Sequence[str], lane: str) -> list[str]:
        if not kernel_state(w).copies:
            return super().shuffle_all(w, values, lane)
        return pinned(w, values, lambda value: self.shuffle(w, value, lane))

    def shuffle_all_xor(self, w: FunctionWriter, values: Sequence[str], mask: int) -> list[str]:
        if not kernel_state(w).copies or not goes_through_lds(self._row, mask):
            return super().shuffle_all_xor(w, values, mask)
        return pinned(w, values, lambda value: self.shuffle_xor(w, value, mask))

    def uniform(self, w: FunctionWriter, value: str, type_: str) -> str:
        """Move a uniform value to scalar registers, for uniform branches and scalar bases."""
        return (
            w.intrinsic("llvm.amdgcn.readfirstlane", type_, [(type_, value)])
            if type_ in _SCALAR
            else value
        )
