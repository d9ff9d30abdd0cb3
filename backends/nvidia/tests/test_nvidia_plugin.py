"""The nvidia backend registers honestly: targets, no devices, a status that says why."""

from __future__ import annotations

from tilewright.plugins.registry import registry


def test_is_listed_with_its_targets_and_a_reason_it_cannot_run() -> None:
    manifest = registry().get("nvidia").manifest
    assert manifest.device_kinds == ("cuda",)
    assert len(manifest.targets) >= 5
    assert "no device is present" in manifest.status
    assert manifest.capabilities is None


def test_finds_no_devices() -> None:
    assert list(registry().get("nvidia").call("tilewright_devices")) == []
