"""Streams: objects of other libraries, and the current one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilewright.errors import LaunchError
from tilewright.gpu_host.table import StreamNames


def torch_source(names: StreamNames) -> Callable[[int], int] | None:
    """PyTorch's function that gives the current stream of a device; None where PyTorch does not use such devices. Does not import it."""
    torch = sys.modules.get("torch")
    find = getattr(getattr(torch, "_C", None), f"_{names.torch}_getCurrentRawStream", None)
    if find is None or not getattr(torch, names.torch).is_initialized():
        return None
    found: Callable[[int], int] = find
    return found


def current_stream(names: StreamNames, device: int) -> int:
    """The stream that launches go to: PyTorch's current one where PyTorch uses the device, else the default stream."""
    find = torch_source(names)
    return 0 if find is None else int(find(device))


def stream_handle(names: StreamNames, stream: Any, device: int) -> int:
    """The stream to launch in, as a number: a handle, or an object of another library; the current one for None.

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
        raise LaunchError(f"a {type(stream).__name__} is no stream: pass a handle, or a stream of {names.libraries}") from None
