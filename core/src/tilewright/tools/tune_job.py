"""Measurement of a kernel's configurations for a launch that is described in text.

Any process can do it: this one, or a worker of a fleet.
"""

from __future__ import annotations

import atexit
import copy
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.errors import AutotunerError
from tilewright.runtime.compiler.config import Config, config_text, made_invariant
from tilewright.runtime.devices import device_registry
from tilewright.runtime.launch.heuristics import Heuristics
from tilewright.runtime.storage.cache_keys import digest
from tilewright.runtime.storage.files import write_whole
from tilewright.runtime.storage.tuning_record import Record
from tilewright.runtime.tuning.autotune import Autotuner
from tilewright.tools.inspect import find_decorated, place
from tilewright.tools.launch_arguments import evaluated, on_device, parsed
from tilewright.tools.usage import UsageError


@dataclass(frozen=True)
class Job:
    """A kernel and a launch of it, as plain data.

    Attributes:
        file, name, text: the kernel's file, its name there, the file's text.
        arguments, grid: see :mod:`tilewright.tools.launch_arguments`; the grid's sizes may name
            arguments and what configurations set.
        backend: the backend's name; the default one where empty.
        time_limit, budget: seconds, see :func:`tilewright.autotune`; ``budget`` None for no limit.
        keep: whether the result is kept among the records of the machine that measures.
        invariant: whether all configurations that may be chosen compute the same bits.
    """

    file: str
    name: str
    text: str
    arguments: str
    grid: str
    backend: str = ""
    time_limit: float | None = None
    budget: float | None = None
    keep: bool = False
    invariant: bool = False

    @classmethod
    def of(cls, reference: str, arguments: str, grid: str, **others: Any) -> Job:
        """The job of a kernel ``FILE:KERNEL``.

        Raises:
            UsageError: there is no such kernel.
        """
        file, name, _ = find_decorated(reference)
        return cls(str(file), name, file.read_text(encoding="utf-8"), arguments, grid, **others)

    def kernel(self) -> Any:
        """Return the kernel with its decorations.

        Where the file is not at its path, as on another machine, a copy of it is imported.
        """
        path = Path(self.file)
        try:
            here = path.read_text(encoding="utf-8") == self.text
        except (OSError, UnicodeDecodeError):
            here = False
        if not here:
            path = _copied(path.name, self.text)
        return find_decorated(f"{path}:{self.name}")[2]


@functools.cache
def _folder(process: int) -> Path:
    """Make a folder for files that a process received, of an unguessable name.

    It is removed with the process.
    """
    folder = Path(tempfile.mkdtemp(prefix="tilewright-tune-"))
    atexit.register(_remove, folder, process)
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not a copy of it
        shutil.rmtree(folder, ignore_errors=True)


def _copied(name: str, text: str) -> Path:
    """Write a text to a file that stays while the process does.

    Its lines are read again for messages.
    """
    folder = _folder(os.getpid()) / hashlib.sha256(text.encode()).hexdigest()[:16]
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    write_whole(path, text.encode(), mode=0o600)
    return path


@dataclass
class Outcome:
    """Measurements on one device.

    Attributes:
        device, target: name of the device, key of its target.
        timings: text of each configuration -> milliseconds: median, 20 % and 80 % quantile.
        failures: text of each configuration that failed -> why.
        record: to be kept; None where the tuning key has no text that is the same in every process.
        best: text of the best configuration; empty where none works.
        seconds: that it took.
        refused: nothing was measured, since the device is of another kind.
        signature: of the bits that an invariant tuning chose; empty for others.
    """

    device: str
    target: str
    timings: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    record: Record | None = None
    best: str = ""
    seconds: float = 0.0
    refused: bool = False
    signature: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        return self.device, self.target


def autotuner_of(kernel: Any) -> Autotuner | None:
    """The autotuner among a kernel's decorations."""
    while isinstance(kernel, Heuristics):
        kernel = kernel.fn
    return kernel if isinstance(kernel, Autotuner) else None


