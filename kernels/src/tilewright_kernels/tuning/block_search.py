"""Search for faster blocks: neighbours of the best ones so far, from the model's choice on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.errors import TilewrightError
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import backend_choice, device_registry
from tilewright.runtime.devices.timing import timer_of
from tilewright.runtime.tuning.successive_elimination import race
from tilewright_kernels.operations.block_records import BlockRecord, Records, add
from tilewright_kernels.operations.block_rules import RULES, trying
from tilewright_kernels.tuning.tuning_cases import Arrays, TuningCase, is_legal

#: Field of blocks -> its smallest and its largest value. Those of a power of two are doubled and
#: halved; of the others the next numbers are tried.
_LIMITS = {
    "m": (16, 256),
    "n": (16, 256),
    "k": (16, 256),
    "num_warps": (1, 16),
    "rows": (1, 64),
    "kept": (1, 1024),
    "reduced": (1, 4096),
}
_COUNTS = {"num_stages": (1, 8), "split": (1, 16)}
#: Fields that a CPU ignores.
_OF_GPUS = ("num_warps", "num_stages")
#: Part of the model's time that blocks with a record take at most.
_WORTH = 0.97
#: Largest difference of a result from that of the model's blocks, by its largest magnitude.
_TOLERANCE = 0.02


def search(
    make_cases: Callable[[Arrays], Iterable[TuningCase]],
    *,
    backend: str | None,
    folder: Path,
    budget: float | None,
) -> Path | None:
    """Tune cases on a device, print a line for each, and return the file of records, if any."""
    if backend is None:
        chosen, device = backend_choice.default_backend()
    else:
        chosen = registry().get(backend)
        device = device_registry.find(chosen, None)
    timer, is_on_gpu = timer_of(chosen, device), device.kind != "cpu"
    end = None if budget is None else time.perf_counter() + budget
    found: Records = {}
    family = ""
    with contextlib.ExitStack() as stack:
        if backend is not None:
            stack.enter_context(tw.backend(backend))
        for case in make_cases(Arrays(is_on_gpu)):
            if end is not None and time.perf_counter() > end:
                print("the budget is spent")
                break
            tuned = _tune(case, timer, is_on_gpu, end)
            if tuned is None:
                continue
            arguments, record = tuned
            family = arguments["device"].target
            found.setdefault(case.rule, {})[RULES[case.rule].key(arguments)] = record
    if not found:
        return None
    return add(folder, family, found)


def _tune(
    case: TuningCase, timer: Any, is_on_gpu: bool, end: float | None
) -> tuple[Mapping[str, Any], BlockRecord] | None:
    """Search the blocks of a case; return its arguments and the record of faster ones, if any."""
    call = case.prepare()
    with trying(case.rule) as trial:
        expected = _numbers(call())
        model = race(timer, call, None, runs_ahead=is_on_gpu)
    if not trial.calls:
        print(f"{case.rule:26} {case.name:30} is computed by a kernel without these blocks")
        return None
    arguments, chosen = trial.calls[0]
    if len({RULES[case.rule].key(each) for each, _ in trial.calls}) > 1:
        raise AssertionError(f"{case.rule}, {case.name}: the call asks for several blocks")
    best, times, tried = chosen, model, {chosen}
    is_better = True
    while is_better:
        is_better = False
        for blocks in _neighbours(best, is_on_gpu):
            if blocks in tried or not is_legal(case.rule, blocks, arguments):
                continue
            if end is not None and time.perf_counter() > end:
                break
            tried.add(blocks)
            taken = _measured(case, call, blocks, times, expected, timer, is_on_gpu)
            if taken is not None and taken[0] < _WORTH * times[0]:
                best, times, is_better = blocks, taken, True
    if best != chosen:
        model, times = _compared(case, call, chosen, best, timer, is_on_gpu)
        if times[0] >= _WORTH * model[0]:
            best, times = chosen, model
    print(
        f"{case.rule:26} {case.name:30} model {model[0]:9.4f} ms, best {times[0]:9.4f} ms of "
        f"{len(tried)}: {_difference(best, chosen) or 'the same blocks'}",
        flush=True,
    )
    if best == chosen:
        return None
    return arguments, BlockRecord(_difference(best, chosen), round(times[0], 6), round(model[0], 6))


def _compared(
    case: TuningCase, call: Callable[[], Any], one: Any, other: Any, timer: Any, is_on_gpu: bool
) -> tuple[list[float], list[float]]:
    """Return the shortest times with each of two blocks, measured alternately."""
    found: dict[Any, list[list[float]]] = {one: [], other: []}
    for _ in range(3):
        for blocks, times in found.items():
            with trying(case.rule, blocks):
                times.append(race(timer, call, None, runs_ahead=is_on_gpu))
    return min(found[one]), min(found[other])


def _measured(
    case: TuningCase,
    call: Callable[[], Any],
    blocks: Any,
    best: list[float],
    expected: list[Any],
    timer: Any,
    is_on_gpu: bool,
) -> list[float] | None:
    """Return the times with some blocks; None if they do not work, or compute something else."""
    with trying(case.rule, blocks):
        try:
            found = _numbers(call())
        except TilewrightError as error:
            lines = str(error).splitlines()
            print(f"  {_text(blocks)}: {lines[0] if lines else type(error).__name__}")
            return None
        for one, other in zip(found, expected, strict=True):
            if not np.abs(one - other).max() <= _TOLERANCE * np.abs(other).max():
                print(f"  {_text(blocks)}: other results")
                return None
        return race(timer, call, best, runs_ahead=is_on_gpu)


def _numbers(results: Any) -> list[Any]:
    """Return results as arrays of NumPy in float32."""
    found = []
    for each in results if isinstance(results, tuple) else (results,):
        if not isinstance(each, np.ndarray):
            each = each.detach().float().cpu().numpy()
        found.append(each.astype(np.float32))
    return found


def _neighbours(blocks: Any, is_on_gpu: bool) -> Iterator[Any]:
    """Yield blocks that differ in one field."""
    for each in fields(blocks):
        value = getattr(blocks, each.name)
        if each.name in _OF_GPUS and not is_on_gpu:
            continue
        if each.name in _LIMITS:
            others, (lowest, most) = (2 * value, value // 2), _LIMITS[each.name]
        elif each.name in _COUNTS:
            others, (lowest, most) = (value + 1, value - 1), _COUNTS[each.name]
        else:
            continue
        for other in others:
            if lowest <= other <= most:
                yield replace(blocks, **{each.name: other})


def _difference(blocks: Any, other: Any) -> dict[str, Any]:
    """Return the fields in which blocks differ from others."""
    pairs = ((each.name, getattr(blocks, each.name)) for each in fields(blocks))
    return {name: value for name, value in pairs if value != getattr(other, name)}


def _text(blocks: Any) -> str:
    return ", ".join(f"{each.name}={getattr(blocks, each.name)}" for each in fields(blocks))
