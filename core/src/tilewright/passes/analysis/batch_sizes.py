"""Integer arguments of a kernel that are batch sizes: they decide which rows are computed, not how.

The size flows forward from the argument. It may bound masks, loops that carry no floats, and the
arithmetic that maps programs to rows; then a launch with a smaller size computes the same bits for
fewer rows. It may not reach a float, the offset of an address (it would be a stride), a loop that
carries floats (it would be an extent that is summed up), or an axis that is reduced. An operation
that is not understood ends the search, so that an argument is no batch size in case of doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.arithmetic import Arange, Cmp, Div, Extremum, Rem
from tilewright.ir.ops.control import For, If, Reduce, Scan, Yield
from tilewright.ir.ops.debug import Assert, Assume, Print
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import DescriptorLoad, DescriptorStore, MakeDescriptor
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Moved, Permute, Splat, Unsplat
from tilewright.ir.table import Trait
from tilewright.ir.types import (
    I1,
    FloatType,
    IntType,
    TileType,
    element_type,
    shape_of,
)

Axes = frozenset[int]
_NO_AXES: Final[Axes] = frozenset()


@dataclass(frozen=True, slots=True)
class BatchSize:
    """A batch size among a kernel's arguments.

    Attributes:
        name: the argument's.
        divides: whether the kernel divides by it or by what it computes from it. Then programs of
            a grid that is too large for the size may access memory beyond the arrays.
    """

    name: str
    divides: bool


@dataclass(frozen=True, slots=True)
class _SizeFlow:
    """Influence of the size on a value.

    Attributes:
        is_size: it is computed from the size by sums and products, so that it measures an extent.
            Other values are positions, masks, or elements that are accessed with them.
        axes: axes of a tile along which some elements lie within the size, and others beyond.
    """

    is_size: bool
    axes: Axes

    def __or__(self, other: _SizeFlow) -> _SizeFlow:
        return _SizeFlow(self.is_size or other.is_size, self.axes | other.axes)


class _NotABatchSizeError(Exception):
    """The size reaches what a batch size may not reach."""


def batch_sizes(module: Module) -> list[BatchSize]:
    """Return the batch sizes among the arguments of a module's kernel."""
    found = []
    for argument in module.kernel.arguments:
        type_ = argument.type
        if not isinstance(type_, IntType) or type_ is I1 or "." in argument.name:
            continue
        search = _SizeSearch(module)
        try:
            search.run(argument)
        except _NotABatchSizeError:
            continue
        if search.bounds_anything:
            found.append(BatchSize(argument.name, search.divides))
    return found


