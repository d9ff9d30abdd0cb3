"""Errors of driver calls, and their translation to the package's exceptions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.errors import BackendError, KernelError, LaunchError
from tilewright.gpu_host.table import Statuses


class DriverError(BackendError):
    """A call of the driver failed.

    Attributes:
        call: the function.
        code: its status, as the driver numbers it.
        name, text: the status's name, and the driver's description.
    """

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call} failed: {name} ({code}): {text}")
        self.call, self.code, self.name, self.text = call, code, name, text

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.call, self.code, self.name, self.text)


class DeviceFaultError(DriverError, KernelError):
    """A kernel failed on the device; any later call of the driver may report it.

    ``fault`` describes the failure.
    """

    page = "debugging#checks-in-compiled-code"

    def __init__(self, call: str, code: int, name: str, text: str, fault: str) -> None:
        super().__init__(call, code, name, text)
        self.fault = fault
        message = (
            f"{fault}. It was the kernel launched last, or one before it. The device's context "
            "cannot be used any more: restart the process"
        )
        self.args = (f"{message} ({name} from {call})",)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.call, self.code, self.name, self.text, self.fault)


def translate(
    error: DriverError, statuses: Statuses, kernel: str = ""
) -> BackendError | KernelError | LaunchError:
    """Translate an error of the driver to the exception raised to users."""
    if isinstance(error, DeviceFaultError):
        return error
    of_kernel = f"kernel {kernel}: " if kernel else ""
    if error.code == statuses.out_of_memory:
        return BackendError(f"{of_kernel}the device has not enough free memory ({error.name})")
    if error.code in statuses.capture:
        return (LaunchError if kernel else BackendError)(
            f"{of_kernel}{error}. A stream is being captured into a graph, and this cannot be part "
            "of one: do it before the capture begins"
        )
    return LaunchError(f"{of_kernel}{error}") if kernel else error


@contextlib.contextmanager
def translated(statuses: Statuses, kernel: str = "") -> Iterator[None]:
    """Translate the driver's errors that a ``with`` block raises."""
    try:
        yield
    except DriverError as error:
        found = translate(error, statuses, kernel)
        if found is error:
            raise
        raise found from error
