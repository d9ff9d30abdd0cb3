"""Code generation in a process of its own, for modules with inline assembly.

LLVM ends the process where its assembler rejects inline assembly, unless the context has a diagnostic handler, which llvmlite cannot set. So such a
module, whose assembly a kernel's author wrote, goes to a child (some 0.15 s); an error there is an exception here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from tilewright.errors import LoweringError

_CHILD = "from tilewright.llvm.apart import _serve; _serve()"


def has_inline_assembly(ir_text: str) -> bool:
    """Whether IR text may have inline assembly: cheap, and never wrong where it says no."""
    return " asm " in ir_text


def object_apart(ir_text: str, *, triple: str, cpu: str, features: str, opt: int, passes: Sequence[str]) -> bytes:
    """Object code of IR text, made by a child process.

    Raises:
        LoweringError: the assembler rejects the inline assembly; the message has its reasons.
    """
    from tilewright.llvm.compile import options_set

    request = json.dumps({"ir": ir_text, "target": [triple, cpu, features, opt], "passes": list(passes), "options": options_set()})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", _CHILD], input=request.encode(), capture_output=True, env=environment, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"the code generator ended with status {done.returncode}"
        raise LoweringError(f"the target's assembler rejects the inline assembly of this kernel:\n{reason}")
    return done.stdout


def _serve() -> None:
    """The child: a request on standard input, object code on standard output."""
    from tilewright.llvm.compile import prepared, set_option, target_machine

    request = json.loads(sys.stdin.buffer.read())
    for option in request["options"]:
        set_option(option)
    machine = target_machine(*request["target"])
    sys.stdout.buffer.write(machine.emit_object(prepared(request["ir"], machine, request["passes"])))
