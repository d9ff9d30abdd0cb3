"""``triton.profiler.specs``: what devices can do at best, as their vendors publish it."""

from __future__ import annotations

#: Compute capability -> dense operations that a multiprocessor does in a clock cycle on its matrix
#: units, for operands of 8 bits; half for 16 bits.
_CUDA_PER_CYCLE = {80: 4096, 89: 2048, 90: 8192, 100: 16384}
#: Architecture -> (operations a second for operands of 8 bits, bytes a second)
_HIP = {
    "gfx90a": (383e12, 3.2e12),
    "gfx941": (2614.9e12, 5.3e12),
    "gfx942": (2614.9e12, 5.3e12),
    "gfx950": (4614e12, 8.0e12),
}


def max_flops(device_type: str, arch: str, width: int, num_sms: int, clock_rate: float) -> float:
    """Operations a second on operands of ``width`` bits; ``clock_rate`` in kHz.

    Raises:
        ValueError: the device is unknown.
    """
    if device_type == "CUDA" and int(arch) in _CUDA_PER_CYCLE:
        return _CUDA_PER_CYCLE[int(arch)] * num_sms * clock_rate * 1e3 / (width / 8)
    if device_type == "HIP" and arch in _HIP:
        return _HIP[arch][0] / (width / 8)
    raise ValueError(f"nothing is known of the arithmetic of {device_type} {arch}")


def max_bps(device_type: str, arch: str, bus_width: int, memory_clock_rate: float) -> float:
    """Return the bytes a second of memory: twice a cycle over the bus's width.

    ``memory_clock_rate`` is in kHz.

    Raises:
        ValueError: the device is unknown.
    """
    if device_type == "CUDA":
        return 2 * bus_width * memory_clock_rate * 1e3 / 8
    if device_type == "HIP" and arch in _HIP:
        return _HIP[arch][1]
    raise ValueError(f"nothing is known of the memory of {device_type} {arch}")
