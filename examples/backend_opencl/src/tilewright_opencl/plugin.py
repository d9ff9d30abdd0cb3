"""The hooks. OpenCL is touched where devices are asked for, and not before."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence

from tilewright_c.plugin import MANIFEST as C

from tilewright.ir import Module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import CodeObject, Device, Launcher, Manifest, Parameter, Target
from tilewright.runtime.devices.host_memory import HostMemory
from tilewright_opencl import __version__
from tilewright_opencl.lower import lower_kernel, lowers

NAME = "opencl"


@hookimpl
def tilewright_backend() -> Manifest:
    return Manifest(
        name=NAME,
        version=__version__,
        summary="an example: OpenCL C, for processors",
        device_kinds=("cpu",),
        targets=("opencl12",),
        capabilities=C.capabilities,
        lowers=lowers.names,
        computes=C.computes,
        priority=-15,
        status=""
        if importlib.util.find_spec("pyopencl")
        else "pyopencl is not installed: pip install 'tilewright-opencl[pocl]'",
    )


@hookimpl
def tilewright_devices() -> Sequence[Device]:
    from tilewright_opencl.runtime import processor

    found = processor()
    return (
        []
        if found is None
        else [
            Device(
                NAME,
                "cpu",
                0,
                found.name.strip(),
                {"units": found.max_compute_units, "platform": found.platform.name},
            )
        ]
    )


@hookimpl
def tilewright_target() -> Target:
    from tilewright_opencl.runtime import processor

    found = processor()  # a program is for one version of one driver
    return Target(
        NAME,
        "opencl12",
        cpu=found.name.strip(),
        features=(found.platform.version, found.driver_version),
        kind="cpu",
    )


@hookimpl
def tilewright_lower(module: Module) -> CodeObject:
    from tilewright_opencl.runtime import built

    lowers.require(module)
    started = time.perf_counter()
    source, memory = lower_kernel(module.kernel)
    emitted = time.perf_counter()
    binary = built(module.kernel.name, source)
    timings = {"emit": (emitted - started) * 1e3, "build": (time.perf_counter() - emitted) * 1e3}
    return CodeObject(
        module.kernel.name,
        binary,
        {"tileir": str(module), "opencl": source},
        {"memory": memory},
        timings,
    )


@hookimpl
def tilewright_load(code: CodeObject) -> CodeObject:
    return code


@hookimpl
def tilewright_launcher(loaded: CodeObject, parameters: Sequence[Parameter]) -> Launcher:
    from tilewright_opencl.runtime import launcher

    return launcher(loaded, parameters)


@hookimpl
def tilewright_memory() -> HostMemory:
    return HostMemory()
