"""Report of a deadlock in the emulator: what each thread waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.simt.emulator import layout
from tilewright.simt.emulator.async_state import word_at

if TYPE_CHECKING:
    from tilewright.simt.emulator.engine import Engine


def stuck_threads(engine: Engine, records: Any) -> str:
    """Describe the waits of all threads."""
    groups: dict[tuple[int, str], list[Any]] = {}
    for record in records:
        groups.setdefault((int(record[layout.PART]), _wait_of(engine, record)), []).append(record)
    lines = []
    for (part, what), threads in sorted(groups.items(), key=lambda item: item[0]):
        warps = sorted({int(record[layout.WARP]) for record in threads})
        lines.append(
            f"  {engine.places[part]}: {len(threads)} threads of warps "
            f"{', '.join(map(str, warps))} wait for {what}"
        )
    ended = len(engine.words) - len(records)
    if ended:
        lines.append(f"  {ended} threads have ended")
    return "threads are stuck:\n" + "\n".join(lines)


def _wait_of(engine: Engine, record: Any) -> str:
    kind, place = int(record[layout.KIND]), int(record[layout.WORD])
    if kind == layout.AT_OBJECT:
        one = engine.objects[int(record[layout.OBJECT])]
        missing = f"{one.arrivals} of {one.count} arrivals and {one.bytes} bytes are missing"
        return (
            f"the end of a phase of parity {int(record[layout.VALUE])} of {one}, which is "
            f"in phase {one.phase}, of parity {one.phase & 1}: {missing}"
        )
    if kind == layout.AT_TURN:
        order = (place - engine.turn_address(0)) // 8 % layout.BLOCK_WORDS
        return (
            f"their turn, which is place {int(record[layout.VALUE])} of order {order}; it "
            f"is that of place {word_at(place).value}"
        )
    arrived = word_at(place - 4).value
    if kind == layout.AT_WARP_BARRIER:
        return f"the other lanes of their warp in a shuffle, which {arrived} have reached"
    number = (place - 4 - int(engine.block.ctypes.data)) // 8
    return (
        f"the program's end, where {arrived} have arrived"
        if number == layout.BETWEEN
        else f"a barrier that others do not reach, where {arrived} have arrived"
    )
