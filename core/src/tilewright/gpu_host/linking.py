"""Linking or assembling of device code before loading: results, caching and errors."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.errors import LoweringError, write_reproducer
from tilewright.plugins.manifest import CodeObject


@dataclass(frozen=True, slots=True)
class Linked:
    """Device code.

    Attributes:
        binary: the code.
        log: what the linker said.
        spills: bytes of register spills that the code stores and loads; None where unknown.
        by: the tool that made it.
    """

    binary: bytes
    log: str = ""
    spills: int | None = 0
    by: str = "the driver"


def log_text(buffer: bytes | bytearray) -> str:
    """Decode a linker's log buffer up to the first zero byte."""
    return bytes(buffer).partition(b"\0")[0].decode(errors="replace").strip()


def rejected(message: str, source: bytes, suffix: str) -> LoweringError:
    """Make the error for a linker that rejects a backend's code, a defect of the backend.

    Args:
        message: the linker, its input, and its log.
        source: the input; it is written to a file that the message names.
        suffix: of the file.
    """
    return LoweringError(f"{message}\nreproducer: {write_reproducer(source, suffix)}")


def kept_binary(
    name: str, source: bytes, facts: Sequence[str], link: Callable[[], Linked]
) -> bytes:
    """Return the linked code of ``source``, from the disk cache if it is there.

    Args:
        name: for people who look at the cache.
        facts: everything else the linked code depends on: backend and version, driver,
            architecture.

    Raises:
        LoweringError: what ``link`` raises.
    """
    from tilewright.runtime.storage.artifact import Artifact
    from tilewright.runtime.storage.disk_cache import disk_cache

    key = hashlib.sha256("\0".join(facts).encode() + source).hexdigest()
    cache = disk_cache()
    found = cache.get(key)
    if found is not None:
        return found.code.binary
    linked = link()
    cache.put(Artifact(key, CodeObject(name, linked.binary, {}, {"n_spills": linked.spills}), ()))
    return linked.binary


def is_worker() -> bool:
    """Return whether this process is a worker, of a tuning or of ``multiprocessing``.

    Workers should not each create a context on a device.
    """
    server = sys.modules.get("tilewright.runtime.compiler.worker_server")
    if server is not None and server.serving:
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
