"""Profile gradients: every operation with a derivative has a case, and atomics are declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.derivatives.operation_table import derivatives
from tilewright_conformance.cases.gradients.gradients.op_gradients import OF_KERNELS, OPS
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.requirements_audit import used


def test_every_operation_with_a_derivative_has_a_case() -> None:
    kinds = {name: entry.kind for name, entry in derivatives().items()}
    assert OPS.isdisjoint(OF_KERNELS)
    assert {
        name for name, kind in kinds.items() if kind in ("partials", "rule")
    } == OPS | OF_KERNELS


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "case_id",
    [id_ for id_ in catalogue().family("gradients") if not id_.startswith("gradients/op/")],
)
def test_a_case_declares_atomics_where_its_adjoint_has_some(
    case_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    case = catalogue()[case_id]
    assert used(case).needs.atomics == case.needs.atomics
