"""Where a launch runs that does not say: at its tensors, else at the active driver's device."""

from __future__ import annotations

from typing import Any

from tilewright.compat.triton.backends.driver import TilewrightDriver
from tilewright.compat.triton.runtime.placed import place
from tilewright.runtime.arguments.array_protocols import ArrayKind
from tilewright.runtime.compiler.specialize import DescriptorKind
from tilewright.runtime.devices.backend_choice import Choice
from tilewright.runtime.launch.jit import JITFunction


def has_arrays(kinds: tuple[Any, ...]) -> bool:
    """Return whether any argument lies on a device."""
    for kind in kinds:
        if isinstance(kind, tuple):
            if has_arrays(kind):
                return True
        elif isinstance(kind, DescriptorKind):
            if kind.base.device is not None:
                return True
        elif isinstance(kind, ArrayKind) and kind.device is not None:
            return True
    return False


def choice_without_arrays(kernel: JITFunction) -> Choice:
    """The active driver's backend, for a launch of a kernel without tensors.

    Raises:
        RuntimeError: there is no active driver.
    """
    from tilewright.compat.triton.runtime.driver import driver

    active = driver.active
    assert isinstance(active, TilewrightDriver), (
        f"kernels run on backends of Tilewright, not on {type(active).__name__}"
    )
    place(kernel)
    return Choice(active.backend_name, {})
