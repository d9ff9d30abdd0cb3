"""Charts and tables of the tutorials, from the files that ``benchmarks/tutorials`` wrote.

A page names its figure in a comment, ``<!-- figure: softmax -->``, in whose place the site shows
the chart with its machine and date. ``<!-- table: matmul -->`` is the table of steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drawings.line_chart import line_chart

from tutorial_pages import losses

FOLDER = Path(__file__).resolve().parents[1] / "performance" / "results" / "tutorials"
SWEEPS, LADDER = FOLDER / "h200_sweeps.json", FOLDER / "h200_matmul_ladder.json"
CPU_LADDER, CPU_SECONDS = FOLDER / "cpu_matmul_ladder.json", FOLDER / "cpu_seconds.json"
#: Bytes per second and multiplications and additions per second in 16 bits, of the data sheet.
_BYTES, _OPERATIONS = 4.8e12, 989e12
_MARK = re.compile(r"^<!-- (figure|table): (\w+) -->$", re.M)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A chart of a tutorial.

    Attributes:
        title: what there is to see.
        across: what the sizes are.
        amount: field of a row that is divided by seconds.
        lines: (series of the page's kernel, name of a rival or "" for the kernel, name in the
            chart), in the chart's order.
    """

    title: str
    across: str
    amount: str
    lines: tuple[tuple[str, str, str], ...]

    @property
    def unit(self) -> str:
        """Return the unit of the rates, 1e12 of which are in the data sheet."""
        return "TB/s" if self.amount == "bytes_moved" else "TFLOP/s"


#: Tutorial -> its chart.
FIGURES = {
    "vector_add": Figure(
        "Memory throughput of the vector add for different numbers of elements",
        *("elements", "bytes_moved"),
        (("Tilewright", "", "this page"), ("Tilewright", "PyTorch", "PyTorch")),
    ),
    "softmax": Figure(
        "Memory throughput of softmax for rows of different width (float32 matrices of 256 MB)",
        *("columns", "bytes_moved"),
        (
            ("a warp for 1024 columns", "", "a warp for 1024 columns"),
            ("4 warps", "", "4 warps"),
            ("4 warps", "PyTorch", "PyTorch"),
        ),
    ),
    "layer_norm": Figure(
        "Memory throughput of layer norm for rows of different width (float32 matrices of 128 MB)",
        *("columns", "bytes_moved"),
        (
            ("forward", "", "forward"),
            ("backward", "", "backward"),
            ("forward", "PyTorch", "PyTorch, forward"),
            ("backward", "PyTorch", "PyTorch, backward"),
        ),
    ),
    "attention": Figure(
        "Rate of causal attention for sequences of different length (float16, head dimension 128)",
        *("length", "operations"),
        (
            ("128 x 128, num_stages=2", "", "128 x 128, 2 stages"),
            ("128 x 64, num_stages=3", "", "128 x 64, 3 stages"),
            ("128 x 64, num_stages=2", "", "128 x 64, 2 stages"),
            ("128 x 128, num_stages=2", "PyTorch", "PyTorch"),
        ),
    ),
    "dropout": Figure(
        "Memory throughput of dropout for different numbers of elements",
        *("elements", "bytes_moved"),
        (("Tilewright", "", "this page"), ("Tilewright", "PyTorch", "PyTorch")),
    ),
    "autotuning": Figure(
        "Memory throughput of row sums for rows of different width (float32 matrices of 128 MB)",
        *("columns", "bytes_moved"),
        tuple(
            (f"ROWS={rows}, BLOCK={block}", "", f"ROWS={rows}, BLOCK={block}")
            for rows in (1, 4)
            for block in (256, 1024)
        ),
    ),
    "grouped_gemm": Figure(
        "Rate of a grouped matmul with 8192 rows in total, for different numbers of groups",
        *("groups", "operations"),
        (
            ("Tilewright", "", "this page"),
            ("Tilewright", "tk.grouped_matmul", "tk.grouped_matmul"),
            ("Tilewright", "torch._grouped_mm", "torch._grouped_mm"),
            ("Tilewright", "a launch for each group", "PyTorch, a launch for each group"),
        ),
    ),
    "quantized_weights": Figure(
        "Rate of a matmul with 4-bit weights of 8192 x 8192, for different numbers of rows of x",
        *("rows", "operations"),
        (
            ("blocks of 16 x 32 x 128", "", "this page, 16 rows a block"),
            ("blocks of 64 x 128 x 64", "", "this page, 64 rows a block"),
            ("blocks of 16 x 32 x 128", "tk.quantized_matmul", "tk.quantized_matmul"),
            ("blocks of 64 x 128 x 64", "tk.quantized_matmul", "tk.quantized_matmul"),
            ("blocks of 16 x 32 x 128", "PyTorch, 16-bit weights", "PyTorch, 16-bit weights"),
            ("blocks of 64 x 128 x 64", "PyTorch, 16-bit weights", "PyTorch, 16-bit weights"),
        ),
    ),
}


