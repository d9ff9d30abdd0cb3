"""The case of the suite that catches each switch of the broken backend.

Further lists have the switches that cases of some profiles catch, too. The lists are checked in;
this module proves a row and searches for a new one. A case catches a switch where it passes on the
broken backend with no switch on, and does not with the switch.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tilewright_conformance import mutation
from tilewright_conformance.mutation.mutant import Switch
from tilewright_conformance.mutation.mutants import DISRUPTIVE
from tilewright_conformance.suite.case import Case, Outcome, Status
from tilewright_conformance.suite.engine.judge import execute
from tilewright_conformance.suite.engine.pool import run_cases
from tilewright_conformance.suite.engine.setup import Setup
from tilewright_conformance.suite.session import Session, Subject

LIST = Path(__file__).with_name("killing_cases.toml")
#: The table of the list that has all switches.
_ALL = "caught"
#: Profiles with a list of the switches that their cases catch.
PROFILE_LISTS = ("exact", "gradients")
#: Statuses that tell a vendor that something is wrong.
CAUGHT = frozenset({Status.FAILED, Status.ERROR, Status.CRASHED, Status.TIMED_OUT})
#: Of a case's time limit, what a backend that hangs is given; and what memory one that leaks may
#: take.
_PATIENCE, _MEMORY = 0.2, 3 << 28


def catching_cases(profile: str = "") -> dict[str, str]:
    """Switch -> the id of a case that catches it, as checked in.

    Args:
        profile: the list of this profile's cases; that of all switches where it is empty.
    """
    return dict(tomllib.loads(LIST.read_text(encoding="utf-8")).get(profile or _ALL, {}))


def write_catching_cases(found: dict[str, str], profile: str = "") -> None:
    """Write one of the lists, in the order of the table of switches."""
    tables = {**tomllib.loads(LIST.read_text(encoding="utf-8")), profile or _ALL: found}
    switches = (*mutation.switches(), *mutation.disruptive_switches())
    text = (
        "# Switch of the broken backend = a case that catches it. Written by: python -m "
        "tilewright_conformance.mutation --search, and with --profile NAME\n"
    )
    for name, caught in tables.items():
        rows = "".join(
            f'{switch.name} = "{caught[switch.name]}"\n'
            for switch in switches
            if switch.name in caught
        )
        text += f"[{name}]\n{rows}"
    LIST.write_text(text)


@contextlib.contextmanager
def _fresh_cache() -> Iterator[None]:
    """No code of another run is met in the block."""
    before = os.environ.get("TILEWRIGHT_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="tilewright-faulty-") as folder:
        os.environ["TILEWRIGHT_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TILEWRIGHT_CACHE_DIR"]
            else:
                os.environ["TILEWRIGHT_CACHE_DIR"] = before


def outcome(switch: Switch | None, case: Case) -> Outcome:
    """Run a case on the broken backend with one switch on, or with none.

    Switches that disrupt the process run in a process of their own.
    """
    name = mutation.HEALTHY if switch is None else mutation.backend_name(switch)
    if switch is not None and switch.name in DISRUPTIVE:
        setup = Setup(
            name, load=(mutation.load_reference(name),), time_scale=_PATIENCE, memory=_MEMORY
        )
        return run_cases([case], setup, workers=1)[0]
    mutation.register(name)
    try:
        with _fresh_cache():
            return execute(case, Session(Subject(name), case.id))
    finally:
        mutation.unregister(name)


def search(switch: Switch, cases: Iterable[Case]) -> tuple[Case, Outcome] | None:
    """The first of some cases that catches a switch, and what it says."""
    for case in cases:
        found = outcome(switch, case)
        if found.status in CAUGHT and outcome(None, case).status is Status.PASSED:
            return case, found
    return None


def likely(switch: Switch, cases: Iterable[Case], hint: str | None = None) -> list[Case]:
    """Sort cases by how likely they catch a switch.

    ``hint`` comes first, then cases of the switch's operations, then quick ones.
    """
    return sorted(
        cases,
        key=lambda case: (case.id != hint, case.subject not in switch.operations, not case.quick),
    )
