"""The entry point ``tilewright: amd``."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Device, Manifest
from tilewright_amd.manifest import MANIFEST


@hookimpl
def tilewright_backend() -> Manifest:
    return MANIFEST


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    return ()
