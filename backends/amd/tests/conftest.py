"""What this backend's tests share between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from amd_support import forget


@pytest.fixture(autouse=True)
def _no_code_of_another_compiler(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that change the compiler share no code with others."""
    changes = "monkeypatch" in request.fixturenames
    if changes:
        forget()
    yield
    if changes:
        forget()
