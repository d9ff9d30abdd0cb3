"""Device code ahead of a load: by the driver of a local device, or by ``ptxas``."""

from __future__ import annotations

from tilewright.errors import BackendError
from tilewright.gpu_host.linking import Linked, is_worker
from tilewright.plugins.manifest import CodeObject, Target
from tilewright_nvidia.host.devices import first_of
from tilewright_nvidia.host.driver import driver
from tilewright_nvidia.toolchain.installation import why_not
from tilewright_nvidia.toolchain.linking import assemble, link


def link_here(ptx: bytes, target: Target, what: str) -> Linked | None:
    """Compile for a local device of the target's architecture; None if there is none.

    Worker processes also get None, since each would take a context on the device.

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
    """Compile a kernel's PTX to device code; None if the kernel already has device code.

    The driver of a matching local device compiles it, or else ``ptxas``.

    Raises:
        BackendError: there is neither.
        LoweringError: the PTX is rejected.
    """
    if code.metadata.get("format") == "cubin":
        return None
    linked = link_here(
        code.binary, target, f"{code.name} ({code.metadata.get('configuration', '')})"
    )
    if linked is not None and not linked.binary.startswith(code.binary):
        return linked.binary
    return assemble(code.binary, target.arch).binary
