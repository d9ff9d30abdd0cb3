"""``USE_IR_LOC``: places in Tile IR instead of Python source, in errors, assertions and prints."""

from __future__ import annotations

import re

from tilewright.compat.triton import knobs
from tilewright.compat.triton.compiler.sources import ASTSource
from tilewright.compat.triton.outside import OutsideStageError
from tilewright.ir.core import Location, Module
from tilewright.ir.printer import print_module
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.preparation import Preparation

#: A file name that no source has: under it operations are found again in the text.
_MARK = "<place {}>"
_MARKED = re.compile(_MARK.format(r"(\d+)"))


def located_in_text(specialization: Specialization, stage: str | None) -> Preparation | None:
    """Return the preparation for ``USE_IR_LOC``, or None.

    ``"ttir"`` writes the kernel's Tile IR to the cache and locates its operations there.

    Raises:
        OutsideStageError: another stage is asked for.
    """
    if not stage:
        return None
    if stage != "ttir":
        raise OutsideStageError(
            f"USE_IR_LOC is {stage!r}, which Tilewright has no places of: it can be 'ttir', for "
            "those of Tile IR"
        )

    from tilewright.compat.triton.runtime.cache import get_cache_manager

    source = ASTSource.of(specialization)
    manager, name = get_cache_manager(source.hash()), f"{source.name[:150]}.ttir"

    def run(module: Module) -> None:
        relocate(module, manager.put(print_module(module), name))

    return Preparation(f"places of ttir in {knobs.cache.dir}", run)


def relocate(module: Module, path: str) -> None:
    """Locate every operation and function in the text of the module, in the file ``path``."""
    operations = list(module.walk())
    before = [operation.location for operation in operations]
    for number, operation in enumerate(operations):
        operation.location = Location(_MARK.format(number), 1)
    lines = print_module(module).splitlines()
    # what has regions is marked at its end, and begins in the line before the first operation
    # inside
    found = {
        operations[int(mark[1])]: number
        for number, line in enumerate(lines, 1)
        for mark in _MARKED.finditer(line)
    }
    for operation, location in reversed(list(zip(operations, before, strict=True))):
        if operation.regions and operation.regions[0].first is not None:
            found[operation] = found[operation.regions[0].first] - 1
        operation.location = _place(path, found[operation], lines, location)
    for function in module.functions.values():
        if function.body.first is not None:
            function.location = _place(
                path, found[function.body.first] - 1, lines, function.location
            )


def _place(path: str, number: int, lines: list[str], before: Location | None) -> Location:
    line = lines[number - 1]
    return Location(
        path, number, len(line) - len(line.lstrip()), before.function if before is not None else ""
    )