class _SizeSearch:
    """The flow of one argument through a module.

    Attributes:
        flows: of the values that the argument reaches.
        divides: see :class:`BatchSize`.
        bounds_anything: whether the argument reaches a comparison or a loop.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self.flows: dict[Value, _SizeFlow] = {}
        self._pending: dict[Operation, None] = {}
        self._varying: dict[Value, Axes] = {}
        self.divides = self.bounds_anything = False

    def run(self, argument: Value) -> None:
        """Follow the argument to a fixed point.

        Raises:
            _NotABatchSizeError: it is no batch size.
        """
        self.add(argument, _SizeFlow(True, _NO_AXES))
        while self._pending:
            operation, _ = self._pending.popitem()
            _rule_of(operation)(self, operation)

    def add(self, value: Value, flow: _SizeFlow | None) -> None:
        """Join a flow to a value's own, and revisit the value's readers if it has grown."""
        if flow is None:
            return
        old = self.flows.get(value)
        new = flow if old is None else old | flow
        if new != old:
            self.flows[value] = new
            for reader in value.uses:
                self._pending[reader] = None

    def of(self, values: Iterable[Value]) -> _SizeFlow | None:
        """The joined flow of values; None where none has any."""
        found: _SizeFlow | None = None
        for value in values:
            flow = self.flows.get(value)
            if flow is not None:
                found = flow if found is None else found | flow
        return found

    def position(self, values: Iterable[Value]) -> _SizeFlow | None:
        """The joined flow of values that are offsets or masks, without sizes.

        Raises:
            _NotABatchSizeError: one is a size.
        """
        flow = self.of(values)
        if flow is not None and flow.is_size:
            raise _NotABatchSizeError
        return flow

    def varying(self, value: Value) -> Axes:
        """Axes along which the elements of a tile may differ."""
        found = self._varying.get(value)
        if found is None:
            found = self._varying[value] = self._computed_varying(value)
        return found

    def _computed_varying(self, value: Value) -> Axes:
        operation = value.definition
        all_axes = _axes_of(value)
        if isinstance(operation, Splat) or not all_axes:
            return _NO_AXES
        if isinstance(operation, Arange) or operation is None:
            return all_axes
        if isinstance(operation, Broadcast):
            return self.varying(operation.x)
        if isinstance(operation, ExpandDims):
            return _with_axis(self.varying(operation.x), operation.axis)
        if isinstance(operation, Permute):
            return _permuted(self.varying(operation.x), operation.order)
        if Trait.ELEMENTWISE in operation.spec.traits:
            return _joined(self.varying(operand) for operand in operation.operands)
        return all_axes

    # ---- rules

    def elementwise(self, operation: Operation) -> None:
        (result,) = operation.results
        tainted = [operand for operand in operation.operands if operand in self.flows]
        flow = self.of(tainted)
        assert flow is not None
        element = element_type(result.type)
        if isinstance(element, FloatType):
            for operand in tainted:
                kind = element_type(operand.type)
                if kind is not I1 and not isinstance(kind, FloatType):
                    raise _NotABatchSizeError
            self.add(result, _SizeFlow(False, flow.axes))
            return
        axes, is_size = flow.axes, flow.is_size
        divides = isinstance(operation, Div | Rem) and operation.b in self.flows
        if divides or isinstance(operation, Cmp | Extremum):  # elements come out differently
            self.bounds_anything, is_size = True, False
            self.divides |= divides
            axes |= _joined(self.varying(operand) for operand in operation.operands)
        elif any(
            isinstance(element_type(operand.type), FloatType) for operand in operation.operands
        ):
            is_size = False
        if not isinstance(element, IntType):  # an address
            if is_size:
                raise _NotABatchSizeError
            is_size = False
        self.add(result, _SizeFlow(is_size, axes))

    def moved(self, operation: Moved) -> None:
        flow = self.flows[operation.x]
        for result in operation.results:
            if isinstance(operation, Splat | Unsplat):
                axes = _NO_AXES
            elif isinstance(operation, Broadcast):
                axes = flow.axes
            elif isinstance(operation, ExpandDims):
                axes = _with_axis(flow.axes, operation.axis)
            elif isinstance(operation, Permute):
                axes = _permuted(flow.axes, operation.order)
            else:
                axes = _axes_of(result) if flow.axes else _NO_AXES
            self.add(result, _SizeFlow(flow.is_size, axes))

    def access(self, operation: Operation) -> None:
        flow = self.position(operation.operands)
        for result in operation.results:
            self.add(result, flow)

    def make_descriptor(self, operation: MakeDescriptor) -> None:
        flow = self.position((operation.base, *operation.strides)) or _SizeFlow(False, _NO_AXES)
        axes = frozenset(
            axis for axis, extent in enumerate(operation.shape) if extent in self.flows
        )
        self.bounds_anything |= bool(axes)
        self.add(operation.result, _SizeFlow(False, flow.axes | axes))

    def descriptor(self, operation: DescriptorLoad | DescriptorStore) -> None:
        self.position(operation.offsets)
        for result in operation.results:
            flow = self.of((operation.descriptor, *operation.offsets))
            assert flow is not None
            self.add(result, _SizeFlow(False, self.axes_of(operation.descriptor)))

    def axes_of(self, value: Value) -> Axes:
        flow = self.flows.get(value)
        return _NO_AXES if flow is None else flow.axes

    def along_axis(self, operation: Reduce | Scan) -> None:
        flow, axis = self.of(operation.inputs), operation.axis
        assert flow is not None
        if axis in flow.axes:
            raise _NotABatchSizeError
        removed = isinstance(operation, Reduce)
        axes = frozenset(other - 1 if removed and other > axis else other for other in flow.axes)
        for result in operation.results:
            self.add(result, _SizeFlow(flow.is_size, axes))

    def dot(self, operation: Dot) -> None:
        rank = len(shape_of(operation.a.type))
        a, b, c = (self.axes_of(value) for value in (operation.a, operation.b, operation.c))
        if rank - 1 in a or rank - 2 in b:
            raise _NotABatchSizeError
        self.add(operation.result, _SizeFlow(False, a | b | c))

    def if_(self, operation: If) -> None:
        for region in (operation.then, operation.else_):
            self.end_of(region.terminator)
        if operation.condition in self.flows:
            for result in operation.results:
                self.add(result, _SizeFlow(False, _axes_of(result)))

    def for_(self, operation: For) -> None:
        body = operation.body
        if self.of((operation.lower, operation.upper, operation.step)) is not None:
            if any(isinstance(element_type(value.type), FloatType) for value in operation.results):
                raise _NotABatchSizeError
            self.bounds_anything = True
            self.add(body.arguments[0], _SizeFlow(False, _NO_AXES))
            for result in operation.results:
                self.add(result, _SizeFlow(False, _axes_of(result)))
        for value, argument, result in zip(
            operation.inits, body.arguments[1:], operation.results, strict=True
        ):
            self.add(argument, self.flows.get(value))
            self.add(result, self.flows.get(value))
        self.end_of(body.terminator)

    def end_of(self, terminator: Operation | None) -> None:
        if isinstance(terminator, Yield):
            self.end(terminator)

    def end(self, operation: Yield) -> None:
        """Pass yielded values on to the operation around the region."""
        owner = operation.parent.owner if operation.parent is not None else None
        if not isinstance(owner, For | If):
            raise _NotABatchSizeError
        carried = [owner.body.arguments[1:]] if isinstance(owner, For) else []
        for values in (*carried, owner.results):
            for source, target in zip(operation.values, values, strict=True):
                self.add(target, self.flows.get(source))

    def passed(self, operation: Operation) -> None:
        """Do nothing: the operation has no results."""

    def refused(self, operation: Operation) -> None:
        raise _NotABatchSizeError


def _rule_of(operation: Operation) -> Callable[[_SizeSearch, Any], None]:
    for classes, rule in _RULES:
        if isinstance(operation, classes):
            return rule
    traits = operation.spec.traits
    if Trait.ACCESS in traits:
        return _SizeSearch.access
    if Trait.ELEMENTWISE in traits and len(operation.results) == 1:
        return _SizeSearch.elementwise
    return _SizeSearch.refused


_RULES: Final[tuple[tuple[Any, Callable[[_SizeSearch, Any], None]], ...]] = (
    (Moved, _SizeSearch.moved),
    (MakeDescriptor, _SizeSearch.make_descriptor),
    (DescriptorLoad | DescriptorStore, _SizeSearch.descriptor),
    (Reduce | Scan, _SizeSearch.along_axis),
    (Dot, _SizeSearch.dot),
    (If, _SizeSearch.if_),
    (For, _SizeSearch.for_),
    (Yield, _SizeSearch.end),
    (Assert | Assume | Print, _SizeSearch.passed),
)


def _axes_of(value: Value) -> Axes:
    """Axes of a tile that have more than one element."""
    if not isinstance(value.type, TileType):
        return _NO_AXES
    return frozenset(axis for axis, extent in enumerate(value.type.shape) if extent > 1)


def _with_axis(axes: Axes, new: int) -> Axes:
    return frozenset(axis + (axis >= new) for axis in axes)


def _permuted(axes: Axes, order: tuple[int, ...]) -> Axes:
    return frozenset(position for position, axis in enumerate(order) if axis in axes)


def _joined(axes: Iterable[Axes]) -> Axes:
    return frozenset().union(*axes)
