"""A trial run of a backend: whether a kernel gets all the way through it on a device."""

from __future__ import annotations

from typing import Any

from tilewright.errors import TilewrightError
from tilewright.ir import IR_VERSION
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import Backend
from tilewright.runtime.compiler.compile import Specialization, lower_module
from tilewright.runtime.devices import device_registry
from tilewright.runtime.launch.compiled_kernel import CompiledKernel

_EMPTY_KERNEL = (
    f"tilewright.ir {IR_VERSION[0]}.{IR_VERSION[1]}\n\nkernel @tilewright_trial() "
    "{\n  return\n}\n"
)


def trial_run(backend: Backend, device: Device) -> str:
    """Compile, load and launch an empty kernel; return the failure, naming the backend, or ""."""
    from tilewright.ir.parser import parse_module

    try:
        target = device_registry.target_of(backend, device)
        options = backend.manifest.options
        artifact = lower_module(
            parse_module(_EMPTY_KERNEL, backend.table), options, backend, target
        )
        no_function: Any = None
        kernel = CompiledKernel(
            artifact, Specialization(no_function, {}, options=options), backend, target, device
        )
        run = kernel.run
    except TilewrightError as error:
        return str(error)
    except Exception as error:
        return (
            f"backend {backend.name!r} ({backend.distribution}) failed to compile an empty "
            f"kernel: {type(error).__name__}: {error}"
        )
    try:
        run((1, 1, 1), None, ())
    except Exception as error:
        return (
            f"backend {backend.name!r} ({backend.distribution}): its launcher failed on an "
            f"empty kernel: {type(error).__name__}: {error}"
        )
    return ""
