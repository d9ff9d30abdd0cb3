"""Rewritten kernels beside plain ones: right verdicts on them and on three wrong variants each."""

from __future__ import annotations

import pytest

from tilewright_conformance.exact.injected_bugs import with_bug
from tilewright_conformance.exact.launches import verdict_on
from tilewright_conformance.exact.rewrites import Rewrite, rewrites
from tilewright_conformance.suite.session import Session, Subject


@pytest.mark.each_value
@pytest.mark.parametrize("variant", [None, 0, 1, 2])
@pytest.mark.parametrize("rewrite", rewrites(), ids=lambda rewrite: rewrite.name)
def test_a_rewritten_kernel_and_wrong_variants(rewrite: Rewrite, variant: int | None) -> None:
    launch = rewrite.rewritten
    if variant is not None:
        launch = with_bug(launch, rewrite.bugs[variant])
    found = verdict_on(Session(Subject("cpu"), "exact"), rewrite.plain, launch)
    assert found.status == ("equal" if variant is None else "different"), found
