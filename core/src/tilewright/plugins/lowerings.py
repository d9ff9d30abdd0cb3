"""A table of lowerings, for backends that write code operation by operation.

It maps each operation to the function that writes it, and has an error for the others.

lowers: Lowerings[Code] = Lowerings("vega", __file__)

@lowers("add", "sub")
def _sum(code: Code, operation: Operation) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from tilewright.errors import LoweringError
from tilewright.ir import TABLE, Module, Operation, Region
from tilewright.ir.ops.arithmetic import Addptr, Arange, Constant, NumPrograms, ProgramId
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Broadcast, Reshape, Splat

Code = TypeVar("Code")
Lowering = Callable[[Code, Operation], None]

#: What to lower first: with these the first kernels work. The rest in the order of the table.
FIRST: tuple[type[Operation], ...] = (
    *(Constant, Arange, Splat, Addptr, Load, Store),
    *(Reshape, Broadcast, ProgramId, NumPrograms),
)
_ORDER: Mapping[str, int] = {
    spec.name: place
    for place, spec in enumerate(dict.fromkeys((*(one.row for one in FIRST), *TABLE)))
}


class Lowerings(Generic[Code]):
    """Operation -> the function that writes its code.

    Args:
        backend: its name, for errors.
        file: where the functions are, for errors.
    """

    def __init__(self, backend: str, file: str) -> None:
        self._backend, self._file = backend, file
        #: operation -> its function. A backend that goes on from another one's table takes the
        #: functions of that.
        self.functions: dict[str, Lowering[Code]] = {}

    def __call__(self, *operations: str) -> Callable[[Lowering[Code]], Lowering[Code]]:
        """Marks a function as the lowering of some operations."""

        def register(function: Lowering[Code]) -> Lowering[Code]:
            self.functions.update(dict.fromkeys(operations, function))
            return function

        return register

    @property
    def names(self) -> frozenset[str]:
        """Return the operations that are lowered, for ``Manifest.lowers``.

        They are those with a function, and the ends of regions, which their owners write.
        """
        return frozenset(self.functions) | {spec.name for spec in TABLE if spec.terminator}

    def require(self, module: Module) -> None:
        """Refuse a module with operations that are not lowered.

        Raises:
            LoweringError: names the one to lower first, its place in the kernel, what to write, and
                which others the kernel needs.
        """
        missing: dict[str, Operation] = {}
        for operation in module.walk():
            if operation.name not in self.functions and not operation.spec.terminator:
                missing.setdefault(operation.name, operation)
        if not missing:
            return
        names = sorted(missing, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
        also = f"; this kernel also needs {', '.join(names[1:])}" if names[1:] else ""
        raise LoweringError(
            f"backend {self._backend!r} does not lower {names[0]} yet (at "
            f"{missing[names[0]].location}): write a function for it, marked "
            f"@lowers({names[0]!r}), in {self._file}{also}"
        )

    def region(self, code: Code, region: Region) -> None:
        """Write the operations of a region, but for its end."""
        for operation in region:
            if not operation.spec.terminator:
                self.functions[operation.name](code, operation)
