"""The setup of a run: data that makes every worker process run cases alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from tilewright_conformance.suite.catalogue import CASES, Catalogue
from tilewright_conformance.suite.provenance import suite_version

if TYPE_CHECKING:
    from tilewright.plugins.manifest import EmulatedDevice

#: What the time limits of cases are multiplied with where the hardware is emulated.
_EMULATED = 20.0


@dataclass(frozen=True)
class Setup:
    """The configuration with which cases run.

    Attributes:
        backend: the name of the backend under test.
        seed: of the random numbers.
        quick: cases may do less; the run is not valid for a claim.
        load: modules (``module`` or ``module:object``) that are registered as plugins named
            ``backend``, for one that no distribution ships.
        packages: where the families of cases are.
        memory: bytes that a worker may grow by while it runs one case.
        time_scale: the factor of the time limits.
        start_limit: seconds that a worker has for loading the backend.
        repeat: how often each case is run in a row, in one process as long as the device works for
            it: once compiled, its kernels run with warm caches and outputs that are filled anew.
            The first run that fails counts.
        emulate: the target to emulate; see :func:`tilewright.plugins.emulators.emulate`. Empty: the
            backend's own devices.
    """

    backend: str
    seed: int = 0
    quick: bool = False
    load: tuple[str, ...] = ()
    packages: tuple[str, ...] = CASES
    memory: int = 4 << 30
    time_scale: float = 1.0
    start_limit: float = 180.0
    emulate: str = ""
    repeat: int = 1

    @property
    def patience(self) -> float:
        """The factor of the cases' time limits, in all."""
        return self.time_scale * (_EMULATED if self.emulate else 1.0) * self.repeat

    def as_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Setup:
        data = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(text).items()
        }
        return cls(**cast(dict[str, Any], data))


def load_plugins(setup: Setup) -> EmulatedDevice | None:
    """Register the plugins that the setup names, and return the emulated device, if any.

    Raises:
        BackendError: one is malformed; the hardware cannot be emulated.
        ImportError, AttributeError: there is no such module or object.
    """
    import importlib

    from tilewright.plugins.registry import registry

    for reference in setup.load:
        module, _, name = reference.partition(":")
        # computed: a setup names its plugins
        plugin = importlib.import_module(module)
        registry().register(
            getattr(plugin, name) if name else plugin,
            setup.backend,
            distribution=f"loaded from {reference}",
        )
    if not setup.emulate:
        return None
    from tilewright.plugins.emulators import emulate

    return emulate(setup.backend, setup.emulate, setup.seed)


def identity_of(setup: Setup, about: Mapping[str, Any], cases: Catalogue) -> dict[str, Any]:
    """Return everything that a run's outcomes depend on.

    ``about`` is the provenance of the software and device under test.
    """
    given = asdict(setup)
    return {
        **{
            name: given[name]
            for name in (
                "backend",
                "seed",
                "quick",
                "load",
                "time_scale",
                "memory",
                "emulate",
                "repeat",
            )
        },
        "suite": suite_version(),
        "catalogue": cases.digest(),
        "core": about["core"]["version"],
        "backend version": about["backend"]["version"],
        "contents": {facts["name"]: facts["content"] for facts in about["distributions"]},
        "device": about["device"]["name"],
        "target": about["device"]["target"],
        "driver": about["device"]["driver"],
    }
