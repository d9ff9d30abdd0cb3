"""Peak rates of NVIDIA GPUs, for rooflines.

They are those of the present GPU, or else those of the architecture's reference GPU from its data
sheet. The architecture determines the operations per cycle of an SM; the device determines the
number of SMs, their clock and the memory bandwidth. Rates are dense, by the fastest instruction for
a type of operands, whatever the accumulator. 8-bit types without an instruction count at the rate
of f16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.errors import BackendError
from tilewright.plugins.ceilings import Ceilings
from tilewright.plugins.manifest import Device, Target


@dataclass(frozen=True, slots=True)
class Rates:
    """The peak rates of an architecture and of its reference GPU.

    Attributes:
        f16: f16 operations per cycle of an SM by its fastest matrix instruction.
        f32: f32 operations per cycle of an SM by other instructions, where an FMA counts as two.
        f64, f64_matmul: of f64; 0 where it is not known.
        fp8: ratio of the fp8 rate to the f16 rate.
        ordinary: whether it multiplies bf16 and tf32, which sm_75 does not.
        usual: name of the reference GPU; empty if its rates are not known, with processors, hertz
            and bandwidth 0.
        others: ratio of the clock of other instructions to that of matrix instructions, by the data
            sheet.
    """

    f16: float
    f32: float
    f64: float
    f64_matmul: float
    fp8: float
    ordinary: bool
    usual: str = ""
    processors: int = 0
    hertz: float = 0.0
    bandwidth: float = 0.0
    others: float = 1.0


RATES: Final[Mapping[str, Rates]] = {
    "sm_75": Rates(1024, 128, 0, 0, 1, False, "T4", 40, 1.59e9, 320e9),
    "sm_80": Rates(2048, 128, 64, 128, 1, True, "A100 SXM 80 GB", 108, 1.41e9, 2039e9),
    "sm_86": Rates(1024, 256, 0, 0, 1, True, "RTX A6000", 84, 1.80e9, 768e9),
    "sm_89": Rates(1024, 256, 0, 0, 2, True, "RTX 4090", 128, 2.52e9, 1008e9),
    "sm_90a": Rates(4096, 256, 128, 256, 2, True, "H100 SXM", 132, 1.83e9, 3350e9, 1.98 / 1.83),
    "sm_100a": Rates(8192, 256, 0, 0, 2, True, "B200", 148, 1.85e9, 8000e9),
    "sm_103a": Rates(8192, 256, 0, 0, 2, True),
    "sm_120a": Rates(1024, 256, 0, 0, 2, True, "RTX 5090", 170, 2.41e9, 1792e9),
    "sm_121a": Rates(1024, 256, 0, 0, 2, True),
}


def ceilings(target: Target, device: Device | None) -> Ceilings | None:
    """Return the ceilings of a device, or of a target's reference GPU; None if neither is known."""
    rates = RATES.get(target.arch)
    if rates is None:
        return None
    if device is not None:
        found = _of_device(rates, device)
        if found is not None:
            return found
    if not rates.usual:
        return None
    return _ceilings(
        rates,
        f"{rates.usual}, by its data sheet",
        rates.processors,
        rates.hertz,
        rates.bandwidth,
        rates.others,
    )


def _of_device(rates: Rates, device: Device) -> Ceilings | None:
    """Return a device's ceilings, computed from driver attributes; None if a query fails."""
    from tilewright_nvidia.host.driver import driver

    try:
        cuda = driver()
        names = "processors", "clock_khz", "memory_clock_khz", "memory_bus_bits"
        processors, clock, memory_clock, bus = (
            cuda.attribute(device.index, name) for name in names
        )
    except BackendError:
        return None
    # memory is double data rate
    return _ceilings(
        rates,
        f"{device.name}, by its driver",
        processors,
        clock * 1e3,
        2 * memory_clock * 1e3 * bus / 8,
    )


def _ceilings(
    rates: Rates, source: str, processors: int, hertz: float, bandwidth: float, others: float = 1.0
) -> Ceilings:
    of_all = processors * hertz
    f16, f32, f64 = rates.f16 * of_all, rates.f32 * of_all * others, rates.f64 * of_all * others
    matmuls = {"f16": f16, "i8": 2 * f16, "u8": 2 * f16, "f32 ieee": f32}
    if rates.ordinary:
        matmuls |= {
            "bf16": f16,
            "f32 tf32": f16 / 2,
            "f32 tf32x3": f16 / 6,
            "f32 bf16x3": f16 / 3,
            "f32 bf16x6": f16 / 6,
        }
        matmuls |= dict.fromkeys(("f8e4m3fn", "f8e5m2"), rates.fp8 * f16)
    arithmetic = {"f32": f32}
    if rates.f64:
        matmuls["f64"], arithmetic["f64"] = rates.f64_matmul * of_all * others, f64
    return Ceilings(source, bandwidth or None, matmuls, arithmetic, processors, "SM")


__all__ = ["RATES", "Rates", "ceilings"]
