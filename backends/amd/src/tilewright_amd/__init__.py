"""The amd backend of Tilewright: AMD GPUs through AMDGPU code, made ahead of time on any machine."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("tilewright-amd")