def space_of(configs: Sequence[Config]) -> str:
    """The digest that a record has of the configurations that were compared."""
    return digest(*sorted(config_text(config) for config in configs))


def measure(
    job: Job, configs: Sequence[Config] | None, only: tuple[str, str] | None = None
) -> Outcome:
    """Measure configurations on this process's device.

    None stands for the kernel's own, else those that the backend proposes.

    Args:
        only: the kind of device to measure on.

    Where no configuration works the outcome has no timings, and says why.

    Raises:
        UsageError: the arguments or the grid make no sense.
        TilewrightError: the kernel breaks a rule of the language, or the launch one of the device.
    """
    from tilewright.runtime.devices import backend_choice

    backend, target = place(job.backend or None, None)
    device = device_registry.find(backend, None)
    found = Outcome(device.name, target.key)
    if only is not None and found.kind != only:
        found.refused = True
        return found
    if job.invariant and configs is not None:
        configs = [made_invariant(config) for config in configs]
    kernel, tuner = _prepared(job.kernel(), configs, job)
    values = on_device(parsed(job.arguments), backend, device)
    unknown = [name for name in values if name not in tuner.arg_names]
    if unknown:
        raise UsageError(
            f"--arguments: {job.name} has no parameter {', '.join(unknown)}; it has "
            f"{', '.join(tuner.arg_names)}"
        )
    positional: list[Any] = []
    for name in tuner.base_kernel.arg_names:  # a derivative takes more, by keyword
        if name not in values:
            break
        positional.append(values[name])
    keywords = {
        name: value
        for name, value in values.items()
        if name not in tuner.arg_names[: len(positional)]
    }
    numbers = {name: value for name, value in values.items() if not hasattr(value, "dtype")}

    def grid(meta: Mapping[str, Any]) -> Any:
        return evaluated(
            f"({job.grid},)",
            {
                **numbers,
                **{name: value for name, value in meta.items() if not hasattr(value, "dtype")},
            },
            "--grid",
        )

    skipped = "skipped before it was measured"
    try:
        with backend_choice.backend(backend.name):
            kernel.run(*positional, grid=grid, **keywords)
    except AutotunerError as error:
        skipped = str(error)
    found.timings = {
        config_text(config): list(times)
        for config, times in tuner.configs_timings.items()
        if times[0] != float("inf")
    }
    found.failures = {
        config_text(config): f"{type(error).__name__}: {error}" for config, error in tuner.failures
    }
    found.best = "" if tuner.best_config is None else config_text(tuner.best_config)
    for text in map(config_text, configs or ()):
        if text not in found.timings:
            found.failures.setdefault(text, skipped)
    if not found.timings and not found.failures:
        found.failures[""] = skipped
    found.record, found.seconds = tuner.record, tuner.bench_time
    found.signature = tuner.signature
    return found


def _prepared(kernel: Any, configs: Sequence[Config] | None, job: Job) -> tuple[Any, Autotuner]:
    """Copy a decorated kernel so that it measures the configurations whatever is recorded.

    The second result is its autotuner, which is new where there was none.
    """
    if isinstance(kernel, Heuristics):
        outer = copy.copy(kernel)
        outer.fn, tuner = _prepared(kernel.fn, configs, job)
        return outer, tuner
    tuner = (
        copy.copy(kernel)
        if isinstance(kernel, Autotuner)
        else Autotuner(kernel, kernel.arg_names, configs, key=())
    )
    if configs is not None:
        tuner.configs, tuner._given_configs = list(configs), True
    tuner.anchors, tuner.signature = {}, ""
    if job.invariant:
        tuner.make_invariant()
    tuner.cache, tuner.configs_timings, tuner.failures, tuner.best_config, tuner.record = (
        {},
        {},
        [],
        None,
        None,
    )
    tuner.mode, tuner.measures_one = "refresh" if job.keep else "memory", True
    tuner.budget = job.budget
    if job.time_limit is not None:
        tuner.time_limit = job.time_limit
    return tuner, tuner
