"""Operands and attributes that operations of several families have."""

from __future__ import annotations

from tilewright.ir.declare import OptionalOperand, SingleOperand, TypedAttribute
from tilewright.ir.ops.linear import Precision

SLOT = SingleOperand("the slot in shared memory")
BARRIERS = SingleOperand("the mbarriers, of which index selects one")
INDEX = SingleOperand("the index of the mbarrier")
CONDITION = OptionalOperand("a condition without which the operation has no effect")
BY = TypedAttribute[str]("the copy mechanism")
CACHE = TypedAttribute[str]("", "")
EVICTION = TypedAttribute[str]("", "normal")
ORDERED = TypedAttribute[bool](
    "whether the pass that created the operation guarantees that no thread may still access the "
    "slot",
    False,
)
PLAN = TypedAttribute[str]("the matmul plan, by name")
PRECISION = TypedAttribute[Precision]("the rounding of f32 operands", "ieee")
MAX_IMPRECISE = TypedAttribute[int](
    "for fp8 operands: the number of products that may be summed at reduced precision before they "
    "are added at full precision; 0 leaves the number to the target",
    0,
)
