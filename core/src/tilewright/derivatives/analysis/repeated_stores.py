"""Outputs of which a program may store an element more than once."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.derivatives.analysis.memory_effects import MemoryEffects, adds
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.control import LOOPS


def repeated_outputs(memory: MemoryEffects, outputs: Iterable[Value]) -> frozenset[str]:
    """Return the outputs of which a program may store an element again, after another write.

    The later store is what remains, so the earlier has no cotangent.
    """
    return frozenset(
        output.name for output in outputs if _is_repeated(memory.written.get(output, []))
    )


def _is_repeated(writes: list[Operation]) -> bool:
    if all(map(adds, writes)):
        return False
    return len(writes) > 1 or any(isinstance(around, LOOPS) for around in writes[0].ancestors())
