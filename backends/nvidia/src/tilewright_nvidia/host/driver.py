"""Access to the local CUDA driver through cuda-python, initialized at first use."""

from __future__ import annotations

import functools

from tilewright.errors import BackendError
from tilewright.gpu_host.driver import Driver
from tilewright_nvidia.toolchain.installation import why_not


@functools.cache
def driver() -> Driver:
    """Return the initialized driver.

    Raises:
        BackendError: there is none, or it is too old, or cuda-python is missing.
        DriverError: it does not start, for example in a process forked from one that used it.
    """
    reason = why_not()
    if reason:
        raise BackendError(f"NVIDIA GPUs cannot be used: {reason}")
    from cuda.bindings import driver as bindings

    from tilewright_nvidia.host.driver_table import TABLE

    return Driver(TABLE, bindings).start()
