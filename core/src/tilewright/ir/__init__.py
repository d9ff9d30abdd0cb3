"""Tile IR: types, the op table, graph, builder, text form, verifier, structural hash.

Imports nothing else of Tilewright.

What does not live here: the meaning of operations in numbers (``reference``), rewrites
(``passes``), anything about Python source.
"""

from tilewright.ir.builder import Builder
from tilewright.ir.core import IR_VERSION, Function, Location, Module, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.table import (
    Attribute,
    Effect,
    Kind,
    Operand,
    OpSpec,
    OpTable,
    RuleError,
    Shape,
    Trait,
)
from tilewright.ir.verifier import VerificationError, verify

__all__ = [
    "IR_VERSION",
    "TABLE",
    "Attribute",
    "Builder",
    "Effect",
    "Function",
    "Kind",
    "Location",
    "Module",
    "OpSpec",
    "OpTable",
    "Operand",
    "Operation",
    "Region",
    "RuleError",
    "Shape",
    "Trait",
    "Value",
    "VerificationError",
    "verify",
]
