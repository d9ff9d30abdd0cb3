"""What the nvidia backend says about itself."""

from __future__ import annotations

from importlib.metadata import version

from tilewright.plugins.manifest import Manifest

MANIFEST = Manifest(
    name="nvidia",
    version=version("tilewright-nvidia"),
    summary="NVIDIA GPUs through PTX",
    device_kinds=("cuda",),
    targets=("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"),
    status="no device is present: code generation for sm_75 to sm_120 is not in this release",
)
