"""Code that is linked, assembled or compiled once more before a device takes it: what comes of it, where it is kept, what is said where it fails."""

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
        spills: bytes that the code stores to and loads from local memory for want of registers; None where nobody tells.
        by: who made it.
    """

    binary: bytes
    log: str = ""
    spills: int | None = 0
    by: str = "the driver"


def log_text(buffer: bytes | bytearray) -> str:
    """What a linker wrote into a buffer, up to the first zero."""
    return bytes(buffer).partition(b"\0")[0].decode(errors="replace").strip()


def rejected(told: str, source: bytes, suffix: str) -> LoweringError:
    """The error of a linker that rejects what a backend wrote, which is the backend's defect.

    Args:
        told: who could not link what, and what it said.
        source: what it was given: it is written to a file that the message names.
        suffix: of the file.
    """
    return LoweringError(f"{told}\nreproducer: {write_reproducer(source, suffix)}")


def kept_binary(name: str, source: bytes, facts: Sequence[str], link: Callable[[], Linked]) -> bytes:
    """The linked code of ``source``, of the disk cache where it is there.

    Args:
        name: for people who look at the cache.
        facts: everything else the linked code depends on: backend and version, driver, architecture.

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
    """Whether another process started this one to share its work: a worker of a tuning, or of ``multiprocessing``. Workers should not each take a context on a
    device."""
    server = sys.modules.get("tilewright.runtime.compiler.worker_server")
    if server is not None and server.serving:
        return True
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
