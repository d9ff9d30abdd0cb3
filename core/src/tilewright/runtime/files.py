"""Files that other processes read and write, and warnings about them."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import warnings
from pathlib import Path
from types import FrameType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, on network file systems too: to a temporary file beside it, which is then renamed.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        try:
            os.replace(temporary, path)
        except (IsADirectoryError, PermissionError):  # how systems refuse to replace a directory; an empty one is in nobody's way
            os.rmdir(path)
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class NotAFileError(OSError):
    """What lies at a path is no regular file."""


def read_whole(path: Path) -> bytes:
    """The bytes of a regular file. Never waits, whatever lies at the path.

    Raises:
        NotAFileError: it is a directory, a pipe, a device.
        OSError: it cannot be read.
    """
    # a pipe without a writer would wait for one
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NotAFileError(f"{path} is no regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def remove(path: Path) -> bool:
    """Remove what lies at a path, also an empty directory; whether nothing is left there."""
    try:
        try:
            os.unlink(path)
        except (IsADirectoryError, PermissionError):  # how systems refuse to unlink a directory
            os.rmdir(path)
    except OSError:
        return not os.path.lexists(path)
    return True


def warn_user(message: str) -> None:
    """Warn with the location of the caller's own code: the innermost frame outside of this package."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith((_OURS, "<launcher of ")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
