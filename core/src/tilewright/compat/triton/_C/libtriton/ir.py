"""``triton._C.libtriton.ir``: what a kernel reads and writes, to be walked as Triton's MLIR is.

Other compilers find out what a kernel stores to by walking its MLIR, from each access back to the
arguments. Here that search is done already
(:func:`tilewright.passes.analysis.argument_access.accesses_of`, which also follows addresses
through loops, calls and memory): a module shows one function, whose operations are the kernel's
accesses under the names of Triton's dialect, each right on the argument that it leads to. What
computes addresses and values is not shown.

    builtin.module
      tt.func @add_kernel(%0, %1, %2, %3)
        tt.load %0
        tt.load %1
        tt.store %2
        tt.return
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tilewright.compat.triton import outside
from tilewright.ir.core import Function, Module
from tilewright.ir.table import Effect
from tilewright.ir.types import DescriptorType
from tilewright.ir.verifier import VerificationError, verify
from tilewright.passes.analysis.argument_access import ArgumentAccess, accesses_of

#: What an access is called in Triton's dialect. Every release of those that walk knows these names,
#: and what each does to its first operand.
_NAMES: Final = {
    "load": "tt.load",
    "store": "tt.store",
    "atomic_rmw": "tt.atomic_rmw",
    "atomic_cas": "tt.atomic_cas",
    "atomic_load": "tt.load",
    "atomic_store": "tt.store",
    "descriptor_load": "tt.descriptor_load",
    "descriptor_gather": "tt.descriptor_load",
    "descriptor_store": "tt.descriptor_store",
    "descriptor_scatter": "tt.descriptor_store",
    "descriptor_reduce": "tt.descriptor_store",
}
#: Code of the target's own, which may do either: what stands for it.
_BY_EFFECT: Final = {Effect.READ: "tt.load", Effect.WRITE: "tt.store"}

_numbers = itertools.count(1)


class context:  # noqa: N801 (Triton's names)
    """Where Triton's modules are made; it holds nothing here."""

    def disable_multithreading(self) -> None:
        """Nothing runs in parallel."""


def load_dialects(context: context) -> None:
    """The names of Triton's dialect need no preparation."""


class _Numbered:
    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = next(_numbers)

    def id(self) -> int:
        """A number that nothing else has."""
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return self._number


class value(_Numbered):  # noqa: N801
    """An argument of a block."""

    __slots__ = ()


class region(_Numbered):  # noqa: N801
    """One block of operations."""

    __slots__ = ("block",)

    def __init__(self, arguments: int = 0) -> None:
        super().__init__()
        self.block = block(self, arguments)

    def size(self) -> int:
        return 1


class block(_Numbered):  # noqa: N801
    """Operations in order, after arguments."""

    __slots__ = ("_arguments", "_parent", "operations")

    def __init__(self, parent: region, arguments: int) -> None:
        super().__init__()
        self._parent = parent
        self._arguments = [value() for _ in range(arguments)]
        self.operations: list[operation] = []

    def add(
        self,
        name: str,
        operands: Sequence[value] = (),
        regions: Sequence[region] = (),
        attributes: dict[str, Any] | None = None,
    ) -> operation:
        made = operation(name, operands, regions, attributes or {}, self)
        self.operations.append(made)
        return made

    def get_num_arguments(self) -> int:
        return len(self._arguments)

    def get_argument(self, index: int) -> value:
        return self._arguments[index]

    def get_parent(self) -> region:
        return self._parent


