"""Cost model of Lyra, in issue slots of a warp; on real hardware each number is measured."""

from __future__ import annotations

from tilewright.simt.target.cost_model import CostModel

COSTS = CostModel(
    operations={"sqrt": 8.0, "rsqrt": 8.0, "div": 12.0, "rem": 12.0},
    sector=32,
    line=64,
    line_turn=2.0,
    access=4.0,
    trip=24.0,
    shuffle=6.0,
    shuffled_word=1.0,
    stored_word=1.0,
    selected_word=0.5,
    barrier=8,
    selects_per_shuffle=4,
    scratch=16 * 1024,
    other_registers=24,
)
