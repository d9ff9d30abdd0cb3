"""The roofline of a kernel: its work and traffic beside a device's ceilings, and its bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.passes.analysis.traffic import ArgumentTraffic, LoopTraffic, Traffic
from tilewright.plugins.ceilings import Ceilings
from tilewright.plugins.manifest import Device, Target
from tilewright.plugins.registry import Backend
from tilewright.tools.explain.findings import Waste

#: The ceiling of memory, beside those of compute, which are named by :func:`_rates`.
MEMORY = "memory bandwidth"


@dataclass(frozen=True)
class Roofline:
    """See the module's text.

    Attributes:
        traffic: what the launch computes and moves; of one program, as far as is known, where there
            is no launch.
        ceilings: of the device; None where the backend knows none.
        program: what a program is called: ``CTA`` on GPUs.
        wasteful: accesses that may move many times the bytes that they use, by line.
    """

    traffic: Traffic
    ceilings: Ceilings | None
    program: str = "program"
    wasteful: tuple[Waste, ...] = ()

    @property
    def operations(self) -> int:
        """Operations of the launch, of any kind."""
        return sum(self.traffic.matmuls.values()) + sum(self.traffic.arithmetic.values())

    @property
    def intensity(self) -> float | None:
        """Return operations for each byte that must move; None if unknown or without compute."""
        return (
            self.operations / self.traffic.minimum
            if self.traffic.whole and self.operations and self.traffic.minimum
            else None
        )

    def times(self) -> dict[str, float]:
        """Return ceiling -> the minimum seconds of the launch; empty where the launch is not known.

        Unknown ceilings are absent.
        """
        ceilings, traffic = self.ceilings, self.traffic
        if ceilings is None or not traffic.whole or not traffic.programs:
            return {}
        # programs that are fewer than the processors leave some of these without work
        part = min(1.0, traffic.programs / ceilings.processors) if ceilings.processors else 1.0
        found = {
            name: count / (rate * part) for name, count, rate in self._compute() if rate and count
        }
        if ceilings.bandwidth and traffic.minimum:
            found[MEMORY] = traffic.minimum / ceilings.bandwidth
        return found

    @property
    def with_waste(self) -> int:
        """The bytes that move if nothing uses the bytes beside those that wasteful accesses use.

        All loads, or all stores, count like the most wasteful one.
        """
        total = 0
        for table, is_store in ((self.traffic.reads, False), (self.traffic.writes, True)):
            times = max((w.times for w in self.wasteful if w.is_store == is_store), default=1.0)
            total += round(times * sum(moved.minimum or 0 for moved in table.values()))
        return total

    @property
    def bound(self) -> str:
        """The ceiling that bounds the launch; empty where that is not known."""
        times = self.times()
        return max(times, key=lambda name: times[name]) if times else ""

    def _compute(self) -> Iterator[tuple[str, int, float | None]]:
        """Kinds of compute: name, operations of the launch, operations a second."""
        yield from _kinds(self.traffic.matmuls, self.traffic.arithmetic, self.ceilings)

    # ---- for people

    def lines(self) -> list[str]:
        """The roofline in sentences."""
        return [
            *self._ceiling_lines(),
            *(self._launch_lines() if self.traffic.whole else self._lacking_lines()),
            *self._step_lines(),
        ]

    def _ceiling_lines(self) -> Iterator[str]:
        found = self.ceilings
        if found is None:
            yield "The backend names no ceilings of this target: times and bounds are omitted."
            return
        rates = [
            f"{_si(rate, _unit(name) + '/s')} of {name}"
            for name, _, rate in self._kinds_of_all()
            if rate
        ]
        rates += [f"{_si(found.bandwidth, 'B/s')} of memory"] if found.bandwidth else []
        yield f"Ceilings of {found.source}: {', '.join(rates) or 'none that this kernel meets'}."
        unknown = [name for name, _, rate in self._kinds_of_all() if not rate]
        if unknown:
            yield f"The rate of {' and '.join(unknown)} is not known: it is omitted."

    def _kinds_of_all(self) -> list[tuple[str, int, float | None]]:
        steps = self.traffic.steps
        matmuls = {name: 1 for step in steps for name in step.matmuls}
        arithmetic = {name: 1 for step in steps for name in step.arithmetic}
        return list(_kinds(matmuls, arithmetic, self.ceilings))

    def _launch_lines(self) -> Iterator[str]:
        traffic, times = self.traffic, self.times()
        yield (
            f"The launch has {traffic.programs} "
            f"{self.program}{'s' if traffic.programs != 1 else ''}{self._idle()}."
        )
        kinds = [
            f"{_si(count, _unit(name))} of {name}" for name, count, _ in self._compute() if count
        ]
        yield f"It computes {' and '.join(kinds) or 'nothing on floats'}."
        yield from self._traffic_lines()
        if self.intensity is not None:
            yield f"Arithmetic intensity: {_ratio(self.intensity)} OP/B{self._balance()}."
        if times:
            bound = self.bound
            others = [
                f"{_seconds(time)} for {name}"
                for name, time in sorted(times.items(), key=lambda item: -item[1])
                if name != bound
            ]
            beside = f"; it needs {', '.join(others)}" if others else ""
            yield f"The kernel is bound by {bound}: {self._reason(bound)}{beside}."
            yield f"Predicted floor: {_seconds(times[bound])}.{self._beyond_floor()}"

    def _beyond_floor(self) -> str:
        """Return the remark about accesses that move bytes that the floor does not count."""
        if not self.wasteful:
            return ""
        numbers = dict.fromkeys(str(waste.line) for waste in self.wasteful)
        lines = f"line{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
        most = max(waste.times for waste in self.wasteful)
        text = (
            f" It counts only the bytes that are used. The accesses at {lines} move up to "
            f"{_ratio(most)} times as many (see the missed optimizations)"
        )
        moved = self.with_waste
        if self.ceilings is None or not self.ceilings.bandwidth or moved == self.traffic.minimum:
            return f"{text}."
        return (
            f"{text}: where caches do not keep the rest until it is used, {_si(moved, 'B')} move, "
            f"which take {_seconds(moved / self.ceilings.bandwidth)}."
        )

    def _idle(self) -> str:
        """Return the remark about processors without a program."""
        programs = self.traffic.programs or 0
        if self.ceilings is None or programs >= self.ceilings.processors:
            return ""
        return (
            f" for {self.ceilings.processors} {self.ceilings.unit}s, of which "
            f"{self.ceilings.processors - programs} have no work"
        )

    def _traffic_lines(self) -> Iterator[str]:
        traffic = self.traffic
        apart = [name for name, moved in _all(traffic) if moved.minimum is None]
        known = f"At least {_si(traffic.minimum, 'B')} must move, each distinct element once"
        uncounted = " and ".join(dict.fromkeys(map(_named, apart)))
        yield f"{known}; {uncounted} not counted." if apart else f"{known}."
        if traffic.minimum:
            often = (
                f", {_ratio(traffic.asked / traffic.minimum)} times as much"
                if not apart and traffic.asked > traffic.minimum
                else ""
            )
            most = "" if all(moved.exact for _, moved in _all(traffic)) else "at most "
            cached = "; caches serve what is read again" if often else ""
            yield f"Loads and stores access {most}{_si(traffic.asked, 'B')}{often}{cached}."
        for verb, table in (("reads", traffic.reads), ("writes", traffic.writes)):
            for name, moved in table.items():
                yield f"  {_named(name)}: {verb} {_moved_text(moved)}"

    def _balance(self) -> str:
        """Where the intensity lies beside the one at which compute takes as long as memory."""
        assert self.intensity is not None
        name, balance = _slowest(self._compute(), self.ceilings)
        if not balance:
            return ""
        return (
            f", {'above' if self.intensity >= balance else 'below'} the {_ratio(balance)} OP/B "
            f"at which {name} takes as long as memory"
        )

    def _reason(self, bound: str) -> str:
        assert self.ceilings is not None
        times = self.times()
        if bound == MEMORY:
            assert self.ceilings.bandwidth is not None
            return (
                f"it must move {_si(self.traffic.minimum, 'B')}, {_seconds(times[bound])} at "
                f"{_si(self.ceilings.bandwidth, 'B/s')}"
            )
        count, rate = next((count, rate) for name, count, rate in self._compute() if name == bound)
        assert rate is not None
        part = (
            min(1.0, (self.traffic.programs or 0) / self.ceilings.processors)
            if self.ceilings.processors
            else 1.0
        )
        where = f" of the {self.ceilings.unit}s that have work" if part < 1 else ""
        return (
            f"{_si(count, _unit(bound))} take {_seconds(times[bound])} at "
            f"{_si(rate * part, _unit(bound) + '/s')}{where}"
        )

    def _lacking_lines(self) -> Iterator[str]:
        lacking, unknown = self.traffic.lacking, self.traffic.unknown
        names = [f"`{name}`" for name in lacking if name != "grid"]
        wanted = " and ".join(
            ([f"the arguments {', '.join(names)}"] if names else [])
            + (["the grid"] if "grid" in lacking else [])
        )
        if wanted:
            yield f"The totals of a launch need {wanted}: give the launch."
        if unknown:
            yield f"The totals are not known: they depend on {', and '.join(unknown)}."

    def _step_lines(self) -> Iterator[str]:
        for step in self.traffic.steps:
            text = self._step_text(step)
            if text:
                yield text

    def _step_text(self, step: LoopTraffic) -> str:
        """Describe the work of one run of the kernel or of a loop's body."""
        kinds = [
            f"{_si(count, _unit(name))} of {name}"
            for name, count, _ in _kinds(step.matmuls, step.arithmetic, self.ceilings)
            if count
        ]
        bytes_ = [
            f"{verb} {_si(count, 'B')}"
            for verb, count in (("loads", step.loaded), ("stores", step.stored))
            if count
        ]
        if not kinds and not bytes_:
            return ""
        inside = " outside its loops" if not step.innermost else ""
        name = (
            f"An iteration of the loop at line {step.line}" if step.depth else f"A {self.program}"
        )
        does = " and ".join(
            ([f"computes {', '.join(kinds)}"] if kinds else [])
            + ([" and ".join(bytes_)] if bytes_ else [])
        )
        return f"{name}{inside} {does}{self._intensity_of(step)}."

    def _intensity_of(self, step: LoopTraffic) -> str:
        """The intensity of a step, and what bounds it where caches serve none of its accesses."""
        moved = step.loaded + step.stored
        kinds = list(_kinds(step.matmuls, step.arithmetic, self.ceilings))
        operations = sum(count for _, count, _ in kinds)
        if not moved or not operations:
            return ""
        name, balance = _slowest(kinds, self.ceilings)
        intensity = operations / moved
        if not balance:
            return f": {_ratio(intensity)} OP/B"
        if intensity >= balance:
            return f": {_ratio(intensity)} OP/B, above {_ratio(balance)}, so that {name} bounds it"
        return (
            f": {_ratio(intensity)} OP/B, below {_ratio(balance)}, so that memory bandwidth "
            "bounds what caches do not serve"
        )

    # ---- for programs

    def record(self) -> dict[str, Any]:
        """Return the roofline in the form that ``explain --json`` prints."""
        ceilings, traffic = self.ceilings, self.traffic
        return {
            "ceilings": None
            if ceilings is None
            else {
                **asdict(ceilings),
                "matmuls": dict(ceilings.matmuls),
                "arithmetic": dict(ceilings.arithmetic),
            },
            "programs": traffic.programs,
            "matmuls": dict(traffic.matmuls) if traffic.whole else None,
            "arithmetic": dict(traffic.arithmetic) if traffic.whole else None,
            "accessed_bytes": traffic.asked if traffic.whole else None,
            "minimum_bytes": traffic.minimum if traffic.whole else None,
            "reads": {name: asdict(moved) for name, moved in traffic.reads.items()}
            if traffic.whole
            else None,
            "writes": {name: asdict(moved) for name, moved in traffic.writes.items()}
            if traffic.whole
            else None,
            "intensity": self.intensity,
            "times": self.times(),
            "bound": self.bound,
            "floor_seconds": max(self.times().values(), default=None),
            "steps": [
                {**asdict(step), "matmuls": dict(step.matmuls), "arithmetic": dict(step.arithmetic)}
                for step in traffic.steps
            ],
            "lacking": list(traffic.lacking),
            "unknown": list(traffic.unknown),
        }


