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

from tilewright import child_process
from tilewright.errors import LoweringError

#: What can be made of IR text.
Form = Literal["object", "assembly"]

_CHILD = "from tilewright.llvm.subprocess_codegen import _serve; _serve()"
#: The name of a function that others can call.
_FUNCTION: Final = re.compile(r'^define (?!internal|private|linkonce)[^@]*@"?([^"(]+)', re.MULTILINE)

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
            the message has its reasons. Or it takes longer than ``TILEWRIGHT_COMPILE_TIME_LIMIT`` allows.
    """
    from tilewright.llvm.compile import options_set

    target = [triple, cpu, features, opt]
    request = json.dumps({"ir": ir_text, "forms": forms, "target": target, "passes": list(passes), "options": [*options_set(), *options]})
    done = _ran(request.encode(), ir_text)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"the code generator ended with status {done.returncode}"
        what = "the target's assembler rejects the inline assembly of this kernel" if has_inline_assembly(ir_text) else "no code is generated for this kernel"
        raise LoweringError(f"{what}:\n{reason}")
    first, _, rest = done.stdout.partition(b"\n")
    told = json.loads(first)
    if isinstance(told, str):
        raise LoweringError(told)
    return [rest[end - size : end] for size, end in zip(told, itertools.accumulate(told), strict=True)]


def _ran(request: bytes, ir_text: str) -> subprocess.CompletedProcess[bytes]:
    """A child that was given a request, at its end. It ends with this process: it waits for the end of a pipe, too, whose other end is here."""
    limit = child_process.time_limit()
    theirs, ours = os.pipe()
    try:
        return subprocess.run(
            child_process.python_command(_CHILD, os.getpid(), theirs),
            input=request,
            capture_output=True,
            env=child_process.environment(),
            pass_fds=(theirs,) if os.name == "posix" else (),
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        named = _FUNCTION.search(ir_text)
        raise LoweringError(
            f"generating the code of {named[1] if named else 'a kernel'} took longer than {limit:g} seconds and was ended: make the kernel smaller (its tiles, "
            f"and loops that are unrolled), or set {child_process.VARIABLE} to more seconds, 0 for no limit"
        ) from None
    finally:
        os.close(theirs)
        os.close(ours)


def _serve() -> None:
    """The child: a request on standard input; on standard output a line with the sizes of what was made, then that; or a line with what is wrong with the
    request."""
    child_process.end_with_parent(int(sys.argv[1]))
    if os.name == "posix":
        child_process.end_with_pipe(int(sys.argv[2]))
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
