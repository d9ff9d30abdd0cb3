"""Sessions: what is recorded between ``start`` and ``finalize``.

A launch hook notes a moment before and after each launch: of the device's stream where its timer
has moments, else of the wall clock, since launches of such devices have ended when they return. The
times between are read when a session is finalized, so that profiling waits for nothing while the
program runs.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.targets import target_of
from tilewright.compat.triton.outside import OutsideNameError
from tilewright.compat.triton.profiler import mode as modes
from tilewright.compat.triton.profiler.scope import path as scopes
from tilewright.compat.triton.profiler.tree import Node, Span
from tilewright.errors import TilewrightError
from tilewright.plugins.manifest import Device, MomentTimer
from tilewright.plugins.registry import Backend
from tilewright.runtime.hooks import hooks

DEFAULT_PROFILE_NAME = "proton"
#: What a launch may say of itself, by ``jit(launch_metadata=)``.
METRICS = ("flops", "flops8", "flops16", "flops32", "flops64", "bytes")
_ENDINGS = {"hatchet": "hatchet", "chrome_trace": "chrome_trace"}
_OURS = (
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    + os.sep
)


@dataclass
class Launch:
    """A launch whose time is not read yet.

    ``start`` and ``end`` are moments of the timer, or nanoseconds where there is none.
    """

    kernel: Any
    timer: MomentTimer | None
    start: Any
    end: Any = None
    #: sessions it is recorded in -> the path it has there
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)


@dataclass
class Session:
    """The records under one name.

    Attributes:
        context: ``"shadow"`` for scopes alone, ``"python"`` for the frames of Python before them.
        data: ``"tree"``, or ``"trace"`` for a time line.
        metrics: launches are asked what they do (``hook="triton"``).
        devices: (kind, index) -> facts.
    """

    number: int
    name: str
    context: str
    data: str
    metrics: bool
    active: bool = True
    root: Node = field(default_factory=lambda: Node("ROOT"))
    spans: list[Span] = field(default_factory=list)
    devices: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    #: (kind, index) -> the first launch there, whose start the others are counted from
    begins: dict[tuple[str, int], Launch] = field(default_factory=dict)

    def record(self, launch: Launch, nanoseconds: float, since: float) -> None:
        """Add a launch. ``since`` is in nanoseconds from the first launch on its device."""
        path, kernel = launch.paths[self.number], launch.kernel
        kind, index = kernel.target.kind, 0 if kernel.device is None else kernel.device.index
        node = self.root.at(path)
        node.add({"count": 1, "time (ns)": nanoseconds, **launch.metrics.get(self.number, {})})
        node.facts.update(device_id=str(index), device_type=kind.upper())
        self.devices.setdefault((kind, index), facts_of(kernel))
        if self.data == "trace":
            self.spans.append(
                Span(path[-1], path[:-1], kind.upper(), index, since / 1e3, nanoseconds / 1e3)
            )

    def literal(self) -> Any:
        """The session as its file has it."""
        if self.data == "trace":
            return {"displayTimeUnit": "us", "traceEvents": [span.literal() for span in self.spans]}
        devices: dict[str, dict[str, Any]] = {}
        for (kind, index), facts in self.devices.items():
            devices.setdefault(kind.upper(), {})[str(index)] = facts
        root = self.root.literal()
        root["metrics"] = {"count": 0, "time (ns)": 0, **root["metrics"]}
        return [root, devices]


class _Sessions:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.known: dict[int, Session] = {}
        self.count = 0
        self.active: tuple[Session, ...] = ()
        self.launches: list[Launch] = []
        self.running = threading.local()

    def refresh(self) -> None:
        """After sessions were activated or deactivated: whether launches are watched."""
        self.active = tuple(session for session in self.known.values() if session.active)
        if self.active:
            hooks.launch_enter.add(_enter)
            hooks.launch_exit.add(_exit)
        else:
            hooks.launch_enter.remove(_enter)
            hooks.launch_exit.remove(_exit)

    def read(self) -> None:
        """Wait for what was launched, and add it to its sessions."""
        pending, self.launches = self.launches, []
        for launch in pending:
            for number in launch.paths:
                session = self.known.get(number)
                if session is not None:
                    session.record(launch, *_time_of(session, launch))
        for launch in pending:
            if launch.timer is not None:
                launch.timer.forget(launch.end)
        self.forget(pending)

    def forget(self, launches: Iterable[Launch]) -> None:
        """Let go of the starts of launches, but for those that others are counted from."""
        kept = {id(launch) for session in self.known.values() for launch in session.begins.values()}
        for launch in {id(launch): launch for launch in launches}.values():
            if launch.timer is not None and id(launch) not in kept:
                launch.timer.forget(launch.start)


_sessions = _Sessions()


def _time_of(session: Session, launch: Launch) -> tuple[float, float]:
    """Return a launch's duration, and its start after the first one on its device, in ns.

    0 where its stream was being captured: it has not run.
    """
    place = (
        launch.kernel.target.kind,
        0 if launch.kernel.device is None else launch.kernel.device.index,
    )
    begin = session.begins.setdefault(place, launch).start
    if launch.timer is None:
        return launch.end - launch.start, launch.start - begin
    try:
        since = (
            launch.timer.milliseconds_between(begin, launch.start) * 1e6
            if session.data == "trace"
            else 0.0
        )
        return launch.timer.milliseconds_between(launch.start, launch.end) * 1e6, since
    except TilewrightError:
        return 0.0, 0.0


def _timer_of(backend: Backend, device: Device) -> MomentTimer | None:
    """Return a device's timer of moments.

    None where launches have ended when they return, and the wall clock serves.
    """
    place = backend.name, device.index
    if place not in _timers:
        found = backend.call("tilewright_timer", device=device)
        _timers[place] = found if isinstance(found, MomentTimer) else None
    return _timers[place]


_timers: dict[tuple[str, int], MomentTimer | None] = {}


def _enter(metadata: Any) -> None:
    kernel = metadata.data["kernel"]
    timer = _timer_of(kernel.backend, kernel.device)
    launch = Launch(kernel, timer, None)
    for session in _sessions.active:
        facts = metadata.get() if session.metrics else metadata.data
        frames = _frames() if session.context == "python" else ()
        launch.paths[session.number] = (*frames, *scopes(), str(facts.get("name", kernel.name)))
        if session.metrics:
            launch.metrics[session.number] = {
                name: float(facts[name]) for name in METRICS if name in facts
            }
    running = _sessions.running.__dict__.setdefault("launches", [])
    running.append(launch)
    launch.start = time.perf_counter_ns() if timer is None else timer.mark()


def _exit(metadata: Any) -> None:
    running = _sessions.running.__dict__.get("launches")
    if not running:  # the session began while the kernel was being launched
        return
    launch = running.pop()
    launch.end = time.perf_counter_ns() if launch.timer is None else launch.timer.mark()
    with _sessions.lock:
        _sessions.launches.append(launch)


def _frames() -> tuple[str, ...]:
    """The frames of the program, outermost first."""
    found: list[str] = []
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OURS, "<")):
            found.append(f"{file}:{frame.f_lineno}@{frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(found))


def facts_of(kernel: Any) -> dict[str, Any]:
    """Return the facts of a kernel's device for a profile.

    Clock rates are in kHz, the bus width in bits; 0 where they are unknown.
    """
    from tilewright.compat.triton.backends import backends

    properties: Mapping[str, Any] = {}
    if kernel.device is not None and kernel.backend.name in backends:
        driver: Any = backends[kernel.backend.name].driver()
        properties = driver.utils.get_device_properties(kernel.device.index)
    return {
        "arch": str(target_of(kernel.target).arch),
        "num_sms": int(properties.get("multiprocessor_count", 0)),
        "clock_rate": int(properties.get("sm_clock_rate", 0)),
        "memory_clock_rate": int(properties.get("mem_clock_rate", 0)),
        "bus_width": int(properties.get("mem_bus_width", 0)),
    }


def add_metrics(path: tuple[str, ...], metrics: Mapping[str, Any] | None) -> None:
    """Add numbers to a scope in every active session."""
    if metrics and _sessions.active:
        plain = {
            name: float(value.item() if hasattr(value, "item") else value)
            for name, value in metrics.items()
        }
        with _sessions.lock:
            for session in _sessions.active:
                session.root.at(path).add(plain)


# ---- what programs call


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: modes.BaseMode | str | None = None,
    hook: str | None = None,
) -> int | None:
    """Begin a session, or continue the one of that name, and return its number.

    The result is None where ``knobs.proton.disable`` is set.

    Args:
        name: of the file that ``finalize`` writes, without its ending.
        context: ``"shadow"`` records scopes, ``"python"`` also the frames that launches are in.
        data: ``"tree"``, or ``"trace"`` for a time line.
        backend: ``"cupti"`` and ``"roctracer"`` stand for their devices, whose launches are timed
            by events here.
        hook: ``"triton"`` asks launches what they do, see ``jit(launch_metadata=)``.

    Raises:
        OutsideNameError: a way to record that there is no counterpart of.
        ValueError: another context, data or hook.
    """
    if knobs.proton.disable:
        return None
    modes.checked(mode)
    if backend not in (None, "cupti", "roctracer"):
        raise OutsideNameError(
            f"profiling by {backend!r} is outside what tilewright.compat.triton provides: it "
            "instruments Triton's code. Launches are timed by events with backend=None"
        )
    for what, value, allowed in (
        ("context", context, ("shadow", "python")),
        ("data", data, ("tree", "trace")),
        ("hook", hook, (None, "triton")),
    ):
        if value not in allowed:
            raise ValueError(
                f"{what} must be one of {', '.join(map(repr, allowed))}, not {value!r}"
            )
    assert context is not None
    assert data is not None
    name = DEFAULT_PROFILE_NAME if name is None else name
    with _sessions.lock:
        found = next(
            (session for session in _sessions.known.values() if session.name == name), None
        )
        if found is None:
            found = Session(_sessions.count, name, context, data, hook == "triton")
            _sessions.known[found.number] = found
            _sessions.count += 1
        found.active = True
        _sessions.refresh()
        return found.number


def activate(session: int | None = None) -> None:
    """Go on recording, in all sessions for None.

    Raises:
        ValueError: there is no such session.
    """
    _set_active(session, True)


def deactivate(session: int | None = None, flushing: bool = False) -> None:
    """Stop recording, in all sessions for None; with ``flushing`` wait for what was launched.

    Raises:
        ValueError: there is no such session.
    """
    _set_active(session, False)
    if flushing:
        with _sessions.lock:
            _sessions.read()


def _set_active(number: int | None, active: bool) -> None:
    if knobs.proton.disable:
        return
    with _sessions.lock:
        for session in _chosen(number):
            session.active = active
        _sessions.refresh()


def _chosen(number: int | None) -> list[Session]:
    if number is None:
        return list(_sessions.known.values())
    if number not in _sessions.known:
        raise ValueError(
            f"there is no session {number}; there are "
            f"{', '.join(map(str, _sessions.known)) or 'none'}"
        )
    return [_sessions.known[number]]


def finalize(session: int | None = None, output_format: str = "") -> None:
    """End sessions, all for None, and write their records.

    The files are ``<name>.hatchet``, or ``<name>.chrome_trace`` for time lines.

    Raises:
        ValueError: there is no such session, or it cannot be written in that format.
        KernelError: a kernel that was launched failed.
    """
    if knobs.proton.disable:
        return
    with _sessions.lock:
        chosen = _chosen(session)
        _sessions.read()
        for each in chosen:
            own = "chrome_trace" if each.data == "trace" else "hatchet"
            if output_format not in ("", own):
                raise ValueError(
                    f"session {each.name!r} records a {each.data}, which is written as {own!r}, "
                    f"not as {output_format!r}"
                )
            path = Path(f"{each.name}.{_ENDINGS[own]}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(each.literal()))
            del _sessions.known[each.number]
            _sessions.forget(each.begins.values())
        _sessions.refresh()


def data(session: int = 0) -> Any:
    """Return the records of a session so far, as its file will have it.

    Raises:
        ValueError: there is no such session.
    """
    with _sessions.lock:
        (chosen,) = _chosen(session)
        _sessions.read()
        return chosen.literal()


def profile(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: modes.BaseMode | str | None = None,
    hook: str | None = None,
) -> Callable[..., Any]:
    """A decorator: every call of the function is a session; see :func:`start`."""
    if func is None:
        return functools.partial(
            profile, name=name, context=context, data=data, backend=backend, mode=mode, hook=hook
        )

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        number = start(name, context=context, data=data, backend=backend, mode=mode, hook=hook)
        try:
            return func(*args, **kwargs)
        finally:
            if number is not None:
                deactivate(number)
                finalize(number)

    return run
