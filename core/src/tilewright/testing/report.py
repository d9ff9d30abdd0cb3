"""Performance reports: one measurement per point of a sweep, as a table, CSV file and plot.

Tables need nothing else; plots need matplotlib.
"""

from __future__ import annotations

import csv
import html
import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import BenchmarkError


@dataclass
class Benchmark:
    """A description of a plot: its lines, the values on its x axis, and its labels.

    Attributes:
        x_names: the function's parameters on the x axis. All receive the same value, or one element
            of a tuple each.
        x_vals: the values on the x axis.
        line_arg: the parameter that distinguishes the lines.
        line_vals, line_names: the values of the parameter ``line_arg``, and their names in the
            legend.
        plot_name: the title of the plot, and the name of its files.
        args: further arguments of the function.
        xlabel, ylabel: the labels of the axes.
        x_log, y_log: whether the axes are logarithmic.
        styles: a pair (colour, line style) for each line.
    """

    x_names: Sequence[str]
    x_vals: Sequence[Any]
    line_arg: str
    line_vals: Sequence[Any]
    line_names: Sequence[str]
    plot_name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Sequence[tuple[str, str]] | None = None


class Mark:
    """The result of :func:`perf_report`: the decorated function, and its benchmarks.

    The method ``run`` calls the decorated function for each point of each benchmark. The decorated
    function must return a number, or a tuple (number, lower bound, upper bound).
    """

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Measure. ``kwargs`` are given to the function at every point.

        Args:
            show_plots, print_data: show each sweep's plot; print its table.
            save_path: directory for ``<plot_name>.csv`` and ``results.html``; where matplotlib is
                installed for ``<plot_name>.png``, too.
            return_df: give the table (a pandas ``DataFrame``); a list of tables where there are
                several sweeps.

        Raises:
            ImportError: matplotlib is not installed, and plots are to be shown; or pandas, and a
                ``DataFrame`` is asked for. Nothing was measured.
            BenchmarkError: an x value has not one entry for each x name.
        """
        several = not isinstance(self.benchmarks, Benchmark)
        sweeps: Sequence[Benchmark] = (
            self.benchmarks if not isinstance(self.benchmarks, Benchmark) else [self.benchmarks]
        )
        pandas = _need("pandas", "return_df=True makes tables of pandas") if return_df else None
        plots = show_plots or (
            bool(save_path) and importlib.util.find_spec("matplotlib") is not None
        )
        pyplot = _need("matplotlib.pyplot", "plots are drawn by matplotlib") if plots else None
        if save_path:
            os.makedirs(save_path, exist_ok=True)
        tables = [_measured(self.fn, sweep, kwargs) for sweep in sweeps]
        for table in tables:
            if pyplot is not None:
                _plot(pyplot, table, show_plots, save_path)
            if print_data:
                print(f"{table.sweep.plot_name}:")
                print(table.text())
            if save_path:
                table.write(os.path.join(save_path, f"{table.sweep.plot_name}.csv"))
        if save_path:
            parts = "".join(table.page_part(plotted=pyplot is not None) for table in tables)
            with open(os.path.join(save_path, "results.html"), "w", encoding="utf-8") as file:
                file.write(
                    "<!doctype html>\n<html><head><meta "
                    f'charset="utf-8"><title>results</title></head><body>\n{parts}</body></html>\n'
                )
        if pandas is None:
            return None
        frames = [pandas.DataFrame(table.rows, columns=table.columns) for table in tables]
        return frames if several else frames[0]


@dataclass(frozen=True)
class _Table:
    """Measurements of a sweep.

    Attributes:
        columns: the x names, then the lines' labels.
        rows: the x values, then a number a line.
        bounds: for each row, (lower, upper) of each line, None where the function gave none.
    """

    sweep: Benchmark
    columns: list[str]
    rows: list[list[Any]]
    bounds: list[list[tuple[Any, Any]]]

    @property
    def labels(self) -> list[str]:
        return self.columns[len(self.sweep.x_names) :]

    def cells(self) -> list[list[str]]:
        """Every row as texts: measured numbers with six digits."""
        x = len(self.sweep.x_names)
        return [
            [
                *map(str, row[:x]),
                *(f"{value:.6f}" if isinstance(value, float) else str(value) for value in row[x:]),
            ]
            for row in self.rows
        ]

    def text(self) -> str:
        """The table for a terminal: columns as wide as they need, to the right."""
        cells = [self.columns, *self.cells()]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in cells
        )

    def write(self, path: str) -> None:
        """Write a CSV file; floats have four digits."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(
                [f"{value:.4f}" if isinstance(value, float) else value for value in row]
                for row in self.rows
            )

    def page_part(self, *, plotted: bool) -> str:
        """The table, and where there is one the plot, as HTML."""

        def line(kind: str, cells: Sequence[str]) -> str:
            return (
                f"<tr>{''.join(f'<{kind}>{html.escape(cell)}</{kind}>' for cell in cells)}</tr>\n"
            )

        name = html.escape(self.sweep.plot_name)
        image = f'<img src="{name}.png" alt="{name}"/>\n' if plotted else ""
        rows = "".join(line("td", row) for row in self.cells())
        return f"<h2>{name}</h2>\n{image}<table>\n{line('th', self.columns)}{rows}</table>\n"


