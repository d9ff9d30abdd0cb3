"""The graph of Tile IR: values, operations, regions, functions, modules.

SSA with regions. A region holds one straight line of operations: all control flow is structured
(``if``, ``for``, ``while``), there are no branches between blocks. Operations of a region form a
doubly linked list, so that passes insert and erase in constant time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.ir.types import Type

if TYPE_CHECKING:
    from tilewright.ir.encoding import Encoding
    from tilewright.ir.table import OpSpec

#: What an attribute may hold. Tuples nest.
AttributeValue = Any  # int | float | bool | str | Type | Encoding | tuple[AttributeValue, ...]

IR_VERSION: tuple[int, int] = (1, 0)


class Location:
    """A place in source code.

    ``caller`` is the call site this code was inlined at, so a location carries its whole call
    chain.
    """

    __slots__ = ("caller", "column", "file", "function", "line")

    def __init__(
        self,
        file: str,
        line: int,
        column: int = 0,
        function: str = "",
        caller: Location | None = None,
    ) -> None:
        self.file, self.line, self.column, self.function, self.caller = (
            file,
            line,
            column,
            function,
            caller,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.column))

    def _key(self) -> tuple[object, ...]:
        return (self.file, self.line, self.column, self.function, self.caller)

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}"
        return f"{text} in {self.function}" if self.function else text

    def __repr__(self) -> str:
        return f"<Location {self}>"

    def chain(self) -> list[Location]:
        """This location, then the call sites it was inlined at, innermost first."""
        here: Location | None = self
        found = []
        while here is not None:
            found.append(here)
            here = here.caller
        return found


class Value:
    """The result of an operation, or an argument of a region.

    ``name`` is a printing hint; ``layout`` says who holds a tile's elements, once that is decided.
    """

    __slots__ = ("layout", "name", "owner", "type", "uses")

    def __init__(
        self, type_: Type, owner: Operation | Region, name: str = "", layout: Encoding | None = None
    ) -> None:
        self.type = type_
        self.owner = owner
        self.name = name
        self.layout = layout
        #: each operation that reads this value, with how many of its operands do
        self.uses: dict[Operation, int] = {}

    @property
    def definition(self) -> Operation | None:
        """The operation that made this value; None for a region's argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    @property
    def index(self) -> int:
        """The position among the owner's results or arguments."""
        values = self.owner.results if isinstance(self.owner, Operation) else self.owner.arguments
        return next(i for i, value in enumerate(values) if value is self)

    def replace_all_uses(self, other: Value) -> None:
        """Let every reader of this value read ``other``."""
        if other is self:
            return
        for operation in list(self.uses):
            for position, operand in enumerate(operation.operands):
                if operand is self:
                    operation.set_operand(position, other)

    def __repr__(self) -> str:
        return f"<Value {self.name or '?'}: {self.type}>"


