"""``triton.profiler.viewer``: profiles as trees.

``python -m triton.profiler.viewer -m time/ms run.hatchet`` prints one.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_UNITS = {
    "time": {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0},
    "cpu_time": {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0},
}
_RATES = {"": 1.0, "g": 1e9, "t": 1e12}


def read(filename: str) -> tuple[Any, list[str], list[str], dict[str, Any]]:
    """Read a profile as Hatchet's data.

    It is (graph frame, inclusive metrics, exclusive metrics, facts of devices by kind and number).

    Raises:
        ImportError: Hatchet is not installed.
    """
    try:
        import hatchet  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError(
            f"triton.profiler.viewer.read needs Hatchet: pip install llnl-hatchet ({error})"
        ) from error

    database = json.loads(Path(filename).read_text())
    devices = database.pop(1)
    frame = hatchet.GraphFrame.from_literal(database)
    frame.update_inclusive_columns()
    inclusive = list(frame.show_metric_columns())
    return (
        frame,
        inclusive,
        [name for name in frame.dataframe.columns if name not in inclusive],
        devices,
    )


def tree_text(
    filename: str,
    metric: str = "time/ms",
    depth: int = 100,
    include: str = "",
    exclude: str = "",
    threshold: float = 0.0,
) -> str:
    """A profile as lines: what was measured in and below each scope, and its name.

    Args:
        metric: ``time/ms`` (also s, us, ns), ``avg_time/ms`` of a launch, ``count``, ``tflop16/s``,
            ``gbyte/s`` and the like, or the name of any metric.
        include, exclude: patterns of names; of kernels alone, scopes without one are left out.
        threshold: the part of the whole that a line has at least.

    Raises:
        ValueError: the unit is unknown.
    """
    root = json.loads(Path(filename).read_text())[0]
    whole = _total(root)
    lines: list[str] = []

    def fits(node: dict[str, Any]) -> bool:
        name = node["frame"]["name"]
        if node["children"]:
            return any(map(fits, node["children"]))
        return (not include or re.search(include, name) is not None) and not (
            exclude and re.search(exclude, name)
        )

    def visit(node: dict[str, Any], level: int) -> None:
        sums = _total(node)
        part = sums.get("time (ns)", 0.0) / whole["time (ns)"] if whole.get("time (ns)") else 1.0
        if level > depth or not fits(node) or part < threshold:
            return
        lines.append(f"{'  ' * level}{_value(sums, metric):.3f} {node['frame']['name']}")
        for child in node["children"]:
            visit(child, level + 1)

    visit(root, 0)
    return "\n".join(lines)


@dataclass(frozen=True)
class Profile:
    """A profile file with what of it is to be shown; :func:`print_tree` prints it."""

    filename: str
    include: str = ""
    exclude: str = ""
    threshold: float = 0.0


def parse(
    metrics: Sequence[str],
    filename: str,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
) -> tuple[Profile, list[str]]:
    """Read a profile: (input of :func:`print_tree`, metrics).

    The arguments are those of :func:`tree_text`.

    Raises:
        OSError: there is no such file.
        ValueError: a metric's unit is unknown.
    """
    for metric in metrics:
        tree_text(filename, metric, 0)
    return Profile(filename, include or "", exclude or "", threshold or 0.0), list(metrics)


def print_tree(
    tree: Profile,
    metrics: Sequence[str],
    depth: int = 100,
    format: str | None = None,
    print_sorted: bool = False,
) -> None:
    """Print a profile by the first of ``metrics``.

    ``format`` and ``print_sorted`` change nothing here.
    """
    print(tree_text(tree.filename, metrics[0], depth, tree.include, tree.exclude, tree.threshold))


def metrics_of(filename: str) -> list[str]:
    """The names of all numbers in a profile."""
    return sorted(
        {
            name
            for node in _nodes(json.loads(Path(filename).read_text())[0])
            for name in _numbers(node)
        }
    )


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node["children"]:
        yield from _nodes(child)


def _numbers(node: dict[str, Any]) -> dict[str, float]:
    return {
        name: value for name, value in node["metrics"].items() if isinstance(value, int | float)
    }


def _total(node: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in _nodes(node):
        for name, value in _numbers(each).items():
            found[name] = found.get(name, 0.0) + value
    return found


def _value(sums: dict[str, float], metric: str) -> float:
    name, _, unit = metric.partition("/")
    average = name.removeprefix("avg_") != name
    base = name.removeprefix("avg_")
    if base in _UNITS:
        if (unit or "ns") not in _UNITS[base]:
            raise ValueError(f"{base} is in {', '.join(_UNITS[base])}, not in {unit!r}")
        return (
            sums.get(f"{base} (ns)", 0.0)
            / _UNITS[base][unit or "ns"]
            / (sums.get("count", 1) or 1 if average else 1)
        )
    rate = re.fullmatch(r"([gt]?)(flop|byte)(\d*)", base)
    if rate and unit == "s":
        seconds = sums.get("time (ns)", 0.0) / 1e9
        return sums.get(f"{rate[2]}s{rate[3]}", 0.0) / _RATES[rate[1]] / seconds if seconds else 0.0
    return sums.get(metric, 0.0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="proton-viewer", description="Print a profile.")
    parser.add_argument("-l", "--list", action="store_true", help="list its metrics")
    parser.add_argument(
        "-m",
        "--metrics",
        default="time/ms",
        help=(
            "what to print: time/ms, avg_time/us, count, tflop16/s, gbyte/s, or the name of "
            "a metric"
        ),
    )
    parser.add_argument("-i", "--include", default="", help="kernels whose name matches")
    parser.add_argument("-e", "--exclude", default="", help="leave out kernels whose name matches")
    parser.add_argument(
        "-t",
        "--threshold",
        type=float,
        default=0.0,
        help="leave out what took less than this part of the time",
    )
    parser.add_argument("-d", "--depth", type=int, default=100, help="levels to print")
    parser.add_argument("filename")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(metrics_of(given.filename)))
    else:
        print(
            tree_text(
                given.filename,
                given.metrics,
                given.depth,
                given.include,
                given.exclude,
                given.threshold,
            )
        )


if __name__ == "__main__":
    main()
