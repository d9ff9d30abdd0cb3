"""Manifest of Lyra's backend."""

from __future__ import annotations

from tilewright.plugins.common import every_type
from tilewright.plugins.manifest import Device, Manifest, Target
from tilewright_lyra import __version__
from tilewright_lyra.target import MAX_THREADS, SHARED_MEMORY, WARP_SIZE

NAME = "lyra"

#: The emulated machine's memory is the host's, and so is the kind of its arrays. The priority
#: leaves those to other backends, unless this one is asked for.
MANIFEST = Manifest(
    name=NAME,
    version=__version__,
    summary="an example: a made-up GPU, emulated",
    device_kinds=("cpu",),
    targets=("lyra1",),
    capabilities=every_type({"descriptors", "assert", "print", "noinline", "clock"}),
    priority=-20,
)
DEVICE = Device(NAME, "cpu", 0, "Lyra 1 (emulated)")
TARGET = Target(
    NAME,
    "lyra1",
    warp_size=WARP_SIZE,
    limits={"shared_memory": SHARED_MEMORY, "threads": MAX_THREADS},
    kind="cpu",
)
