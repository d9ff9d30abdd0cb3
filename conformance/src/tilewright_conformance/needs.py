"""What a module of Tile IR needs of a backend, read off its operations and types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.ir import Module, Operation
from tilewright.ir.types import DescriptorType, FloatType, IntType, PointerType, TileType, Type, shape_of
from tilewright_conformance.case import Needs

#: operation -> the feature of the manifest it belongs to
_FEATURES = {
    "print": "print",
    "assert": "assert",
    "inline_asm": "inline_asm",
    "extern": "extern",
    "dot_scaled": "dot_scaled",
    "call": "noinline",
    **{f"descriptor_{name}": "descriptors" for name in ("load", "store", "reduce", "gather", "scatter", "extent", "stride")},
    "make_descriptor": "descriptors",
}


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
            element = _number(type_)
            if element is not None:
                self.dtypes.add(str(element))
            if isinstance(type_, DescriptorType):
                self.features.add("descriptors")

    def operation(self, operation: Operation) -> None:
        self.types(value.type for value in (*operation.operands, *operation.results))
        for region in operation.regions:
            self.types(argument.type for argument in region.arguments)
        name = operation.name
        if name in _FEATURES:
            self.features.add(_FEATURES[name])
        if name == "dot":
            self._dot(operation)
        elif name in ("atomic_rmw", "atomic_cas"):
            element = _number(operation.operands[0].type)
            self.atomics.add((str(element), "cas" if name == "atomic_cas" else str(operation.attribute("kind"))))
        elif name == "descriptor_reduce":
            self.atomics.add((str(_number(operation.operands[0].type)), str(operation.attribute("kind"))))

    def _dot(self, operation: Operation) -> None:
        a, b = operation.operands[:2]
        self.dot.add((str(_number(a.type)), str(_number(operation.result.type))))
        self.precisions.add(str(operation.attribute("precision")))
        shape = (shape_of(a.type)[-2], shape_of(b.type)[-1], shape_of(a.type)[-1])
        known = self.dot_shape or shape
        self.dot_shape = (min(shape[0], known[0]), min(shape[1], known[1]), min(shape[2], known[2]))


def _number(type_: Any) -> IntType | FloatType | None:
    """The number type behind tiles, pointers and descriptors."""
    while isinstance(type_, TileType | PointerType | DescriptorType):
        type_ = type_.pointee if isinstance(type_, PointerType) else type_.element
    return type_ if isinstance(type_, IntType | FloatType) else None
