"""A kernel on a device: what it takes of it, and the errors where that is too much."""

from __future__ import annotations

from tilewright.errors import BackendError, OutOfResources
from tilewright.plugins.manifest import CodeObject, Device
from tilewright.simt.host.driver import Driver
from tilewright.simt.host.errors import DriverError, translated
from tilewright.simt.host.modules import Module, load_module


class LoadedKernel:
    """A kernel on a device.

    Attributes:
        name: the kernel's symbol.
        device: the device's index.
        driver: what it was loaded by.
        image: what its code object says of it.
        configuration: the options that decide what it takes, in words.
        context: its device's context, as a number.
        function: the kernel's handle, as a number.
        threads: threads of a program.
        shared: bytes of shared memory of a program.
        n_regs: registers of a thread.
        n_spills: words that a thread keeps in local memory for want of registers.
        n_max_threads: threads that a program could have with so many registers.
        local_bytes: bytes of local memory of a thread.
    """

    def __init__(self, code: CodeObject, index: int, driver: Driver) -> None:
        self.name, self.device, self.metadata, self.driver = code.name, index, code.metadata, driver
        self.configuration = str(code.metadata.get("configuration", ""))
        image = self.image = driver.table.image(driver, index, code)
        self.threads, self.shared = image.threads, image.shared
        available = driver.attribute(index, "shared_memory")
        if self.shared > available:
            raise OutOfResources(self.shared, available, f"shared memory of kernel {self.name} ({self.configuration})")
        self._module = self._load(image.binary())
        function = self._function = self._module.function(image.symbol)
        self.context, self.function = self._module.context, function.number
        self.n_regs, self.local_bytes, self.n_max_threads = function.registers, function.local_bytes, function.max_threads
        self.n_spills = (self.local_bytes if image.spills is None else image.spills) // 4
        if self.threads > self.n_max_threads:
            raise self._too_many_registers()
        function.allow_shared(self.shared)

    def _too_many_registers(self) -> OutOfResources:
        limit = self.driver.attribute(self.device, "registers")
        return OutOfResources(self.n_regs * self.threads, limit, f"registers of kernel {self.name} ({self.configuration})")

    def _load(self, binary: bytes) -> Module:
        driver, statuses = self.driver, self.driver.table.statuses
        with translated(statuses, self.name):
            try:
                return load_module(driver, self.device, binary)
            except DriverError as error:
                if error.code != statuses.no_binary:
                    raise
                device = driver.table.architecture(driver, self.device)
                raise BackendError(f"kernel {self.name} was compiled for another GPU than {device}: {error}") from error

    @property
    def occupancy(self) -> float:
        """The part of a processor's threads that programs of this kernel fill."""
        programs = self._function.programs(self.threads, self.shared)
        return programs * self.threads / self.driver.attribute(self.device, "processor_threads")

    def raise_failure(self, code: int) -> None:
        """Raise what a launch's status means."""
        entry = self.driver.entries.launch
        self.fail(self.driver.error(entry if isinstance(entry, str) else entry.name, code))

    def fail(self, error: DriverError) -> None:
        """Raise what a launch's error means."""
        with translated(self.driver.table.statuses, self.name):
            if error.code == self.driver.table.statuses.out_of_launch_resources:
                raise self._too_many_registers() from error
            raise error


def load(code: CodeObject, device: Device, driver: Driver) -> LoadedKernel:
    """Load a kernel on a device.

    Raises:
        LoweringError: its code cannot be linked.
        OutOfResources: a program needs more registers or shared memory than the device has.
        BackendError: it was compiled for another device, or the device has not enough memory for it.
    """
    return LoadedKernel(code, device.index, driver)
