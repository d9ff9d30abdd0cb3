"""Refusal of modules that need a capability which their target does not declare.

The frontend reports most of these errors earlier, with the source location. This check also covers
Tile IR from other sources, and relieves backends of a check of their own.

Operations that plugins add, and limits of a single architecture, are left to the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NoReturn

from tilewright.errors import LoweringError, noted, with_help
from tilewright.ir import Function, Module, Operation, Region
from tilewright.ir.order import ANY, other_orders
from tilewright.ir.types import (
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    shape_of,
)
from tilewright.plugins.manifest import Capabilities

#: operation -> the feature of :class:`~tilewright.plugins.manifest.Capabilities` that it belongs to
FEATURES: dict[str, str] = {
    "print": "print",
    "assert": "assert",
    "inline_asm": "inline_asm",
    "extern": "extern",
    "dot_scaled": "dot_scaled",
    "call": "noinline",
    "clock": "clock",
    "make_descriptor": "descriptors",
    **{
        f"descriptor_{name}": "descriptors"
        for name in ("load", "store", "reduce", "gather", "scatter", "extent", "stride")
    },
}

#: launch option -> the feature without which a backend refuses it, unless it is off
OPTION_FEATURES: dict[str, str] = {"cooperative": "cooperative"}

#: feature -> stand-in feature that admits its operations: whether they can be lowered depends on
#: the launch, so the backend reports failures
IN_PLACE: dict[str, str] = {"extern": "extern_libraries"}


def is_let_through(feature: str, declared: Set[str]) -> bool:
    """Return whether a backend declares a feature, or another that stands in for it.

    Operations of a feature with a declared stand-in reach the backend, which reports failures
    itself.
    """
    return feature in declared or IN_PLACE.get(feature) in declared


#: Element types that no kernel can do without: masks, program ids, extents.
GRANTED = frozenset({"i1", "i32", "i64"})


def number_behind(type_: Type) -> IntType | FloatType | None:
    """Return the innermost number type of a tile, pointer or descriptor, if any."""
    while not isinstance(type_, IntType | FloatType):
        if isinstance(type_, PointerType):
            type_ = type_.pointee
        elif isinstance(type_, TileType | DescriptorType):
            type_ = type_.element
        else:
            return None
    return type_


def atomic_element(pointer: Type) -> str:
    """Return the text of an atomic operation's element type, given its first operand's type.

    Pointers are exchanged as i64.
    """
    type_ = pointer.element if isinstance(pointer, TileType | DescriptorType) else pointer
    pointee = type_.pointee if isinstance(type_, PointerType) else type_
    return "i64" if isinstance(pointee, PointerType) else str(pointee)


def check_declared(module: Module, capabilities: Capabilities, backend: str) -> None:
    """Refuse a module that needs what a backend does not declare.

    Args:
        backend: its name, for the error.

    Raises:
        LoweringError: names the first such operation (or argument), its location, what it needs,
            and what is declared.
    """
    check = _CapabilityCheck(capabilities, backend)
    for function in module.functions.values():
        check.function(function)


def check_options(
    options: Mapping[str, Any], capabilities: Capabilities, backend: str, kernel: str
) -> None:
    """Refuse launch options that promise what a backend does not declare.

    Raises:
        LoweringError: names the option, the feature that it takes, and what is declared.
    """
    for name, feature in OPTION_FEATURES.items():
        if options.get(name) and feature not in capabilities.features:
            has = f"it has {_listed(capabilities.features)}"
            remedy = with_help(has, capabilities.remedies.get(feature, ""))
            raise LoweringError(
                f"kernel {kernel}: option {name}: backend {backend!r} does not declare feature "
                f"{feature!r}; {remedy}"
            )


class _CapabilityCheck:
    """One walk over a module."""

    def __init__(self, capabilities: Capabilities, backend: str) -> None:
        self.capabilities, self.backend = capabilities, backend
        self.dtypes = capabilities.dtypes | GRANTED
        #: cache of types known to be declared: a kernel has few types and many values
        self.accepted: set[Type] = set()
        has = capabilities.features
        self.features = {
            name: feature for name, feature in FEATURES.items() if not is_let_through(feature, has)
        }
        self.operations: dict[str, Callable[[Operation], None]] = {
            "dot": self.dot,
            "reduce": self.order,
            "scan": self.order,
            "atomic_rmw": self.atomic_rmw,
            "atomic_cas": self.atomic_cas,
            "descriptor_reduce": self.descriptor_reduce,
        }

    def function(self, function: Function) -> None:
        for argument in function.arguments:
            if argument.type not in self.accepted:
                self.type(argument.type, f"argument {argument.name!r} of {function.name}", None)
        self.region(function.body)

    def region(self, region: Region) -> None:
        operation = region.first
        while operation is not None:
            name = operation.spec.name
            if name in self.features:
                feature = self.features[name]
                has = f"it has {_listed(self.capabilities.features)}"
                self.refuse(
                    operation,
                    f"feature {feature!r}",
                    with_help(has, self.capabilities.remedies.get(feature, "")),
                )
            for value in operation.results:
                if value.type not in self.accepted:
                    self.type(value.type, name, operation)
            if name in self.operations:
                self.operations[name](operation)
            for inner in operation.regions:
                for value in inner.arguments:
                    if value.type not in self.accepted:
                        self.type(value.type, name, operation)
                self.region(inner)
            operation = operation.next

    # ---- what is looked at

    def type(self, type_: Type, what: str, operation: Operation | None) -> None:
        number = number_behind(type_)
        if number is not None and str(number) not in self.dtypes:
            of = "" if type_ is number else f" (of {type_})"
            self.refuse_at(
                what, operation, f"element type {number}{of}", f"it has {_listed(self.dtypes)}"
            )
        if isinstance(type_, DescriptorType) and "descriptors" not in self.capabilities.features:
            self.refuse_at(
                what,
                operation,
                f"feature 'descriptors' (for {type_})",
                f"it has {_listed(self.capabilities.features)}",
            )
        if isinstance(type_, TileType):
            if type_.numel > self.capabilities.max_tile_elements:
                self.refuse_at(
                    what,
                    operation,
                    f"tiles of {type_.numel} elements ({type_})",
                    f"they have {self.capabilities.max_tile_elements} at most",
                )
            if self.capabilities.power_of_two and any(
                extent & (extent - 1) for extent in type_.shape
            ):
                odd = next(extent for extent in type_.shape if extent & (extent - 1))
                self.refuse_at(
                    what,
                    operation,
                    f"tile extents that are no powers of two ({odd} of {type_})",
                    "round the extent up, and mask what is too much",
                )
        self.accepted.add(type_)

    def dot(self, operation: Operation) -> None:
        declared = self.capabilities
        a, b = operation.operands[:2]
        result = number_behind(operation.results[0].type)
        for operand in (a, b):
            element = str(number_behind(operand.type))
            if str(result) not in declared.dot.get(element, ()):
                has = (
                    f"{element} goes into {_listed(declared.dot[element])}"
                    if element in declared.dot
                    else f"it multiplies {_listed(declared.dot)}"
                )
                self.refuse(operation, f"matmul of {element} accumulated in {result}", has)
        precision = str(operation.attribute("precision"))
        if precision not in declared.dot_precisions:
            self.refuse(
                operation,
                f"precision {precision!r} of a dot",
                f"it has {_listed(declared.dot_precisions)}",
            )
        self.order(operation)
        shape = shape_of(a.type)[-2], shape_of(b.type)[-1], shape_of(a.type)[-1]
        if any(own < minimum for own, minimum in zip(shape, declared.min_dot, strict=True)):
            self.refuse(
                operation,
                f"a dot of M x N x K = {_shape_text(shape)}",
                f"the minimum is {_shape_text(declared.min_dot)}",
            )

    def order(self, operation: Operation) -> None:
        order, name = str(operation.attribute("order")), operation.spec.name
        declared = self.capabilities.orders.get(name, frozenset())
        if order != ANY and order not in declared:
            has = f"it has {_listed((ANY, *declared))}"
            self.refuse(
                operation, f"order {order!r} of {name}", with_help(has, other_orders(declared))
            )

    def atomic_rmw(self, operation: Operation) -> None:
        self.atomic(operation, str(operation.attribute("kind")))

    descriptor_reduce = atomic_rmw

    def atomic_cas(self, operation: Operation) -> None:
        self.atomic(operation, "cas")

    def atomic(self, operation: Operation, kind: str) -> None:
        element = atomic_element(operation.operands[0].type)
        declared = self.capabilities.atomics.get(element, frozenset())
        if kind not in declared:
            others = [name for name, kinds in self.capabilities.atomics.items() if kind in kinds]
            self.refuse(
                operation,
                f"atomic {kind} on {element}",
                f"on {element} it has {_listed(declared)}, and atomic {kind} on {_listed(others)}",
            )

    # ---- what is said

    def refuse(self, operation: Operation, needed: str, declared: str) -> NoReturn:
        self.refuse_at(operation.spec.name, operation, needed, declared)

    def refuse_at(
        self, what: str, operation: Operation | None, needed: str, declared: str
    ) -> NoReturn:
        location = operation.location if operation is not None else None
        error = LoweringError(
            f"{what}{f' at {location}' if location is not None else ''}: backend {self.backend!r} "
            f"does not declare {needed}; {declared}"
        )
        if location is not None and location.caller is not None:
            error = noted(error, "\n".join(f"called at {place}" for place in location.chain()[1:]))
        raise error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _shape_text(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))
