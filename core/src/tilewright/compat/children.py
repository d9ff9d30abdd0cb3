"""Processes that this one starts find Tilewright under Triton's name, as it does."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

#: The line that an interpreter runs at its start, where it stands in a site directory.
_LINE = "tilewright_triton.pth"
_STARTUP = Path(__file__).with_name("startup")


def inherit() -> None:
    """Make interpreters that inherit this environment answer ``import triton``.

    Where the package lies in no site directory, whose lines Python runs (``pip install --target``,
    a source tree on PYTHONPATH), its place and a ``sitecustomize`` go to the front of PYTHONPATH;
    one that was there runs after ours. They go to ``sys.path`` too: PyTorch passes that to its
    workers as their PYTHONPATH.
    """
    os.environ["TILEWRIGHT_TRITON"] = "1"
    if any((Path(directory) / _LINE).exists() for directory in _site_directories()):
        return
    root = str(Path(__file__).resolve().parents[2])
    path = [str(_STARTUP), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if root not in map(os.path.abspath, path):
        path.append(root)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    if str(_STARTUP) not in sys.path:
        sys.path.insert(1, str(_STARTUP))


def _site_directories() -> list[str]:
    """Return the directories where this interpreter finds ``.pth`` lines.

    There are none under ``-S``, whose children may have other flags.
    """
    if sys.flags.no_site:
        return []
    return [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
