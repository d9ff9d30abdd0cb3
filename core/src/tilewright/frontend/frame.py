"""Per-function state of the visitor, and the markers that a scope may hold.

The state comprises the function's source position, its caller, and the loops around the current
statement.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from tilewright.frontend.analysis import Analysis, analyse
from tilewright.ir import Location, Region
from tilewright.language.definitions.callable import JitCallable

#: A variable of a scope: a tensor, constexpr, tuple or other value of the language, a module, type
#: or function, or an :class:`Undefined`.
Scope = dict[str, Any]


class Undefined:
    """Marker in a scope for a name that some paths leave undefined.

    ``reason`` completes "x is not defined here: it ...". ``dead`` says that the liveness analysis
    has shown that nothing reads it.
    """

    __slots__ = ("dead", "reason")

    def __init__(self, reason: str, dead: bool = False) -> None:
        self.reason, self.dead = reason, dead


class FunctionFrame:
    """One visit of one function.

    Attributes:
        name, file: of the function.
        line_offset, indent: from a node's line and column to those of the file.
        caller, call_node: the frame and call this function is inlined at (or called from, where
            ``separate``); None for a kernel.
        site: the location of that call: the outer end of the locations of inlined operations.
        separate: the function is compiled on its own and called.
        depth: how many calls deep.
        own_lines: errors tell places by lines of the function too, whose ``def`` is line 1, as
            those who write for Triton know them.
        loops: the depth of loops around the current statement; each loop names its jump flags by
            its own depth. unrolled: how many of them are unrolled.
        returned: the ``return`` statements visited, with the type each returns.
        constants: names declared by a bare ``x: tl.constexpr``; declared: those that got their
            value with the declaration, and where.
        region: where its own statements go, outside any control flow.
    """

    __slots__ = (
        "analysis",
        "call_node",
        "caller",
        "constants",
        "declared",
        "depth",
        "file",
        "function",
        "indent",
        "line_offset",
        "loops",
        "name",
        "namespace",
        "nonlocals",
        "own_lines",
        "region",
        "returned",
        "separate",
        "site",
        "unrolled",
    )

    def __init__(
        self,
        function: JitCallable,
        caller: FunctionFrame | None = None,
        call_node: ast.AST | None = None,
        site: Location | None = None,
    ) -> None:
        self.function = function
        self.analysis: Analysis = analyse(function)
        self.name = function.__name__
        self.file = function.file
        self.line_offset = function.definition_line - 1
        self.indent = function.indent
        self.namespace: dict[str, Any] = function.fn.__globals__
        self.nonlocals: dict[str, Any] = function.nonlocals
        self.caller, self.call_node, self.site = caller, call_node, site
        self.separate = False
        self.depth: int = caller.depth + 1 if caller is not None else 0
        self.own_lines: bool = caller is not None and caller.own_lines
        self.loops = self.unrolled = 0
        self.region: Region | None = None
        self.returned: list[tuple[ast.Return, Any]] = []
        self.constants: set[str] = set()
        self.declared: dict[str, ast.AST] = {}

    @property
    def source_lines(self) -> list[str]:
        return self.function.src.splitlines()


class Completion(NamedTuple):
    """Exits of a statement or block: falling through, or jumps.

    Attributes:
        falls: it may reach the end.
        jumps: the flags of the jumps it may have taken instead: see :func:`continue_flag`,
            :func:`break_flag` and :data:`RETURN_FLAG`.
    """

    falls: bool
    jumps: frozenset[str]

    @property
    def returns_only(self) -> bool:
        """Return whether every path has returned from the function."""
        return not self.falls and self.jumps == _RETURN_ONLY


#: Names of the hidden variables. ``?`` keeps them apart from any name of the source.
RETURN_FLAG = "?return"
RETURN_VALUE = "?value"
_RETURN_ONLY = frozenset({RETURN_FLAG})

NORMAL = Completion(True, frozenset())


def break_flag(depth: int) -> str:
    """Return the name of the flag that a ``break`` of the loop at ``depth`` sets."""
    return f"?break{depth}"


def continue_flag(depth: int) -> str:
    """Return the name of the flag that a ``continue`` of the loop at ``depth`` sets."""
    return f"?continue{depth}"


def is_hidden(name: str) -> bool:
    return name[0] == "?"


def end_of_iteration(completion: Completion, depth: int) -> Completion:
    """Return the completion of a loop's body with its ``continue`` jumps resolved."""
    flag = continue_flag(depth)
    if flag not in completion.jumps:
        return completion
    return Completion(True, completion.jumps - {flag})
