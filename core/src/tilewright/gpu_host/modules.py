"""Modules on a device: loaded once per context, and unloaded with the last of their kernels."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from tilewright.gpu_host.driver import Driver


class LoadedModule:
    """Code loaded in a device's context, unloaded when the object is collected.

    Attributes:
        context: the context, as a number.
    """

    def __init__(self, driver: Driver, device: int, binary: bytes) -> None:
        self._driver, self._device = driver, device
        self._lock = threading.RLock()
        self._functions: dict[str, LoadedFunction] = {}
        with driver.beside_captures(device):
            self.context = driver.context(device)
            self._handle = driver(driver.entries.module_load, binary)

    def function(self, symbol: str) -> LoadedFunction:
        """Look up a kernel of the module; the function is valid as long as the module."""
        with self._lock:
            if symbol not in self._functions:
                driver = self._driver
                with driver.beside_captures(self._device):
                    handle = driver(driver.entries.module_function, self._handle, symbol.encode())
                    self._functions[symbol] = LoadedFunction(driver, self._device, handle)
            return self._functions[symbol]

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is None or sys.is_finalizing():
            return
        try:
            with self._driver.beside_captures(self._device):
                self._driver(self._driver.entries.module_unload, handle)
        except Exception:
            pass


class LoadedFunction:
    """A kernel in a module.

    Attributes:
        handle: the bindings' object.
        number: the same, as a number.
        registers: registers of a thread.
        local_bytes: bytes of local memory of a thread.
        max_threads: threads that a program could have with so many registers.
    """

    def __init__(self, driver: Driver, device: int, handle: Any) -> None:
        self._driver, self._device, self.handle, self.number = driver, device, handle, int(handle)
        self.registers, self.local_bytes, self.max_threads = (
            driver.function_attribute(handle, name)
            for name in ("registers", "local_bytes", "max_threads")
        )
        self._allowed = driver.table.free_shared
        self._lock = threading.Lock()

    def allow_shared(self, size: int) -> None:
        """Allow ``size`` bytes of shared memory per program; a larger earlier allowance stays."""
        entry = self._driver.entries.function_allow_shared
        with self._lock:
            if entry is not None and size > self._allowed:
                with self._driver.use(self._device):
                    self._driver(entry, self.handle, size)
                self._allowed = size

    def programs(self, threads: int, shared: int) -> int:
        """Return how many programs of this size are resident on an SM (CU) at a time."""
        with self._driver.use(self._device):
            return int(self._driver(self._driver.entries.occupancy, self.handle, threads, shared))


_lock = threading.RLock()
#: Driver -> the modules loaded through it, by context and code.
_loaded: weakref.WeakKeyDictionary[
    Driver, weakref.WeakValueDictionary[tuple[int, bytes], LoadedModule]
] = weakref.WeakKeyDictionary()


def load_module(driver: Driver, device: int, binary: bytes) -> LoadedModule:
    """Return the module of ``binary`` in the device's context, loading it if necessary.

    Raises:
        DriverError: the driver does not take it.
    """
    key = driver.context(device), binary
    with _lock:
        loaded = _loaded.setdefault(driver, weakref.WeakValueDictionary())
        found = loaded.get(key)
    if found is not None:
        return found
    made = LoadedModule(driver, device, binary)
    with _lock:
        # another thread may have been faster; then the second one unloads itself
        return loaded.setdefault(key, made)