class operation(_Numbered):  # noqa: N801
    """An access of memory, a function, a module, or the end of a function. None has results."""

    __slots__ = ("_attributes", "_block", "_name", "_operands", "_regions")

    def __init__(
        self,
        name: str,
        operands: Sequence[value],
        regions: Sequence[region],
        attributes: dict[str, Any],
        parent: block | None,
    ) -> None:
        super().__init__()
        self._name, self._operands, self._regions, self._attributes, self._block = (
            name,
            tuple(operands),
            tuple(regions),
            attributes,
            parent,
        )

    def get_name(self) -> str:
        return self._name

    def get_num_operands(self) -> int:
        return len(self._operands)

    def get_operand(self, index: int) -> value:
        return self._operands[index]

    def get_num_results(self) -> int:
        return 0

    def get_result(self, index: int) -> value:
        raise IndexError(
            f"{self._name} has no result {index}: accesses are shown without what they give"
        )

    def get_num_regions(self) -> int:
        return len(self._regions)

    def get_region(self, index: int) -> region:
        return self._regions[index]

    def get_block(self) -> block | None:
        """The block it is in; None for the module."""
        return self._block

    def get_str_attr(self, name: str) -> str | None:
        found = self._attributes.get(name)
        return found if isinstance(found, str) else None

    def get_flat_symbol_ref_attr(self, name: str) -> str | None:
        """None: accesses in functions that a kernel calls are shown as the kernel's own."""
        return None

    def get_bool_attr(self, name: str) -> bool | None:
        found = self._attributes.get(name)
        return found if isinstance(found, bool) else None

    def walk(self, fn: Callable[[operation], None]) -> None:
        """Call a function for every operation inside, and then for this one."""
        for region in self._regions:
            for inner in region.block.operations:
                inner.walk(fn)
        fn(self)


class module(operation):  # noqa: N801
    """The accesses of a kernel.

    Args:
        tile_ir: the kernel.
        name: what the function is called.
        parameters: for each parameter of the source that is no constant, its name. The arguments of
            the function are these, and for each descriptor the strides and the extents after it.

    Attributes:
        tile_ir: the kernel whose accesses they are.
    """

    __slots__ = ("tile_ir",)

    def __init__(self, tile_ir: Module, name: str, parameters: Sequence[str]) -> None:
        body = region()
        super().__init__("builtin.module", (), (body,), {}, None)
        self.tile_ir = tile_ir
        positions = self._positions(parameters)
        function = region(positions.pop(""))
        body.block.add("tt.func", (), (function,), {"sym_name": name})
        places = [
            function.block.get_argument(positions[argument.name.split(".")[0]])
            for argument in tile_ir.kernel.arguments
        ]
        for access in accesses_of(tile_ir):
            for name in self._shown(access):
                for position in sorted(access.arguments):
                    function.block.add(name, [places[position]])
        function.block.add("tt.return")

    def _positions(self, parameters: Sequence[str]) -> dict[str, int]:
        """Return parameter -> its position among the function's arguments.

        Under the empty name is their number.
        """
        ranks = {
            argument.name: argument.type.rank
            for argument in self.tile_ir.kernel.arguments
            if isinstance(argument.type, DescriptorType)
        }
        found, count = {}, 0
        for name in parameters:
            found[name] = count
            count += 1 + 2 * ranks.get(name, 0)
        return {**found, "": count}

    def _shown(self, access: ArgumentAccess) -> Iterator[str]:
        """Yield the names an access is shown under, once per call of its function."""
        known = _NAMES.get(access.operation.name)
        names = (
            [known]
            if known
            else [name for effect, name in _BY_EFFECT.items() if effect & access.effects]
        )
        yield from names * self._calls(access)

    def _calls(self, access: ArgumentAccess) -> int:
        outermost = [access.operation, *access.operation.ancestors()][-1].parent
        assert outermost is not None
        function = outermost.owner
        assert isinstance(function, Function)
        if function.kernel:
            return 1
        return Counter(
            call.attributes["callee"] for call in self.tile_ir.walk() if call.name == "call"
        )[function.name]

    def verify(self) -> bool:
        """Return whether the kernel keeps the rules of Tile IR."""
        try:
            verify(self.tile_ir)
        except VerificationError:
            return False
        return True

    def __str__(self) -> str:
        lines = ["builtin.module"]
        for function in self.get_region(0).block.operations:
            inner = function.get_region(0).block
            names = {
                inner.get_argument(number): f"%{number}"
                for number in range(inner.get_num_arguments())
            }
            lines.append(
                f"  tt.func @{function.get_str_attr('sym_name')}({', '.join(names.values())})"
            )
            for access in inner.operations:
                operands = [
                    names[access.get_operand(number)] for number in range(access.get_num_operands())
                ]
                lines.append(" ".join((f"    {access.get_name()}", *operands)))
        return "\n".join(lines)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise outside.OutsideNameError(
        f"triton._C.libtriton.ir.{name} is a part of MLIR. Here are the accesses of a kernel; Tile "
        "IR is in tilewright.ir"
    )
