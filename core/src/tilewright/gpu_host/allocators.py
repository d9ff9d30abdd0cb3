"""Memory that the caching allocators of other libraries keep for themselves.

PyTorch and CuPy keep what their programs have freed. To the driver it is in use, so that it may have no memory left for anybody else in the process while
most of the device is free.
"""

from __future__ import annotations

import sys

from tilewright.gpu_host.table import StreamNames


def release_unused(names: StreamNames) -> bool:
    """Let the allocators that this process uses give back to the driver what they keep unused; whether there was one to ask.

    PyTorch is not asked while its current stream is captured into a graph, which would end the capture.
    """
    asked = False
    torch = getattr(sys.modules.get("torch"), names.torch, None)
    if torch is not None and torch.is_initialized() and not torch.is_current_stream_capturing():
        torch.empty_cache()
        asked = True
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        asked = True
    return asked
