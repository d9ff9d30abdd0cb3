"""Loadable image of a code object, and the attributes of its launches.

Loading, launching, memory and timing are of :mod:`tilewright.gpu_host`.
"""

from __future__ import annotations

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.table import Image, LaunchAttribute
from tilewright.plugins.manifest import CodeObject
from tilewright_nvidia.async_copy.tensor_maps import TensorMap, opaque
from tilewright_nvidia.toolchain.linking import cubin_of

#: The device kind of this backend, as argument protocols spell it.
KIND = "cuda"
#: Programmatic dependent launch: the kernel may start before the preceding kernel ends.
PROGRAMMATIC_SERIALIZATION = LaunchAttribute(6, "programmaticStreamSerializationAllowed", (1,))
#: Cooperative launch: all CTAs run at once, or the driver refuses the launch.
COOPERATIVE = LaunchAttribute(2, "cooperative", (1,))
#: Key of a code object's metadata -> launch attribute.
_ATTRIBUTES = {"launch_pdl": PROGRAMMATIC_SERIALIZATION, "cooperative": COOPERATIVE}


def image(cuda: Driver, device: int, code: CodeObject) -> Image:
    """Return the loadable image of a code object; the driver or ptxas compiles PTX."""
    metadata = code.metadata
    return Image(
        binary=lambda: cubin_of(cuda, device, code),
        symbol=str(metadata["kernel"]),
        threads=32 * int(metadata["num_warps"]),
        shared=int(metadata["shared"]),
        blocks=int(metadata.get("cluster", 1)),
        spills=metadata.get("n_spills"),
        attributes=tuple(
            attribute for fact, attribute in _ATTRIBUTES.items() if metadata.get(fact)
        ),
        cooperative=bool(metadata.get("cooperative")),
        opaque=tuple(
            opaque(cuda, TensorMap.of(facts)) for facts in metadata.get("tensor_maps", ())
        ),
    )
