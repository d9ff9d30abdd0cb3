"""Timing of calls on a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.errors import BenchmarkError
from tilewright.plugins.manifest import Device, Timer
from tilewright.plugins.registry import Backend

RETURN_MODES = ("mean", "median", "min", "max", "all")
#: Maximum ratio of measuring time, flushes included, to measured time, once there are enough
#: repetitions.
OVERHEAD, _ENOUGH = 5, 20


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    *,
    backend: str | None = None,
    time_limit: float | None = None,
    n_warmup: int | None = None,
    n_repeat: int | None = None,
) -> Any:
    """Measure the time of ``fn()`` in milliseconds, with caches flushed before each repetition.

    The function uses the timer of the backend on which ``fn`` launches kernels, or of the default
    backend if ``fn`` launches none. If the backend has no timer, the function measures wall time,
    from the call of ``fn`` until the device has finished.

    Args:
        warmup, rep: the durations of the warm-up and of the measurement, in milliseconds. At least
            one repetition is measured.
        grad_to_none: tensors whose ``grad`` is deleted before each repetition.
        quantiles: a list of the quantiles (from 0 to 1) of the times to return; for a list of one,
            the function returns a number. None returns what ``return_mode`` states.
        return_mode: what to return: ``"mean"``, ``"median"``, ``"min"``, ``"max"``, or ``"all"``
            for the list of all times.
        backend: the name of the backend whose timer to use.
        time_limit: the number of seconds after which no further repetition starts.
        n_warmup, n_repeat: the numbers of repetitions for the warm-up and for the measurement,
            instead of the durations ``warmup`` and ``rep``.

    Raises:
        BenchmarkError: ``return_mode`` is unknown, or a quantile is not a number from 0 to 1.
            Nothing was run.
    """
    if return_mode not in RETURN_MODES:
        raise BenchmarkError(
            f"return_mode must be one of {', '.join(RETURN_MODES)}, not {return_mode!r}"
        )
    for q in quantiles or ():
        _check_quantile(q)
    started = time.perf_counter()
    timer = _find_timer(fn, backend)
    grads = list(grad_to_none or ())

    def left() -> bool:
        return time_limit is None or time.perf_counter() - started < time_limit

    def measure() -> float:
        for tensor in grads:
            tensor.grad = None
        timer.flush_cache()
        (taken,) = timer.measure(fn, 1)
        return taken

    def measure_for(milliseconds: float) -> list[float]:
        """Measure until the times add up, or the flushes have taken ``OVERHEAD`` times as long."""
        begun = time.perf_counter()
        times = [measure()]
        total = times[0]
        while total < milliseconds and left():
            if (
                len(times) >= _ENOUGH
                and (time.perf_counter() - begun) * 1e3 > OVERHEAD * milliseconds
            ):
                break
            times.append(measure())
            total += times[-1]
        return times

    def measure_times(count: int) -> list[float]:
        times: list[float] = []
        while len(times) < count and (left() or not times):
            times.append(measure())
        return times

    warm = measure_for(warmup) if n_warmup is None else measure_times(n_warmup)
    if n_repeat is not None:
        times = measure_times(max(n_repeat, 1))
    else:
        times = warm if n_warmup is None and sum(warm) >= rep else measure_for(rep)
    return summarize(times, quantiles, return_mode)


def summarize(
    times: Sequence[float], quantiles: Sequence[float] | None = None, return_mode: str = "mean"
) -> Any:
    """Summarize measured times; see :func:`do_bench`."""
    ordered = sorted(times)
    if quantiles is not None:
        found = [_quantile(ordered, q) for q in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return list(times)
    if return_mode == "mean":
        return sum(ordered) / len(ordered)
    return {"median": _quantile(ordered, 0.5), "min": ordered[0], "max": ordered[-1]}[return_mode]


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Return a quantile of sorted values, with linear interpolation."""
    _check_quantile(q)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _check_quantile(q: float) -> None:
    if not 0 <= q <= 1:
        raise BenchmarkError(f"a quantile lies between 0 and 1, not at {q}")


class WallTimer:
    """Wall time around a call and the synchronisation of the device after it."""

    def __init__(self, synchronize: Callable[[], None] = lambda: None) -> None:
        self._synchronize = synchronize

    def measure(self, call: Callable[[], None], repetitions: int) -> list[float]:
        times = []
        for _ in range(repetitions):
            self._synchronize()
            started = time.perf_counter()
            call()
            self._synchronize()
            times.append((time.perf_counter() - started) * 1e3)
        return times

    def flush_cache(self) -> None:
        """Do nothing: the caches are unknown."""


def timer_of(backend: Backend, device: Device) -> Timer:
    """Return the backend's timer of a device, or a :class:`WallTimer`."""
    timer: Timer | None = backend.call("tilewright_timer", device=device)
    if timer is not None:
        return timer
    memory = backend.call("tilewright_memory", device=device)
    return WallTimer(memory.synchronize) if memory is not None else WallTimer()


def _find_timer(fn: Callable[[], Any], name: str | None) -> Timer:
    """Run ``fn`` once and return the timer of the device on which it launched kernels."""
    from tilewright.errors import BackendError
    from tilewright.plugins.registry import registry
    from tilewright.runtime.devices import device_registry
    from tilewright.runtime.devices.backend_choice import default_backend
    from tilewright.runtime.hooks import hooks

    launched: list[Any] = []

    def watch(metadata: Any) -> None:
        launched.append(metadata.data["kernel"])

    hooks.launch_enter.add(watch)
    try:
        fn()
    finally:
        hooks.launch_enter.remove(watch)
    if name is not None:
        backend = registry().get(name)
        return timer_of(backend, device_registry.find(backend, None))
    if launched:
        kernel = launched[-1]
        return timer_of(kernel.backend, kernel.device)
    try:
        return timer_of(*default_backend())
    except BackendError:  # no installed backend runs kernels; ``fn`` launches none of ours
        return WallTimer()
