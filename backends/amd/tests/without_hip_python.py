"""Run a program as if hip-python were not installed: FILE, -m MODULE or -c CODE.

python without_hip_python.py -m tilewright_conformance run --backend amd --emulate gfx942
"""

from __future__ import annotations

import importlib.machinery
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType


class _WithoutRocm(importlib.machinery.PathFinder):
    """The finder of installed modules, which finds no package ``rocm``."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] == "rocm":
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path = [
    _WithoutRocm if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path
]
if sys.argv[1] == "-m":
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
elif sys.argv[1] == "-c":
    exec(compile(sys.argv[2], "<string>", "exec"), {"__name__": "__main__"})
else:
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
