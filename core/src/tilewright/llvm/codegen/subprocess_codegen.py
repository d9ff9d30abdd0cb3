"""Code generation in a process of its own.

For modules with inline assembly: LLVM ends the process where its assembler rejects inline assembly,
unless the context has a diagnostic handler, which llvmlite cannot set. So such a module, whose
assembly a kernel's author wrote, goes to a child (some 0.15 s); an error there is an exception
here. And for long modules that need options of LLVM's which others must not have: an option is the
whole process's, and for good. And for modules so long that generating their code takes seconds,
since a process can be ended in the middle of it: an interrupt of the main thread does.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from tilewright.child_process import (
    VARIABLE,
    end_with_parent,
    end_with_pipe,
    environment,
    python_command,
    time_limit,
)
from tilewright.errors import LoweringError
from tilewright.llvm.assembly.assembly_sites import ASSEMBLY, Sites

#: What can be made of IR text.
Form = Literal["object", "assembly"]

_CHILD = "from tilewright.llvm.codegen.subprocess_codegen import _serve; _serve()"
#: The name of a function that others can call.
_FUNCTION: Final = re.compile(
    r'^define (?!internal|private|linkonce)[^@]*@"?([^"(]+)', re.MULTILINE
)


def has_inline_assembly(ir_text: str) -> bool:
    """Return whether IR text may have inline assembly that an assembler reads.

    The test is cheap, and never wrong where it says no.
    """
    return " asm " in ir_text and ASSEMBLY.search(ir_text) is not None


def generate_in_subprocess(
    ir_text: str,
    *forms: Form,
    triple: str,
    cpu: str,
    features: str,
    opt: int,
    passes: Sequence[str],
    options: Sequence[str] = (),
    generator: str = "",
) -> list[bytes]:
    """Generate object code, assembly, or both of IR text, in the order of ``forms``.

    One child process does it, which has ``options`` besides those of this one.

    Args:
        generator: the module whose function ``generate`` makes them of the bitcode after the
            passes: another LLVM, which has an assembler that this one lacks. It takes the bitcode,
            then the forms, and the triple, cpu, features, level and options as they are here; and
            raises LoweringError.

            Raises: LoweringError: this LLVM has no such target, the text is not valid LLVM IR, or
            the code generator fails, as where the assembler rejects inline assembly; the message
            has its reasons, and the place of the assembly where that is known
            (:mod:`tilewright.llvm.assembly.assembly_sites`). Or it takes longer than
            ``TILEWRIGHT_COMPILE_TIME_LIMIT`` allows.
    """
    settings = {
        "forms": forms, "triple": triple, "cpu": cpu, "features": features, "opt": opt,
        "passes": list(passes), "options": list(options),
        "generator": generator,
    }  # fmt: skip
    try:
        return _generated(ir_text, settings)
    except _FailedError as error:
        sites = Sites(ir_text)
        known = sites.error(error.reason)
        if known is None and sites.several:
            try:
                _generated(sites.numbered(), settings)
            except _FailedError as failure:
                known = sites.error(failure.reason, numbered=True)
        if known is not None:
            raise known from None
        if has_inline_assembly(ir_text):
            raise sites.unknown(error.reason) from None
        raise LoweringError(f"no code is generated for this kernel:\n{error.reason}") from None


class _FailedError(Exception):
    """The child ended, or its code generator says why it fails."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _generated(ir_text: str, settings: Mapping[str, Any]) -> list[bytes]:
    """Return the code that a child process generates."""
    from tilewright.llvm.codegen.compile import options_set

    request = json.dumps(
        {**settings, "ir": ir_text, "options": [*options_set(), *settings["options"]]}
    )
    done = _ran(request.encode(), ir_text)
    if done.returncode:
        raise _FailedError(
            done.stderr.decode(errors="replace").strip()
            or f"the code generator ended with status {done.returncode}"
        )
    first, _, rest = done.stdout.partition(b"\n")
    answer = json.loads(first)
    if isinstance(answer, str):
        raise LoweringError(answer)
    if isinstance(answer, dict):
        raise _FailedError(answer["failed"])
    return [
        rest[end - size : end]
        for size, end in zip(answer, itertools.accumulate(answer), strict=True)
    ]


def _ran(request: bytes, ir_text: str) -> subprocess.CompletedProcess[bytes]:
    """Run a child on a request to its end.

    The child ends with this process: it waits for the end of a pipe, whose other end is here, too.
    """
    limit = time_limit()
    theirs, ours = os.pipe()
    try:
        return subprocess.run(
            python_command(_CHILD, os.getpid(), theirs),
            input=request,
            capture_output=True,
            env=environment(),
            pass_fds=(theirs,) if os.name == "posix" else (),
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        named = _FUNCTION.search(ir_text)
        raise LoweringError(
            f"generating the code of {named[1] if named else 'a kernel'} took longer than "
            f"{limit:g} seconds and was ended: make the kernel smaller (its tiles, and loops that "
            f"are unrolled), or set {VARIABLE} to more seconds, 0 for no limit"
        ) from None
    finally:
        os.close(theirs)
        os.close(ours)


def _serve() -> None:
    """The child: serve the request on standard input.

    Standard output gets a line with the sizes of the code, then the code; or a line with the error
    of the request, or, under ``failed``, the error of another code generator.
    """
    end_with_parent(int(sys.argv[1]))
    if os.name == "posix":
        end_with_pipe(int(sys.argv[2]))
    from tilewright.llvm.codegen.compile import prepared, set_option, target_machine

    request = json.loads(sys.stdin.buffer.read())
    for option in request["options"]:
        set_option(option)
    target = [request[name] for name in ("triple", "cpu", "features", "opt")]
    try:
        machine = target_machine(*target)
        module = prepared(request["ir"], machine, request["passes"])
    except LoweringError as error:
        print(json.dumps(str(error)))
        return
    if request["generator"]:
        # computed: a backend names its code generator
        generate = importlib.import_module(request["generator"]).generate
        try:
            made = generate(module.as_bitcode(), request["forms"], *target, request["options"])
        except LoweringError as error:
            print(json.dumps({"failed": str(error)}))
            return
    else:
        *others, last = request["forms"]
        # generating code changes a module
        modules = [*((form, module.clone()) for form in others), (last, module)]
        made = [
            machine.emit_object(each) if form == "object" else machine.emit_assembly(each).encode()
            for form, each in modules
        ]
    sys.stdout.buffer.write(
        json.dumps([len(each) for each in made]).encode() + b"\n" + b"".join(made)
    )
