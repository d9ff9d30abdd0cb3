"""Loadable image of a code object, and the attributes of its launches.

Loading, launching, memory and timing are of :mod:`tilewright.gpu_host`.
"""

from __future__ import annotations

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.table import Image, LaunchAttribute
from tilewright.plugins.manifest import CodeObject
from tilewright_nvidia.async_copy.tensor_maps import TensorMap, opaque
from tilewright_nvidia.toolchain.linking import cubin_of

#: The kind of our devices, as argument protocols call it.
KIND = "cuda"
#: The kernel may start before the kernel launched before it has ended.
PROGRAMMATIC_SERIALIZATION = LaunchAttribute(6, "programmaticStreamSerializationAllowed", (1,))
#: All blocks of the grid run at once, or the driver refuses the launch.
COOPERATIVE = LaunchAttribute(2, "cooperative", (1,))
#: Fact of a code object's metadata -> the attribute of its launches.
_ATTRIBUTES = {"launch_pdl": PROGRAMMATIC_SERIALIZATION, "cooperative": COOPERATIVE}


def image(cuda: Driver, device: int, code: CodeObject) -> Image:
    """What to load of a code object. PTX is compiled by the driver."""
    metadata = code.metadata
    return Image(
        binary=lambda: cubin_of(cuda, device, code),
        symbol=str(metadata["kernel"]),
        threads=32 * int(metadata["num_warps"]),
        shared=int(metadata["shared"]),
        blocks=int(metadata.get("cluster", 1)),
        spills=metadata.get("n_spills"),
        attributes=tuple(attribute for fact, attribute in _ATTRIBUTES.items() if metadata.get(fact)),
        cooperative=bool(metadata.get("cooperative")),
        opaque=tuple(opaque(cuda, TensorMap.of(facts)) for facts in metadata.get("tensor_maps", ())),
    )
