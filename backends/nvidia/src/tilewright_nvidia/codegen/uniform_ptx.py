"""PTX instructions with uniform results: equal in all threads that have equal inputs."""

from __future__ import annotations

import re
from typing import Final

#: Instructions whose results depend only on their operands, by the mnemonic before the first dot.
_ARITHMETIC: Final = frozenset(
    (
        "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "bmsk", "bra", "brev", "clz",
        "cnot", "copysign", "cos", "cvt", "cvta", "div", "dp2a", "dp4a", "ex2", "fma",
        "isspacep", "lg2", "lop3", "mad", "mad24", "madc", "max", "min", "mov", "mul",
        "mul24", "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp",
        "set", "setp", "shf", "shl", "shr", "sin", "slct", "sqrt", "sub", "subc", "szext",
        "tanh", "testp", "xor",
    )
)  # fmt: skip
#: Special registers that are the same in all threads of a CTA.
_OF_ALL_THREADS: Final = frozenset(
    (
        "ntid", "ctaid", "nctaid", "smid", "nsmid", "gridid", "nwarpid", "clusterid",
        "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank",
        "cluster_nctarank", "is_explicit_cluster", "total_smem_size", "dynamic_smem_size",
    )
)  # fmt: skip

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
#: The prefix of an instruction: labels and a predicate.
_PREFIX: Final = re.compile(r"^(?:[\w$%]+\s*:(?!:)\s*)*(?:@!?\S+\s+)?")
_DECLARED: Final = re.compile(r"\.reg\s+\.\w+\s+([^;]*)")


def is_uniform(text: str) -> bool:
    """Return whether all instructions of a text are arithmetic on operands and uniform registers.

    It may use its own registers, and special registers that all threads of a CTA share.
    """
    text = _COMMENT.sub(" ", text)
    own = {
        name.partition("<")[0].strip()
        for names in _DECLARED.findall(text)
        for name in names.split(",")
    }
    for name in re.findall(r"%([\w$]+)", text):
        if name not in _OF_ALL_THREADS and not any(
            re.fullmatch(rf"%?{re.escape(one.removeprefix('%'))}\d*", name) for one in own
        ):
            return False
    for statement in re.split(r"[;{}]", text):
        instruction = _PREFIX.sub("", statement.strip())
        if (
            instruction
            and not instruction.startswith(".reg")
            and re.split(r"[.\s]", instruction)[0] not in _ARITHMETIC
        ):
            return False
    return True


__all__ = ["is_uniform"]
