"""Operands and attributes that operations of several families have."""

from __future__ import annotations

from tilewright.ir.declare import OptionalOperand, SingleOperand, TypedAttribute
from tilewright.ir.ops.linear import Precision

SLOT = SingleOperand("a place in shared memory")
BARRIERS = SingleOperand("mbarriers")
INDEX = SingleOperand("which of them")
CONDITION = OptionalOperand("whether it happens at all")
BY = TypedAttribute[str]("the copy mechanism")
CACHE = TypedAttribute[str]("", "")
EVICTION = TypedAttribute[str]("", "normal")
ORDERED = TypedAttribute[bool](
    "whoever wrote it saw to it that no thread may still touch the slot", False
)
PLAN = TypedAttribute[str]("the matmul plan, by name")
PRECISION = TypedAttribute[Precision]("how f32 operands may be rounded", "ieee")
MAX_IMPRECISE = TypedAttribute[int](
    "fp8: products summed at reduced precision before a full-precision add; 0 is the "
    "target's choice",
    0,
)
