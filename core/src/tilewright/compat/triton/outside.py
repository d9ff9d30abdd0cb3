"""Features of Triton that Tilewright lacks, and the errors that say so.

Tilewright has no MLIR, no vendor dialects and no compiler written in C++: what shows those, or is
written for them, cannot be answered here, and a made-up answer would be worse than none.
"""

from __future__ import annotations

from typing import Any


class OutsideError(Exception):
    """Something of Triton's that is outside the portable surface was asked for."""


class OutsideModuleError(OutsideError, ModuleNotFoundError):
    """A module that Tilewright has no counterpart of."""


class OutsideNameError(OutsideError, AttributeError, NotImplementedError):
    """A name of a module that Tilewright has no counterpart of."""


class OutsideKernelError(OutsideError, NotImplementedError):
    """A kernel was launched that is not written in the portable language."""


class OutsideStageError(OutsideError, KeyError):
    """A stage of compilation that Tilewright does not have."""

    def __str__(self) -> str:
        return str(self.args[0])


#: Module (and all below it) -> what it is, and what to use instead.
MODULES: dict[str, str] = {
    "triton._C.libtriton.gluon_ir": (
        "the Gluon language, which speaks of one vendor's hardware. Write the kernel in "
        "triton.language with Tilewright"
    ),
    "triton._C": (
        "a part of Triton's own compiler (MLIR and C++). Tile IR is in tilewright.ir, and "
        "tilewright inspect shows what becomes of a kernel"
    ),
    "triton.experimental": (
        "the Gluon language and the sanitizer, which speak of one vendor's hardware. Write the "
        "kernel in triton.language; checked runs are "
        'kernel[grid](..., backend="reference", checked=True)'
    ),
    "triton.instrumentation": "instrumentation passes of Triton's compiler",
    "triton._compile_warmup": "a plugin for Triton's own test suite",
    "triton.tools.build_extern": "a generator of Triton's own source",
    "triton.tools.experimental_descriptor": (
        "an interface that was removed from Triton in 3.4. Use triton.tools.tensor_descriptor"
    ),
    "triton.ops": "a library that was removed from Triton in 3.1",
    "triton.plugins": (
        "plugins of Triton's compiler. Backends of Tilewright are plugins too: see "
        "tilewright.plugins"
    ),
}


def reason_of(fullname: str) -> str:
    """The message for a module without counterpart."""
    for prefix, what in MODULES.items():
        if fullname == prefix or fullname.startswith(f"{prefix}."):
            return f"{fullname} is outside what tilewright.compat.triton provides: it is {what}"
    return (
        f"No module named {fullname!r} in tilewright.compat.triton, which answers to the name "
        "triton in this process"
    )


def absent(module: str, name: str, why: str = "") -> Any:
    """The error for a name without counterpart, to be raised by a module's ``__getattr__``."""
    return OutsideNameError(
        f"{module}.{name} is outside what tilewright.compat.triton "
        f"provides{': ' if why else ''}{why}"
    )
