"""Targets stay records of a few capabilities."""

from __future__ import annotations

import pytest

from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.testing.matrix_target import MatrixTarget
from tilewright.testing.target_size import MAX_MEMBERS, oversized, public_members
from tilewright.testing.toy_targets import BulkTarget, RunsTarget, StagedTarget


@pytest.mark.parametrize(
    "target",
    [
        EmulatedTarget(),
        StagedTarget(),
        RunsTarget(),
        BulkTarget(units=8),
        MatrixTarget(0, fragments=False, wish=False),
    ],
)
def test_no_target_and_no_capability_has_many_members(target: SimtTarget) -> None:
    assert not oversized(target)


def test_inherited_declared_and_assigned_members_are_counted() -> None:
    class Wide(EmulatedTarget):
        def __init__(self) -> None:
            super().__init__()
            self.extra = 1
            self._hidden = 2

    assert public_members(Wide()) - public_members(EmulatedTarget()) == {"extra"}
    assert {"resources", "tma", "stages", "begin"} < public_members(EmulatedTarget())
    assert oversized(Wide()) == {"Wide": MAX_MEMBERS + 1}


def test_optional_hardware_is_absent_by_default() -> None:
    optional = (
        "tma",
        "async_proxy",
        "mbarriers",
        "tensor_memory",
        "clusters",
        "named_barriers",
        "warp_specialization",
        "assembly",
    )
    assert [name for name in optional if getattr(SimtTarget, name) is not None] == []
