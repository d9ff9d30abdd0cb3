"""The least backend that can claim a profile: the reference interpreter, which declares exactly what the profile requires and lowers exactly its operations.

    python -m tilewright_conformance profiles --claimable

A profile whose cases need more than it states cannot be claimed by this backend, nor by any that takes the statement for the whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Manifest, Target
from tilewright.runtime import reference_backend
from tilewright_conformance.case import PROFILES, Outcome
from tilewright_conformance.catalogue import Catalogue
from tilewright_conformance.engine.pool import run_cases
from tilewright_conformance.engine.setup import Setup
from tilewright_conformance.expectations import Expectations
from tilewright_conformance.profiles import OPERATIONS, REQUIRES, Claim, claim, current_lists

#: The name under which a profile's backend is tested; one process has one of them.
NAME = "minimal"


class Minimal:
    """A plugin, for one profile."""

    tilewright_load = staticmethod(reference_backend.tilewright_load)
    tilewright_launcher = staticmethod(reference_backend.tilewright_launcher)
    tilewright_memory = staticmethod(reference_backend.tilewright_memory)

    def __init__(self, profile: str) -> None:
        self.profile = profile

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        return dataclasses.replace(
            reference_backend.tilewright_backend(),
            name=NAME,
            summary=f"the reference, with no more than profile {self.profile} requires",
            capabilities=REQUIRES[self.profile].capabilities(),
            options={},
            priority=-2000,
        )

    @hookimpl
    def tilewright_devices(self) -> Sequence[Device]:
        return [dataclasses.replace(device, backend=NAME) for device in reference_backend.tilewright_devices()]

    @hookimpl
    def tilewright_target(self, device: Device) -> Target:
        return dataclasses.replace(reference_backend.tilewright_target(device), backend=NAME)

    @hookimpl
    def tilewright_passes(self) -> tuple[()]:
        """None: a pass may take away what the kernel's author wrote, and what a backend without that pass would have to do."""
        return ()

    @hookimpl
    def tilewright_lower(self, module: Module, target: Target, options: Mapping[str, Any]) -> CodeObject:
        for function in module.functions.values():
            for operation in function.body.walk():
                if operation.name not in OPERATIONS[self.profile]:
                    raise LoweringError(
                        f"backend {NAME!r} does not lower {operation.name} (at {operation.location}): it is no operation of profile {self.profile}"
                    )
        return reference_backend.tilewright_lower(module=module, target=target, options=options)


def __getattr__(name: str) -> Minimal:
    """The plugin of a profile, by the profile's name."""
    if name not in PROFILES:
        raise AttributeError(f"there is no profile {name!r}; profiles are {', '.join(PROFILES)}")
    return Minimal(name)


def claims(catalogue: Catalogue, profiles: Iterable[str] = PROFILES, *, workers: int = 0) -> Iterator[tuple[Claim, list[Outcome]]]:
    """Run all cases of each profile on its minimal backend; gives the claim and the outcomes it rests on.

    Args:
        workers: processes at once; 0 for as many as there are processors. Cases that measure time run one at a time, after the others.
    """
    for profile in profiles:
        cases = catalogue.select(profiles=[profile])
        setup = Setup(NAME, load=(f"{__name__}:{profile}",))
        outcomes = run_cases([case for case in cases if not case.alone], setup, workers=workers)
        outcomes += run_cases([case for case in cases if case.alone], setup, workers=1)
        yield judged(profile, catalogue, outcomes), outcomes


def judged(profile: str, catalogue: Catalogue, outcomes: Sequence[Outcome], listed: tuple[str, ...] | None = None) -> Claim:
    """The claim of a profile's minimal backend, from outcomes of cases of the profile.

    Args:
        listed: what must have passed; the profile's whole list where it is None.
    """
    found = {outcome.case: outcome for outcome in outcomes}
    listed = current_lists(catalogue)[profile] if listed is None else listed
    return claim(profile, listed, found, dict.fromkeys(found, profile), REQUIRES[profile].capabilities(), Expectations(), quick=False)