def ceilings_of(backend: Backend, target: Target, device: Device | None) -> Ceilings | None:
    """The ceilings of a device, or of the usual device of a target; None where none are known."""
    found: Ceilings | None = backend.call("tilewright_ceilings", target=target, device=device)
    return found


def _kinds(
    matmuls: Mapping[str, int], arithmetic: Mapping[str, int], ceilings: Ceilings | None
) -> Iterator[tuple[str, int, float | None]]:
    for of, table in (("matmul", matmuls), ("arithmetic", arithmetic)):
        for name, count in table.items():
            rates = (
                None
                if ceilings is None
                else ceilings.matmuls
                if of == "matmul"
                else ceilings.arithmetic
            )
            yield f"{name} {of}", count, None if rates is None else rates.get(name)


def _slowest(
    kinds: Iterable[tuple[str, int, float | None]], ceilings: Ceilings | None
) -> tuple[str, float]:
    """Return the slowest kind of compute, and its ridge point in operations a byte.

    At the ridge it takes as long as memory; 0 where that is not known.
    """
    known = [(count / rate, name, rate) for name, count, rate in kinds if rate and count]
    if not known or ceilings is None or not ceilings.bandwidth:
        return "", 0.0
    _, name, rate = max(known)
    return name, rate / ceilings.bandwidth


