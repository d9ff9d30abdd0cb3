"""The page of results: tables and charts of the kernel library for each machine and family, then
the corpus and the conformance of backends."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from drawings.charts import ratio_chart

from results_pages import conformance, corpus

#: Files that ``--json`` of the scripts in ``benchmarks/kernels`` wrote.
FOLDER = Path(__file__).resolve().parents[1] / "performance" / "results"
#: Part of a machine's name -> terabytes per second and TFLOP/s of its data sheet, in 16 bits.
ROOFS = {"H200": (4.8, 989.0), "H100": (3.35, 989.0)}
INTRODUCTION = """# Results

This page compares the times of operations of the [kernel library](kernels/index.md) with the times
of the same operations in other libraries. The scripts in `benchmarks/kernels` of the repository
measured these times. On GPUs, the times are device times. The L2 cache was overwritten before each
call, and the libraries were measured in alternation. The result of each case was compared with the
result of a formula in float64, and with the results of 20 further launches of the same kernel (of 5
for attention with 32,768 keys). The gradients of attention were compared with those of
FlashAttention, and the gradients of two launches with `deterministic=True` were compared with each
other. Besides the case, the time and the rate, the tables have these columns:

- **Column "of the roof"**: a lower bound of the time, as a percentage of the measured time. The
  lower bound is computed from the peak rates in the GPU's data sheet: it is the time for the
  arithmetic of the operation or the time for its memory transfers, whichever is longer.
- **Columns with the name of a library**: the time of the library divided by Tilewright's time. If
  this ratio is above 1, Tilewright is faster.
- **Column `deterministic`**: the time of Tilewright's backward pass of attention with
  `deterministic=True`, divided by its time without this option.

The attention kernels of vLLM and SGLang for decoding divide the keys of each sequence into parts.
Each of these kernels was measured with the number of parts that the server of its package selects.

"""

#: Family -> the title of its section.
TITLES = {
    "linear": "Matmuls",
    "attention": "Attention",
    "rows": "Norms, losses, activations",
    "others": "Reductions, sorts, optimizers, experts",
    "sequence": "Sequences",
}


def families(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the families of a file, with their results."""
    results = json.loads(path.read_text())["results"]
    for family in dict.fromkeys(row["family"] for row in results):
        yield family, [row for row in results if row["family"] == family]


def rate_of(row: Mapping[str, Any]) -> tuple[float, str] | None:
    """Return a result's rate and its unit: of operations, or else of bytes."""
    if row["operations"]:
        return row["operations"] / row["seconds"] / 1e12, "TFLOP/s"
    if row["bytes_moved"]:
        return row["bytes_moved"] / row["seconds"] / 1e12, "TB/s"
    return None


def share_of_roof(row: Mapping[str, Any], machine: str) -> str:
    """Return which part of the time the machine's data sheet explains, in percent."""
    roofs = next((each for name, each in ROOFS.items() if name in machine), None)
    if roofs is None:
        return ""
    rate = roofs[1] * row.get("speed", 1.0)
    bounds = (row["bytes_moved"] or 0) / roofs[0], (row["operations"] or 0) / rate
    return f"{max(bounds) / 1e12 / row['seconds']:.0%}"


def table(rows: list[dict[str, Any]], machine: str) -> str:
    """Return the Markdown table of results."""
    rivals = list(dict.fromkeys(name for row in rows for name in row["rivals"]))
    head = ["case", "µs", "rate", "of the roof", *rivals]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for row in rows:
        found = rate_of(row)
        cells = [
            row["case"],
            f"{row['seconds'] * 1e6:,.1f}",
            "" if found is None else f"{found[0]:.4g} {found[1]}",
            share_of_roof(row, machine),
        ]
        for name in rivals:
            taken = row["rivals"].get(name)
            cells.append("" if taken is None else f"{taken / row['seconds']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables(rows: list[dict[str, Any]], machine: str) -> str:
    """Return a table for each set of rivals."""
    sets = dict.fromkeys(tuple(row["rivals"]) for row in rows)
    return "\n".join(
        table([row for row in rows if tuple(row["rivals"]) == rivals], machine) for rivals in sets
    )


def ratios_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return case -> the fastest rival's time divided by ours."""
    found = {}
    for row in rows:
        times = [taken for name, taken in row["rivals"].items() if name != "deterministic"]
        if times:
            found[row["case"]] = min(times) / row["seconds"]
    return found


def files() -> dict[str, str]:
    """Path on the site -> content: the page and its charts."""
    text, found = INTRODUCTION, {}
    for path in sorted(FOLDER.glob("*.json")):
        facts = json.loads(path.read_text())
        for family, rows in families(path):
            text += f"## {TITLES[family]}: {facts['machine']}\n\n"
            text += f"The times in this section were measured on {facts['date']}"
            text += f" with PyTorch {facts['torch']}."
            ratios = ratios_of(rows)
            if ratios:
                mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
                name = f"results/{path.stem}.svg"
                title = f"The fastest other library's time divided by ours, {len(ratios)} cases"
                found[name] = str(ratio_chart(ratios, title))
                text += (
                    " For each case, the chart shows the time of the fastest other library divided"
                    f" by Tilewright's time. The geometric mean of these ratios is {mean:.2f}.\n\n"
                )
                text += f"![{title}]({name})"
            text += f"\n\n{tables(rows, facts['machine'])}\n"
    text += corpus.section() + conformance.section()
    return {"results.md": text, **found}
