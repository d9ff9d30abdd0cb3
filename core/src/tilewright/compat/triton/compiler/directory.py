"""The directory of the kernel cache in Triton's terms.

Where the program or its environment names one, Tilewright's cache keeps its entries there, each in
the directory of its kernel: copying a kernel's directory to another machine copies the kernel.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from tilewright.compat.triton import knobs
from tilewright.runtime.storage import disk_cache

_ENTRY: Final = "tilewright.kernel"
#: Letters of 32 bytes in base 32, which keys of Triton's directories are.
_KEY_LENGTH: Final = 52


def directory() -> str | None:
    """Return the directory of the kernel cache named in Triton's terms, or None.

    The program or its environment names it.
    """
    settings = knobs.cache
    chosen = "dir" in settings.__dict__ or "home_dir" in settings.__dict__
    return (
        settings.dir
        if chosen or os.environ.get("TRITON_CACHE_DIR") or os.environ.get("TRITON_HOME")
        else None
    )


class TritonDirectory(disk_cache.DiskCache):
    """Tilewright's cache in a Triton directory: an entry is one file in its kernel's directory.

    It goes with that directory.
    """

    def path(self, key: str) -> Path:
        from tilewright.compat.triton.runtime.cache import base32

        return self.directory / base32(key) / _ENTRY

    def _is_folder(self, name: str) -> bool:
        return len(name) == _KEY_LENGTH

    def _take_out(self, entry: Path) -> None:
        shutil.rmtree(entry.parent)


disk_cache.directory_setting = directory
disk_cache.cache_of_setting = TritonDirectory
