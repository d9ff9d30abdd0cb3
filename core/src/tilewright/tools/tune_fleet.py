"""Measurement of a kernel's configurations on an executor's workers: a record per kind of device.

An executor says neither what devices its workers have nor which worker takes a job. So each part of
the configurations is measured wherever it goes; once a kind of device has been seen, what it has
not measured is sent again, for this kind alone: a worker of another kind returns it at once, and
it is sent again. Where a kind is not met any more, what was measured on it stays incomplete.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.errors import AutotunerError
from tilewright.runtime.compiler.config import Config, config_text
from tilewright.tools.tune_job import Job, Outcome, measure, space_of

#: How often a part may come back from workers of other kinds in a row, for each part that there is.
_RETURNS = 4

_Kind = tuple[str, str]


@dataclass
class _Seen:
    """A kind of device: its measurements so far, and how often jobs for it came back in a row."""

    outcome: Outcome
    returned: int = 0
    away: set[int] = field(default_factory=set)


def measure_on(
    executor: concurrent.futures.Executor,
    job: Job,
    configs: Sequence[Config],
    *,
    part: int = 4,
    on_step: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Measure every configuration on every kind of device that the workers have.

    The result has an outcome for each kind, in the order they were met.

    Args:
        executor: where; jobs and results can be pickled. A worker is to have its device for itself.
        job: its ``budget`` is for all of this; what was not measured by then is missing.
        part: configurations in one job.
        on_step: called with what each job measured.

    Raises:
        AutotunerError: no configuration works on any device.
    """
    started = time.perf_counter()
    deadline = None if job.budget is None else started + job.budget
    plain = replace(job, budget=None)
    parts = [list(configs[at : at + part]) for at in range(0, len(configs), part)]
    texts = [[config_text(config) for config in one] for one in parts]
    seen: dict[_Kind, _Seen] = {}
    waiting: dict[concurrent.futures.Future[Outcome], tuple[int, _Kind | None]] = {}

    def send(number: int, only: _Kind | None) -> None:
        waiting[executor.submit(measure, plain, parts[number], only)] = number, only

    def missing(kind: _Kind) -> list[int]:
        known = seen[kind].outcome.timings.keys() | seen[kind].outcome.failures.keys()
        return [number for number, names in enumerate(texts) if not known >= set(names)]

    for number in range(len(parts)):
        send(number, None)
    try:
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            done, _ = concurrent.futures.wait(waiting, left, concurrent.futures.FIRST_COMPLETED)
            if not done:
                break
            for future in done:
                number, only = waiting.pop(future)
                found = future.result()
                if only is not None:
                    seen[only].away.discard(number)
                if found.refused:
                    assert only is not None
                    seen[only].returned += 1
                else:
                    at = seen.setdefault(found.kind, _Seen(Outcome(*found.kind)))
                    at.returned = 0
                    _add(at.outcome, found)
                    on_step(found)
            # the first round goes on: what is missing may yet come
            if any(only is None for _, only in waiting.values()):
                continue
            # one after the other: jobs for two kinds could go to the wrong ones for ever
            for kind, at in seen.items():
                wanted = missing(kind) if at.returned < _RETURNS * len(parts) else []
                for number in wanted:
                    if number not in at.away:
                        at.away.add(number)
                        send(number, kind)
                if wanted:
                    break
    finally:
        for future in waiting:
            future.cancel()
    outcomes = [at.outcome for at in seen.values()]
    for kind, at in seen.items():
        at.outcome.seconds = time.perf_counter() - started
        _conclude(at.outcome, configs, complete=not missing(kind))
    if not any(outcome.timings for outcome in outcomes):
        reasons = "; ".join(
            f"[{text}] {why.splitlines()[0]}"
            for outcome in outcomes
            for text, why in outcome.failures.items()
        )
        raise AutotunerError(
            f"no configuration of {job.name} was measured on any worker: "
            f"{reasons or 'the time was over'}"
        )
    return outcomes


def _add(outcome: Outcome, more: Outcome) -> None:
    for text, times in more.timings.items():
        if text not in outcome.timings or times[0] < outcome.timings[text][0]:
            outcome.timings[text] = times
    outcome.failures.update(more.failures)
    outcome.record = more.record or outcome.record


def _conclude(outcome: Outcome, configs: Sequence[Config], *, complete: bool) -> None:
    outcome.best = min(outcome.timings, key=lambda text: outcome.timings[text][0], default="")
    if outcome.record is not None and outcome.best:
        outcome.record = replace(
            outcome.record,
            space=space_of(configs),
            best=outcome.best,
            timings=outcome.timings,
            complete=complete,
        )
