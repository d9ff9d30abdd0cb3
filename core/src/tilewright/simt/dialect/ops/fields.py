"""Operands and attributes that operations of several families have."""

from __future__ import annotations

from tilewright.ir.declare import OptionalOperand, SingleOperand, TypedAttribute
from tilewright.ir.ops.linear import Precision

SLOT = SingleOperand("the slot in shared memory")
BARRIERS = SingleOperand("mbarriers")
INDEX = SingleOperand("the index of the mbarrier")
CONDITION = OptionalOperand("the operation has an effect only if this is true")
BY = TypedAttribute[str]("the copy mechanism")
CACHE = TypedAttribute[str]("", "")
EVICTION = TypedAttribute[str]("", "normal")
ORDERED = TypedAttribute[bool](
    "the pass that created the operation guarantees that no thread may still access the slot", False
)
PLAN = TypedAttribute[str]("the matmul plan, by name")
PRECISION = TypedAttribute[Precision]("the rounding of f32 operands", "ieee")
MAX_IMPRECISE = TypedAttribute[int](
    "fp8: the number of products summed at reduced precision before a full-precision add; 0: "
    "the target's choice",
    0,
)
