"""Liveness of the registers of tiles.

An access reads the pointer and the mask of its first element only; where addresses are derived from
that of the first access (:mod:`.address_steps`), it reads the first pointer alone. So most
registers of pointers, masks and the index arithmetic behind them are dead and are not emitted: they
would be half of the instructions of a matmul, and LLVM takes long to eliminate them where loops
carry them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import PointerType, TileType
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.loop_carried import CARRIERS, all_carried, operations_of_program
from tilewright.simt.dialect.ops.async_copy import CopyStart, LoadStart
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.lowering.async_copy import width_of
from tilewright.simt.lowering.emission.address_steps import AddressSteps
from tilewright.simt.lowering.shape import SOURCE_NUMBERS, source_elements
from tilewright.simt.target.cost_model import access_width
from tilewright.simt.target.simt_target import SimtTarget

#: For each tile, a mask of the registers that are read.
Needs = dict[Value, int]


def needed_registers(
    function: Function, target: SimtTarget, axes: Mapping[Value, AxisInfo], steps: AddressSteps
) -> Needs:
    """Return the live registers of every tile of a function in its final form, as bit masks.

    Bits are register numbers. Tiles without a live register have no entry.
    """
    return _Needs(function, target, axes, steps).run()


class _Needs:
    def __init__(
        self,
        function: Function,
        target: SimtTarget,
        axes: Mapping[Value, AxisInfo],
        steps: AddressSteps,
    ) -> None:
        self.target, self.axes, self.steps = target, axes, steps
        self.operations = operations_of_program(function.body)
        self.carried = all_carried(function)
        self.found: Needs = {}
        self.work: list[tuple[Value, int]] = []

    def run(self) -> Needs:
        for operation in self.operations:
            self._read_by(operation)
        while self.work:
            value, mask = self.work.pop()
            before = self.found.get(value, 0)
            new = mask & ~before
            if new:
                self.found[value] = before | new
                self._follow(value, new)
        return self.found

    def _read(self, value: Value, mask: int) -> None:
        if isinstance(value.type, TileType):
            self.work.append((value, mask))

    def _all(self, value: Value) -> int:
        return (1 << layout_of(value).register_count) - 1 if isinstance(value.type, TileType) else 1

    def _read_by(self, operation: Operation) -> None:
        """Mark the registers that an operation reads regardless of the liveness of its results."""
        name = operation.name
        if isinstance(operation, CARRIERS) or operation.spec.terminator or name in SOURCE_NUMBERS:
            return
        if isinstance(operation, _ACCESSES) and isinstance(operation.pointer.type, TileType):
            pointer, mask, starts = operation.pointer, operation.mask, self._starts(operation)
            own: dict[Value | None, int] = {
                pointer: 1 if self.steps.of(operation) is not None else starts,
                mask: starts,
            }
            for operand in operation.operands:
                self._read(operand, own[operand] if operand in own else self._all(operand))
        elif not operation.spec.elementwise:
            for operand in operation.operands:
                self._read(operand, self._all(operand))

    def _starts(self, operation: Load | Store | CopyStart | LoadStart) -> int:
        """Return a mask of the first register of each access."""
        pointer, mask, type_ = operation.pointer, operation.mask, operation.pointer.type
        assert isinstance(type_, TileType) and isinstance(type_.element, PointerType)
        layout, size = layout_of(pointer), storage_size(type_.element.pointee)
        axes, mask_axes = self.axes[pointer], self.axes[mask] if mask is not None else None
        width = 0
        if isinstance(operation, CopyStart):
            width = width_of(
                operation, self.target.async_copy.mechanism(operation.by), axes, mask_axes
            )
        width = width or access_width(
            layout, axes, mask_axes, size, self.target.resources.max_access
        )
        return sum(1 << start for start in range(0, layout.register_count, width))

    def _follow(self, value: Value, mask: int) -> None:
        """Mark the registers that the live registers of a value are computed from."""
        carried = self.carried.get(value)
        if carried is not None:
            for other in (*carried.values, *carried.incoming()):
                self._read(other, mask)
            return
        operation = value.definition
        if operation is None:
            return
        if operation.name in SOURCE_NUMBERS:
            assert isinstance(operation, Moved | Convert)
            operand = operation.x
            held = {
                number: register
                for register, number in enumerate(layout_of(operand).register_elements())
            }
            wanted = 0
            for register, number in enumerate(source_elements(operation, layout_of(value))):
                if mask >> register & 1:
                    wanted |= 1 << held[number]
            self._read(operand, wanted)
        elif operation.spec.elementwise:
            for operand in operation.operands:
                self._read(operand, mask)


#: Operations that read the pointer and the mask of the first element of each access.
_ACCESSES = (Load, Store, CopyStart, LoadStart)
