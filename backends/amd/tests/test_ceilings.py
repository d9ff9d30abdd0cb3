"""The ceilings that rooflines of AMD GPUs have: data sheets, and devices by what the runtime says
of them."""

import pytest

from tilewright.gpu_host.driver import Driver
from tilewright.plugins.manifest import Device
from tilewright.testing.stand_in_driver import StandInBindings
from tilewright_amd.architectures import ARCHITECTURES, architecture, target_of
from tilewright_amd.ceilings import RATES, ceilings
from tilewright_amd.host.driver_table import TABLE


@pytest.mark.parametrize(
    ("arch", "f16", "f32", "bandwidth"),
    [
        ("gfx90a", 191.5e12, 47.9e12, 1638e9),
        ("gfx942", 1307e12, 163.4e12, 5300e9),
        ("gfx950", 2516e12, 157.3e12, 8000e9),
        ("gfx1100", 122.8e12, 61.4e12, 960e9),
    ],
)
def test_usual_gpus_have_the_rates_of_their_data_sheets(arch, f16, f32, bandwidth):
    found = ceilings(target_of(architecture(arch)), None)
    assert found.bandwidth == bandwidth and found.unit == "CU"
    assert found.matmuls["f16"] == found.matmuls["bf16"] == pytest.approx(
        f16, rel=0.01
    ) and found.arithmetic["f32"] == pytest.approx(f32, rel=0.01)


def test_an_architecture_without_a_row_has_no_ceilings():
    assert (
        RATES.keys() < ARCHITECTURES.keys()
        and ceilings(target_of(architecture("gfx1103")), None) is None
    )


def test_a_device_has_the_rates_of_its_clock_and_the_bandwidth_of_the_usual_gpu_alone(monkeypatch):
    bindings = StandInBindings(TABLE)
    bindings.settings.attributes |= {"processors": 304, "clock_khz": 2_000_000}
    hip = Driver(TABLE, bindings)
    monkeypatch.setattr("tilewright_amd.host.driver.driver", lambda: hip)
    device = Device("amd", "hip", 0, "a GPU")
    found = ceilings(target_of(architecture("gfx942")), device)
    assert (found.source, found.bandwidth, found.matmuls["f16"]) == (
        "a GPU, by its driver",
        5300e9,
        2048 * 304 * 2e9,
    )
    bindings.settings.attributes["processors"] = 228
    assert ceilings(target_of(architecture("gfx942")), device).bandwidth is None
