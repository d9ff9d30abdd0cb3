"""The minimal backend that can claim a profile, made of the reference interpreter.

It declares exactly the profile's requirements, lowers exactly its operations, and computes in no
float narrower than f32. All else is decomposed before it gets a module.

    python -m tilewright_conformance profiles --claimable

A profile whose cases need more than it states cannot be claimed by this backend, nor by any that
relies on the statement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir import Module, Operation, Value
from tilewright.ir.ops.arithmetic import Addptr, Bitcast, Select
from tilewright.ir.types import FloatType, element_type
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Launcher, Manifest, Parameter, Target
from tilewright.runtime import reference_backend
from tilewright.runtime.arguments.writability import write_guard
from tilewright_conformance.suite.case import PROFILES, Outcome
from tilewright_conformance.suite.catalogue import Catalogue
from tilewright_conformance.suite.engine.pool import run_cases
from tilewright_conformance.suite.engine.setup import Setup
from tilewright_conformance.suite.expectations import Expectations
from tilewright_conformance.suite.profiles import OPERATIONS, REQUIRES, Claim, claim, required_cases

#: The name under which a profile's backend is tested; one process has one of them.
NAME = "minimal"
#: The floats that it computes in.
COMPUTES = frozenset({"f32"})


class Minimal:
    """A plugin, for one profile."""

    tilewright_load = staticmethod(reference_backend.tilewright_load)
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
            lowers=OPERATIONS[self.profile],
            computes=COMPUTES,
            priority=-2000,
        )

    @hookimpl
    def tilewright_devices(self) -> Sequence[Device]:
        return [
            dataclasses.replace(device, backend=NAME)
            for device in reference_backend.tilewright_devices()
        ]

    @hookimpl
    def tilewright_target(self, device: Device) -> Target:
        return dataclasses.replace(reference_backend.tilewright_target(device), backend=NAME)

    @hookimpl
    def tilewright_passes(self) -> tuple[()]:
        """No passes: a pass could remove operations that other backends would have to lower."""
        return ()

    @hookimpl
    def tilewright_lower(
        self, module: Module, target: Target, options: Mapping[str, Any]
    ) -> CodeObject:
        for function in module.functions.values():
            for operation in function.body.walk():
                if operation.name not in OPERATIONS[self.profile]:
                    raise self._refusal(operation, f"it is no operation of profile {self.profile}")
                # those of the classes hand on numbers as they are
                if (
                    operation.spec.elementwise
                    and not isinstance(operation, Select | Bitcast | Addptr)
                    and any(map(_is_foreign, (*operation.operands, *operation.results)))
                ):
                    raise self._refusal(operation, f"it computes in {', '.join(sorted(COMPUTES))}")
        return reference_backend.tilewright_lower(module=module, target=target, options=options)

    def _refusal(self, operation: Operation, why: str) -> LoweringError:
        of = ", ".join(str(value.type) for value in (*operation.operands, *operation.results))
        return LoweringError(
            f"backend {NAME!r} does not lower {operation.name} (at {operation.location}) of "
            f"{of}: {why}"
        )

    @hookimpl
    def tilewright_launcher(
        self, loaded: Module, parameters: Sequence[Parameter], options: Mapping[str, Any]
    ) -> Launcher:
        """Pass descriptors to kernels as the arguments that they were decomposed to."""
        launch = reference_backend.tilewright_launcher(
            loaded=loaded, parameters=(), options=options
        )
        apart = [
            parameter.type.startswith("desc<") and len(parameters) != len(loaded.kernel.arguments)
            for parameter in parameters
        ]
        guard = write_guard(loaded.kernel.name, parameters)

        def launched(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
            guard(values)
            given = (
                (value.base, *map(int, value.shape), *map(int, value.strides)) if own else (value,)
                for value, own in zip(values, apart, strict=True)
            )
            launch(grid, stream, tuple(part for parts in given for part in parts))

        return launched


def _is_foreign(value: Value) -> bool:
    element = element_type(value.type)
    return isinstance(element, FloatType) and str(element) not in COMPUTES


def __getattr__(name: str) -> Minimal:
    """The plugin of a profile, by the profile's name."""
    if name not in PROFILES:
        raise AttributeError(f"there is no profile {name!r}; profiles are {', '.join(PROFILES)}")
    return Minimal(name)


def claims(
    catalogue: Catalogue, profiles: Iterable[str] = PROFILES, *, workers: int = 0
) -> Iterator[tuple[Claim, list[Outcome]]]:
    """Run all cases of each profile on its minimal backend and yield the claim with its outcomes.

    Args:
        workers: processes at once; 0 for as many as there are processors. Cases that measure time
            run one at a time, after the others.
    """
    for profile in profiles:
        cases = catalogue.select(profiles=[profile])
        setup = Setup(NAME, load=(f"{__name__}:{profile}",))
        outcomes = run_cases([case for case in cases if not case.alone], setup, workers=workers)
        outcomes += run_cases([case for case in cases if case.alone], setup, workers=1)
        yield judged(profile, catalogue, outcomes), outcomes


def judged(
    profile: str,
    catalogue: Catalogue,
    outcomes: Sequence[Outcome],
    listed: tuple[str, ...] | None = None,
) -> Claim:
    """The claim of a profile's minimal backend, from outcomes of cases of the profile.

    Args:
        listed: what must have passed; the profile's whole list where it is None.
    """
    found = {outcome.case: outcome for outcome in outcomes}
    listed = required_cases(catalogue)[profile] if listed is None else listed
    return claim(
        profile,
        listed,
        found,
        dict.fromkeys(found, profile),
        REQUIRES[profile].capabilities(),
        Expectations(),
        quick=False,
    )
