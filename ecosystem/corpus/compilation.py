"""Compiling records by either compiler, in processes that may end, and the figures of the code."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corpus import amd_code, nvidia_code
from corpus.figures import Figures
from corpus.launches import Launch, record_of
from corpus.targets import TARGETS

ECOSYSTEM = Path(__file__).resolve().parents[1]
Compiler = Literal["triton", "tilewright"]
#: Bump it when the readers count otherwise: what is kept of earlier runs is made again.
_READERS = 3
#: Where the system says what processes do.
_PROCESSES = Path("/proc/self").parent


@dataclass
class Outcome:
    """What became of a kernel for a target.

    Attributes:
        error: the first line of what the compiler, or ptxas, said; empty where it compiles.
        seconds: of processor time, up to PTX or a code object, or the CPU's machine code.
        figures: of the code; None where there are none.
        code: the path of the code, without the ending.
        facts: what a launch needs: ``num_warps``, ``shared`` and ``name``.
    """

    error: str = ""
    seconds: float = 0.0
    figures: Figures | None = None
    code: str = ""
    facts: dict[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        figures = None if self.figures is None else self.figures.record()
        return {**vars(self), "figures": figures}

    @staticmethod
    def of(record: dict[str, Any]) -> Outcome:
        """The outcome of a record of :meth:`record`."""
        figures = record["figures"]
        return Outcome(**{**record, "figures": None if figures is None else Figures.of(figures)})


Outcomes = dict[str, dict[str, Outcome]]


def versions(compiler: Compiler) -> dict[str, str]:
    """The versions of what decides on figures: compilers, and the tools that read their code."""
    names = {"triton": ("triton",), "tilewright": ("llvmlite",)}[compiler]
    found = {name: importlib.metadata.version(name) for name in (*names, "nvidia-cuda-nvcc")}
    return found


def compile_all(
    wanted: Sequence[tuple[Launch, Sequence[str]]],
    compiler: Compiler,
    folder: Path,
    *,
    limit: float = 120,
    jobs: int = 1,
    again: bool = True,
) -> Outcomes:
    """Compile launches for targets by one of the compilers, and read the figures of the code.

    Args:
        wanted: launches with the names of their targets.
        folder: where the code goes, and what is known of it is kept, package by package.
        limit: seconds of processor time that one compilation may take.
        jobs: processes at a time, each for a package.
        again: compile also what was compiled before with the same compiler; Tilewright's own
            sources change, and no version tells.

    Returns:
        the outcomes by the launch's id and the target's name.
    """
    wanted = [(launch, _served(targets, compiler)) for launch, targets in wanted]
    kept = folder / f"{compiler}.json"
    known: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    code = folder / "code" / compiler
    code.mkdir(parents=True, exist_ok=True)
    keys = {launch.id: _key(launch, compiler) for launch, _ in wanted}
    packages: dict[str, list[tuple[Launch, list[str]]]] = {}
    for launch, targets in wanted:
        before = known.setdefault(launch.id, {})
        if again:
            left = list(targets)
        else:
            left = [each for each in targets if before.get(each, {}).get("key") != keys[launch.id]]
        if left:
            packages.setdefault(launch.package, []).append((launch, left))
    with ThreadPoolExecutor(jobs) as pool:
        for outcomes in pool.map(
            lambda work: _compile(work, compiler, code, limit), packages.values()
        ):
            for (name, target), outcome in outcomes.items():
                known[name][target] = {"key": keys[name], **outcome.record()}
            kept.write_text(json.dumps(known))
    return {
        launch.id: {target: _outcome(known[launch.id][target]) for target in targets}
        for launch, targets in wanted
    }


def _served(targets: Sequence[str], compiler: Compiler) -> list[str]:
    """The targets that a compiler has."""
    return [each for each in targets if compiler != "triton" or TARGETS[each].code]


def _outcome(record: dict[str, Any]) -> Outcome:
    return Outcome.of({name: value for name, value in record.items() if name != "key"})


def _key(launch: Launch, compiler: Compiler) -> str:
    given = [launch.package, launch.version, launch.specialization, versions(compiler), _READERS]
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


def _compile(
    work: Sequence[tuple[Launch, list[str]]], compiler: Compiler, folder: Path, limit: float
) -> dict[tuple[str, str], Outcome]:
    """Run workers, one behind the other where one ends before its time, then read the code."""
    queue: list[tuple[str, dict[str, Any], list[str]]] = [
        (place(launch), record_of(launch), list(targets)) for launch, targets in work
    ]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    while queue:
        with tempfile.TemporaryDirectory() as scratch:
            ended = _run_worker(queue, compiler, folder, limit, Path(scratch))
            lines = [json.loads(line) for line in ended.results]
        for line in lines:
            found[line["number"], line["target"]] = line.get("outcome") or {"error": ended.why}
        if not lines:
            raise RuntimeError(f"the worker of {compiler} did not begin: {ended.why}")
        queue = [
            (number, record, left)
            for number, record, targets in queue
            if (left := [each for each in targets if (number, each) not in found])
        ]
    names = {place(launch): launch.id for launch, _ in work}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        read = pool.map(lambda item: _read(item[0][0], item[0][1], item[1], folder), found.items())
        return {
            (names[number], target): outcome
            for (number, target), outcome in zip(found, read, strict=True)
        }


def place(launch: Launch) -> str:
    """A name for a launch's files."""
    digest = hashlib.sha256(launch.id.encode()).hexdigest()[:8]
    return f"{launch.package}.{launch.kernel}.{digest}"


