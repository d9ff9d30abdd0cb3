"""The entry point ``tilewright: nvidia``."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Device, Manifest
from tilewright_nvidia.manifest import MANIFEST


@hookimpl
def tilewright_backend() -> Manifest:
    return MANIFEST


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    return ()
