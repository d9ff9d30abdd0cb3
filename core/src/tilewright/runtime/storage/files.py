"""Files that other processes read and write, and warnings about them."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically, also on network file systems.

    The data goes to a temporary file beside it, which is then renamed.

    Neither follows a link that lies at the path.

    Args:
        mode: its permissions, before the process's umask is applied.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{secrets.token_hex(8)}.tmp")
    handle = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        try:
            os.replace(temporary, path)
        except (IsADirectoryError, PermissionError):
            # how systems refuse to replace a directory; an empty one is in nobody's way
            os.rmdir(path)
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class NotAFileError(OSError):
    """A path names something other than a regular file."""


class TooLargeError(OSError):
    """A file is larger than its contents can legitimately be."""


def read_whole(
    path: Path,
    limit: int,
    folder: int | None = None,
    check: Callable[[os.stat_result], None] | None = None,
) -> bytes:
    """Read a regular file; never blocks, whatever lies at the path.

    Args:
        limit: bytes that it has at most. A file with holes may have any size on any disk, and is
            not read into memory to see what it is.
        folder: a descriptor of the open folder that it lies in.
        check: called with the status of what was opened, before it is read.

    Raises:
        NotAFileError: it is a directory, a pipe, a device.
        TooLargeError: it has more bytes.
        OSError: it cannot be read.
    """
    # a pipe without a writer would wait for one
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags) if folder is None else os.open(path.name, flags, dir_fd=folder)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise NotAFileError(f"{path} is no regular file")
        if check is not None:
            check(found)
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1) if found.st_size <= limit else b""
        if found.st_size > limit or len(data) > limit:  # it may grow while it is read
            raise TooLargeError(
                f"{path} has {max(found.st_size, len(data))} bytes, {limit} at most belong there"
            )
        return data
    finally:
        os.close(handle)


def remove(path: Path) -> bool:
    """Remove a file or empty directory; return whether nothing is left at the path."""
    try:
        try:
            os.unlink(path)
        except (IsADirectoryError, PermissionError):  # how systems refuse to unlink a directory
            os.rmdir(path)
    except OSError:
        return not os.path.lexists(path)
    return True


def warn_user(message: str) -> None:
    """Warn with the location of the caller's own code.

    This is the innermost frame outside of this package, its backends, and the decorators that it is
    called through.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and (
        frame.f_code.co_filename.startswith((_OURS, contextlib.__file__, "<launcher of "))
        or frame.f_globals.get("__name__", "").startswith("tilewright_")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
