"""Performance reports: one measurement per point of a sweep, as a table, a CSV file and a plot. Needs pandas, and matplotlib for plots."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Benchmark:
    """A sweep: the measured function is called once for each x value and line.

    Attributes:
        x_names: parameters of the function on the x axis; all get the same value, or one entry each of a tuple.
        x_vals: the values.
        line_arg: the parameter that tells the lines apart.
        line_vals, line_names: its values, and what the legend calls them.
        plot_name: title, and name of the files.
        args: further arguments of the function.
        xlabel, ylabel, x_log, y_log: the axes.
        styles: (colour, line style) of each line.
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
    """A measured function with its sweeps, made by :func:`perf_report`. The function gives a number, or (number, lower, upper)."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(self, show_plots: bool = False, print_data: bool = False, save_path: str = "", return_df: bool = False, **kwargs: Any) -> Any:
        """Measure. ``kwargs`` are given to the function at every point.

        Args:
            show_plots, print_data: show each sweep's plot; print its table.
            save_path: directory for ``<plot_name>.csv``, ``<plot_name>.png`` and ``results.html``.
            return_df: give the table (pandas); a list of tables where there are several sweeps.

        Raises:
            ImportError: pandas, or matplotlib for a plot, is not installed.
        """
        several = not isinstance(self.benchmarks, Benchmark)
        sweeps: Sequence[Benchmark] = self.benchmarks if not isinstance(self.benchmarks, Benchmark) else [self.benchmarks]
        if save_path:
            os.makedirs(save_path, exist_ok=True)
        tables = [self._run(sweep, show_plots, print_data, save_path, kwargs) for sweep in sweeps]
        if save_path:
            images = "".join(f'<image src="{sweep.plot_name}.png"/>\n' for sweep in sweeps)
            with open(os.path.join(save_path, "results.html"), "w", encoding="utf-8") as file:
                file.write(f"<html><body>\n{images}</body></html>\n")
        if return_df:
            return tables if several else tables[0]
        return None

    def _run(self, sweep: Benchmark, show_plots: bool, print_data: bool, save_path: str, kwargs: Mapping[str, Any]) -> Any:
        pandas = _need("pandas")
        rows = []
        for x in sweep.x_vals:
            values = tuple(x) if isinstance(x, list | tuple) else (x,) * len(sweep.x_names)
            if len(values) != len(sweep.x_names):
                raise ValueError(f"an x value has {len(values)} entries for {len(sweep.x_names)} names: {x!r}")
            named = dict(zip(sweep.x_names, values, strict=True))
            measured = [self._point({**named, sweep.line_arg: line, **sweep.args, **kwargs}) for line in sweep.line_vals]
            rows.append([*values, *(point[0] for point in measured), *(point[1] for point in measured), *(point[2] for point in measured)])
        lines = list(sweep.line_names)
        labels = [f"{name} ({sweep.ylabel})" if sweep.ylabel else name for name in lines]
        columns = [*sweep.x_names, *labels, *(f"{label}-min" for label in labels), *(f"{label}-max" for label in labels)]
        table = pandas.DataFrame(rows, columns=columns)
        if show_plots or save_path:
            _plot(sweep, table, labels, show_plots, save_path)
        table = table[[*sweep.x_names, *labels]]
        if print_data:
            print(f"{sweep.plot_name}:")
            print(table.to_string())
        if save_path:
            table.to_csv(os.path.join(save_path, f"{sweep.plot_name}.csv"), float_format="%.4f", index=False)
        return table

    def _point(self, arguments: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        found = self.fn(**arguments)
        return tuple(found) if isinstance(found, list | tuple) else (found, None, None)


def _plot(sweep: Benchmark, table: Any, labels: Sequence[str], show: bool, save_path: str) -> None:
    pyplot = _need("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    x = sweep.x_names[0]
    for number, label in enumerate(labels):
        colour, style = sweep.styles[number] if sweep.styles else (None, None)
        axes.plot(table[x], table[label], label=label, color=colour, ls=style)
        if not table[f"{label}-min"].isnull().all() and not table[f"{label}-max"].isnull().all():
            axes.fill_between(table[x], table[f"{label}-min"].astype(float), table[f"{label}-max"].astype(float), alpha=0.15, color=colour)
    axes.legend()
    axes.set_xlabel(sweep.xlabel or x)
    axes.set_ylabel(sweep.ylabel)
    axes.set_xscale("log" if sweep.x_log else "linear")
    axes.set_yscale("log" if sweep.y_log else "linear")
    if show:
        pyplot.show()
    if save_path:
        figure.savefig(os.path.join(save_path, f"{sweep.plot_name}.png"))
    pyplot.close(figure)


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorate a function that measures one point with its sweep or sweeps; run them with :meth:`Mark.run`."""
    return lambda fn: Mark(fn, benchmarks)


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(f"performance reports need {name}: pip install {name}") from error
