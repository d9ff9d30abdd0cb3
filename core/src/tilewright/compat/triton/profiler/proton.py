"""``python -m triton.profiler.proton script.py``: run a program, or a module, as one session.

``-m`` runs a module.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence

from tilewright.compat.triton.profiler.session import DEFAULT_PROFILE_NAME, finalize, start


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="proton", description="Profile a program.")
    parser.add_argument(
        "-n", "--name", default=DEFAULT_PROFILE_NAME, help="of the file that is written"
    )
    parser.add_argument("-b", "--backend", default=None)
    parser.add_argument("-c", "--context", default="shadow", choices=("shadow", "python"))
    parser.add_argument("-d", "--data", default="tree", choices=("tree", "trace"))
    parser.add_argument("-k", "--hook", default=None, choices=("triton",))
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    start(
        given.name, context=given.context, data=given.data, backend=given.backend, hook=given.hook
    )
    sys.argv = [given.program, *given.arguments]
    try:
        runpy.run_module(
            given.program, run_name="__main__", alter_sys=True
        ) if given.module else runpy.run_path(given.program, run_name="__main__")
    finally:
        finalize()


if __name__ == "__main__":
    main()
