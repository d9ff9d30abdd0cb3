"""Operands and attributes that operations of several families have."""

from __future__ import annotations

from tilewright.ir.declare import OptionalOperand, SingleOperand, TypedAttribute
from tilewright.ir.ops.linear import Precision

SLOT = SingleOperand("the slot in shared memory")
BARRIERS = SingleOperand("the mbarriers, one of which the operation uses")
INDEX = SingleOperand("the index of the mbarrier that the operation uses")
CONDITION = OptionalOperand("if false, the operation does nothing")
BY = TypedAttribute[str]("the name of the copy mechanism")
CACHE = TypedAttribute[str]("", "")
EVICTION = TypedAttribute[str]("", "normal")
ORDERED = TypedAttribute[bool](
    "whether no barrier is needed before this operation, because the pass that created the "
    "operation guarantees that no thread still accesses the slot",
    False,
)
PLAN = TypedAttribute[str]("the name of the matmul plan")
PRECISION = TypedAttribute[Precision]("the rounding of f32 operands", "ieee")
MAX_IMPRECISE = TypedAttribute[int](
    "for fp8 operands: the number of products that may be summed at reduced precision before they "
    "are added at full precision; 0 leaves the number to the target",
    0,
)
