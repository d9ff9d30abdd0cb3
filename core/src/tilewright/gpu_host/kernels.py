"""Loaded kernels: resource usage, occupancy, and the errors of exceeded limits."""

from __future__ import annotations

from typing import NoReturn

from tilewright.errors import BackendError, LaunchError, OutOfResources, ResidencyError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.errors import DriverError, translated
from tilewright.gpu_host.modules import LoadedModule, load_module
from tilewright.gpu_host.table import Grid, LaunchParameters
from tilewright.plugins.manifest import CodeObject, Device


class LoadedKernel:
    """A kernel on a device.

    Attributes:
        name: the kernel's symbol.
        device: the device's index.
        driver: the driver that loaded it.
        image: the description of its code object.
        configuration: the options that determine its resource usage, in words.
        context: its device's context, as a number.
        function: the kernel's handle, as a number.
        threads: threads of a program.
        shared: bytes of shared memory of a program.
        n_regs: registers per thread.
        n_spills: 32-bit words that a thread spills to local memory.
        n_max_threads: maximum threads of a program with this register count.
        local_bytes: bytes of local memory of a thread.
        most_programs: maximum programs of a cooperative launch; None for other launches.
    """

    def __init__(self, code: CodeObject, index: int, driver: Driver) -> None:
        self.name, self.device, self.metadata, self.driver = code.name, index, code.metadata, driver
        self.configuration = str(code.metadata.get("configuration", ""))
        image = self.image = driver.table.image(driver, index, code)
        self.threads, self.shared = image.threads, image.shared
        available = driver.attribute(index, "shared_memory")
        if self.shared > available:
            raise OutOfResources(
                self.shared,
                available,
                f"shared memory of kernel {self.name} ({self.configuration})",
            )
        self._module = self._load(image.binary())
        function = self._function = self._module.function(image.symbol)
        self.context, self.function = self._module.context, function.number
        self.n_regs, self.local_bytes, self.n_max_threads = (
            function.registers,
            function.local_bytes,
            function.max_threads,
        )
        self.n_spills = (self.local_bytes if image.spills is None else image.spills) // 4
        if self.threads > self.n_max_threads:
            raise self._too_many_registers()
        function.allow_shared(self.shared)
        self.most_programs = self._check_cooperative() if image.cooperative else None

    def _check_cooperative(self) -> int:
        driver, index = self.driver, self.device
        if "cooperative" in driver.table.device_attributes.members and not driver.attribute(
            index, "cooperative"
        ):
            device = driver.table.architecture(driver, index)
            raise BackendError(
                f"kernel {self.name}: the device {driver.table.kind}:{index} ({device}) has no "
                "cooperative launches: leave cooperative=True out"
            )
        return self.n_resident

    def _too_many_registers(self) -> OutOfResources:
        limit = self.driver.attribute(self.device, "registers")
        return OutOfResources(
            self.n_regs * self.threads,
            limit,
            f"registers of kernel {self.name} ({self.configuration})",
        )

    def _load(self, binary: bytes) -> LoadedModule:
        driver, statuses = self.driver, self.driver.table.statuses
        with translated(statuses, self.name):
            try:
                return load_module(driver, self.device, binary)
            except DriverError as error:
                if error.code != statuses.no_binary:
                    raise
                device = driver.table.architecture(driver, self.device)
                raise BackendError(
                    f"kernel {self.name} was compiled for another GPU than {device}: {error}"
                ) from error

    @property
    def occupancy(self) -> float:
        """Occupancy: the fraction of an SM's (CU's) threads that this kernel's programs fill."""
        programs = self._function.programs(self.threads, self.shared)
        return programs * self.threads / self.driver.attribute(self.device, "processor_threads")

    @property
    def n_resident(self) -> int:
        """Number of this kernel's programs that are resident on the device at a time."""
        entry, blocks = self.driver.entries.cluster_occupancy, self.image.blocks
        if blocks == 1 or entry is None:
            return (
                self._function.programs(self.threads, self.shared)
                * self.driver.attribute(self.device, "processors")
                // blocks
            )
        with self.driver.use(self.device):
            return int(
                self.driver(
                    entry,
                    LaunchParameters(
                        self.function, (blocks, 1, 1), self.threads, self.shared, 0, 0
                    ),
                )
            )

    def refuse_grid(self, grid: Grid) -> NoReturn:
        """Raise the error of a cooperative launch of more programs than run at once.

        Raises:
            ResidencyError: names the kernel, the grid and how many programs fit.
        """
        processors, blocks, fit = (
            self.driver.attribute(self.device, "processors"),
            self.image.blocks,
            self.n_resident,
        )
        if blocks == 1:
            each = fit // processors
            why = (
                f"{each} on each of the {processors} SMs (compute units) of "
                f"{self.driver.table.kind}:{self.device}"
            )
        else:
            why = (
                f"clusters of {blocks} CTAs on the {processors} SMs (compute units) of "
                f"{self.driver.table.kind}:{self.device}"
            )
        if self.configuration:
            why += f", with {self.configuration}"
        raise ResidencyError(self.name, grid, fit, why)

    def raise_failure(self, code: int) -> None:
        """Raise the exception for a launch's status."""
        entry = self.driver.entries.launch
        self.fail(self.driver.error(entry if isinstance(entry, str) else entry.name, code))

    def fail(self, error: DriverError) -> None:
        """Raise the exception for a launch's error."""
        statuses = self.driver.table.statuses
        with translated(statuses, self.name):
            if statuses.too_many_programs is not None and error.code == statuses.too_many_programs:
                raise LaunchError(
                    f"kernel {self.name}: a cooperative launch runs all its programs at once, and "
                    f"they do not fit ({error.name}): the device holds {self.n_resident}, or less "
                    "where others use a part of it. Launch fewer programs, and let each do the "
                    "work of several in a loop"
                ) from error
            if error.code == self.driver.table.statuses.out_of_launch_resources:
                raise self._too_many_registers() from error
            raise error


def load(code: CodeObject, device: Device, driver: Driver) -> LoadedKernel:
    """Load a kernel on a device.

    Raises:
        LoweringError: its code cannot be linked.
        OutOfResources: a program needs more registers or shared memory than the device has.
        BackendError: it was compiled for another device, or the device has not enough memory for
            it.
    """
    return LoadedKernel(code, device.index, driver)
