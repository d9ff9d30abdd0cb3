"""``python -m tilewright.compat.triton script.py args``: run a program on Tilewright's ``triton``.

``-m module args`` runs a module.
"""

from __future__ import annotations

import os
import runpy
import sys

from tilewright.compat.children import inherit

_USAGE = """usage: python -m tilewright.compat.triton script.py [arguments ...]
       python -m tilewright.compat.triton -m module [arguments ...]
       python -m tilewright.compat.triton -c code [arguments ...]

Runs a Python program in which 'import triton' finds Tilewright. Processes that it starts
inherit this."""


def main(arguments: list[str]) -> int:
    """Run what ``arguments`` say, as ``python`` would; exits as it does."""
    if (
        not arguments
        or arguments[0] in ("-h", "--help")
        or (arguments[0] in ("-m", "-c") and len(arguments) < 2)
    ):
        print(_USAGE, file=sys.stderr if not arguments else sys.stdout)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    inherit()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0] = ""
        exec(
            compile(arguments[1], "<string>", "exec"),
            {"__name__": "__main__", "__builtins__": __builtins__},
        )
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
