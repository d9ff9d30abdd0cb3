"""Launchers: from a grid and argument values to a kernel in a stream of the device.

The Python launcher takes every kind of argument and reports every error. The native launcher
(:mod:`.native_launch`) handles the common kinds of arguments and passes every other launch to the
Python launcher. Neither synchronises nor allocates device memory, so both work while a stream is
being captured into a graph, but for kernels whose backend does so around each launch
(:attr:`~tilewright.gpu_host.table.Image.around`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from tilewright.environment import LAUNCHERS, chosen
from tilewright.errors import LaunchError
from tilewright.gpu_host.arguments import ArgumentBlock, device_address
from tilewright.gpu_host.errors import DriverError
from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.streams import stream_handle
from tilewright.gpu_host.table import Grid, LaunchParameters
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright.runtime.arguments.writability import write_guard


class PythonLauncher:
    """Launcher in Python; each launch has its own argument block, so it is thread-safe."""

    def __init__(self, loaded: LoadedKernel, parameters: Sequence[Parameter]) -> None:
        self.loaded, table = loaded, loaded.driver.table
        self.block = ArgumentBlock(
            loaded.name,
            parameters,
            partial(device_address, loaded.driver, loaded.device),
            loaded.image.opaque,
        )
        self._guard = write_guard(loaded.name, parameters)
        self._limits = table.grid_limits

    def __call__(self, grid: Grid, stream: Any, values: tuple[Any, ...]) -> None:
        """Start the kernel on ``grid``.

        Raises:
            LaunchError: the values do not fit the kernel's parameters, one that the kernel may
                store to is read-only, the grid is too large.
            OutOfResources: the device cannot run programs of so many threads and registers.
            ResidencyError: the launch is cooperative, and has more programs than run at once.
            KernelError: a kernel launched before has failed.
        """
        if not self._runs(grid):
            return
        loaded, driver = self.loaded, self.loaded.driver
        with driver.use(loaded.device):  # structures may be encoded for this device
            addresses, kept = self.block.place(values)
            self._guard(values)
            handle = stream_handle(driver.table.streams, stream, loaded.device)
            blocks = (grid[0] * loaded.image.blocks, *grid[1:])
            launch = LaunchParameters(
                loaded.function,
                blocks,
                loaded.threads,
                loaded.shared,
                handle,
                addresses,
                loaded.image.attributes,
                loaded.image.cooperative,
            )
            around = loaded.image.around
            try:
                with nullcontext() if around is None else around(handle):
                    driver(driver.entries.launch, launch)
            except DriverError as error:
                loaded.fail(error)
        del kept

    def _runs(self, grid: Grid) -> bool:
        """Return whether the grid is not empty."""
        if min(grid) < 0:
            raise LaunchError(
                f"{self.loaded.name}: a grid's extents are not negative, but this one is {grid}"
            )
        for axis, (extent, limit) in enumerate(zip(grid, self._limits, strict=True)):
            limit = limit if axis else limit // self.loaded.image.blocks
            if extent > limit:
                raise LaunchError(
                    f"{self.loaded.name}: the grid {grid} has {extent} programs along axis {axis}, "
                    f"and the device takes at most {limit} there"
                )
        most = self.loaded.most_programs
        if most is not None and math.prod(grid) > most:
            self.loaded.refuse_grid(grid)
        return 0 not in grid


def make_launcher(
    loaded: LoadedKernel, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    """Make the launcher of a loaded kernel: native where possible, else in Python.

    ``TILEWRIGHT_<BACKEND>_LAUNCHER=python`` forces the Python launcher.
    """
    slow = PythonLauncher(loaded, parameters)
    if (
        chosen(
            f"TILEWRIGHT_{loaded.driver.table.backend.upper().replace('-', '_')}_LAUNCHER",
            LAUNCHERS,
        )
        != "python"
    ):
        from tilewright.gpu_host.native_launch import native_launcher

        fast = native_launcher(loaded, parameters, slow)
        if fast is not None:
            return fast
    return slow
