"""The amd backend registers its targets, and says why it has no devices where there is no runtime."""

from __future__ import annotations

import pytest

from tilewright.errors import BackendError
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import named_target


def test_is_listed_with_its_targets_and_a_reason_it_cannot_run() -> None:
    manifest = registry().get("amd").manifest
    assert manifest.device_kinds == ("hip",)
    assert manifest.targets == ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
    assert "no device is present" in manifest.status


def test_finds_no_devices() -> None:
    assert list(registry().get("amd").call("tilewright_devices")) == []


@pytest.mark.parametrize(("arch", "lanes", "shared"), [("gfx90a", 64, 64), ("gfx950", 64, 160), ("gfx1151", 32, 64)])
def test_targets_say_what_the_machine_has(arch: str, lanes: int, shared: int) -> None:
    target = named_target(registry().get("amd"), arch)
    assert (target.warp_size, target.limits["shared_memory"], target.kind) == (lanes, shared << 10, "hip")


def test_a_gpu_outside_the_list_is_named() -> None:
    with pytest.raises(BackendError, match="no target 'gfx906'; it has gfx90a, gfx942"):
        named_target(registry().get("amd"), "gfx906")
