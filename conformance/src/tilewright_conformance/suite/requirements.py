"""The requirements of a Tile IR module on a backend, derived from its operations and types."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.ir import Module, Operation
from tilewright.ir.order import ANY
from tilewright.ir.types import DescriptorType, TileType, Type, shape_of
from tilewright.runtime.compiler.capability_check import FEATURES, atomic_element, number_behind
from tilewright_conformance.suite.case import Needs


def needs_of(module: Module) -> Needs:
    """The needs of a module's kernel and of all functions it has."""
    found = _Found()
    for function in module.functions.values():
        found.types(argument.type for argument in function.arguments)
        for operation in function.body.walk():
            found.operation(operation)
    return Needs(
        frozenset(found.dtypes),
        frozenset(found.dot),
        frozenset(found.precisions - {"ieee"}),
        found.dot_shape,
        frozenset(found.orders),
        frozenset(found.atomics),
        frozenset(found.features),
        found.any_extent,
        found.tile_elements,
    )


class _Found:
    def __init__(self) -> None:
        self.dtypes: set[str] = set()
        self.dot: set[tuple[str, str]] = set()
        self.precisions: set[str] = set()
        self.dot_shape: tuple[int, int, int] | None = None
        self.orders: set[tuple[str, str]] = set()
        self.atomics: set[tuple[str, str]] = set()
        self.features: set[str] = set()
        self.any_extent = False
        self.tile_elements = 1

    def types(self, types: Iterable[Type]) -> None:
        for type_ in types:
            if isinstance(type_, TileType):
                count = 1
                for extent in type_.shape:
                    count *= extent
                    self.any_extent |= extent & (extent - 1) != 0
                self.tile_elements = max(self.tile_elements, count)
            element = number_behind(type_)
            if element is not None:
                self.dtypes.add(str(element))
            if isinstance(type_, DescriptorType):
                self.features.add("descriptors")

    def operation(self, operation: Operation) -> None:
        # operands are results and arguments, and so are looked at where they are made
        self.types(value.type for value in operation.results)
        for region in operation.regions:
            self.types(argument.type for argument in region.arguments)
        name = operation.name
        if name in FEATURES:
            self.features.add(FEATURES[name])
        if name in ("reduce", "scan", "dot") and operation.attribute("order") != ANY:
            self.orders.add((name, str(operation.attribute("order"))))
        if name == "dot":
            self._dot(operation)
        elif name in ("atomic_rmw", "atomic_cas", "descriptor_reduce"):
            self.atomics.add(
                (
                    atomic_element(operation.operands[0].type),
                    "cas" if name == "atomic_cas" else str(operation.attribute("kind")),
                )
            )

    def _dot(self, operation: Operation) -> None:
        a, b = operation.operands[:2]
        self.dot |= {
            (str(number_behind(operand.type)), str(number_behind(operation.result.type)))
            for operand in (a, b)
        }
        self.precisions.add(str(operation.attribute("precision")))
        shape = (shape_of(a.type)[-2], shape_of(b.type)[-1], shape_of(a.type)[-1])
        known = self.dot_shape or shape
        self.dot_shape = (min(shape[0], known[0]), min(shape[1], known[1]), min(shape[2], known[2]))
