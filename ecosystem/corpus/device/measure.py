"""The corpus on a GPU: results against Triton's, times of the device, of the host and of the first
call.

Every launch is run once by each compiler, many processes at a time: that fills the compilers'
caches and the driver's, and gives the results that are compared, and the time of a first call
(among other processes). Then two processes, one a compiler, time one launch after the other in
turns, alone on the device; a time is the least of its rounds.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corpus import data
from corpus.compilation import Compiler, environment, place
from corpus.device.judge import Witness, judge
from corpus.device.process import DeviceProcess
from corpus.launches import Launch, record_of

_COMPILERS: tuple[Compiler, Compiler] = ("triton", "tilewright")
_TIMES = "device", "host", "first"
#: The share of the time until the deadline after which no first call begins.
_FIRST_CALLS = 0.6
#: After so many modules in a row that cannot be imported, a process skips the rest of a package.
_ABSENT = 3
_WRITING = threading.Lock()


@dataclass
class Measured:
    """A launch on the device.

    Attributes:
        kernel: the launch's id.
        ours, theirs: microseconds by what was measured: ``device``, ``host``, ``first``.
        right: whether what ours leaves is right by what Triton's leaves
        (:mod:`corpus.device.judge`). note: what went wrong, or why it is right though it differs.
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


def measure(
    launches: Sequence[Launch],
    folder: Path,
    rounds: int,
    limit: float,
    *,
    jobs: int = 1,
    deadline: float = math.inf,
) -> list[Measured]:
    """Run launches with both compilers on the current GPU.

    Args:
        folder: gets what the tensors hold, the processes' logs, and ``device.json`` as it grows.
        rounds: how often each compiler times a launch.
        limit: seconds that one launch's measurements may take.
        jobs: processes that make first calls at a time.
        deadline: seconds after which no measurement begins; the launches are timed in the order
        given.
    """
    began = time.monotonic()
    found = {
        launch.id: Measured(launch.id, note="not reached before the deadline")
        for launch in launches
    }
    with tempfile.TemporaryDirectory() as scratch:

        def process(compiler: Compiler) -> DeviceProcess:
            tensors = folder / "tensors" / compiler
            tensors.mkdir(parents=True, exist_ok=True)
            return DeviceProcess(
                tensors, folder / f"device-{compiler}.log", _environment(compiler, Path(scratch))
            )

        timers = {compiler: process(compiler) for compiler in _COMPILERS}
        modules = {launch.module: launch for launch in launches}.values()
        with ThreadPoolExecutor(jobs + len(timers)) as pool:
            in_time = began + _FIRST_CALLS * deadline
            imports = [
                pool.submit(_import, timer, modules, limit, in_time) for timer in timers.values()
            ]
            tasks = [
                pool.submit(_first_calls, share, found, process, folder, limit, in_time)
                for share in _shares(launches, jobs)
            ]
            for task in [*imports, *tasks]:
                task.result()
        _write(found, folder)
        for launch in launches:
            measured = found[launch.id]
            if len(measured.ours) and len(measured.theirs) and time.monotonic() - began < deadline:
                _time(measured, launch, timers, rounds, limit)
                _write(found, folder)
        for timer in timers.values():
            timer.end()
    return list(found.values())


def _environment(compiler: Compiler, scratch: Path) -> dict[str, str]:
    """The environment of all processes of a compiler: they share its caches, and the driver's."""
    own = scratch / compiler
    own.mkdir(exist_ok=True)
    driver = {"CUDA_CACHE_PATH": str(own / "driver"), "CUDA_CACHE_MAXSIZE": str(4 << 30)}
    return {**environment(compiler, own), "TILEWRIGHT_CACHE_SIZE": "8G", **driver}


