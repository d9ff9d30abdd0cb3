"""``tilewright surface``: the state of every public name on every backend that has a device.

The state of a name comes from running the probes that use it.
"""

from __future__ import annotations

import argparse
import contextvars
import warnings
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.language.backend_modules import AbsentLanguageError
from tilewright.plugins.registry import registry
from tilewright.tools.usage import UsageError
from tilewright_conformance.api_coverage.probes import (
    BackendMachine,
    Machine,
    Probe,
    TargetMachine,
    all_probes,
)
from tilewright_conformance.api_coverage.public_names import Name, names, resolve
from tilewright_conformance.api_coverage.shim import shim

WORKS, COMPILES, DECLARED, OUTSIDE, ABSENT = "works", "compiles", "declared", "outside", "absent"
FAILS, MISSING, UNPROVEN = "FAILS", "MISSING", "UNPROVEN"
#: What these say, for people.
LEGEND = {
    WORKS: "its probes ran there and agreed with their oracle",
    COMPILES: "its probes were compiled for that target; there is no device to run them on",
    DECLARED: "the backend declares that it lacks this, and refuses it with the documented error",
    OUTSIDE: "outside of what the shim provides: it raises an error that says so",
    ABSENT: "language that comes with a backend that is not installed",
    FAILS: "a probe failed",
    MISSING: "the name does not exist",
    UNPROVEN: "no probe shows it",
}
_GOOD = frozenset({WORKS, COMPILES, DECLARED, OUTSIDE, ABSENT})


@dataclass
class State:
    """State of one public name.

    Attributes:
        name: the name.
        probes: titles of the probes that show it.
        columns: machine -> one of :data:`LEGEND`.
        errors: what went wrong.
    """

    name: Name
    probes: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return bool(self.columns) and all(state in _GOOD for state in self.columns.values())


def surface_command(options: argparse.Namespace) -> int:
    """Print the table; 1 where a name is missing, unproven or fails."""
    from tilewright.tools.printing import print_json

    machines = machines_of(options.backend, options.compile)
    wanted = {
        full for full, name in names().items() if options.family.lower() in name.family.lower()
    }
    if not wanted:
        raise UsageError(
            f"no family is called {options.family!r}; they are "
            f"{', '.join(dict.fromkeys(name.family for name in names().values()))}"
        )
    states = examine(machines, seed=options.seed, wanted=wanted)
    good = all(state.good for state in states)
    shown = [state for state in states if not state.good] if options.missing else states
    if options.json:
        print_json(
            {
                "machines": list(machines),
                "names": [_row(state) for state in shown],
                "counts": counts(states, machines),
            }
        )
    else:
        print(surface_text(shown, machines, counts(states, machines)))
    return 0 if good else 1


def machines_of(backends: Sequence[str] = (), targets: Sequence[str] = ()) -> dict[str, Machine]:
    """Return the machines to run on, by name.

    These are the named backends, or every backend that has a device, and the targets, each written
    ``BACKEND:ARCH``.

    Raises:
        UsageError: a target is not one of its backend's.
    """
    found: dict[str, Machine] = {}
    for name in backends or [backend.name for backend in registry().backends()]:
        try:
            found[name] = BackendMachine(name)
        except TilewrightError:
            if backends:
                raise
    for text in targets:
        name, _, arch = text.partition(":")
        known = registry().get(name).manifest.targets
        if arch not in known:
            raise UsageError(f"backend {name!r} has no target {arch!r}; it has {', '.join(known)}")
        found[text] = TargetMachine(name, arch)
    return found


def examine(
    machines: Mapping[str, Machine], seed: int = 0, wanted: Collection[str] | None = None
) -> list[State]:
    """Run the probes of the wanted names on every machine and derive the names' states.

    None stands for all names.
    """
    states = {
        full: State(name) for full, name in names().items() if wanted is None or full in wanted
    }
    shown = {state.name.alias or full for full, state in states.items()}
    probes = {
        title: probe for title, probe in all_probes().items() if shown.intersection(probe.names)
    }
    outcomes = {title: _outcomes(probe, machines, seed) for title, probe in probes.items()}
    with shim():
        for state in states.values():
            _resolve(state, machines)
    for full, state in states.items():
        if state.columns:  # there is nothing to show
            continue
        for title, probe in probes.items():
            if (state.name.alias or full) in probe.names:
                _add(state, title, outcomes[title])
        for machine in machines:
            state.columns.setdefault(machine, UNPROVEN)
    return list(states.values())


