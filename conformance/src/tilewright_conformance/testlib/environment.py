"""Environment variables of the runtime, for a while."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables in the block, and as they were after it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """A disk cache of the block's own, empty at its start."""
    with (
        tempfile.TemporaryDirectory(prefix="tilewright-conformance-") as folder,
        environment(TILEWRIGHT_CACHE_DIR=folder),
    ):
        yield
