"""Loop-invariant matmul operands that stay in registers.

An asynchronous matmul can read its first operand from registers instead of shared memory. If a loop
does not change the operand, such as the queries of attention, each iteration then reads less from
shared memory. Operands of the first of back-to-back matmuls are kept so if

- the loop's tiles and the indices that its masks compare leave registers for them, but not for a
  second program on the SM;
- an outer loop loads them, as persistent programs do: the copy of the next operand then overlaps
  the loop, while a program of one tile only starts later by the read into registers;
- no other loop of the same operand reads it from shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import Select
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.ir.types import TileType, bit_width
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.target.matmul_plan import REGISTERS, SHARED, MatmulPlan
from tilewright.simt.target.simt_target import SimtTarget


class ResidentOperands:
    """Loop-invariant operands of matmuls that are kept in registers.

    Args:
        num_warps: warps of the program.
    """

    def __init__(self, target: SimtTarget, num_warps: int) -> None:
        self._target, self._threads = target, target.resources.warp_size * num_warps
        self._limit = _consumer_registers(target, num_warps)
        #: loop body -> a thread's registers for its resident operands
        self._words: dict[Region, int] = {}

    def plan(self, matmul: Dot, body: Region, known: Sequence[MatmulPlan]) -> MatmulPlan | None:
        """Return the plan that keeps the first operand of a matmul in registers.

        ``body`` is that of the pipelined loop around it, and ``known`` are the plans for it. None
        if the operand changes in the loop, takes registers that the loop needs, is loaded by no
        outer loop, or is read by other loops.
        """
        plan = next((one for one in known if one.reads == (REGISTERS, SHARED)), None)
        operand = matmul.a.definition
        if (
            plan is None
            or not plan.asynchronous
            or known[0].reads != (SHARED, SHARED)
            or operand is None
            or operand.parent is body
            or not _is_in_loop(operand)
            or any(user.parent is not body for user in matmul.a.uses)
            or not _feeds_matmul(matmul.results[0], body)
        ):
            return None
        assert isinstance(matmul.a.type, TileType)
        words = plan.a.register_count * bit_width(matmul.a.type.element) // 32
        resources, other = self._target.resources, self._target.costs.other_registers
        held = self._held(body) + _mask_indices(matmul.results[0], plan.c, body)
        if held + other <= resources.register_file // (2 * self._threads):
            return None
        kept = self._words.get(body, 0) + words
        if held + kept + other > self._limit:
            return None
        self._words[body] = kept
        return plan

    def _held(self, body: Region) -> int:
        """Return a thread's registers for the tiles of a loop: results and operands of matmuls.

        Loaded tiles that no matmul reads count too. A result that another matmul of the loop adds
        to is in that one's registers.
        """
        dots = [operation for operation in body if isinstance(operation, Dot)]
        accumulators = {dot.c for dot in dots}
        tiles = {dot.results[0] for dot in dots} - accumulators
        tiles |= {dot.a for dot in dots if _is_computed(dot.a, body)}
        tiles |= {
            operation.results[0]
            for operation in body
            if isinstance(operation, Load | DescriptorLoad) and not _is_read_by_matmul(operation)
        }
        return sum(map(self._words_of, tiles))

    def _words_of(self, tile: Value) -> int:
        if not isinstance(tile.type, TileType):
            return 0
        return math.prod(tile.type.shape) * bit_width(tile.type.element) // 32 // self._threads


def _consumer_registers(target: SimtTarget, num_warps: int) -> int:
    """Return the registers of a thread in a consumer warp of a program that is alone on an SM."""
    resources, specialization = target.resources, target.warp_specialization
    if specialization is not None:
        warps = {"consumers": num_warps, "producer": specialization.warp_multiple}
        if given := specialization.registers(warps).get("consumers"):
            return given
    threads = resources.warp_size * num_warps
    return min(resources.registers, resources.register_file // threads)


def _is_in_loop(operation: Operation) -> bool:
    region = operation.parent
    while region is not None and isinstance(owner := region.owner, Operation):
        if isinstance(owner, For):
            return True
        region = owner.parent
    return False


def _mask_indices(result: Value, layout: LinearLayout, body: Region) -> int:
    """Return a thread's row and column indices that a mask of a matmul's result compares.

    0 if the loop does not mask the result. Each iteration compares all of them, so that they stay
    in registers, unlike the indices of a mask that only guards a load.
    """
    assert isinstance(result.type, TileType)
    shape = result.type.shape
    is_masked = any(
        isinstance(operation, Select)
        and isinstance(operation.results[0].type, TileType)
        and operation.results[0].type.shape == shape
        and _is_computed(operation.condition, body)
        for operation in body
    )
    if not is_masked:
        return 0
    of_columns = sum(image < shape[-1] for image in layout.registers)
    return (1 << of_columns) + (1 << len(layout.registers) - of_columns)


def _is_computed(tile: Value, body: Region) -> bool:
    operation = tile.definition
    return operation is not None and operation.parent is body and operation.spec.elementwise


def _is_read_by_matmul(load: Operation) -> bool:
    """Return whether a matmul reads a loaded tile, maybe reshaped or converted."""
    work, seen = [load.results[0]], {load.results[0]}
    while work:
        for user in work.pop().uses:
            if isinstance(user, Dot):
                return True
            if len(user.results) == 1 and len(user.operands) == 1 and user.results[0] not in seen:
                seen.add(user.results[0])
                work.append(user.results[0])
    return False


def _feeds_matmul(value: Value, body: Region) -> bool:
    """Return whether another matmul's first operand is computed elementwise from a result.

    The result may also be an accumulator on the way.
    """
    work, seen = [value], {value}
    while work:
        tile = work.pop()
        for user in tile.uses:
            if user.parent is not body:
                continue
            if isinstance(user, Dot) and user.a is tile:
                return True
            if (user.spec.elementwise or isinstance(user, Dot)) and user.results[0] not in seen:
                seen.add(user.results[0])
                work.append(user.results[0])
    return False
