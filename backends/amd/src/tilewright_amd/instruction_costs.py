"""Costs of instructions and accesses in issue slots, for the toolkit's cost model.

They come from the ISA documents and are not measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.simt.target.cost_model import CostModel
from tilewright_amd.architectures import WMMA, Architecture

_WAVE64: Final = CostModel(
    operations={
        **dict.fromkeys(("exp", "exp2", "log", "log2", "sqrt", "rsqrt"), 4.0),
        **dict.fromkeys(("sin", "cos", "tanh", "erf"), 12.0),
        **dict.fromkeys(("div", "rem"), 8.0),
    },
    sector=64,
    line=128,
    line_turn=1.6,
    access=2.0,
    trip=40.0,  # two barriers and a round trip through LDS
    shuffle=16.0,  # a cross-lane exchange takes the path of LDS without its memory
    shuffled_word=3.0,
    stored_word=1.5,
    selected_word=0.5,
    barrier=16,
    selects_per_shuffle=4,
    scratch=32 * 1024,
    other_registers=36,
    unrolled_trips=4,
)
_WAVE32: Final = replace(_WAVE64, sector=32, other_registers=48)


def costs_of(row: Architecture) -> CostModel:
    """Return the costs of an architecture."""
    return _WAVE32 if row.matrix == WMMA else _WAVE64
