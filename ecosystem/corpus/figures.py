"""What can be read off a kernel's code without running it, the same for both compilers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tilewright.gpu_host.code_counts import Counts, without_zeros


@dataclass
class Figures:
    """What a compiler made of a kernel for a target.

    Attributes:
        registers: of a thread.
        spilled: bytes of a thread that the compiler moved to memory for want of registers.
        stack: bytes of a thread's own memory, spills included.
        shared: bytes of shared memory of a CTA.
        threads: of a CTA.
        ctas: CTAs that fit an SM at a time by registers, shared memory and threads.
        limit: what allows no more.
        code: the whole kernel.
        loop: the innermost loop that does most; None where there is no loop.
    """

    registers: int
    spilled: int
    stack: int
    shared: int
    threads: int
    ctas: int
    limit: str
    code: Counts
    loop: Counts | None = None

    def record(self) -> dict[str, Any]:
        """As JSON has it: without what is zero or empty."""
        return without_zeros(asdict(self))

    @staticmethod
    def of(record: dict[str, Any]) -> Figures:
        """Figures of a record of :meth:`record`."""
        given = (
            dict.fromkeys(("registers", "spilled", "stack", "shared", "threads", "ctas"), 0)
            | {"limit": ""}
            | record
        )
        loop = given.pop("loop", None)
        code = Counts(**given.pop("code", {}))
        return Figures(**given, code=code, loop=None if loop is None else Counts(**loop))
