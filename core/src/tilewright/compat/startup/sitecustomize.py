"""Start-up code of an interpreter where this directory is the first of PYTHONPATH.

It is needed where no site directory has ``tilewright_triton.pth``. It runs the shim, if
``TILEWRIGHT_TRITON`` asks for it, and then the ``sitecustomize`` that this file shadows, if there
is one.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _run_the_next(here: str) -> None:
    path = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("TILEWRIGHT_TRITON", "").strip().lower() not in ("", "0", "false", "no", "off"):
    import tilewright.compat.triton  # noqa: F401
_run_the_next(os.path.realpath(os.path.dirname(__file__)))
