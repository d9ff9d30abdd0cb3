"""Costs of instructions and accesses, for the toolkit's cost model, measured on H100s."""

from __future__ import annotations

from typing import Final

from tilewright.simt.target.cost_model import CostModel

COSTS: Final = CostModel(
    operations={
        **dict.fromkeys(("exp", "exp2", "log", "log2", "sqrt", "rsqrt"), 4.0),
        **dict.fromkeys(("sin", "cos", "tanh", "erf"), 10.0),
        **dict.fromkeys(("div", "rem"), 8.0),
    },
    sector=32,
    line=128,
    line_turn=1.6,  # the memory unit looks up one line at a time
    access=2.0,
    trip=40.0,  # two barriers
    shuffle=12.0,
    shuffled_word=2.0,
    stored_word=1.5,
    selected_word=0.5,
    barrier=16,
    selects_per_shuffle=2,
    scratch=32 * 1024,
    other_registers=36,  # masks, fragment offsets, counters
)
