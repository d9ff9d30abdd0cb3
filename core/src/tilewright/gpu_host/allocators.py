"""Release of memory held by the caching allocators of other libraries.

PyTorch and CuPy cache freed memory. The driver counts it as in use, so an allocation elsewhere in
the process may fail while
most of the device is free.
"""

from __future__ import annotations

import sys

from tilewright.gpu_host.table import StreamNames


def release_unused(names: StreamNames) -> bool:
    """Return cached unused memory to the driver; return whether an allocator was in use.

    PyTorch is not asked while its current stream is captured into a graph, which would end the
    capture.
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
