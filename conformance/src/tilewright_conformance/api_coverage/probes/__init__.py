"""Small programs that show, name by name, that the public surface works: one file a family.

``tilewright surface`` runs them on every backend that is installed, the tests run them on the
reference and the CPU, and the reference pages show them as examples. What does not live here: tests
of corner cases, which belong to the tests of each package.
"""

from __future__ import annotations

import importlib
import pkgutil

from tilewright_conformance.api_coverage.machines import BackendMachine, Machine, TargetMachine
from tilewright_conformance.api_coverage.probe import PROBES, Probe, add_probe, probe

__all__ = [
    "PROBES",
    "BackendMachine",
    "Machine",
    "Probe",
    "TargetMachine",
    "add_probe",
    "all_probes",
    "probe",
]


def all_probes() -> dict[str, Probe]:
    """Every probe by title, families in alphabetical order."""
    for module in pkgutil.iter_modules(__path__):
        # computed: the families of this package, which register themselves
        importlib.import_module(f"{__name__}.{module.name}")
    return PROBES
