"""Fixtures of all tests of the library."""

import pytest

from tilewright_kernels.operations.prepared_calls import PreparedCalls


@pytest.fixture(autouse=True)
def _no_prepared_calls() -> None:
    """Let each test run the launch functions, of which it may replace parts."""
    PreparedCalls.forget()