def _unit(kind: str) -> str:
    """Return the unit of operations of a kind: of floats, or of anything."""
    return "FLOP" if kind.startswith(("f", "bf", "e")) else "OP"


def _ratio(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.3g}"


def _all(traffic: Traffic) -> list[tuple[str, ArgumentTraffic]]:
    return [*traffic.reads.items(), *traffic.writes.items()]


def _named(name: str) -> str:
    return f"`{name}`" if name else "what is at other pointers"


def _moved_text(moved: ArgumentTraffic) -> str:
    accessed = f"{'' if moved.exact else 'at most '}{_si(moved.asked, 'B')}"
    if moved.minimum is None:
        return f"{accessed}; its distinct elements are not known: {moved.why}"
    often = (
        f", accessed {_ratio(moved.asked / moved.minimum)} times"
        if moved.minimum and moved.asked > moved.minimum
        else ""
    )
    return f"{_si(moved.minimum, 'B')}{often}"


def _si(number: float, unit: str) -> str:
    """A number with the prefix of its size: ``33.6 MB``."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * factor:
            return f"{_three(number / factor)} {prefix}{unit}"
    return f"{_three(number)} {unit}"


def _seconds(time: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if time >= 0.9995 * factor:
            return f"{_three(time / factor)} {unit}"
    return f"{_three(time / 1e-9)} ns"


def _three(number: float) -> str:
    """Three digits, and no exponent."""
    return (
        f"{number:.0f}"
        if number >= 99.95
        else f"{number:.1f}"
        if number >= 9.995
        else f"{number:.2f}"
    )


__all__ = ["MEMORY", "Roofline", "ceilings_of"]
