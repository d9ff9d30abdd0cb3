"""The page of what both compilers' codes for AMD GPUs execute in the emulator."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from corpus.execution.record import ExecutionRecord
from corpus.execution.run import Execution
from corpus.page import escaped
from corpus.targets import TARGETS

#: A kernel whose code executes more than so many times Triton's instructions is behind.
_MOST = 1.2
_HEAD = """# The corpus on AMD GPUs, executed

Instructions that the waves of Tilewright's code execute by those of Triton's, in the emulator of
AMD's waves (`tilewright_amd_emulator`), which runs the bytes of both code objects on the same data.
No GPU is used, and the figures do not depend on the machine that runs the emulator; an instruction
counts as one whatever it takes.

The launches are those of `ecosystem/corpus/execution/ids.txt`: kernels that are served, of every
package whose kernels run in the emulator in a short time. At most two programs along each axis of
the grid run, with at most 32 MiB of each tensor.
`python -m corpus --execute --ids ecosystem/corpus/execution/ids.txt --accept`, with a `--target`
for each column, writes `ecosystem/corpus/execution/record.json` and this page.
"""


def execution_page(record: ExecutionRecord) -> str:
    """The page as Markdown, the kernel furthest behind on any target first."""
    found = record.executions()
    targets = [name for name in TARGETS if any(each.target == name for each in found)]
    made_with = (
        "Made with "
        + ", ".join(f"{name} {version}" for name, version in record.versions.items())
        + "."
    )
    parts = [_HEAD, made_with, _summary(found, targets), _table(found, targets), _notes(found)]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def _summary(found: Sequence[Execution], targets: Sequence[str]) -> str:
    lines = [
        "## By target",
        "",
        f"*Above {_MOST}*: kernels that execute more than {_MOST} times Triton's instructions. "
        "*Unequal*: a result differs by more than its type's tolerance; of whole numbers, at all. "
        "*Scratch*: kernels with memory of a thread's own where Triton's have none. *Occupancy*: "
        "kernels of which fewer threads fit a compute unit than of Triton's.",
        "",
        (
            f"| target | kernels | geometric mean | least | most | above {_MOST} | unequal | "
            "scratch | occupancy |"
        ),
        "|---|" + "---:|" * 8,
    ]
    for target in targets:
        executed = [each for each in found if each.target == target and each.ratio]
        ratios = [each.ratio for each in executed]
        if not ratios:
            continue
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        counts = (
            sum(ratio > _MOST for ratio in ratios),
            sum(not each.equal for each in executed),
            sum(each.scratch[0] > 0 and not each.scratch[1] for each in executed),
            sum(each.resident[0] < each.resident[1] for each in executed),
        )
        lines.append(
            f"| {target} | {len(ratios)} | {mean:.3f} | {min(ratios):.2f} | {max(ratios):.2f} | "
            + " | ".join(map(str, counts))
            + " |"
        )
    return "\n".join(lines)


def _table(found: Sequence[Execution], targets: Sequence[str]) -> str:
    by_kernel: dict[str, dict[str, Execution]] = defaultdict(dict)
    for each in found:
        by_kernel[each.kernel][each.target] = each
    lines = [
        "## All kernels",
        "",
        (
            f"Instructions by Triton's, in bold above {_MOST}; ▾: fewer threads fit a compute unit "
            "than of Triton's; –: not executed, see below."
        ),
        "",
        "| kernel | " + " | ".join(targets) + " |",
        "|---|" + "---:|" * len(targets),
    ]
    for kernel, cells in sorted(
        by_kernel.items(), key=lambda item: (-max(each.ratio for each in item[1].values()), item[0])
    ):
        lines.append(
            f"| {escaped(kernel)} | "
            + " | ".join(_cell(cells.get(target)) for target in targets)
            + " |"
        )
    return "\n".join(lines)


def _cell(execution: Execution | None) -> str:
    if execution is None:
        return ""
    if not execution.ratio:
        return "–"
    text = f"{execution.ratio:.2f}"
    return (f"**{text}**" if execution.ratio > _MOST else text) + (
        "▾" if execution.resident[0] < execution.resident[1] else ""
    )


def _notes(found: Sequence[Execution]) -> str:
    """Why executions came to no end, and which results differ; the same of several targets in one
    line.
    """
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in found:
        if each.note:
            targets[each.kernel, each.note].append(each.target)
    if not targets:
        return ""
    lines = [
        f"- {escaped(kernel)} ({', '.join(names)}): {escaped(note)}"
        for (kernel, note), names in targets.items()
    ]
    return "\n".join(["## Notes", "", *lines])
