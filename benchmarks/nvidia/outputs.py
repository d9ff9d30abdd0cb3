"""Output files of the benchmarks: JSON, and a plot.

A plot requires Matplotlib; nothing else is required.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--json FILE`` and ``--plot FILE``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help=(
            "draw the rows into this file (its name says the format: .png, .svg, .pdf); "
            "needs matplotlib"
        ),
    )


def write(
    title: str,
    device: str,
    rows: Sequence[dict[str, Any]],
    plotted: Sequence[str],
    options: argparse.Namespace,
) -> None:
    """Write the requested files.

    ``plotted`` names the columns to plot; the first column of a row is its label.
    """
    if options.json:
        options.json.write_text(
            json.dumps({"benchmark": title, "device": device, "rows": rows}, indent=1) + "\n"
        )
    if options.plot:
        draw(title, device, rows, plotted, options.plot)


def draw(
    title: str, device: str, rows: Sequence[dict[str, Any]], plotted: Sequence[str], file: Path
) -> None:
    """Plot a panel of bars for each column, without rows that lack the column.

    Ratios, which have no unit, get a line at 1.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = [name for name in plotted if any(name in row for row in rows)]
    if not columns:
        raise SystemExit(f"there is nothing to plot: no row has any of {', '.join(plotted)}")
    height = 1.2 + 0.28 * len(rows)
    figure, panels = pyplot.subplots(
        1, len(columns), figsize=(3 + 4 * len(columns), height), sharey=False, squeeze=False
    )
    for panel, name in zip(panels[0], columns, strict=True):
        found = [(str(next(iter(row.values()))), row[name]) for row in rows if name in row]
        bars = panel.barh(range(len(found)), [value for _, value in found], color="#4477aa")
        panel.bar_label(bars, fmt="%.3g", padding=2, fontsize=7)
        panel.set_yticks(range(len(found)), [label for label, _ in found], fontsize=7)
        panel.invert_yaxis()
        panel.margins(x=0.15)
        panel.set_title(name.replace("_", " "), fontsize=9)
        if name == "speedup" or name.startswith("of_") or name.endswith("_ratio"):
            panel.axvline(1.0, color="#cc3311", linewidth=1)
    figure.suptitle(f"{title} on {device}", fontsize=10)
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