class Operation:
    """One operation.

    ``spec`` is its row of the op table. It is of the class that the row names, however it is made;
    a class with a ``row`` of its own has the operations of that row only.

    ``operands`` is flat; ``segments`` counts the operands of each operand group of the spec (1 or 0
    for an optional one, any number for a variadic one). Attributes equal to their default may be
    absent: read them with :meth:`attribute`. An attribute with a dotted name, ``toolkit.fact``, may
    stand on any operation: it belongs to who lowers the module, and the table says nothing of it.
    """

    __slots__ = (
        "attributes",
        "location",
        "name",
        "next",
        "operands",
        "parent",
        "previous",
        "regions",
        "results",
        "segments",
        "spec",
    )

    row: ClassVar[OpSpec]

    def __init__(
        self,
        spec: OpSpec,
        operands: Iterable[Value],
        segments: tuple[int, ...],
        attributes: Mapping[str, AttributeValue],
        result_types: Iterable[Type],
        regions: Iterable[Region] = (),
        location: Location | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.operands: list[Value] = list(operands)
        self.segments = segments
        self.attributes: dict[str, AttributeValue] = dict(attributes)
        self.results: list[Value] = [Value(type_, self) for type_ in result_types]
        self.regions: list[Region] = list(regions)
        self.location = location
        self.parent: Region | None = None
        self.previous: Operation | None = None
        self.next: Operation | None = None
        for operand in self.operands:
            operand.uses[self] = operand.uses.get(self, 0) + 1
        for region in self.regions:
            region.owner = self
        # last: the interpreter is quickest at filling objects that are all of one class
        self.__class__ = spec.op_class

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def operand(self, name: str) -> Value | None:
        """The operand of a single or optional group; None where an optional one is absent."""
        group = self.group(name)
        if not group:
            return None
        (value,) = group
        return value

    def group(self, name: str) -> list[Value]:
        """The operands of the group called ``name`` in the op table."""
        start = 0
        for declared, size in zip(self.spec.operands, self.segments, strict=True):
            if declared.name == name:
                return self.operands[start : start + size]
            start += size
        raise KeyError(f"{self.name} has no operand {name!r}")

    @property
    def forwarded(self) -> list[Value]:
        """The operands that the results are, value for value and one each; none for operations that
        compute or move something."""
        return self.group(self.spec.forwards) if self.spec.forwards else []

    def attribute(self, name: str) -> AttributeValue:
        """The attribute's value, or its default from the op table."""
        if name in self.attributes:
            return self.attributes[name]
        return self.spec.attribute(name).default

    def set_operand(self, position: int, value: Value) -> None:
        old = self.operands[position]
        if old is value:
            return
        _drop_use(old, self)
        self.operands[position] = value
        value.uses[self] = value.uses.get(self, 0) + 1

    def replace_operands(self, operands: Iterable[Value], segments: tuple[int, ...]) -> None:
        """Read other operands, maybe more or fewer, grouped by ``segments``."""
        for operand in self.operands:
            _drop_use(operand, self)
        self.operands, self.segments = list(operands), segments
        for operand in self.operands:
            operand.uses[self] = operand.uses.get(self, 0) + 1

    def erase(self) -> None:
        """Take the operation out of its region and drop its reads, those of its regions included.

        Its results must be unread.
        """
        if self.parent is not None:
            self.parent._unlink(self)
        for inner in self.walk():
            for operand in inner.operands:
                _drop_use(operand, inner)
            inner.operands = []

    def move_before(self, other: Operation) -> None:
        """Move this operation before ``other``, which may be in another region."""
        if self.parent is not None:
            self.parent._unlink(self)
        assert other.parent is not None
        other.parent.insert_before(self, other)

    def move_to_end(self, region: Region) -> None:
        """Move this operation to the end of a region."""
        if self.parent is not None:
            self.parent._unlink(self)
        region.append(self)

    def walk(self) -> Iterator[Operation]:
        """This operation and all that its regions hold, in program order."""
        yield self
        if self.regions:
            yield from _walk([*reversed(self.regions)])

    def ancestors(self) -> Iterator[Operation]:
        """The operations whose regions hold this one, innermost first."""
        region = self.parent
        while region is not None and isinstance(region.owner, Operation):
            yield region.owner
            region = region.owner.parent

    def __repr__(self) -> str:
        return f"<Operation {self.name} at {self.location}>"


def _drop_use(value: Value, operation: Operation) -> None:
    count = value.uses[operation] - 1
    if count:
        value.uses[operation] = count
    else:
        del value.uses[operation]


class Region:
    """Arguments and a straight line of operations, the last of which is a terminator."""

    __slots__ = ("arguments", "first", "last", "owner")

    def __init__(self, argument_types: Iterable[Type] = (), names: Iterable[str] = ()) -> None:
        self.arguments: list[Value] = [Value(type_, self) for type_ in argument_types]
        for argument, name in zip(self.arguments, names, strict=False):
            argument.name = name
        self.owner: Operation | Function | None = None
        self.first: Operation | None = None
        self.last: Operation | None = None

    def __iter__(self) -> Iterator[Operation]:
        """Iterate over the operations in order; the current one may be erased or moved."""
        operation = self.first
        while operation is not None:
            following = operation.next
            yield operation
            operation = following

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def terminator(self) -> Operation | None:
        return self.last if self.last is not None and self.last.spec.terminator else None

    def add_argument(self, type_: Type, name: str = "") -> Value:
        value = Value(type_, self, name)
        self.arguments.append(value)
        return value

    def append(self, operation: Operation) -> None:
        operation.parent, operation.previous, operation.next = self, self.last, None
        if self.last is None:
            self.first = operation
        else:
            self.last.next = operation
        self.last = operation

    def insert_before(self, operation: Operation, anchor: Operation) -> None:
        assert anchor.parent is self
        operation.parent, operation.previous, operation.next = self, anchor.previous, anchor
        if anchor.previous is None:
            self.first = operation
        else:
            anchor.previous.next = operation
        anchor.previous = operation

    def _unlink(self, operation: Operation) -> None:
        if operation.previous is None:
            self.first = operation.next
        else:
            operation.previous.next = operation.next
        if operation.next is None:
            self.last = operation.previous
        else:
            operation.next.previous = operation.previous
        operation.parent = operation.previous = operation.next = None

    def walk(self) -> Iterator[Operation]:
        """All operations that the region holds, in program order.

        The one just given out may be erased or moved while iterating.
        """
        return _walk([self])


def _walk(pending: list[Operation | Region | None]) -> Iterator[Operation]:
    """All operations from those pending on, the next last.

    A list, for regions may be nested hundreds deep.
    """
    while pending:
        entry = pending.pop()
        operation = entry.first if isinstance(entry, Region) else entry
        while operation is not None:
            following = operation.next
            yield operation
            regions = operation.regions
            if regions:
                pending.append(following)
                pending.extend(reversed(regions))
                break
            operation = following


class Function:
    """A function: a kernel (``kernel`` true, no results) or a callee that was not inlined.

    ``argument_attributes`` has one dict an argument: ``divisibility`` (the argument's value or
    address is a multiple of it); a descriptor's also ``padding`` (what a load reads outside the
    tensor) and ``extent_divisibility`` (the last extent, in elements, is a multiple of it).
    ``attributes`` are facts about the whole function, such as how many warps run it, put there by
    who lowers it.
    """

    __slots__ = (
        "argument_attributes",
        "attributes",
        "body",
        "kernel",
        "location",
        "name",
        "result_types",
    )

    def __init__(
        self,
        name: str,
        argument_types: Iterable[Type],
        result_types: Iterable[Type] = (),
        argument_names: Iterable[str] = (),
        *,
        kernel: bool = True,
        location: Location | None = None,
    ) -> None:
        self.name = name
        self.body = Region(argument_types, argument_names)
        self.body.owner = self
        self.result_types: tuple[Type, ...] = tuple(result_types)
        self.kernel = kernel
        self.location = location
        self.argument_attributes: list[dict[str, AttributeValue]] = [
            {} for _ in self.body.arguments
        ]
        self.attributes: dict[str, AttributeValue] = {}

    @property
    def arguments(self) -> list[Value]:
        return self.body.arguments

    def walk(self) -> Iterator[Operation]:
        return self.body.walk()


class Module:
    """Functions by name, with the version of the IR they are written in."""

    __slots__ = ("attributes", "functions", "version")

    def __init__(self, version: tuple[int, int] = IR_VERSION) -> None:
        self.version = version
        self.functions: dict[str, Function] = {}
        self.attributes: dict[str, AttributeValue] = {}

    def add(self, function: Function) -> Function:
        if function.name in self.functions:
            raise ValueError(f"the module has a function @{function.name} already")
        self.functions[function.name] = function
        return function

    @property
    def kernel(self) -> Function:
        """The only kernel of the module."""
        kernels = [function for function in self.functions.values() if function.kernel]
        if len(kernels) != 1:
            raise ValueError(f"the module has {len(kernels)} kernels, not one")
        return kernels[0]

    def walk(self) -> Iterator[Operation]:
        for function in self.functions.values():
            yield from function.walk()

    def __str__(self) -> str:
        from tilewright.ir.printer import print_module

        return print_module(self)
