"""``triton.tools.disasm``: the machine code of NVIDIA GPUs as text.

It needs ``cuobjdump`` of the CUDA toolkit.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile

from tilewright.compat.triton import knobs

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s*(.*?;)", re.MULTILINE)


def path_to_cuobjdump() -> tuple[str, str]:
    """The path of the disassembler, and its version.

    Raises:
        RuntimeError: it is not installed.
    """
    tool = knobs.nvidia.cuobjdump
    return tool.path, tool.version


def get_sass(cubin_asm: bytes, fun: str | None = None) -> str:
    """The instructions of a cubin, of all its functions or of one.

    Raises:
        RuntimeError: the disassembler is not installed.
    """
    descriptor, path = tempfile.mkstemp(suffix=".cubin")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(cubin_asm)
        return extract(path, fun)
    finally:
        os.remove(path)


def extract(file_path: str, fun: str | None) -> str:
    """Return the instructions of a cubin file, one a line, with a header for each function.

    Addresses and encodings are removed.
    """
    command = [path_to_cuobjdump()[0], *(["-fun", fun] if fun else []), "-sass", file_path]
    printed = subprocess.check_output(command, text=True)
    parts = []
    for chunk in re.split(r"(?=^\s*Function\s*:)", printed, flags=re.MULTILINE):
        name = re.match(r"\s*Function\s*:\s*(\S+)", chunk)
        if name:
            parts.append(f"Function:{name[1]}")
            parts.extend(_INSTRUCTION.findall(chunk))
    return "\n".join(parts)


__all__ = ["extract", "get_sass", "path_to_cuobjdump"]
