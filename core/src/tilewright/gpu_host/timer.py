"""Timing by a device's events, as the runtime's :class:`~tilewright.plugins.manifest.Timer`."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.errors import translated
from tilewright.gpu_host.memory import DeviceBuffer, allocate
from tilewright.gpu_host.streams import current_stream


class DeviceTimer:
    """Timer of calls by events in the current stream.

    ``flush_cache`` overwrites more memory than the last-level cache holds.
    """

    def __init__(self, device: int, driver: Driver) -> None:
        self._device, self._driver = device, driver
        self._spoiler: DeviceBuffer | None = None

    def measure(self, call: Callable[[], None], repetitions: int) -> list[float]:
        """Measure the milliseconds of each repetition.

        Raises:
            KernelError: a kernel failed.
        """
        driver, entries = self._driver, self._driver.entries
        with driver.use(self._device):
            stream = current_stream(driver.table.streams, self._device)
            starts, ends = (
                [driver(entries.event_create) for _ in range(repetitions)] for _ in range(2)
            )
            try:
                with translated(driver.table.statuses):
                    for start, end in zip(starts, ends, strict=True):
                        driver(entries.event_record, start, stream)
                        call()
                        driver(entries.event_record, end, stream)
                    return [
                        self._milliseconds(start, end)
                        for start, end in zip(starts, ends, strict=True)
                    ]
            finally:
                for event in (*starts, *ends):
                    driver(entries.event_destroy, event)

    def mark(self, stream: int | None = None) -> object:
        """Record an event in a stream, the current one for None, without waiting.

        Raises:
            KernelError: a kernel failed.
        """
        driver, entries = self._driver, self._driver.entries
        with driver.use(self._device), translated(driver.table.statuses):
            event = driver(entries.event_create)
            driver(
                entries.event_record,
                event,
                current_stream(driver.table.streams, self._device) if stream is None else stream,
            )
            return event

    def milliseconds_between(self, start: object, end: object) -> float:
        """Wait for two recorded moments and return the time between them.

        The moments stay recorded: release them with :meth:`forget`.

        Raises:
            KernelError: a kernel failed.
        """
        with self._driver.use(self._device), translated(self._driver.table.statuses):
            return self._milliseconds(start, end)

    def forget(self, *moments: object) -> None:
        """Release recorded moments."""
        with self._driver.use(self._device):
            for event in moments:
                self._driver(self._driver.entries.event_destroy, event)

    def _milliseconds(self, start: object, end: object) -> float:
        self._driver(self._driver.entries.event_wait, end)
        return float(self._driver(self._driver.entries.event_milliseconds, start, end))

    def flush_cache(self) -> None:
        driver, table = self._driver, self._driver.table
        if self._spoiler is None:
            self._spoiler = allocate(
                driver,
                self._device,
                max(table.flushed_bytes, 2 * driver.attribute(self._device, "cache_bytes")),
            )
        with driver.use(self._device):
            driver(
                driver.entries.memory_fill,
                self._spoiler.data_ptr(),
                0,
                self._spoiler.nbytes,
                current_stream(table.streams, self._device),
            )
