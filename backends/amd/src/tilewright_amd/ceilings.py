"""Peak rates of AMD GPUs, for rooflines.

They are those of an architecture's reference GPU, from its data sheet, or those of the present GPU,
scaled by its clock. The memory bandwidth always comes from the data sheet: the memory clock that
the runtime reports counts transfers differently from GPU to GPU.
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
        usual: name of the reference GPU.
        units: its compute units; hertz: their clock; bandwidth: bytes a second of its memory.
        f32: vector operations per cycle of a compute unit, where an FMA counts as two; ``f64``
            likewise.
        matmuls: matrix operations per cycle of a compute unit, by the operands' type.
    """

    usual: str
    units: int
    hertz: float
    bandwidth: float
    f32: float
    f64: float
    matmuls: Mapping[str, float]


def _matmuls(f16: float, i8: float, **others: float) -> Mapping[str, float]:
    return {"f16": f16, "bf16": f16, "i8": i8, **others}


def _fp8(rate: float, *names: str) -> Mapping[str, float]:
    return dict.fromkeys(names, rate)


_FNUZ: Final = ("f8e4m3fnuz", "f8e5m2fnuz")
_OCP: Final = ("f8e4m3fn", "f8e5m2")
RATES: Final[Mapping[str, Rates]] = {
    "gfx90a": Rates(
        "one die of MI250X",
        110,
        1.7e9,
        1638e9,
        256,
        128,
        {**_matmuls(1024, 1024), "f32 ieee": 256, "f64": 256},
    ),
    "gfx942": Rates(
        "MI300X",
        304,
        2.1e9,
        5300e9,
        256,
        128,
        {**_matmuls(2048, 4096), **_fp8(4096, *_FNUZ), "f32 ieee": 256, "f64": 256},
    ),
    "gfx950": Rates(
        "MI355X",
        256,
        2.4e9,
        8000e9,
        256,
        128,
        {**_matmuls(4096, 8192), **_fp8(8192, *_OCP), "f32 ieee": 256, "f64": 128},
    ),
    "gfx1100": Rates(
        "RX 7900 XTX", 96, 2.5e9, 960e9, 256, 0, {**_matmuls(512, 512), "f32 ieee": 256}
    ),
    "gfx1101": Rates(
        "RX 7800 XT", 60, 2.43e9, 624e9, 256, 0, {**_matmuls(512, 512), "f32 ieee": 256}
    ),
    "gfx1102": Rates(
        "RX 7600", 32, 2.655e9, 288e9, 256, 0, {**_matmuls(512, 512), "f32 ieee": 256}
    ),
    "gfx1200": Rates(
        "RX 9060 XT",
        32,
        3.13e9,
        320e9,
        256,
        0,
        {**_matmuls(1024, 2048), **_fp8(2048, *_OCP), "f32 ieee": 256},
    ),
    "gfx1201": Rates(
        "RX 9070 XT",
        64,
        2.97e9,
        640e9,
        256,
        0,
        {**_matmuls(1024, 2048), **_fp8(2048, *_OCP), "f32 ieee": 256},
    ),
}


def ceilings(target: Target, device: Device | None) -> Ceilings | None:
    """Return the ceilings of a device, or of a target's reference GPU; None if neither is known."""
    rates = RATES.get(target.arch.partition(":")[0])
    if rates is None:
        return None
    found = _of_device(rates, device) if device is not None else None
    return found or _ceilings(
        rates, f"{rates.usual}, by its data sheet", rates.units, rates.hertz, rates.bandwidth
    )


def _of_device(rates: Rates, device: Device) -> Ceilings | None:
    """Return a device's ceilings, computed from runtime attributes; None if a query fails."""
    from tilewright_amd.host.driver import driver

    try:
        hip = driver()
        units, clock = (
            hip.attribute(device.index, "processors"),
            hip.attribute(device.index, "clock_khz"),
        )
    except BackendError:
        return None
    # a GPU with another number of compute units has another memory system
    bandwidth = rates.bandwidth if units == rates.units else None
    return _ceilings(rates, f"{device.name}, by its driver", units, clock * 1e3, bandwidth)


def _ceilings(
    rates: Rates, source: str, units: int, hertz: float, bandwidth: float | None
) -> Ceilings:
    of_all = units * hertz
    arithmetic = {"f32": rates.f32 * of_all, **({"f64": rates.f64 * of_all} if rates.f64 else {})}
    return Ceilings(
        source,
        bandwidth,
        {name: rate * of_all for name, rate in rates.matmuls.items()},
        arithmetic,
        units,
        "CU",
    )


__all__ = ["RATES", "Rates", "ceilings"]
