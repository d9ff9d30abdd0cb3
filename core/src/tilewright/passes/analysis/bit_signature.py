"""Signature of a kernel's rounding: equal signatures mean equal bits of all results.

Tile IR determines every bit where each reduction, scan and matmul of floats states its order and no
multiplication may be fused with an addition, since all other operations work on one element. Then
modules of one structure compute the same bits, whatever the number of warps and stages. Modules
without any combination of floats do so whatever their tiles, as long as they compute with the same
operations.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.hash import structural_hash
from tilewright.ir.ops.arithmetic import Binary, Constant
from tilewright.ir.ops.control import For, Map, Reduce, Scan, While
from tilewright.ir.ops.debug import Extern, InlineAsm
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.ops.memory import AtomicRmw, DescriptorReduce
from tilewright.ir.order import ANY, CONTRACT
from tilewright.ir.table import Trait
from tilewright.ir.types import FloatType, element_type


def unordered_addition(module: Module) -> Operation | None:
    """Return an operation whose result depends on the order in which programs run, if any.

    It adds floats to memory that other programs add to.
    """
    return next(
        (
            operation
            for operation in module.walk()
            if isinstance(operation, AtomicRmw | DescriptorReduce)
            and operation.kind == "add"
            and _has_floats((operation.value,))
        ),
        None,
    )


def bit_signature(module: Module) -> str | None:
    """Return the signature of a module; None where the backend chooses how results are rounded.

    It does so where it chooses an order of additions, or which operations it fuses.
    """
    if any(_may_fuse(function) for function in module.functions.values()):
        return None
    floats: Counter[str] = Counter()
    combines = False
    for operation in module.walk():
        if isinstance(operation, DotScaled) or not _is_determined(operation):
            return None
        touched = _has_floats((*operation.operands, *operation.results))
        combines |= touched and isinstance(operation, Reduce | Scan | Dot | For | While | Map)
        if touched and (
            Trait.ELEMENTWISE in operation.spec.traits or isinstance(operation, Constant)
        ):
            floats[_elementwise_text(operation)] += 1
    if combines:
        return f"structure {structural_hash(module)}"
    texts = "\n".join(f"{count} {text}" for text, count in sorted(floats.items()))
    return f"elementwise {hashlib.sha256(texts.encode()).hexdigest()}"


def _may_fuse(function: Function) -> bool:
    """Return whether the backend may fuse operations on floats of a function."""
    return bool(function.attributes.get(CONTRACT, True)) and any(
        isinstance(operation, Binary) and _has_floats(operation.results)
        for operation in function.walk()
    )


def _is_determined(operation: Operation) -> bool:
    """Return whether the operation's results are the same bits on each launch and configuration."""
    if isinstance(operation, InlineAsm | Extern):
        return False  # which may read the number of the thread
    if isinstance(operation, Reduce | Scan | Dot):
        return operation.order != ANY or not _has_floats(operation.operands)
    return True


def _has_floats(values: Iterable[Value]) -> bool:
    return any(isinstance(element_type(value.type), FloatType) for value in values)


def _elementwise_text(operation: Operation) -> str:
    values: list[Any] = [
        str(element_type(value.type)) for value in (*operation.operands, *operation.results)
    ]
    return repr((operation.spec.name, values, sorted(operation.attributes.items(), key=str)))
