"""The real requirements of a case, derived from the modules that reach the backend in its run.

The case runs on the reference interpreter. A case that declares less than its kernels use would
count as a defect of every backend that lacks the rest; a test holds families to it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.ir import Module
from tilewright.ir.ops.debug import IMPLIED_ASSERTS
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Manifest, Target
from tilewright.plugins.registry import registry
from tilewright.runtime import reference_backend
from tilewright.runtime.compiler.capability_check import is_let_through
from tilewright_conformance.suite.case import Case, Needs
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session, Subject

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Used:
    """The needs of all modules that reached the backend, and the names of their operations."""

    needs: Needs
    operations: frozenset[str]

    def __or__(self, other: Used) -> Used:
        return Used(self.needs | other.needs, self.operations | other.operations)


def used_by(module: Module) -> Used:
    """The needs and operations of a module's kernel and all its functions."""
    names = (
        operation.name
        for function in module.functions.values()
        for operation in function.body.walk()
    )
    return Used(needs_of(module), frozenset(names))


class _Recorder:
    """The reference backend under another name, which keeps what the modules that it lowers use."""

    tilewright_load = staticmethod(reference_backend.tilewright_load)
    tilewright_launcher = staticmethod(reference_backend.tilewright_launcher)
    tilewright_memory = staticmethod(reference_backend.tilewright_memory)

    def __init__(self, name: str, precisions: Iterable[str]) -> None:
        self.name = name
        #: of a dot. A kernel may ask for whichever there is, so none are offered but those that the
        #: case declares.
        self.precisions = ("ieee", *sorted(precisions))
        self.found = Used(Needs(), frozenset())

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        reference = reference_backend.CAPABILITIES
        # what the language asserts by itself is of the backend, and no need of the kernel's
        capabilities = dataclasses.replace(
            reference,
            dot_precisions=self.precisions,
            features=reference.features - {IMPLIED_ASSERTS},
        )
        return dataclasses.replace(
            reference_backend.tilewright_backend(),
            name=self.name,
            capabilities=capabilities,
            priority=-2000,
        )

    @hookimpl
    def tilewright_devices(self) -> list[Device]:
        return [
            dataclasses.replace(device, backend=self.name)
            for device in reference_backend.tilewright_devices()
        ]

    @hookimpl
    def tilewright_target(self, device: Device) -> Target:
        return dataclasses.replace(reference_backend.tilewright_target(device), backend=self.name)

    @hookimpl
    def tilewright_passes(self) -> tuple[()]:
        """No passes: a pass could remove operations that other backends would have to lower."""
        return ()

    @hookimpl
    def tilewright_lower(
        self, module: Module, target: Target, options: Mapping[str, Any]
    ) -> CodeObject:
        self.found |= used_by(module)
        return reference_backend.tilewright_lower(module=module, target=target, options=options)


def used(case: Case, seed: int = 0) -> Used:
    """The needs and operations of a case's kernels.

    The disk cache must be one that no earlier audit has used: a kernel found there is not lowered
    again.

    Raises:
        AssertionError: the case fails on the reference.
    """
    # A new name each time: what was compiled for another backend is compiled again.
    recorder = _Recorder(f"needs-audit-{next(_numbers)}", case.needs.dot_precisions)
    registry().register(recorder, recorder.name)
    try:
        case.run(Session(Subject(recorder.name), case.id, seed, judges_speed=False))
    finally:
        registry().unregister(recorder.name)
    return recorder.found


def undeclared(case: Case, found: Used) -> list[str]:
    """Describe the needs of ``found`` beyond the declared ones of a case."""
    declared, needs = case.needs, found.needs
    texts = [f"dtype {name}" for name in sorted(needs.dtypes - declared.dtypes)]
    texts += [f"dot {a} into {b}" for a, b in sorted(needs.dot - declared.dot)]
    texts += [
        f"dot precision {name}" for name in sorted(needs.dot_precisions - declared.dot_precisions)
    ]
    texts += [f"order {order} of {name}" for name, order in sorted(needs.orders - declared.orders)]
    texts += [
        f"atomic {kind} on {element}" for element, kind in sorted(needs.atomics - declared.atomics)
    ]
    texts += [
        f"feature {name}"
        for name in sorted(needs.features)
        if not is_let_through(name, declared.features)
    ]
    texts += ["extents that are no powers of two"] * (needs.any_extent and not declared.any_extent)
    return texts
