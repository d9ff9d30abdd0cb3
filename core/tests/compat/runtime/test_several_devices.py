"""Launches of Triton's kernels with tensors on several devices run on the active one, where it can
access the others' memory."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton.runtime import launch_policy
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Manifest, Target
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
from tilewright.runtime.devices.backend_choice import ANY_DEVICE
from tilewright.runtime.reference_backend import CAPABILITIES

pytest.importorskip("torch")


class Linked:
    """Four devices, the last of which accesses no other's memory. ``launches`` has where each
    launch ran."""

    __name__ = "linked"

    def __init__(self):
        self.launches = []

    @hookimpl
    def tilewright_backend(self):
        return Manifest(
            "linked",
            "1",
            "records",
            ("xpu",),
            ("paper",),
            replace(CAPABILITIES, features=CAPABILITIES.features - {ANY_DEVICE}),
        )

    @hookimpl
    def tilewright_devices(self):
        return [Device("linked", "xpu", index, f"device {index}") for index in range(4)]

    @hookimpl
    def tilewright_target(self, device):
        return Target("linked", "paper", kind="xpu")

    @hookimpl
    def tilewright_lower(self, module):
        return CodeObject(module.kernel.name, b"code", {"tileir": str(module)})

    @hookimpl
    def tilewright_load(self, code, device):
        return device

    @hookimpl
    def tilewright_launcher(self, loaded):
        return lambda grid, stream, values: self.launches.append(loaded.index)

    @hookimpl
    def tilewright_peer_access(self, device, peer):
        return "" if device.index < 3 else "there is no link"


@pytest.fixture
def linked(monkeypatch):
    plugin = Linked()
    plugin.active = 0
    registry().register(plugin, "linked")
    monkeypatch.setattr(launch_policy, "current_device", lambda kind: plugin.active)
    yield plugin
    registry().unregister("linked")
    device_registry.forget()


def on(index):
    return SimpleNamespace(device=f"xpu:{index}", dtype="float32", data_ptr=lambda: 4096)


@triton.jit
def copy(x, y):
    tl.store(x, tl.load(y))


def test_the_active_device_runs_what_lies_on_several(linked):
    for active in (0, 1, 1, 2, 0):
        linked.active = active
        copy[(1,)](on(1), on(2))
    assert linked.launches == [0, 1, 1, 2, 0]
    linked.active = 3
    with pytest.raises(
        ValueError,
        match=(
            r"the launch runs on xpu:3, which cannot access the memory of argument 'x' on xpu:1 "
            r"\(there is no link\)"
        ),
    ):
        copy[(1,)](on(1), on(2))
    copy[(1,)](on(1), on(1))
    assert linked.launches[5:] == [1], "what lies on one device runs there"


def test_a_kernel_is_warmed_up_for_the_active_device(linked):
    for active in (2, 1):
        linked.active = active
        assert copy.warmup(on(1), on(2), grid=(1,)).device.index == active
    assert not linked.launches
