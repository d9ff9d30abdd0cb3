"""Records of the sanitizer while a module and its functions are lowered.

:mod:`~tilewright_cpu.codegen.sanitizer.bounds` and :mod:`~tilewright_cpu.codegen.ops.assertions`
write them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.core import Operation


@dataclass(slots=True)
class ModuleChecks:
    """Records that the functions of one module share.

    Attributes:
        accesses: the operations whose accesses are checked -> the positions of the kernel's
            arguments that they may be of; none without debug.
        bounded: the positions of the arguments that have bounds; the first one's slot is ``slot``.
        names: the names of the kernel's arguments in messages.
        messages: the message of each checked operation, by its index.
    """

    accesses: dict[Operation, tuple[int, ...]] = field(default_factory=dict)
    bounded: list[int] = field(default_factory=list)
    slot: int = 0
    names: list[str] = field(default_factory=list)
    messages: dict[Operation, int] = field(default_factory=dict)


@dataclass(slots=True)
class FunctionChecks:
    """Records of one function.

    Attributes:
        bounds: (position of an argument, bytes of an access) -> the start of its memory, and the
            number of addresses where so many bytes may begin.
        landings: bytes -> the address of as many of the function's own, in place of an access that
            is outside.
        reported: the word that messages are written to; "" where there is none yet.
        unreported: whether that word is still to be tested.
        unreported_lanes: (operation, width) -> memory of the lanes of its accesses that were
            outside, which are still to be reported.
        trusted: the operations all of whose accesses are inside where code is being written now.
        passed: the loads of which that is known behind the statements of the region that have been
            lowered: an assertion has read all of their lanes.
        asserted: assertions that were tested with an earlier one.
    """

    bounds: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    landings: dict[int, str] = field(default_factory=dict)
    reported: str = ""
    unreported: bool = False
    unreported_lanes: dict[tuple[Operation, int], str] = field(default_factory=dict)
    trusted: frozenset[Operation] = frozenset()
    passed: frozenset[Operation] = frozenset()
    asserted: set[Operation] = field(default_factory=set)
