"""Options of this backend's tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-device", action="store_true", help="run every example on every emulated device, not each on one")
