"""Code generation in a process of its own.

For modules with inline assembly: LLVM ends the process where its assembler rejects inline assembly, unless the context has a diagnostic handler, which
llvmlite cannot set. So such a module, whose assembly a kernel's author wrote, goes to a child (some 0.15 s); an error there is an exception here. And for
long modules that need options of LLVM's which others must not have: an option is the whole process's, and for good. And for modules so long that generating
their code takes seconds, since a process can be ended in the middle of it: an interrupt of the main thread does.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, Literal

from tilewright.errors import LoweringError

#: What can be made of IR text.
Form = Literal["object", "assembly"]

_CHILD = "from tilewright.llvm.subprocess_codegen import _serve; _serve()"


#: Assembly but for a mark that memory is not accessed across, which has no instruction that an assembler could reject.
_ASSEMBLY: Final = re.compile(r' asm (?!sideeffect "", "~\{memory\}"\(\))')


def has_inline_assembly(ir_text: str) -> bool:
    """Whether IR text may have inline assembly that an assembler reads: cheap, and never wrong where it says no."""
    return " asm " in ir_text and _ASSEMBLY.search(ir_text) is not None


def generate_in_subprocess(
    ir_text: str, *forms: Form, triple: str, cpu: str, features: str, opt: int, passes: Sequence[str], options: Sequence[str] = ()
) -> list[bytes]:
    """Object code, assembly, or both of IR text, in the order asked for, made by one child process, which has ``options`` besides those of this one.

    Raises:
        LoweringError: this LLVM has no such target, the text is not valid LLVM IR, or the code generator fails, as where the assembler rejects inline assembly;
            the message has its reasons.
    """
    from tilewright.llvm.compile import options_set

    target = [triple, cpu, features, opt]
    request = json.dumps({"ir": ir_text, "forms": forms, "target": target, "passes": list(passes), "options": [*options_set(), *options]})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", _CHILD], input=request.encode(), capture_output=True, env=environment, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"the code generator ended with status {done.returncode}"
        what = "the target's assembler rejects the inline assembly of this kernel" if has_inline_assembly(ir_text) else "no code is generated for this kernel"
        raise LoweringError(f"{what}:\n{reason}")
    first, _, rest = done.stdout.partition(b"\n")
    told = json.loads(first)
    if isinstance(told, str):
        raise LoweringError(told)
    return [rest[end - size : end] for size, end in zip(told, itertools.accumulate(told), strict=True)]


def _serve() -> None:
    """The child: a request on standard input; on standard output a line with the sizes of what was made, then that; or a line with what is wrong with the
    request."""
    from tilewright.llvm.compile import prepared, set_option, target_machine

    request = json.loads(sys.stdin.buffer.read())
    for option in request["options"]:
        set_option(option)
    try:
        machine = target_machine(*request["target"])
        module = prepared(request["ir"], machine, request["passes"])
    except LoweringError as error:
        print(json.dumps(str(error)))
        return
    *others, last = request["forms"]
    modules = [*((form, module.clone()) for form in others), (last, module)]  # generating code changes a module
    made = [machine.emit_object(each) if form == "object" else machine.emit_assembly(each).encode() for form, each in modules]
    sys.stdout.buffer.write(json.dumps([len(each) for each in made]).encode() + b"\n" + b"".join(made))
