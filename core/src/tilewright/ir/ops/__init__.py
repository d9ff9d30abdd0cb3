"""The op table: one file a family, one :class:`~tilewright.ir.table.OpSpec` an operation.

What does not live here: the meaning of operations in numbers
(``tilewright.reference``) or in code (the backends).
"""

from tilewright.ir.ops import arithmetic, control, debug, linear, memory, shape
from tilewright.ir.table import OpTable

#: Every operation of the core, in documentation order.
TABLE = OpTable(
    (*arithmetic.OPS, *shape.OPS, *memory.OPS, *linear.OPS, *control.OPS, *debug.OPS),
)

__all__ = ["TABLE"]
