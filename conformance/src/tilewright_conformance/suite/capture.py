"""Capture of native output: drivers print for kernels to the process's own descriptors."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def captured_output(descriptors: Sequence[int] = (1,)) -> Iterator[list[str]]:
    """Capture what is written to file descriptors during the block.

    Descriptor 1 is standard output, 2 standard error. The block gets a list that holds the text
    when it has ended.
    """
    found: list[str] = []
    with tempfile.TemporaryFile() as kept, contextlib.ExitStack() as stack:
        _flush()
        for descriptor in descriptors:
            before = os.dup(descriptor)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, descriptor)
            os.dup2(kept.fileno(), descriptor)
        stack.callback(
            _flush
        )  # the first to be called: what is still in buffers was written in the block
        try:
            yield found
        finally:
            stack.close()
            kept.seek(0)
            found.append(kept.read().decode(errors="replace"))


def _flush() -> None:
    """Write what Python and the C library hold back."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
