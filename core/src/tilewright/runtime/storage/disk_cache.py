"""The disk cache: bytes by key, in a directory that many processes may share.

An entry is one file, ``<first two digits of the key>/<key>.kernel``. It is written to a temporary
file in the same directory and renamed, so that a reader sees all of it or nothing, on network file
systems too. Entries are code: a directory, a folder in it, or an entry that others could write to
is not used, unless it is shared knowingly (see ``private_folder``). Entries carry a checksum (see
``artifact``): a damaged entry is a miss and is removed. The LRU entries are evicted
first when the cache outgrows its cap. A directory that cannot be written is used for reading alone.

Environment: ``TILEWRIGHT_CACHE_DIR`` (default: the platform's directory for user caches),
``TILEWRIGHT_CACHE_SIZE`` (bytes, or with K, M, G; default 2G; 0 turns the cache off).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright import logs
from tilewright.environment import refused
from tilewright.runtime.storage import private_folder
from tilewright.runtime.storage.artifact import Artifact, DamagedArtifactError, pack, unpack
from tilewright.runtime.storage.files import NotAFileError, TooLargeError, remove, warn_user

DEFAULT_SIZE = 2 << 30
_SUFFIX = ".kernel"
#: seconds after which a hit is worth a new time stamp
_TOUCH_AFTER = 60.0
#: seconds after which an unfinished temporary file is somebody's leftover
_STALE_TEMPORARY = 3600.0
#: part of the cap that is left after an eviction
_KEEP = 0.9


@dataclass(frozen=True)
class CacheInfo:
    """Data of ``tilewright cache info``; sizes in bytes."""

    directory: str
    entries: int
    size: int
    cap: int
    writable: bool


class DiskCache:
    """A cache of artifacts in ``directory``, of at most ``cap`` bytes."""

    def __init__(self, directory: Path, cap: int = DEFAULT_SIZE) -> None:
        self.directory = directory
        self.cap = cap
        self._writable: bool | None = None
        self._is_trusted = False
        self._size: int | None = None
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def path(self, key: str) -> Path:
        """Return the file of a key (hex digits)."""
        return self.directory / key[:2] / f"{key}{_SUFFIX}"

    def _is_folder(self, name: str) -> bool:
        """Return whether entries may lie in a folder of this name."""
        return len(name) == 2

    def _take_out(self, entry: Path) -> None:
        """Remove an entry that blocks the path of others."""
        entry.unlink()

    def get(self, key: str, name: str = "") -> Artifact | None:
        """Return the artifact of a key, or None; ``name`` is the kernel's, for the log."""
        found = self._found(key)
        if logs.CACHE.on():
            where = (
                f"in {self.directory}, {key[:16]}"
                if self.cap > 0
                else "in the disk cache, which is off"
            )
            logs.CACHE.tell(f"{name or 'a kernel'}: {'' if found is not None else 'not '}{where}")
        return found

    def _found(self, key: str) -> Artifact | None:
        if self.cap <= 0 or not self._trusted():
            return None
        path = self.path(key)
        try:
            data = private_folder.read(path, self.cap)
        except private_folder.UntrustedError as error:
            self._warn(
                "entry trust",
                "an entry of the kernel cache is not used, and the kernel is compiled "
                f"anew: {error}",
            )
            return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (NotAFileError, IsADirectoryError):
            self._remove_damaged(path, "it is no regular file")
            return None
        except (TooLargeError, MemoryError):
            self._remove_damaged(path, "it is larger than a kernel can be")
            return None
        except OSError as error:
            self._warn(
                "read", f"the kernel cache cannot be read ({error}); kernels are compiled anew"
            )
            return None
        try:
            found = unpack(data, key)
        except DamagedArtifactError as error:
            self._remove_damaged(path, str(error))
            return None
        self._touch(path)
        found.cache_hit = True
        return found

    def put(self, artifact: Artifact) -> bool:
        """Store an artifact; False where the cache takes none."""
        if self.cap <= 0 or self._writable is False or not self._trusted():
            return False
        data = pack(artifact)
        if len(data) > self.cap:
            return False
        path = self.path(artifact.key)
        try:
            private_folder.write(path, data, self.directory)
        except private_folder.UntrustedError as error:
            self._warn("entry", f"a kernel cannot be kept in the cache: {error}")
            return False
        except OSError as error:
            if error.errno != errno.ENOSPC and self.probe():
                # something lies in the way of this entry; others can be written
                self._warn("entry", f"a kernel cannot be kept in the cache: {error}")
                return False
            self._writable = False
            self._warn(
                "write",
                f"the kernel cache {self.directory} cannot be written ({error}); kernels are not "
                "kept. Set TILEWRIGHT_CACHE_DIR to a directory that can",
            )
            return False
        self._writable = True
        self._grow(len(data))
        return True

    def discard(self, key: str, reason: str) -> None:
        """Remove the unusable entry of a key, with a warning."""
        self._remove_damaged(self.path(key), reason)

    def clear(self) -> int:
        """Remove every entry, and return how many there were."""
        count = 0
        for entry, _ in self._entries():
            with contextlib.suppress(OSError):
                self._take_out(entry)
                count += 1
        self._size = None
        return count

    def info(self) -> CacheInfo:
        sizes = [status.st_size for _, status in self._entries()]
        return CacheInfo(
            str(self.directory),
            len(sizes),
            sum(sizes),
            self.cap,
            not private_folder.distrust(self.directory) and self.probe(),
        )

    def _trusted(self) -> bool:
        """Return whether entries are trusted; a positive answer is cached for this process."""
        if not self._is_trusted:
            reason = private_folder.distrust(self.directory)
            if reason:
                self._warn("trust", f"the kernel cache is not used: {reason}")
                return False
            self._is_trusted = os.path.isdir(self.directory)
        return True

    def probe(self) -> bool:
        """Return whether an entry could be written now."""
        try:
            private_folder.make(self.directory)
            with tempfile.TemporaryFile(dir=self.directory):
                return True
        except OSError:
            return False

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield every entry with its status.

        Entries that vanish meanwhile are skipped, and old temporary files are removed.
        """
        now = time.time()
        try:
            folders = [
                entry.path
                for entry in os.scandir(self.directory)
                if entry.is_dir(follow_symlinks=False) and self._is_folder(entry.name)
            ]
        except OSError:
            return
        for folder in folders:
            try:
                listed = list(os.scandir(folder))
            except OSError:
                continue
            for entry in listed:
                try:
                    status = entry.stat()
                except OSError:
                    continue
                if entry.name.endswith(_SUFFIX):
                    yield Path(entry.path), status
                elif entry.name.endswith(".tmp") and now - status.st_mtime > _STALE_TEMPORARY:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)

    def _remove_damaged(self, path: Path, reason: str) -> None:
        done = "removed" if remove(path) else "cannot remove"
        self._warn("damage", f"{done} a damaged entry of the kernel cache, {path}: {reason}")

    def _touch(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _TOUCH_AFTER:
                os.utime(path)

    def _grow(self, size: int) -> None:
        """Account for a new entry, and evict the LRU entries beyond the cap.

        What other processes add is seen at the scan, which happens when this process starts to
        write and whenever its own count passes the cap.
        """
        with self._lock:
            if self._size is not None:
                self._size += size
                if self._size <= self.cap:
                    return
            entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime)
            total = sum(status.st_size for _, status in entries)
            if total > self.cap:
                for path, status in entries:
                    if total <= self.cap * _KEEP:
                        break
                    with contextlib.suppress(OSError):
                        self._take_out(path)
                    total -= status.st_size
            self._size = total

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn_user(message)


def parse_size(text: str) -> int:
    """Parse a size such as ``"512M"``, ``"2G"`` or ``"1000000"`` to bytes.

    Raises:
        VariableError: it is no size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", text, re.IGNORECASE)
    if not found:
        raise refused("TILEWRIGHT_CACHE_SIZE", "bytes, or a number with K, M or G", text)
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


#: Override by a higher layer with its own directory setting; it returns None to defer to the
#: environment.
directory_setting: Callable[[], str | None] | None = None
#: Class of the cache.
cache_of_setting: Callable[[Path, int], DiskCache] = DiskCache


def _set_directory() -> str | None:
    return directory_setting() if directory_setting is not None else None


def default_directory() -> Path:
    """``TILEWRIGHT_CACHE_DIR``, else ``tilewright`` in the platform's directory for user caches."""
    chosen = _set_directory() or os.environ.get("TILEWRIGHT_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "tilewright"


_caches: dict[tuple[str, int, bool], DiskCache] = {}


def disk_cache() -> DiskCache:
    """Return the cache that the environment names now."""
    directory = default_directory()
    text = os.environ.get("TILEWRIGHT_CACHE_SIZE")
    cap = parse_size(text) if text else DEFAULT_SIZE
    set_above = bool(_set_directory())
    key = (str(directory), cap, set_above)
    found = _caches.get(key)
    if found is None:
        found = _caches.setdefault(
            key, cache_of_setting(directory, cap) if set_above else DiskCache(directory, cap)
        )
    return found
