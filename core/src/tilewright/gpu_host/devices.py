"""Enumeration of a driver's devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.errors import BackendError
from tilewright.gpu_host.driver import Driver
from tilewright.plugins.manifest import Device


def listed(
    start: Callable[[], Driver], facts: Callable[[Driver, int], Mapping[str, Any] | None]
) -> list[Device]:
    """Return the devices for which code can be generated; none if the driver does not start.

    Properties are those of ``facts``, and: memory_bytes; multiprocessors, how many run programs;
    l2_bytes, of the last cache; shared_memory, bytes of a program.

    Args:
        start: returns the driver.
        facts: (driver, index) -> properties of its own; None for a device that there is no code
            for.
    """
    try:
        driver = start()
        count = int(driver(driver.entries.device_count))
    except BackendError:
        return []
    return [
        _describe(driver, index, found)
        for index in range(count)
        if (found := facts(driver, index)) is not None
    ]


def _describe(driver: Driver, index: int, facts: Mapping[str, Any]) -> Device:
    entries = driver.entries
    handle = driver(entries.device, index)
    name = driver(entries.device_name, handle)
    properties = {
        "memory_bytes": int(driver(entries.device_memory, handle)),
        "multiprocessors": driver.attribute(index, "processors"),
        "l2_bytes": driver.attribute(index, "cache_bytes"),
        "shared_memory": driver.attribute(index, "shared_memory"),
    }
    text = (
        name if isinstance(name, str) else bytes(name).partition(b"\0")[0].decode(errors="replace")
    )
    return Device(driver.table.backend, driver.table.kind, index, text, {**facts, **properties})
