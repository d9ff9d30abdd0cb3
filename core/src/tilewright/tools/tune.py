"""``tilewright tune``: measure a kernel's configurations, on this machine or on a fleet."""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright.errors import AutotunerError, BackendError, ConfigError
from tilewright.plugins.registry import registry
from tilewright.runtime import executors, shipped_records, tuning_records
from tilewright.runtime.tuning.autotune import Config
from tilewright.runtime.tuning.progress import Progress
from tilewright.tools.inspect import find_decorated, parse_assignments
from tilewright.tools.tune_fleet import measure_on
from tilewright.tools.tune_job import Job, Outcome, autotuner_of, measure
from tilewright.tools.usage import UsageError

#: Options that a configuration has of its own, besides meta-parameters.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def tune_command(options: argparse.Namespace) -> int:
    """Tune what the command line names and print the table; see ``tilewright tune --help``."""
    package, _, rules = options.kernel.partition(":")
    if not package.endswith(".py") and all(each.isidentifier() for each in package.split(".")):
        return _tune_package(package, rules, options)
    if options.arguments is None or options.grid is None:
        raise UsageError("a kernel is tuned for a launch: give --arguments and --grid")
    pyplot = _pyplot() if options.plot else None
    file, name, kernel = find_decorated(options.kernel)
    tuner = autotuner_of(kernel)
    configs = given_configs(options.config, options.space)
    budget = None if options.budget is None else _seconds(options.budget, "--budget")
    limit = None if options.time_limit is None else _seconds(options.time_limit, "--time-limit")
    keep = tuner is not None and configs is None
    job = Job.of(
        f"{file}:{name}",
        options.arguments,
        options.grid,
        backend=options.backend or "",
        time_limit=limit,
        budget=budget,
        keep=keep,
        invariant=options.invariant,
    )
    if options.executor and options.invariant:
        raise UsageError("--invariant compares bits on one device: leave --executor out")
    if options.executor:
        outcomes = _on_fleet(
            job, configs or (tuner.configs if tuner is not None else None), options.executor
        )
    else:
        outcomes = [measure(job, configs)]
    if not any(outcome.timings for outcome in outcomes):
        reasons = "; ".join(
            f"[{text}] {why}" for outcome in outcomes for text, why in outcome.failures.items()
        )
        raise AutotunerError(f"no configuration of {name} works: {reasons}")
    records = [
        outcome.record for outcome in outcomes if outcome.record is not None and outcome.best
    ]
    written = shipped_records.write_by_device(options.records, records) if options.records else []
    if options.json:
        from tilewright.tools.printing import print_json

        print_json([{**asdict(outcome), "kernel": name} for outcome in outcomes])
    else:
        for outcome in outcomes:
            print(outcome_text(name, outcome))
        for path in written:
            print(f"written to {path}")
        if options.records and not written:
            print(
                "no record was written: the text of the tuning key differs from process to process"
            )
        if tuner is None:
            print("the result is not recorded: the kernel has no @autotune, which would read it")
    if pyplot is not None:
        _draw(pyplot, name, outcomes, options.plot)
    return 0


