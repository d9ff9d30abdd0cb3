"""``tilewright tune tilewright_kernels``: measured block sizes for this machine's devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilewright_kernels.operations.block_records import own_folder
from tilewright_kernels.operations.block_rules import RULES


def tune_package(
    rules: Sequence[str],
    *,
    backend: str | None = None,
    folder: Path | None = None,
    budget: float | None = None,
) -> int:
    """Measure the blocks of rules, and write records where others are faster than the model's.

    Args:
        rules: names of rules; all if there are none.
        backend: the backend's name; that of the default device if None.
        folder: of the file of records; the folder of this machine's records if None.
        budget: seconds after which no other blocks are tried.

    Returns:
        The exit status.

    Raises:
        ValueError: there is no such rule.
    """
    from tilewright_kernels.tuning.block_search import search
    from tilewright_kernels.tuning.tuning_cases import cases

    unknown = [name for name in rules if name not in RULES]
    if unknown:
        raise ValueError(f"no rule is named {unknown[0]!r}: give one of {', '.join(RULES)}")
    path = search(
        lambda arrays: [each for each in cases(arrays) if not rules or each.rule in rules],
        backend=backend,
        folder=folder or own_folder(),
        budget=budget,
    )
    print(f"written to {path}" if path else "no blocks are faster than the model's")
    return 0
