"""Functions of the language whose first argument is a tensor, as members of :class:`tensor`."""

from __future__ import annotations

from tilewright.language import core, math, standard
from tilewright.language.binding import Member
from tilewright.language.value_types.tensors import tensor

_BUILTINS = {
    core: (
        "advance associative_scan atomic_add atomic_and atomic_cas atomic_load atomic_max "
        "atomic_min atomic_or atomic_poll atomic_store atomic_xchg atomic_xor broadcast_to cast "
        "expand_dims gather histogram item permute reduce reshape split store trans view"
    ),
    math: "abs ceil cos erf exp exp2 floor log log2 rsqrt sin sqrt sqrt_rn",
}
_LIBRARY = (
    "argmax argmin cdiv cumprod cumsum flip max min ravel reduce_or sigmoid softmax sort "
    "sum xor_sum"
)


def attach() -> None:
    """Set the members of :class:`tensor`: builtins as methods, library functions as members.

    See :class:`~tilewright.language.binding.Member`.
    """
    for module, names in _BUILTINS.items():
        for name in names.split():
            setattr(tensor, name, getattr(module, name))
    for name in _LIBRARY.split():
        setattr(tensor, name, Member(getattr(standard, name)))
