"""The registry of lowerings."""

from __future__ import annotations

import importlib

import pytest

from tilewright_cpu.codegen import registry
from tilewright_cpu.codegen.ops import memory, rearrange


def test_an_operation_is_lowered_in_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rearrange.LOWERINGS, "store", memory.LOWERINGS["store"])
    with pytest.raises(ValueError, match="operation 'store' has a row in two tables"):
        importlib.reload(registry)
