"""Names of the variables of the source: the kernel's own where values have them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Addptr, Cast, Cmp, ProgramId
from tilewright.ir.ops.control import Reduce, Scan
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import (
    AtomicRmw,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorStore,
    Load,
    Store,
)
from tilewright.ir.types import PointerType, TileType, element_type

#: Names that the text reads as something else.
_TAKEN = frozenset({"tl", "tw", "range", "float", "print", "min", "max"})


def identifier(text: str) -> str:
    """Return an identifier like ``text``: ``t.0`` becomes ``t_0``."""
    found = re.sub(r"\W", "_", text)
    if not found or found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if keyword.iskeyword(found) or found in _TAKEN else found


class VariableNames:
    """The names of one function, each of which is given out once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def new(self, wanted: str) -> str:
        """Return ``wanted``, or ``wanted_1`` and so on where it is taken."""
        base = identifier(wanted)
        found, count = base, 0
        while found in self._taken:
            count += 1
            found = f"{base}_{count}"
        self._taken.add(found)
        return found


def name_hint(value: Value) -> str:
    """Return a name for a value: its own, else one after what it is."""
    if value.name:
        return value.name.partition("#")[0]
    stored, definition = stored_name(value), value.definition
    if stored is not None:
        return stored
    return "x" if definition is None else _hint_of(definition, value)


def stored_name(value: Value) -> str | None:
    """Return the name of the memory to which a value goes, if that is all it is for."""
    if len(value.uses) != 1:
        return None
    (user,) = value.uses
    if isinstance(user, Cast):
        return stored_name(user.result)
    if not isinstance(user, Store | AtomicRmw | DescriptorStore | DescriptorReduce):
        return None
    root = memory_root(user.operands[0]) if user.value is value else None
    return None if root is None else _without_suffix(root)


def _without_suffix(name: str) -> str:
    return name.removesuffix("_ptr").removesuffix("_desc")


def _hint_of(operation: Operation, value: Value) -> str:
    if isinstance(operation, Load | DescriptorLoad):
        root = memory_root(operation.operands[0])
        return "value" if root is None else _without_suffix(root)
    if isinstance(operation, Addptr):
        root = memory_root(operation.pointer)
        name = "pointer" if root is None else root.removesuffix("_ptr")
        return f"{name}_ptrs" if isinstance(value.type, TileType) else f"{name}_start"
    if isinstance(operation, ProgramId):
        return "pid"
    if isinstance(operation, Cmp):
        return "mask" if isinstance(value.type, TileType) else "condition"
    if isinstance(operation, Reduce):
        return "total"
    if isinstance(operation, Scan):
        return "running"
    if isinstance(operation, Dot):
        return "acc"
    return "t"


def memory_root(pointer: Value) -> str | None:
    """Return the name of the parameter that an address leads back to; None where it is unknown."""
    value: Value = pointer
    while True:
        definition = value.definition
        if definition is None:
            return value.name or None
        address = next(
            (x for x in definition.operands if isinstance(element_type(x.type), PointerType)), None
        )
        if address is None or definition.regions:
            return None
        value = address
