"""Vector comparisons: a mask of lanes, or EXEC."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operands import EXEC
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder
from tilewright_amd_emulator.formats import arithmetic as a

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]


def _unordered(x: Array, y: Array) -> Array:
    return np.isnan(x) | np.isnan(y)


_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "f": lambda x, y: np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_),
    "t": lambda x, y: np.ones(np.broadcast_shapes(x.shape, y.shape), np.bool_),
}
_FLOAT: dict[str, Callable[[Array, Array], Array]] = _INTEGER | {
    "lg": lambda x, y: (x < y) | (x > y),
    "neq": lambda x, y: ~(x == y),
    "nlt": lambda x, y: ~(x < y),
    "nle": lambda x, y: ~(x <= y),
    "ngt": lambda x, y: ~(x > y),
    "nge": lambda x, y: ~(x >= y),
    "nlg": lambda x, y: ~((x < y) | (x > y)),
    "o": lambda x, y: ~_unordered(x, y),
    "u": _unordered,
    "tru": _INTEGER["t"],
}
del _FLOAT["ne"], _FLOAT["t"]


def _comparison(
    kind: str, second: str, compare: Callable[[Array, Array], Array], to_exec: bool
) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow_vector()
        with_result = len(d.operands) == 3
        first = 1 if with_result else 0
        writers = []
        if with_result:
            writers.append(d.mask_result(0))
        elif not to_exec:
            raise d.fail("a comparison has a result and two sources")
        x, y = d.source(first, kind, 0), d.source(first + 1, second, 1)
        if to_exec:
            writers.append(
                lambda m, mask: m.set_mask(EXEC, np.broadcast_to(mask, (m.count, m.lanes)))
            )

        def step(m: Machine) -> None:
            mask = compare(x(m), y(m))
            for write in writers:
                write(m, mask)

        return step

    return build


for _kind in ("i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64"):
    for _which, _compare in (_FLOAT if _kind[0] == "f" else _INTEGER).items():
        TABLE[f"v_cmp_{_which}_{_kind}"] = _comparison(_kind, _kind, _compare, False)
        TABLE[f"v_cmpx_{_which}_{_kind}"] = _comparison(_kind, _kind, _compare, True)
for _kind in ("f16", "f32", "f64"):
    _bits = "b16" if _kind == "f16" else "b32"
    TABLE[f"v_cmp_class_{_kind}"] = _comparison(_kind, _bits, a.classes, False)
    TABLE[f"v_cmpx_class_{_kind}"] = _comparison(_kind, _bits, a.classes, True)
