"""Trust in files of code: none that another user could have written is run.

Whoever can write to a file, or to its folder, decides what this process runs.

A folder that is made here is for its owner alone (0700), and so is a file (0600). One that is there
must belong to this user, or to the system's administrator, and others must not be able to write to
it; unless ``TILEWRIGHT_CACHE_SHARED=1`` says that those who can are trusted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from tilewright.environment import flag
from tilewright.runtime.storage.files import read_whole, write_whole

VARIABLE = "TILEWRIGHT_CACHE_SHARED"


class UntrustedError(PermissionError):
    """A file, or the folder it lies in, is another user's, or others can write to it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


def make(folder: Path, root: Path | None = None) -> None:
    """Make a folder for this user alone, with its parents up to ``root``, where missing.

    Folders above ``root`` are made with the usual permissions.

    A folder below the root that is there and is this user's loses the group's and others'
    permission to write: what they put into it before is refused file by file (see :func:`read`).

    Raises:
        OSError: it cannot be made.
    """
    if root is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    make(root)
    shared = _unchecked()
    current = root
    for name in folder.relative_to(root).parts:
        current /= name
        current.mkdir(mode=0o777 if shared else 0o700, exist_ok=True)
        if not shared:
            _close_to_others(current)


def distrust(path: Path) -> str:
    """Return the reason not to trust a file or folder, with the remedy; empty where trusted.

    Empty also where it does not exist, or the system has no such owners.
    """
    if _unchecked():
        return ""
    try:
        found = path.stat()
    except OSError:  # it is not there, or cannot be looked into: then nothing is read
        return ""
    return _objection(path, found)


def read(path: Path, limit: int) -> bytes:
    """Read a regular file that only this user or the administrator could have written.

    Never blocks, whatever lies at the path.


    The check applies to the opened file, so that it cannot be replaced in between.

    Args:
        limit: bytes that it has at most.

    Raises:
        UntrustedError: somebody else could have written it.
        NotAFileError: it is a directory, a pipe, a device.
        TooLargeError: it has more bytes.
        OSError: it cannot be read.
    """
    if _unchecked():
        return read_whole(path, limit)
    folder = os.open(path.parent, os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY))
    try:
        _refuse(path.parent, os.fstat(folder))
        return read_whole(path, limit, folder, lambda found: _refuse(path, found))
    finally:
        os.close(folder)


def write(path: Path, data: bytes, root: Path) -> None:
    """Write a file for this user alone atomically; make missing folders from ``root`` on.

    Raises:
        UntrustedError: the folder it would lie in is another user's.
        OSError: it cannot be written.
    """
    make(path.parent, root)
    reason = distrust(path.parent)
    if reason:
        raise UntrustedError(reason)
    write_whole(path, data, mode=0o666 if _shared() else 0o600)


def write_first(path: Path, data: bytes, root: Path) -> None:
    """Write a file as :func:`write` does, unless there is one.

    Raises:
        UntrustedError: the folder it would lie in is another user's.
        OSError: it cannot be written.
    """
    if path.exists():
        return
    own = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    write(own, data, root)
    try:
        os.link(own, path)  # which replaces nothing
    except FileExistsError:
        pass
    except OSError:  # the file system has no links
        os.replace(own, path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(own)


def _shared() -> bool:
    return flag(VARIABLE)


def _unchecked() -> bool:
    return os.name != "posix" or _shared()


def _refuse(path: Path, found: os.stat_result) -> None:
    reason = _objection(path, found)
    if reason:
        raise UntrustedError(reason)


def _objection(path: Path, found: os.stat_result) -> str:
    remedy = (
        f"set TILEWRIGHT_CACHE_DIR to a folder of your own, or {VARIABLE}=1 where you trust "
        "all who can write to it"
    )
    if found.st_uid not in (os.geteuid(), 0):
        return (
            f"{path} belongs to another user (uid {found.st_uid}), who could make this process "
            f"run anything: {remedy}"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
        return (
            f"others can write to {path} (mode {stat.S_IMODE(found.st_mode):o}) and make this "
            f"process run anything: chmod {mode} {path}, {remedy}"
        )
    return ""


def _close_to_others(folder: Path) -> None:
    """Remove group and other write permission from a folder that this user owns.

    Links are left alone.
    """
    with contextlib.suppress(OSError):  # then the folder is refused where it is used
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            found = os.fstat(opened)
            if found.st_uid == os.geteuid() and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                os.fchmod(opened, stat.S_IMODE(found.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
        finally:
            os.close(opened)