def _resolve(state: State, machines: Iterable[str]) -> None:
    try:
        found = resolve(state.name)
        if state.name.alias and found is not resolve(names()[state.name.alias]):
            raise LookupError(f"{state.name.full} is not {state.name.alias}")
    except LookupError as error:
        outside = type(
            error.__cause__
        ).__name__ == "OutsideModuleError" and "is outside what" in str(error)
        verdict = OUTSIDE if outside else ABSENT if is_absent(error) else MISSING
        state.columns.update(dict.fromkeys(machines, verdict))
        if verdict != ABSENT:
            state.errors.append(str(error))


def is_absent(error: LookupError) -> bool:
    """Return whether a name is part of a language that no installed backend provides."""
    return isinstance(error.__cause__, AbsentLanguageError)


def _add(state: State, title: str, outcomes: Mapping[str, tuple[str, str]]) -> None:
    """Take over what a probe says; the worst of several counts."""
    if title not in state.probes:
        state.probes.append(title)
    for machine, (outcome, error) in outcomes.items():
        known = state.columns.get(machine, outcome)
        state.columns[machine] = (
            known if known == FAILS else outcome if outcome == FAILS or known == outcome else WORKS
        )
        if error:
            state.errors.append(f"{machine}: {error}")


def _outcomes(
    probe: Probe, machines: Mapping[str, Machine], seed: int
) -> dict[str, tuple[str, str]]:
    """Map each machine to the probe's outcome and, where the probe failed, its error.

    A probe of the host runs once; its outcome holds for every machine.
    """
    found: dict[str, tuple[str, str]] = {}
    for name, machine in machines.items():
        found[name] = (
            next(iter(found.values())) if probe.host and found else run_probe(probe, machine, seed)
        )
    return found


def run_probe(probe: Probe, machine: Machine, seed: int = 0) -> tuple[str, str]:
    """Run a probe; what it says, and the error where it failed."""
    absent = [name for name in probe.languages if name not in registry().languages()]
    if absent:
        return ABSENT, ""
    lacks = (probe.feature and probe.feature not in machine.features) or (
        probe.target and probe.target != machine.kind
    )
    body = probe.otherwise if lacks else probe.body
    if body is None:
        return (
            UNPROVEN,
            (
                f"{probe.title} needs {probe.feature or probe.target}, and nothing shows what "
                "the others do"
            ),
        )
    rng = np.random.default_rng([seed, zlib.crc32(probe.title.encode())])
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            contextvars.copy_context().run(
                body, machine, rng
            )  # an allocator that it sets is nobody else's
    except Exception as error:  # whatever a probe raises is its verdict
        return FAILS, f"{probe.title}: {type(error).__name__}: {error}"
    return DECLARED if lacks else WORKS if machine.runs or probe.host else COMPILES, ""


def counts(states: Sequence[State], machines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Machine -> verdict -> how many names."""
    return {
        machine: {
            verdict: sum(state.columns[machine] == verdict for state in states)
            for verdict in LEGEND
        }
        for machine in machines
    }


def _row(state: State) -> dict[str, Any]:
    name = state.name
    facts = {
        "name": name.full,
        "family": name.family,
        "kind": name.kind,
        "since": name.since,
        "page": name.page,
    }
    return {**facts, "states": state.columns, "probes": state.probes, "errors": state.errors}


def surface_text(
    states: Sequence[State],
    machines: Mapping[str, Machine],
    totals: Mapping[str, Mapping[str, int]],
) -> str:
    """The table for people."""
    lines: list[str] = []
    width = max((len(state.name.full) for state in states), default=4)
    columns = {machine: max(len(machine), 8) for machine in machines}
    family = ""
    for state in states:
        if state.name.family != family:
            family = state.name.family
            heads = "  ".join(f"{machine:<{size}}" for machine, size in columns.items())
            lines += ["", f"{family}", f"  {'name':<{width}}  {'since':<10}  {heads}  shown by"]
        cells = "  ".join(f"{state.columns[machine]:<{size}}" for machine, size in columns.items())
        lines.append(
            (
                f"  {state.name.full:<{width}}  {state.name.since:<10}  {cells}  "
                f"{', '.join(state.probes)}"
            ).rstrip()
        )
        lines += [
            f"      {line}"
            for error in dict.fromkeys(state.errors)
            for line in error.strip().splitlines()[:12]
        ]
    lines.append("")
    for machine, verdicts in totals.items():
        lines.append(
            f"{machine}: "
            + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items() if count)
        )
    lines += [
        f"{verdict}: {text}"
        for verdict, text in LEGEND.items()
        if any(verdicts[verdict] for verdicts in totals.values())
    ]
    return "\n".join(lines).lstrip("\n")
