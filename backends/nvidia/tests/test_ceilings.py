"""The ceilings that rooflines of NVIDIA GPUs have: data sheets, and devices by what their driver
says."""

import pytest
from mock_bindings import FakeBindings

from tilewright.gpu_host.driver import Driver
from tilewright.plugins.manifest import Device
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.ceilings import RATES, ceilings
from tilewright_nvidia.host.driver_table import TABLE


@pytest.mark.parametrize(
    ("arch", "name", "f16", "f32", "bandwidth"),
    [
        ("sm_80", "A100", 312e12, 19.5e12, 2039e9),
        ("sm_90a", "H100", 989e12, 67e12, 3350e9),
        ("sm_100a", "B200", 2250e12, 75e12, 8000e9),
    ],
)
def test_usual_gpus_have_the_rates_of_their_data_sheets(arch, name, f16, f32, bandwidth):
    found = ceilings(target_of(ARCHITECTURES[arch]), None)
    assert name in found.source and found.bandwidth == bandwidth
    assert found.matmuls["f16"] == found.matmuls["bf16"] == pytest.approx(
        f16, rel=0.01
    ) and found.arithmetic["f32"] == pytest.approx(f32, rel=0.08)
    assert (
        found.matmuls["f32 tf32"] == found.matmuls["f16"] / 2
        and found.matmuls["f32 ieee"] == found.arithmetic["f32"]
    )
    assert found.matmuls["f8e4m3fn"] == found.matmuls["f16"] * (1 if arch == "sm_80" else 2)


def test_a_data_sheet_has_two_clocks():
    found = ceilings(target_of(ARCHITECTURES["sm_90a"]), None)
    assert found.arithmetic["f64"] == pytest.approx(33.5e12, rel=0.01) and found.matmuls[
        "f64"
    ] == pytest.approx(67e12, rel=0.01)


def test_every_architecture_has_a_row_and_rates_that_are_not_known_are_left_out():
    assert RATES.keys() == ARCHITECTURES.keys()
    assert ceilings(target_of(ARCHITECTURES["sm_103a"]), None) is None
    turing = ceilings(target_of(ARCHITECTURES["sm_75"]), None)
    assert (
        "bf16" not in turing.matmuls
        and "f8e4m3fn" not in turing.matmuls
        and "f64" not in turing.matmuls
    )


def test_a_device_has_the_rates_that_follow_from_its_clocks(monkeypatch):
    bindings = FakeBindings()
    bindings.settings.attributes |= {
        "processors": 100,
        "clock_khz": 2_000_000,
        "memory_clock_khz": 2_500_000,
        "memory_bus_bits": 4096,
    }
    cuda = Driver(TABLE, bindings)
    monkeypatch.setattr("tilewright_nvidia.host.driver.driver", lambda: cuda)
    found = ceilings(target_of(ARCHITECTURES["sm_90a"]), Device("nvidia", "cuda", 0, "a GPU"))
    assert (found.source, found.processors, found.bandwidth) == (
        "a GPU, by its driver",
        100,
        2 * 2.5e9 * 512,
    )
    assert found.matmuls["f16"] == 4096 * 100 * 2e9 and found.arithmetic == {
        "f32": 256 * 100 * 2e9,
        "f64": 128 * 100 * 2e9,
    }
    bindings.settings.failures["cuDeviceGetAttribute"] = 999
    assert (
        "H100 SXM, by its data sheet"
        in ceilings(target_of(ARCHITECTURES["sm_90a"]), Device("nvidia", "cuda", 0, "a GPU")).source
    )
