"""Reports of instruction counts in machine code, as text and as JSON."""

from tilewright.gpu_host.code_counts import CountedEffect, Counts, count, counted
from tilewright.gpu_host.control_flow import Instruction

EFFECTS = {
    "load": CountedEffect("load", 16),
    "narrow": CountedEffect("load", 4),
    "copy": CountedEffect("copy", 16, "cp.async"),
    "block": CountedEffect("copy", 0, "bulk"),
    "mma": CountedEffect("mma", 0, "HMMA.16816", 2048),
    "sync": CountedEffect("barrier"),
    "spill": CountedEffect("local"),
    "atomic": CountedEffect("atomic"),
}


def code(text: str) -> list[Instruction]:
    """Instructions by name; ``name:`` is a label, and ``>name`` a branch to it."""
    found: list[Instruction] = []
    labels: list[str] = []
    for word in text.split():
        if word.endswith(":"):
            labels.append(word[:-1])
            continue
        branch = word.startswith(">")
        found.append(
            Instruction(
                "branch" if branch else word, word, tuple(labels), word[1:] if branch else ""
            )
        )
        labels = []
    return found


def effect(instruction: Instruction) -> CountedEffect | None:
    return EFFECTS.get(instruction.mnemonic)


def test_counts_are_told_with_widths_and_names() -> None:
    found = count(code("load load narrow copy block mma sync spill spill atomic add"), effect)
    assert str(found) == (
        "11 instructions; 1 barrier; 2 accesses of local memory; 1 atomic; global loads: 2 of 16 "
        "bytes, 1 of 4 bytes; "
        "asynchronous copies: 1 cp.async of 16 bytes, 1 bulk; matrix instructions: 1 HMMA.16816"
    )
    assert found.record()["loads"] == {"16": 2, "4": 1} and "stores" not in found.record()


def test_the_innermost_loop_is_told_apart_and_has_no_barrier_where_it_has_none() -> None:
    found = counted(code("sync loop: load mma mma >loop sync"), effect)
    assert list(found) == ["machine code", "innermost loop"] and found["machine code"].barriers == 2
    assert str(found["innermost loop"]) == (
        "4 instructions; 0 barriers; global loads: 1 of 16 bytes; matrix instructions: 2 HMMA.16816"
    )
    assert counted(code("load"), effect) == {"machine code": Counts(1, loads={"16": 1})}
