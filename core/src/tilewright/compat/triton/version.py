"""The release of Triton whose language and contracts are kept."""

from __future__ import annotations

VERSION = "3.8.0"
