"""Whether what Tilewright leaves in a tensor is right, by what Triton leaves.

Within the tolerance of the tensor's type it is. Where it is not, the results need not be wrong: low
precision is summed in another order, atomic operations have no order, and a number between two
codes is rounded to one or the other. So witnesses are asked:

- Triton again, on the same data. Where its own results differ the kernel leaves them open: whole
  numbers may be in another order (positions that atomic operations hand out), and floats may differ
  as much as Triton's own do, up to a factor.
- Triton with floats of 32 bits in place of those of 16, which hold the same numbers: a result is
  right that is as near to its result as Triton's is, up to a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from corpus import data

Array = np.ndarray[Any, np.dtype[Any]]
#: Asks for the results of a witness by its name, ``again`` or ``exact``: bytes by the tensor's
#: name; None where there are none.
Witness = Callable[[str], Mapping[str, Array] | None]

#: How much farther from a witness than Triton's results ours may be.
_FACTOR = 2.0
#: The share of codes of 8 bits that may be the next one: of 256 codes evenly apart, rounding in f32
#: (1e-7) moves so many across a border.
_ROUNDED = 1e-5
_CODES = ("i8", "u8", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16")
#: Types that the witness ``exact`` has 32 bits for.
WIDENED = ("fp16", "bf16")


@dataclass(frozen=True)
class Verdict:
    """What is found of a tensor.

    Attributes:
        right: whether it is right.
        note: what is wrong with it, or why it is right though it differs.
    """

    right: bool
    note: str = ""


def judge(name: str, kind: str, ours: Array, theirs: Array, witness: Witness) -> Verdict:
    """Compare a tensor's bytes, of elements of a type, that both compilers leave."""
    dtype, tolerance = data.ELEMENTS[kind]
    mine, their = (data.values(each.view(dtype), kind) for each in (ours, theirs))
    far = data.distance(mine, their)
    if far <= tolerance:
        return Verdict(True)
    if kind in _CODES and _next_codes(mine, their):
        return Verdict(True, f"{name}: {far:.2g} codes are the next ones")
    if (again := _of(witness("again"), name, kind)) is not None and (
        own := data.distance(again, their)
    ) > 0:
        if their.dtype.kind != "f" and (np.sort(mine) == np.sort(their)).all():
            return Verdict(True, f"{name}: the order is not defined")
        if far <= _FACTOR * own + tolerance:
            return Verdict(True, f"{name} is not defined: Triton's own results differ by {own:.2g}")
    if their.dtype.kind == "f":
        exact = _of(witness("exact"), name, "fp32" if kind in WIDENED else kind)
        if exact is not None and exact.size >= mine.size:  # of larger elements fewer may be kept
            mine_off, their_off = (
                data.distance(each, exact[: each.size]) for each in (mine, their)
            )
            if mine_off <= _FACTOR * their_off:
                return Verdict(
                    True,
                    f"{name} is off by {mine_off:.2g} of what floats of 32 bits give, Triton's by "
                    f"{their_off:.2g}",
                )
    return Verdict(False, f"{name} differs by {far:.2g}")


def _of(results: Mapping[str, Array] | None, name: str, kind: str) -> Array | None:
    """A tensor of a witness's results, as numbers; None where it is not among them."""
    if results is None or name not in results:
        return None
    return data.values(results[name].view(data.ELEMENTS[kind][0]), kind)


def _next_codes(one: Array, other: Array) -> bool:
    """Whether few codes differ, each by one."""
    apart = np.abs(one.astype("i8") - other.astype("i8"))
    return int(apart.max()) <= 1 and np.count_nonzero(apart) <= max(1, _ROUNDED * apart.size)
