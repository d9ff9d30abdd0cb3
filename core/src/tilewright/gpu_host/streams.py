"""Streams: handles of other libraries' stream objects, and the current stream."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilewright.errors import LaunchError
from tilewright.gpu_host.table import StreamNames


def torch_source(names: StreamNames) -> Callable[[int], int] | None:
    """Return PyTorch's function for the current stream; None if PyTorch does not use the device.

    Does not import PyTorch.
    """
    torch = sys.modules.get("torch")
    find = getattr(getattr(torch, "_C", None), f"_{names.torch}_getCurrentRawStream", None)
    if find is None or not getattr(torch, names.torch).is_initialized():
        return None
    found: Callable[[int], int] = find
    return found


def current_stream(names: StreamNames, device: int) -> int:
    """Return PyTorch's current stream if PyTorch uses the device, else the default stream."""
    find = torch_source(names)
    return 0 if find is None else int(find(device))


def stream_handle(names: StreamNames, stream: Any, device: int) -> int:
    """Return the handle of the stream to launch in.

    The stream is a handle, an object of another library, or None for the current stream.

    Raises:
        LaunchError: it is no stream.
    """
    if stream is None:
        return current_stream(names, device)
    if isinstance(stream, int):
        return stream
    for name in names.attributes:
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(handle)
    protocol = getattr(stream, names.protocol, None)
    if protocol is not None:
        _, handle = protocol() if callable(protocol) else protocol
        return int(handle)
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise LaunchError(
            f"a {type(stream).__name__} is no stream: pass a handle, or a stream of "
            f"{names.libraries}"
        ) from None