def _tune_package(package: str, rules: str, options: argparse.Namespace) -> int:
    """Call ``PACKAGE.tuning.tune_package``, which measures the package's block sizes.

    Raises:
        UsageError: there is no such function, it refuses what it is given, or an option is for
            kernels alone.
    """
    of_kernels = ("arguments", "grid", "config", "space", "executor", "plot", "time_limit")
    for name in (*of_kernels, "invariant", "json"):
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} is for a kernel, FILE:KERNEL")
    try:
        # computed: the user names the package
        tune = importlib.import_module(f"{package}.tuning").tune_package
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{package!r} is no FILE:KERNEL, and no package that has tune_package in a module "
            f"'tuning': {error}"
        ) from error
    try:
        status: int = tune(
            [name for name in rules.split(",") if name],
            backend=options.backend,
            folder=options.records,
            budget=None if options.budget is None else _seconds(options.budget, "--budget"),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return status


def _on_fleet(job: Job, configs: Sequence[Config] | None, executor: str) -> list[Outcome]:
    if configs is None:
        raise UsageError(
            f"{job.name} has no configurations to share among workers: give some with --config "
            "or --space"
        )
    progress = Progress(job.name, len(configs))
    best = [""]

    def step(outcome: Outcome) -> None:
        times = {text: time[0] for text, time in outcome.timings.items()}
        if times:
            fastest = min(times, key=lambda text: times[text])
            best[0] = f"{times[fastest]:.4g} ms [{shipped_records.readable(fastest)}]"
        for _ in itertools.chain(outcome.timings, outcome.failures):
            progress.step(best[0])

    try:
        with executors.opened(executor) as opened:
            return measure_on(opened, job, configs, on_step=step)
    except executors.ExecutorError as error:
        raise UsageError(f"--executor: {error}") from error
    finally:
        progress.end()


def given_configs(texts: Sequence[str], space: Sequence[str]) -> list[Config] | None:
    """Return the configurations that the command line spells, or None.

    They are each ``--config``, and every choice of a value of each ``--space NAME=VALUE|VALUE``.
    """
    found = [_config(parse_assignments([text])) for text in texts]
    axes: dict[str, list[Any]] = {}
    for text in space:
        name, equals, values = text.partition("=")
        choices = [value.strip() for value in values.split("|")]
        if not equals or not all(choices):
            raise UsageError(f"--space: expected NAME=VALUE|VALUE, not {text!r}")
        axes[name.strip()] = [
            parse_assignments([f"{name}={value}"])[name.strip()] for value in choices
        ]
    if axes:
        found += [
            _config(dict(zip(axes, chosen, strict=True)))
            for chosen in itertools.product(*axes.values())
        ]
    return list(dict.fromkeys(found)) or None


def _config(values: dict[str, Any]) -> Config:
    own = {name: values.pop(name) for name in _OPTIONS if name in values}
    try:
        return Config(values, **own)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _seconds(text: str, option: str) -> float:
    try:
        return tuning_records.check_budget(text, option)
    except ValueError as error:
        raise UsageError(str(error)) from None


# ---- showing


def ranked(outcome: Outcome) -> list[tuple[str, list[float]]]:
    """The configurations that work, the fastest first."""
    return sorted(outcome.timings.items(), key=lambda entry: entry[1][0])


def outcome_text(name: str, outcome: Outcome) -> str:
    """Format a device's measurements as a table, with times in milliseconds.

    It omits options that the backend ignores, and says so.
    """
    backend = outcome.target.partition("|")[0]
    ignored = _ignored_options(backend)

    def shown(text: str) -> str:
        kept = _without(text, {*ignored, "invariant"})
        return shipped_records.readable(kept) or "no meta-parameters"

    lines = [
        (
            f"{name} on {outcome.device} ({outcome.target.partition('|')[0]}), "
            f"{len(outcome.timings)} configurations in {outcome.seconds:.1f} s"
        ),
        "",
    ]
    rows = ranked(outcome)
    if rows:
        lines.append(
            f"{'median, ms':>10} {'20 %, ms':>10} {'80 %, ms':>10} {'slower':>8}  configuration"
        )
        for text, (median, low, high) in rows:
            slower = median / rows[0][1][0] if rows[0][1][0] else math.nan
            lines.append(
                f"{median:>10.4g} {low:>10.4g} {high:>10.4g} {slower:>7.2f}x  {shown(text)}"
            )
        lines += ["", f"best: {shown(outcome.best)}"]
    if outcome.signature:
        lines.append(f"bits of all but the failed ones, for every batch size: {outcome.signature}")
    lines += [
        f"failed: {shown(text)}: {why.splitlines()[0] if why else ''}"
        for text, why in outcome.failures.items()
    ]
    hidden = [
        name
        for name in sorted(ignored)
        if any(_without(text, {name}) != text for text in (*outcome.timings, *outcome.failures))
    ]
    if hidden:
        lines.append(f"omitted, because backend {backend} ignores them: {', '.join(hidden)}")
    return "\n".join(lines)


def _ignored_options(backend: str) -> frozenset[str]:
    """The options that a backend ignores; none where it is only on the machine that measured."""
    try:
        return registry().get(backend).manifest.ignored
    except BackendError:
        return frozenset()


def _without(text: str, names: Collection[str]) -> str:
    """The text of a configuration without some of its options."""
    kept = re.sub(rf"(^|,)(?:{'|'.join(map(re.escape, names))})=[^,]*", "", text) if names else text
    return kept.removeprefix(",")


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise UsageError(
            f"--plot is drawn by matplotlib, which cannot be imported here ({error}); the table "
            "needs nothing"
        ) from error


def _draw(pyplot: Any, name: str, outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw a bar for each configuration on each kind of device, the fastest on top.

    Its ends are the quantiles.
    """
    figure, axes = pyplot.subplots(
        len(outcomes),
        1,
        squeeze=False,
        figsize=(8, sum(1.5 + 0.3 * len(outcome.timings) for outcome in outcomes)),
    )
    for (axis,), outcome in zip(axes, outcomes, strict=True):
        rows = ranked(outcome)[::-1]
        medians = [times[0] for _, times in rows]
        spread = [
            [median - times[1] for median, (_, times) in zip(medians, rows, strict=True)],
            [times[2] - times[0] for _, times in rows],
        ]
        axis.barh([shipped_records.readable(text) for text, _ in rows], medians, xerr=spread)
        axis.set_xlabel("ms")
        axis.set_title(f"{name} on {outcome.device}")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


# ---- files of records


def records_command(options: argparse.Namespace) -> int:
    """``tilewright records``: list, merge, or export files of tuning records."""
    try:
        if options.action == "export":
            records = [
                record
                for record in tuning_records.own_records()
                if not options.kernel or record.kernel in options.kernel
            ]
        else:
            if not options.files:
                raise UsageError(f"name the record files: tilewright records {options.action} FILE")
            records = [
                record
                for path in options.files
                for record in shipped_records.read(path)
                if not options.kernel or record.kernel in options.kernel
            ]
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(str(error)) from error
    if options.action == "list":
        rows = shipped_records.table(records)
        if options.json:
            from tilewright.tools.printing import print_json

            print_json(rows)
        else:
            width = shutil.get_terminal_size().columns
            for row in rows:
                print(
                    (
                        f"{row['kernel']} on {row['device']}, key {row['key']}: {row['best']}, "
                        f"{row['ms']:.4g} ms"
                    )[: None if not sys.stdout.isatty() else width]
                )
        return 0
    if options.output is None:
        raise UsageError(
            f"records {options.action} needs --output: a file, or a folder for one file a kind "
            "of device"
        )
    merged = shipped_records.merge(records)
    if options.output.suffix == ".json":
        shipped_records.write(options.output, merged)
        paths = [options.output]
    else:
        paths = shipped_records.write_by_device(options.output, merged)
    print(f"{len(merged)} records in {', '.join(map(str, paths)) or 'no file'}")
    return 0