def _measured(fn: Callable[..., Any], sweep: Benchmark, kwargs: Mapping[str, Any]) -> _Table:
    rows, bounds = [], []
    for x in sweep.x_vals:
        values = tuple(x) if isinstance(x, list | tuple) else (x,) * len(sweep.x_names)
        if len(values) != len(sweep.x_names):
            raise BenchmarkError(
                f"an x value has {len(values)} entries for {len(sweep.x_names)} names: {x!r}"
            )
        named = dict(zip(sweep.x_names, values, strict=True))
        points = []
        for line in sweep.line_vals:
            found = fn(**{**named, sweep.line_arg: line, **sweep.args, **kwargs})
            points.append(tuple(found) if isinstance(found, list | tuple) else (found, None, None))
        rows.append([*values, *(point[0] for point in points)])
        bounds.append([(point[1], point[2]) for point in points])
    labels = [f"{name} ({sweep.ylabel})" if sweep.ylabel else name for name in sweep.line_names]
    return _Table(sweep, [*sweep.x_names, *labels], rows, bounds)


def _plot(pyplot: Any, table: _Table, show: bool, save_path: str) -> None:
    sweep = table.sweep
    figure, axes = pyplot.subplots()
    x, first = [row[0] for row in table.rows], len(sweep.x_names)
    for number, label in enumerate(table.labels):
        colour, style = sweep.styles[number] if sweep.styles else (None, None)
        axes.plot(
            x, [row[first + number] for row in table.rows], label=label, color=colour, ls=style
        )
        band = [
            (at, *row[number])
            for at, row in zip(x, table.bounds, strict=True)
            if None not in row[number]
        ]
        if band:
            axes.fill_between(*map(list, zip(*band, strict=True)), alpha=0.15, color=colour)
    axes.legend()
    axes.set_xlabel(sweep.xlabel or sweep.x_names[0])
    axes.set_ylabel(sweep.ylabel)
    axes.set_xscale("log" if sweep.x_log else "linear")
    axes.set_yscale("log" if sweep.y_log else "linear")
    if show:
        pyplot.show()
    if save_path:
        figure.savefig(os.path.join(save_path, f"{sweep.plot_name}.png"))
    pyplot.close(figure)


def perf_report(
    benchmarks: Benchmark | Sequence[Benchmark],
) -> Callable[[Callable[..., Any]], Mark]:
    """Decorate a function that measures one point of a plot, and return a :class:`Mark`."""
    return lambda fn: Mark(fn, benchmarks)


def _need(module: str, what: str) -> Any:
    try:
        # computed: libraries for plots, which the core does not need
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what}, which cannot be imported here ({error})") from error
