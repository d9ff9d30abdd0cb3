"""Every operation's entry: partial derivatives, a rule, no derivative, or why it is refused.

A test holds that each operation of the op table has one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tilewright.derivatives.adjoint.rules import rules
from tilewright.derivatives.partials import PARTIALS
from tilewright.ir.ops import TABLE
from tilewright.ir.table import Trait


@dataclass(frozen=True, slots=True)
class Derivative:
    """An operation's entry.

    Attributes:
        kind: ``partials``: elementwise, a factor an operand, for both modes; ``rule``: a rule of
            its own in each mode; ``none``: it computes no floats from floats; ``refused``: a kernel
            in which it computes what has a derivative has none here.
        law: the tangent of the result, or what the operands' cotangents are, or why there is none.
    """

    kind: Literal["partials", "rule", "none", "refused"]
    law: str


#: Operations that compute no floats from floats -> why. Elementwise ones that compute with the bits
#: of integers, as their traits say, need no entry.
NO_DERIVATIVE: dict[str, str] = {
    "constant": "the same for all inputs",
    "arange": "the same for all inputs",
    "program_id": "the same for all inputs",
    "num_programs": "the same for all inputs",
    "histogram": "counts integers",
    "cmp": "a truth; its derivative is zero but where it changes",
    "addptr": "an address; what lies there has a cotangent beside it",
    "make_descriptor": "an address; what lies there has a cotangent beside it",
    "descriptor_extent": "an integer",
    "descriptor_stride": "an integer",
    "clock": "an integer",
    "barrier": "an effect; what is read back is computed again",
    "print": "an effect; not repeated by the adjoint",
    "assert": "an effect; not repeated by the adjoint",
    "assume": "an effect; kept where it is about integers",
    "yield": "ends a region",
    "condition": "ends a region",
    "return": "ends a kernel",
}

#: Operations without a derivative -> why. They are allowed where they compute nothing that has one.
REFUSED: dict[str, str] = {
    "bitcast": "the bits of a float have no derivative",
    "while": "the number of iterations is not known in advance; use a for loop",
    "inline_asm": "the meaning of assembly is not known",
    "extern": "the meaning of a library's function is not known",
    "atomic_cas": "other programs' values decide",
    "atomic_load": "other programs write what it reads",
    "atomic_store": "other programs may read what it writes",
}


@functools.cache
def derivatives() -> Mapping[str, Derivative]:
    """The entries by operation."""
    entries = {name: Derivative("partials", row.law) for name, row in PARTIALS.items()}
    bits = Trait.ELEMENTWISE | Trait.BITWISE
    more = [
        *((name, Derivative("rule", rule.law)) for name, rule in rules().items()),
        *((name, Derivative("none", why)) for name, why in NO_DERIVATIVE.items()),
        *((name, Derivative("refused", why)) for name, why in REFUSED.items()),
    ]
    for name, entry in more:
        if name in entries:
            raise ValueError(f"operation {name!r} has two entries in the table of derivatives")
        entries[name] = entry
    for spec in TABLE:
        if spec.name not in entries and spec.traits & bits == bits:
            entries[spec.name] = Derivative("none", "computes with the bits of integers")
    return entries
