"""The data for the linker in a compiled kernel's header: a line of JSON in a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

#: Kind of target -> how C programs name its stream, what a function gives, what it gives where it
#: cannot be launched, and whether code is loaded first.
LAUNCHED = {
    "cuda": ("CUstream", "CUresult", "CUDA_ERROR_INVALID_VALUE", True),
    "cpu": ("void *", "int32_t", "-3", False),
}

_LINE = re.compile(r"^/\* tilewright-link: (\{.*\}) \*/$", re.MULTILINE)


@dataclass(frozen=True)
class LinkedParameter:
    """A parameter of a kernel in C.

    Attributes:
        declaration, name: in the specialization's own function.
        hint: 16 where the argument is a multiple of 16, 1 where it is the number 1, which the
            function does not take; else 0.
    """

    declaration: str
    name: str
    hint: int

    @property
    def is_pointer(self) -> bool:
        return "*" in self.declaration


@dataclass(frozen=True)
class Specialization:
    """A function of C that :mod:`.compile` wrote.

    Attributes:
        function: its name; ``kernel`` is what it shares with the kernel's other specializations.
        kind: of its target.
        configuration: constants and options: what the caller chooses by number, where the hints are
            told from the arguments.
        parameters: of the kernel, in order, without its constants.
    """

    function: str
    kernel: str
    kind: str
    configuration: str
    parameters: tuple[LinkedParameter, ...]

    def line(self) -> str:
        """The line of the header."""
        # JSON has that escape, and the comment goes on
        text = json.dumps(asdict(self)).replace("*/", "*\\/")
        return f"/* tilewright-link: {text} */"


def specializations(header: str) -> Iterator[Specialization]:
    """Read the lines of a header's text."""
    for found in _LINE.finditer(header):
        fields = json.loads(found[1])
        yield Specialization(
            **{
                **fields,
                "parameters": tuple(LinkedParameter(**each) for each in fields["parameters"]),
            }
        )