def _shares(launches: Sequence[Launch], jobs: int) -> list[list[Launch]]:
    """The launches in as many shares as there are jobs, those of a package together."""
    order = sorted(launches, key=lambda launch: launch.package)
    size = max(1, -(-len(order) // jobs))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _import(timer: DeviceProcess, launches: Iterable[Launch], limit: float, in_time: float) -> None:
    """Let a process import what the launches need, so that no measurement waits for it, as long as
    there is time.
    """
    absent: Counter[str] = Counter()
    for launch in launches:
        if time.monotonic() > in_time:
            return
        if absent[launch.package] < _ABSENT:
            outcome = timer.ask("import", place(launch), record_of(launch), limit)
            absent[launch.package] += bool(outcome.get("absent"))


def _first_calls(
    share: Sequence[Launch],
    found: dict[str, Measured],
    process: Callable[[Compiler], DeviceProcess],
    folder: Path,
    limit: float,
    in_time: float,
) -> None:
    """Make the first calls of some launches by both compilers, and compare the results."""
    processes = {compiler: process(compiler) for compiler in _COMPILERS}
    absent: dict[str, int] = {}
    for launch in share:
        measured = found[launch.id]
        if time.monotonic() > in_time:
            continue
        if absent.get(launch.package, 0) >= _ABSENT:
            measured.note = f"skipped: {launch.package} cannot be imported"
            continue
        measured.note = ""
        for compiler, each in processes.items():
            outcome = each.ask("run", place(launch), record_of(launch), limit)
            _take(measured, outcome, compiler)
            if outcome.get("absent"):
                absent[launch.package] = absent.get(launch.package, 0) + 1
                break
            absent[launch.package] = 0
        _compare(measured, launch, folder, _witness(launch, processes["triton"], folder, limit))
        _write(found, folder)
    for each in processes.values():
        each.end()


def _time(
    measured: Measured,
    launch: Launch,
    timers: dict[Compiler, DeviceProcess],
    rounds: int,
    limit: float,
) -> None:
    """Time a launch by both compilers in turns."""
    for turn in range(rounds):
        for compiler in _COMPILERS if turn % 2 == 0 else _COMPILERS[::-1]:
            outcome = timers[compiler].ask("time", place(launch), record_of(launch), limit)
            _take(measured, outcome, compiler)
            if "error" in outcome:
                return


def _write(found: dict[str, Measured], folder: Path) -> None:
    """Keep what is measured so far, so that it is whole whenever this process ends."""
    file = folder / "device.json"
    unfinished = file.with_suffix(".part")
    with _WRITING:
        unfinished.write_text(
            json.dumps([asdict(each) for each in found.values()], indent=1) + "\n"
        )
        os.replace(unfinished, file)


def _take(measured: Measured, outcome: dict[str, Any], compiler: Compiler) -> None:
    """Take an outcome's times in, the least of each."""
    if "error" in outcome:
        note = f"{compiler}: {outcome['error']}"
        measured.note = f"{measured.note}; {note}" if measured.note else note
        return
    times = measured.theirs if compiler == "triton" else measured.ours
    for what in _TIMES:
        if what in outcome:
            times[what] = min(times.get(what, math.inf), outcome[what])


def _witness(launch: Launch, triton: DeviceProcess, folder: Path, limit: float) -> Witness:
    """Ask a process with Triton for further results of a launch, each once."""
    known: dict[str, dict[str, Any] | None] = {}

    def ask(which: str) -> dict[str, Any] | None:
        if which not in known:
            number = f"{place(launch)}.{which}"
            file = folder / "tensors" / "triton" / f"{number}.npz"
            outcome = triton.ask(
                "exact" if which == "exact" else "run", number, record_of(launch), limit
            )
            known[which] = None
            if "error" not in outcome and file.exists():
                with np.load(file) as found:
                    known[which] = dict(found)
            file.unlink(missing_ok=True)
        return known[which]

    return ask


def _compare(measured: Measured, launch: Launch, folder: Path, witness: Witness) -> None:
    """Whether both leave the same in all tensors that one of them changed."""
    files = [folder / "tensors" / compiler / f"{place(launch)}.npz" for compiler in _COMPILERS]
    if measured.note or not all(file.exists() for file in files):
        for file in files:
            file.unlink(missing_ok=True)
        return
    kinds = {each.name: data.element(each) for each in data.passed(launch.arguments)}
    with np.load(files[0]) as theirs, np.load(files[1]) as ours:
        if set(theirs) != set(ours):
            measured.note = f"changed: {sorted(ours)}, Triton {sorted(theirs)}"
        else:
            verdicts = [
                judge(name, kinds[name], ours[name], theirs[name], witness) for name in theirs
            ]
            measured.right = all(each.right for each in verdicts)
            measured.note = "; ".join(
                each.note for each in verdicts if each.note and each.right == measured.right
            )
    for file in files:
        file.unlink()


def page(measured: Iterable[Measured], device: str) -> str:
    """Ratios as Markdown, the slowest first."""
    found = sorted(measured, key=lambda each: each.speed("device") or math.inf)
    lines = [
        f"# The corpus on {device}",
        "",
        (
            "Triton's time by Tilewright's: below 1 Tilewright is slower. Microseconds of the "
            "device are Tilewright's, by CUDA graphs; the host's are of one call."
        ),
        "First calls are made while other processes make theirs.",
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
        result = ": ".join(filter(None, ["right" * each.right, each.note.replace("|", "\\|")]))
        kernel = each.kernel.replace("_", "\\_")
        lines.append(f"| {kernel} | " + " | ".join([*ratios, *times, result]) + " |")
    return "\n".join(lines) + "\n"


def _mean(found: Sequence[Measured], what: str) -> str:
    ratios = [each.speed(what) for each in found if each.speed(what)]
    if not ratios:
        return f"- {what}: not measured"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    slower = sum(ratio < 0.9 for ratio in ratios)
    return (
        f"- {what}: geometric mean {mean:.2f} of {len(ratios)}, worst {min(ratios):.2f}, "
        f"{slower} below 0.90"
    )
