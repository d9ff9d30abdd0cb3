"""The amd backend of Tilewright: ahead-of-time compilation for AMD GPUs."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("tilewright-amd")
