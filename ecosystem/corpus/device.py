"""The corpus on a GPU: results against Triton's, times of the device, of the host and of the first call.

Each compiler has processes of its own, which alternate: a package's records in one, then in the other,
as often as there are rounds. A time is the least of its rounds; the first call is of the first, with
empty caches.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corpus import data
from corpus.compilation import Compiler, environment, place
from corpus.launches import Launch, record_of

_COMPILERS: tuple[Compiler, Compiler] = ("triton", "tilewright")
_TIMES = "device", "host", "first"


@dataclass
class Measured:
    """A launch on the device.

    Attributes:
        kernel: the launch's id.
        ours, theirs: microseconds by what was measured: ``device``, ``host``, ``first``.
        right: whether what ours leaves is within the tolerance of what Triton's leaves.
        note: what went wrong.
    """

    kernel: str
    ours: dict[str, float] = field(default_factory=dict)
    theirs: dict[str, float] = field(default_factory=dict)
    right: bool = False
    note: str = ""

    def speed(self, what: str) -> float:
        """Triton's time by ours: below 1 ours is slower; 0 where one is not known."""
        ours, theirs = self.ours.get(what, 0.0), self.theirs.get(what, 0.0)
        return theirs / ours if ours and theirs else 0.0


def measure(launches: Sequence[Launch], folder: Path, rounds: int, limit: float) -> list[Measured]:
    """Run launches with both compilers on the current GPU.

    Args:
        folder: gets what the tensors hold, and ``device.json``.
        limit: seconds that one launch's measurements may take.
    """
    found = {launch.id: Measured(launch.id) for launch in launches}
    for package in dict.fromkeys(launch.package for launch in launches):
        some = [launch for launch in launches if launch.package == package]
        for turn in range(rounds):
            order = _COMPILERS if turn % 2 == 0 else _COMPILERS[::-1]
            for compiler in order:
                outcomes = _process(some, compiler, folder, turn, limit)
                for launch in some:
                    _take(found[launch.id], outcomes.get(place(launch), {}), compiler, turn)
        for launch in some:
            _compare(found[launch.id], launch, folder)
        (folder / "device.json").write_text(json.dumps([asdict(each) for each in found.values()], indent=1) + "\n")
    return list(found.values())


def _take(measured: Measured, outcome: dict[str, Any], compiler: str, turn: int) -> None:
    """Take a round's times in."""
    if "error" in outcome or not outcome:
        measured.note = f"{compiler}: {outcome.get('error', 'no outcome')}"
        return
    times = measured.theirs if compiler == "triton" else measured.ours
    for what in _TIMES:
        if what != "first" or turn == 0:
            times[what] = min(times.get(what, math.inf), outcome[what])


def _process(launches: Sequence[Launch], compiler: Compiler, folder: Path, turn: int, limit: float) -> dict[str, dict[str, Any]]:
    """The outcomes of a package's launches by place; one process more for each that one does not survive."""
    tensors = folder / "tensors" / compiler
    tensors.mkdir(parents=True, exist_ok=True)
    left = [(place(launch), record_of(launch)) for launch in launches]
    found: dict[str, dict[str, Any]] = {}
    while left:
        with tempfile.TemporaryDirectory() as scratch:
            jobs, results = Path(scratch, "jobs.json"), Path(scratch, "results")
            jobs.write_text(json.dumps(left))
            results.touch()
            names = [str(jobs), str(results), str(tensors), str(turn)]
            command = [sys.executable, "-m", "corpus.device_worker", *names]
            variables = environment(compiler, Path(scratch))
            try:
                done = subprocess.run(command, env=variables, timeout=limit * len(left), check=False)
                why = f"the process ended with {done.returncode}"
            except subprocess.TimeoutExpired:
                why = f"it took longer than {limit:g} s"
            lines = [json.loads(line) for line in results.read_text().splitlines()]
        if not lines:
            raise RuntimeError(f"the worker of {compiler} did not begin: {why}")
        for line in lines:
            found[line["number"]] = line.get("outcome") or {"error": why}
        left = [(number, record) for number, record in left if number not in found]
    return found


def _compare(measured: Measured, launch: Launch, folder: Path) -> None:
    """Whether both leave the same in all tensors that one of them changed."""
    files = [folder / "tensors" / compiler / f"{place(launch)}.npz" for compiler in _COMPILERS]
    if measured.note or not all(file.exists() for file in files):
        return
    kinds = {each.name: data.element(each) for each in data.passed(launch.arguments)}
    with np.load(files[0]) as theirs, np.load(files[1]) as ours:
        if set(theirs) != set(ours):
            measured.note = f"changed: {sorted(ours)}, Triton {sorted(theirs)}"
            return
        measured.right = True
        for name in theirs:
            dtype, tolerance = data.ELEMENTS[kinds[name]]
            far = data.difference(ours[name].view(dtype), theirs[name].view(dtype), kinds[name])
            if far > tolerance:
                measured.right, measured.note = False, f"{name} differs by {far:.2g}"
    for file in files:
        file.unlink()


def page(measured: Iterable[Measured], device: str) -> str:
    """Ratios as Markdown, the slowest first."""
    found = sorted(measured, key=lambda each: each.speed("device") or math.inf)
    lines = [
        f"# The corpus on {device}",
        "",
        "Triton's time by Tilewright's: below 1 Tilewright is slower. Microseconds of the device are Tilewright's, by CUDA graphs; the host's are of one call.",
        "",
        *[_mean(found, what) for what in _TIMES],
        f"- right: {sum(each.right for each in found)} of {len(found)}",
        "",
        "| kernel | device | host | first call | device µs | host µs | result |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for each in found:
        ratios = [f"{each.speed(what):.2f}" if each.speed(what) else "" for what in _TIMES]
        times = [f"{each.ours[what]:.1f}" if what in each.ours else "" for what in _TIMES[:2]]
        result = "right" if each.right else each.note.replace("|", "\\|")
        kernel = each.kernel.replace("_", "\\_")
        lines.append(f"| {kernel} | " + " | ".join([*ratios, *times, result]) + " |")
    return "\n".join(lines) + "\n"


def _mean(found: Sequence[Measured], what: str) -> str:
    ratios = [each.speed(what) for each in found if each.speed(what)]
    if not ratios:
        return f"- {what}: not measured"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    slower = sum(ratio < 0.9 for ratio in ratios)
    return f"- {what}: geometric mean {mean:.2f} of {len(ratios)}, worst {min(ratios):.2f}, {slower} below 0.90"
