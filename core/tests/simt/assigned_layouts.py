"""Modules with layouts: assigned and checked, and their operations by name."""

from __future__ import annotations

from tilewright.ir import Module, verify
from tilewright.ir.core import Operation
from tilewright.ir.parser import parse_module
from tilewright.simt.assign_layouts.assign import assign
from tilewright.simt.assign_layouts.verify import check
from tilewright.simt.emulator import EmulatedTarget


def assigned(module: Module, target: EmulatedTarget, num_warps: int = 4) -> None:
    """Assign layouts and check all rules."""
    assign(module.kernel, target, num_warps)
    verify(module)
    check(module.kernel, target)


def named(module: Module, name: str) -> list[Operation]:
    return [operation for operation in module.kernel.walk() if operation.name == name]


def module_of(arguments: str, body: str) -> Module:
    """Return a module with a kernel of some arguments and statements."""
    return parse_module(f"tilewright.ir 1.0\nkernel @k({arguments}) {{\n{body}\nreturn\n}}")
