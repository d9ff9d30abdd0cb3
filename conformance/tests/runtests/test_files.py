"""The run tests of the suite, on the reference interpreter and on every backend of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.ir.ops import TABLE
from tilewright.ir.parser import parse_module
from tilewright_conformance.runtests.directives import parse
from tilewright_conformance.runtests.runner import FAILED, FILES, PASSED, Runner, backends, report

PATHS = sorted(FILES.glob("*.tileir"))
BACKENDS = [
    name if name in ("reference", "cpu") else pytest.param(name, marks=pytest.mark.gpu)
    for name in backends()
]
#: Operations without a run test: target intrinsics, output, hints, and operations with conformance
#: cases instead.
NOT_RUN = {
    "assert", "assume", "atomic_load", "atomic_store", "barrier", "clock", "descriptor_extent",
    "descriptor_gather", "descriptor_reduce",
    "descriptor_scatter", "descriptor_stride", "dot_scaled", "extern", "hint", "inline_asm",
    "make_descriptor", "print", "unsplat",
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_passes(path: Path, backend: str) -> None:
    outcomes = Runner(backend).run_file(path)
    failed = [report(path, backend, outcome) for outcome in outcomes if outcome.status == FAILED]
    assert not failed, "\n".join(failed)
    assert any(outcome.status == PASSED for outcome in outcomes)


def test_every_function_is_run() -> None:
    for path in PATHS:
        found = parse(path.read_text())
        names = {run.name for run in found.runs}
        assert names == set(parse_module(found.ir).functions), path.name


def test_every_operation_is_run_or_named() -> None:
    used = {
        operation.name
        for path in PATHS
        for operation in parse_module(parse(path.read_text()).ir).walk()
    }
    assert {spec.name for spec in TABLE} - used == NOT_RUN