def rows_of(path: Path, family: str) -> list[Row]:
    """Return the rows of a family."""
    rows: list[Row] = json.loads(path.read_text())["results"]
    return [row for row in rows if row["family"] == family]


def series_of(figure: Figure, rows: list[Row]) -> dict[str, dict[int, float]]:
    """Return the name of each line -> size -> rate."""
    found: dict[str, dict[int, float]] = {}
    for series, rival, name in figure.lines:
        values = found.setdefault(name, {})
        for row in rows:
            kind, _, size = row["case"].rpartition(": ")
            if kind == series:
                seconds = row["rivals"][rival] if rival else row["seconds"]
                values[int(size)] = row[figure.amount] / seconds / 1e12
        assert values, (name, series)
    return found


def caption(path: Path) -> str:
    """Return where and when a file was measured."""
    facts = json.loads(path.read_text())
    return f"{facts['machine']}, {facts['date']}, PyTorch {facts['torch']}"


def chart(name: str) -> str:
    """Return a tutorial's chart as SVG."""
    figure = FIGURES[name]
    roof = _BYTES if figure.amount == "bytes_moved" else _OPERATIONS
    series = series_of(figure, rows_of(SWEEPS, name))
    return str(line_chart(series, figure.title, figure.across, figure.unit, roof / 1e12))


def figure(name: str) -> str:
    """Return the Markdown of a tutorial's chart."""
    title = FIGURES[name].title
    return (
        f"![{title}]({name}_h200.svg)\n\n"
        f"*The chart shows the {title[0].lower()}{title[1:]}. The chart's values are "
        "computed from execution times on the GPU, measured with a cold L2 cache "
        f"({caption(SWEEPS)}).*"
    )


#: Step of the ladder -> its name in the table.
STEPS = {
    "naive": "1. naive",
    "tiled": "2. tiled",
    "grouped": "3. grouped",
    "pipelined": "4. pipelined",
    "descriptors": "5. descriptors",
    "persistent": "6. persistent",
}


def fastest(path: Path, step: str, size: int) -> Row:
    """Return the fastest configuration of a step."""
    return min(rows_of(path, f"{step} {size}"), key=lambda row: float(row["seconds"]))


def table(name: str) -> str:
    """Return the Markdown of the table of steps."""
    assert name == "matmul", name
    lines = [
        "| step | block, `num_warps`, `num_stages` | µs | TFLOP/s | of cuBLAS | on a CPU, ms |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for step, title in STEPS.items():
        row, on_cpu = fastest(LADDER, step, 4096), fastest(CPU_LADDER, step, 512)
        (rival,) = row["rivals"].values()
        rate = row["operations"] / row["seconds"] / 1e12
        lines.append(
            f"| {title} | {blocks(row['case'])} | {row['seconds'] * 1e6:,.0f} | {rate:.3g} | "
            f"{100 * rival / row['seconds']:.3g}% | {on_cpu['seconds'] * 1e3:.3g} |"
        )
    rows = json.loads(CPU_LADDER.read_text())["results"]
    rivals = [seconds for row in rows for seconds in row["rivals"].values()]
    caption_of_cpu = (
        "The CPU times are for float32 matrices of 512 x 512, measured on two cores "
        f"({caption(CPU_LADDER)}). PyTorch takes {min(rivals) * 1e3:.3g} ms for the same matmul "
        "on these cores"
    )
    found = (
        "*The times and rates of the GPU are for f16 matrices of 4096 x 4096 "
        f"({caption(LADDER)}). {caption_of_cpu}.*"
    )
    return "\n".join([*lines, "", found])


def blocks(case: str) -> str:
    """Return a configuration of the ladder for the table."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+) GROUP=\d+ num_warps=(\d+) num_stages=(\d+)", case)
    assert found, case
    rows, columns, inner, warps, stages = found.groups()
    return f"{rows} x {columns} x {inner}, {warps}, {stages}"


_MAKERS: dict[str, Callable[[str], str]] = {"figure": figure, "table": table}


def filled(markdown: str) -> str:
    """Return a page with its figures in the place of the comments that name them."""
    return _MARK.sub(lambda mark: _MAKERS[mark[1]](mark[2]), markdown)


def seconds(name: str) -> str:
    """Return in a sentence how long a page's program runs."""
    facts = json.loads(CPU_SECONDS.read_text())
    return (
        f"The code of this page runs in {facts['seconds'][name]:.1f} s of processor time, "
        f"including compilation ({facts['machine']}, {facts['date']})."
    )


def files() -> dict[str, str]:
    """Path on the site -> chart."""
    charts = {f"tutorials/{name}_h200.svg": chart(name) for name in FIGURES}
    return {**charts, "tutorials/gradients_loss.svg": losses.chart()}
