"""Device code ahead of a load: by the driver of a device of this machine, or by ``ptxas``."""

from __future__ import annotations

from tilewright.errors import BackendError
from tilewright.gpu_host.linking import Linked, is_worker
from tilewright.plugins.manifest import CodeObject, Target
from tilewright_nvidia.host.devices import first_of
from tilewright_nvidia.host.driver import driver
from tilewright_nvidia.toolchain.installation import why_not
from tilewright_nvidia.toolchain.linking import assemble, link


def link_here(ptx: bytes, target: Target, what: str) -> Linked | None:
    """Compile for a device of this machine that the target is of. None where there is none, and in worker processes, which should not each take a
    context on the device.

    Raises:
        LoweringError: the driver rejects the PTX.
    """
    if is_worker() or why_not():
        return None
    try:
        cuda = driver()
        device = first_of(cuda, target)
    except BackendError:
        return None
    return None if device is None else link(cuda, device, ptx, what)


def assembled(code: CodeObject, target: Target) -> bytes | None:
    """Device code of a kernel's PTX, by the driver of a device that the target is of, else by ``ptxas``; None where the kernel has device code.

    Raises:
        BackendError: there is neither.
        LoweringError: the PTX is rejected.
    """
    if code.metadata.get("format") == "cubin":
        return None
    linked = link_here(code.binary, target, f"{code.name} ({code.metadata.get('configuration', '')})")
    if linked is not None and not linked.binary.startswith(code.binary):
        return linked.binary
    return assemble(code.binary, target.arch).binary
