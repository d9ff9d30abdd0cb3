"""Triton's names while a test runs, a cache of each test's own, and settings as they were
before."""

import pytest

from tilewright.compat.triton import hook
from tilewright.compat.triton.environment import fresh_settings


@pytest.fixture(autouse=True)
def shim(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    for name in (
        "TRITON_INTERPRET",
        "TRITON_CPU_BACKEND",
        "TRITON_DEFAULT_BACKEND",
        "TILEWRIGHT_BACKEND",
    ):
        monkeypatch.delenv(name, raising=False)
    fresh, restore = fresh_settings()
    fresh()
    yield
    restore()
    hook.activate()  # other tests of the process import triton too
    hook._write_types_as("tilewright.language")