@dataclass
class _Ended:
    results: list[str]
    why: str


def _run_worker(
    queue: Sequence[Any], compiler: Compiler, folder: Path, limit: float, scratch: Path
) -> _Ended:
    """Run a worker until its work is done, it dies, or it takes longer than a kernel may."""
    jobs, results, log = scratch / "jobs.json", scratch / "results", scratch / "log"
    jobs.write_text(json.dumps(queue))
    results.touch()
    command = [sys.executable, "-m", "corpus.worker", str(jobs), str(results), str(folder)]
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(compiler, scratch),
            start_new_session=True,
        )
        size, since, overdue = 0, 0.0, False
        while process.poll() is None:
            time.sleep(0.2)
            now, spent = results.stat().st_size, _processor_time(process.pid)
            if now != size:
                size, since = now, spent
            elif spent - since > limit + (120 if size == 0 else 0):
                overdue = True
                # an assembler that the worker has started ends with it
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = log.read_text(errors="replace")
    with (folder.parents[1] / f"{compiler}.log").open("a") as out:
        out.write(said)
    if overdue:
        why = f"it did not end in {limit:g} s of processor time"
    elif process.returncode:
        last = [line for line in said.splitlines() if line.strip()][-1:]
        why = f"the process ended with {process.returncode}: {''.join(last)[:200]}"
    else:
        why = "no outcome"
    return _Ended(results.read_text().splitlines(), why)


def _processor_time(process: int) -> float:
    """Seconds that a process and its children computed; where the system does not say, seconds
    passed. Of a child that has ended its parent knows.
    """
    if not _PROCESSES.is_dir():
        return time.monotonic()
    try:
        fields = (_PROCESSES / f"{process}/stat").read_text().rpartition(")")[2].split()
        children = (_PROCESSES / f"{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # with those that have ended
    return own + sum(_processor_time(int(child)) for child in children)


def environment(compiler: Compiler, scratch: Path) -> dict[str, str]:
    """The environment of a process where ``triton`` is one of the compilers, with empty caches."""
    path = [str(ECOSYSTEM), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "TRITON_CACHE_DIR": str(scratch / "cache"),
        "TILEWRIGHT_CACHE_DIR": str(scratch / "cache"),
        "TILEWRIGHT_CACHE_SIZE": "0",
        "TORCHDYNAMO_DISABLE": "1",
    }
    environment.pop("TILEWRIGHT_TRITON", None)
    if compiler == "tilewright":
        environment["TILEWRIGHT_TRITON"] = "1"
    return environment


def _read(number: str, target: str, outcome: dict[str, Any], folder: Path) -> Outcome:
    """The figures of a kernel's code, where it was compiled."""
    if "error" in outcome:
        return Outcome(error=outcome["error"])
    seconds = outcome.pop("seconds")
    found = Outcome(seconds=seconds, code=str(folder / f"{number}.{target}"), facts=outcome)
    stage = TARGETS[target].code
    if not stage:
        return found
    text = Path(f"{found.code}.{stage}").read_text()
    reader = nvidia_code if stage == "ptx" else amd_code
    try:
        found.figures = reader.figures_of(text, outcome["shared"])
        found.error = _misfit(found.figures, reader.shared_limit(target))
    except Exception as error:
        found.error = f"{type(error).__name__}: {str(error).splitlines()[0]}"[:300]
    return found


def _misfit(figures: Figures, shared: int) -> str:
    """Why no device of the target takes a kernel; empty if it does.

    Triton finds that at the launch.
    """
    if figures.threads > 1024:
        return f"OutOfResources: {figures.threads} threads of a CTA; 1024 are the most"
    if figures.shared > shared:
        return f"OutOfResources: {figures.shared} bytes of shared memory; {shared} are the most"
    if not figures.ctas:
        return f"OutOfResources: {figures.limit}"
    return ""
