"""``python -m tilewright.compat.triton script.py args``: run a program on Tilewright's ``triton``.

``-m module args`` runs a module. ``--host-tensors`` before either makes PyTorch create on the CPU
what the program asks for on a GPU.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from contextlib import AbstractContextManager
from typing import Any, Final

from tilewright.compat.children import inherit
from tilewright.errors import helped

_HOST_TENSORS: Final = "--host-tensors"
#: What PyTorch's errors say where a program asks for a GPU that is not there.
_WITHOUT_GPU: Final = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
)
_USAGE: Final = """\
usage: python -m tilewright.compat.triton [--host-tensors] script.py [arguments ...]
       python -m tilewright.compat.triton [--host-tensors] -m module [arguments ...]
       python -m tilewright.compat.triton [--host-tensors] -c code [arguments ...]

Runs a Python program in which 'import triton' finds Tilewright. Processes that it starts
inherit this.

--host-tensors  for machines without a GPU: PyTorch creates the tensors that the program asks for
                on a GPU on the CPU, and reports a GPU; kernels run on the backend 'cpu', or on
                that of TILEWRIGHT_BACKEND. Applies to the main thread of this process."""


def main(arguments: list[str]) -> int:
    """Run what ``arguments`` say, as ``python`` would; exits as it does."""
    on_host = arguments[:1] == [_HOST_TENSORS]
    arguments = arguments[on_host:]
    if (
        not arguments
        or arguments[0] in ("-h", "--help")
        or (arguments[0] in ("-m", "-c") and len(arguments) < 2)
    ):
        print(_USAGE, file=sys.stderr if not arguments else sys.stdout)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    inherit()
    with _host_tensors() if on_host else contextlib.nullcontext():
        try:
            _run(arguments)
        except (AssertionError, RuntimeError) as error:
            if not on_host and any(text in str(error) for text in _WITHOUT_GPU):
                helped(
                    error,
                    "without a GPU, let PyTorch create the tensors on the CPU: "
                    f"python -m tilewright.compat.triton {_HOST_TENSORS} {arguments[0]} ...",
                )
            raise
    return 0


def _host_tensors() -> AbstractContextManager[Any]:
    """Return the block in which tensors lie on the CPU; kernels run on a backend for them."""
    os.environ.setdefault("TILEWRIGHT_BACKEND", "cpu")
    from tilewright.compat.host_tensors import HostTensors

    return HostTensors()


def _run(arguments: list[str]) -> None:
    """Run the program, module or code that ``arguments`` begin with."""
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
