"""Enumeration of the local AMD GPUs, and their targets."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from tilewright.errors import BackendError
from tilewright.gpu_host.devices import listed
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.table import DriverCall
from tilewright.plugins.manifest import Device, Target
from tilewright_amd.architectures import ARCHITECTURES, architecture, target_of
from tilewright_amd.host.driver import driver, why_not


def _named(hip: Any, device: int) -> tuple[Any, ...]:
    status, properties = hip.hipGetDeviceProperties(device)
    name = (
        properties.gcnArchName
    )  # text, or bytes up to the first zero, by the version of the bindings
    return status, name if isinstance(name, str) else bytes(name).partition(b"\0")[0].decode()


_ARCHITECTURE = DriverCall("hipGetDeviceProperties", _named)


@functools.cache
def architecture_name(hip: Driver, device: int) -> str:
    """Return the runtime's name of a device's architecture: ``gfx942:sramecc+:xnack-``."""
    return str(hip(_ARCHITECTURE, device))


def devices() -> list[Device]:
    """List the supported GPUs; none if there is no runtime.

    Properties: arch, and the properties common to all GPU backends.
    """
    return [] if why_not() else listed(driver, _facts)


def _facts(hip: Driver, index: int) -> Mapping[str, Any] | None:
    name = architecture_name(hip, index).partition(":")[0]
    return {"arch": name} if name in ARCHITECTURES else None


def target_of_device(device: Device) -> Target:
    """Return the target of a GPU, or of an architecture that stands in for a GPU.

    A device may carry an architecture's name, to compile for it without a GPU.

    Raises:
        BackendError: there is no code for it, or its waves have other lanes than code for it has.
    """
    named = ARCHITECTURES.get(device.name)
    if named is not None:
        return target_of(named)
    hip = driver()
    name = architecture_name(hip, device.index)
    if name.partition(":")[0] not in ARCHITECTURES:
        called = hip(hip.entries.device_name, hip(hip.entries.device, device.index))
        raise BackendError(
            f"there is no code for {called} ({name}); targets are {', '.join(ARCHITECTURES)}"
        )
    row = architecture(name)
    lanes = hip.attribute(device.index, "lanes")
    if lanes != row.wave:
        raise BackendError(
            f"{device.name} ({name}) runs waves of {lanes} lanes, and code for {row.name} "
            f"has {row.wave}"
        )
    found = target_of(row)
    return dataclasses.replace(
        found,
        limits={**found.limits, "shared_memory": hip.attribute(device.index, "shared_memory")},
    )
