"""What the amd backend says about itself."""

from __future__ import annotations

from importlib.metadata import version

from tilewright.plugins.manifest import Manifest

MANIFEST = Manifest(
    name="amd",
    version=version("tilewright-amd"),
    summary="AMD GPUs through AMDGPU code",
    device_kinds=("hip",),
    language={"hip": "tilewright_amd.language"},
    targets=("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200"),
    status="no device is present: code generation for gfx90a to gfx1200 is not in this release",
)
