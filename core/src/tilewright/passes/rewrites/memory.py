"""Laws of accesses whose masks are known, of descriptors made in the function, and of matrix
matmuls that are added to."""

from __future__ import annotations

from typing import Any

from tilewright.ir.core import Operation
from tilewright.ir.ops.arithmetic import Binary
from tilewright.ir.ops.debug import Assert, Assume, Hint
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.ops.memory import (
    AtomicLoad,
    AtomicRmw,
    AtomicStore,
    DescriptorExtent,
    DescriptorStride,
    Load,
    MakeDescriptor,
    Store,
)
from tilewright.ir.ops.shape import Histogram
from tilewright.ir.types import FloatType, IntType, PointerType, element_type
from tilewright.passes.rewriter import DONE, Rewrite, Rewriter, constant_of, defined_by

_Masked = Load | Store | AtomicRmw | AtomicLoad | AtomicStore | Assert


def _unmask(operation: _Masked, rewriter: Rewriter) -> Any:
    mask = operation.mask
    if mask is None or constant_of(mask) is not True:
        return None
    groups = [
        []
        if declared.name in ("mask", "other")
        else operation.group(declared.name)  # a load's other has no lane left
        for declared in operation.spec.operands
    ]
    return rewriter.create(operation.spec, groups, operation.attributes).results


def _masked_off_load(operation: Load, rewriter: Rewriter) -> Any:
    mask = operation.mask
    if mask is None or constant_of(mask) is not False or operation.volatile:
        return None
    return operation.other or _zero(operation, rewriter)


def _masked_off_update(
    operation: Store | AtomicRmw | AtomicStore | Assert, rewriter: Rewriter
) -> Any:
    mask = operation.mask
    if mask is None or constant_of(mask) is not False:
        return None
    if operation.results:
        return _zero(operation, rewriter)
    rewriter.erase(operation)
    return DONE


def _zero(operation: Operation, rewriter: Rewriter) -> Any:
    """Zero of the result's type: what a load has in lanes that it leaves out, and as good as
    anything for the old value of an atomic."""
    type_ = operation.result.type
    assert isinstance(element_type(type_), IntType | FloatType | PointerType)
    return rewriter.constant_like(type_, 0)


def _holds(operation: Assert | Assume, rewriter: Rewriter) -> Any:
    if constant_of(operation.condition) is not True:
        return None
    rewriter.erase(operation)
    return DONE


def _accumulate(operation: Binary, rewriter: Rewriter) -> Any:
    for term, addend in ((operation.a, operation.b), (operation.b, operation.a)):
        matmul = term.definition
        if (
            not isinstance(matmul, Dot | DotScaled)
            or len(matmul.result.uses) != 1
            or matmul.parent is not operation.parent
        ):
            continue
        zero = constant_of(matmul.c)
        if zero is None or zero != 0 or addend is matmul.result:
            continue
        groups = [matmul.group(declared.name) for declared in matmul.spec.operands]
        groups[-1] = [addend]
        return rewriter.create(matmul.spec, groups, matmul.attributes).result
    return None


def _histogram_unmask(operation: Histogram, rewriter: Rewriter) -> Any:
    mask = operation.mask
    known = None if mask is None else constant_of(mask)
    if known is None:
        return None
    if known:
        return rewriter.histogram(operation.x, bins=operation.bins)
    return rewriter.constant_like(operation.result.type, 0)


def _same_promise(operation: Hint, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Hint)
    if inner is None or inner.attributes != operation.attributes:
        return None
    return operation.x


def _number_of_descriptor(
    operation: DescriptorExtent | DescriptorStride, rewriter: Rewriter
) -> Any:
    made = defined_by(operation.descriptor, MakeDescriptor)
    if made is None:
        return None
    return (made.shape if isinstance(operation, DescriptorExtent) else made.strides)[operation.axis]


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        ("load", "store", "atomic_rmw", "atomic_load", "atomic_store", "assert"),
        "a mask that holds everywhere masks nothing",
        _unmask,
    ),
    Rewrite(
        ("load",),
        "where no lane is loaded, other is all there is, or zero without it",
        _masked_off_load,
    ),
    Rewrite(
        ("store", "atomic_rmw", "atomic_store", "assert"),
        "where no lane takes part, nothing happens",
        _masked_off_update,
    ),
    Rewrite(
        ("histogram",),
        "a mask that holds everywhere masks nothing; one that holds nowhere counts nothing",
        _histogram_unmask,
    ),
    Rewrite(("assert", "assume"), "what holds needs no saying", _holds),
    Rewrite(("add",), "(a @ b + 0) + c = a @ b + c: the matmuls sum in any order", _accumulate),
    Rewrite(
        ("descriptor_extent", "descriptor_stride"),
        "a descriptor's extents and strides are those it was made of",
        _number_of_descriptor,
    ),
    Rewrite(("hint",), "a promise made twice is one", _same_promise),
)
