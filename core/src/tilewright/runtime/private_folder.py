"""Whether a folder of code can be trusted: whoever can write to it decides what this process runs.

A folder that is made here is for its owner alone (0700). One that is there must belong to this user, or to the system's administrator, and others must not be
able to write to it; unless ``TILEWRIGHT_CACHE_SHARED=1`` says that those who can are trusted.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tilewright.environment import flag

VARIABLE = "TILEWRIGHT_CACHE_SHARED"


def make(folder: Path) -> None:
    """Make a folder for this user alone, where there is none; folders above it are made as usual.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def distrust(folder: Path) -> str:
    """Why what lies in a folder must not be run, with the remedy; empty where it may, where there is no folder, and where systems have no such owners."""
    if os.name != "posix" or flag(VARIABLE):
        return ""
    try:
        found = folder.stat()
    except OSError:  # it is not there, or cannot be looked into: then nothing is read
        return ""
    remedy = f"set TILEWRIGHT_CACHE_DIR to a folder of your own, or {VARIABLE}=1 where you trust all who can write to it"
    if found.st_uid not in (os.geteuid(), 0):
        return f"{folder} belongs to another user (uid {found.st_uid}), who could make this process run anything: {remedy}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to {folder} (mode {stat.S_IMODE(found.st_mode):o}) and make this process run anything: chmod 700 {folder}, {remedy}"
    return ""
