"""The table of samples."""

from __future__ import annotations

import importlib

import pytest

from tilewright_conformance import op_samples
from tilewright_conformance.op_samples import linear, shape


def test_an_operation_has_samples_in_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shape.SAMPLES, "dot", linear.SAMPLES["dot"])
    with pytest.raises(ValueError, match="operation 'dot' has a row in two tables"):
        importlib.reload(op_samples)
