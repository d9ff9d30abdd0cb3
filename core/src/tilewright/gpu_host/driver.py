"""Calls of a driver through its Python bindings, initialized on first use.

:class:`Driver` turns status codes into :class:`~tilewright.gpu_host.errors.DriverError`; everything
else goes through it, so that tests can substitute a mock.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from tilewright.gpu_host.capture import RELAXED
from tilewright.gpu_host.errors import DeviceFaultError, DriverError
from tilewright.gpu_host.table import DriverTable, Entry


class Driver:
    """The driver of this process; ``driver(driver.entries.device, 0)`` calls one function.

    A call returns the function's results: None, one value, or a tuple.

    Attributes:
        table: the names of its functions.
        entries: of the table.
        bindings: the module that has the functions.
    """

    def __init__(self, table: DriverTable, bindings: Any) -> None:
        self.table, self.entries, self.bindings = table, table.entries, bindings
        # a finalizer that frees device memory may run within any allocation, also one made while
        # the lock is held
        self._lock = threading.RLock()
        self._contexts: dict[int, int] = {}
        self._peers: set[tuple[int, int]] = set()

    def __call__(self, entry: Entry, *arguments: Any) -> Any:
        """Call a function: of the table, or one that the backend names.

        Raises:
            DriverError: it fails.
        """
        if isinstance(entry, str):
            name, (status, *results) = entry, getattr(self.bindings, entry)(*arguments)
        else:
            name, (status, *results) = entry.name, entry.call(self.bindings, *arguments)
        code = int(status)
        if code:
            raise self.error(name, code)
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    def error(self, call: str, code: int) -> DriverError:
        """Make the error of a status code."""
        name, text = self.table.statuses.texts(self.bindings, code)
        statuses = self.table.statuses
        fault = statuses.faults.get(code)
        if fault is None:
            return DriverError(call, code, name, text)
        said = statuses.messages(self.bindings) if statuses.messages is not None else ""
        return DeviceFaultError(call, code, name, text, said or fault)

    def start(self) -> Driver:
        """Initialize the driver.

        Raises:
            DriverError: it does not start, for example in a process forked from one that used it.
        """
        self(self.entries.initialize)
        return self

    def attribute(self, device: int, name: str) -> int:
        """Return an attribute of a device by the table's name for it."""
        member = self.table.device_attributes.member(self.bindings, name)
        return int(self(self.entries.device_attribute, member, self(self.entries.device, device)))

    def function_attribute(self, function: Any, name: str) -> int:
        """Return an attribute of a function by the table's name for it."""
        return int(
            self(
                self.entries.function_attribute,
                self.table.function_attributes.member(self.bindings, name),
                function,
            )
        )

    def context(self, device: int) -> int:
        """Return the device's primary context, which all libraries of the process share; cached."""
        found = self._contexts.get(device)
        if found is None:
            with self._lock:
                if device not in self._contexts:
                    self._contexts[device] = int(
                        self(self.entries.context, self(self.entries.device, device))
                    )
                found = self._contexts[device]
        return found

    def why_no_access(self, device: int, peer: int) -> str:
        """Enable peer access to another device; return the reason of a failure, else ""."""
        possible, enable = self.entries.peer_possible, self.entries.peer_enable
        if device == peer or (device, peer) in self._peers:
            return ""
        if possible is None or enable is None:
            return f"the {self.table.backend} driver has no access between devices"
        if not int(
            self(possible, self(self.entries.device, device), self(self.entries.device, peer))
        ):
            return "the driver says that there is no peer access between them"
        context = self.context(peer)
        try:
            with self.beside_captures(device):
                self(enable, context)
        except DeviceFaultError:
            raise
        except DriverError as error:
            if error.code != self.table.statuses.peer_enabled:
                return str(error)
        self._peers.add((device, peer))
        return ""

    @contextlib.contextmanager
    def use(self, device: int) -> Iterator[None]:
        """Make the device's context current in this thread for the length of a ``with`` block."""
        context = self.context(device)
        before = int(self(self.entries.context_current))
        if before == context:
            yield
            return
        self(self.entries.context_enter, context)
        try:
            yield
        finally:
            self(self.entries.context_leave, before)

    @contextlib.contextmanager
    def beside_captures(self, device: int) -> Iterator[None]:
        """Make the device's context current and its calls independent of any graph capture.

        Both hold for the length of the ``with`` block.
        """
        with self.use(device):
            exchange = self.entries.capture_mode
            if exchange is None:
                yield
                return
            before = self(exchange, RELAXED)
            try:
                yield
            finally:
                self(exchange, before)


def open_library(name: str) -> Any:
    """Load a shared library; None where there is none of this name."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _reveal(package: str, name: str) -> bool:
    """Make a module importable that another package of the same name hides; return whether it is.

    The folder on Python's path that has the module is added to the search path of the package that
    hides it.
    """
    import importlib.machinery
    import importlib.util
    import os
    import sys

    hiding = sys.modules.get(package)
    if hiding is None or not isinstance(getattr(hiding, "__path__", None), list):
        return False
    wanted = name.split(".")[: package.count(".") + 2]
    for entry in sys.path:
        folder = os.path.join(entry or os.getcwd(), *package.split("."))
        if (
            folder not in hiding.__path__
            and importlib.machinery.PathFinder.find_spec(".".join(wanted), [folder]) is not None
        ):
            hiding.__path__.append(folder)
            return importlib.util.find_spec(name) is not None
    return False


def missing_module(name: str, remedy: str) -> str:
    """Return the remedy for a module that cannot be imported; empty where it can be.

    Does not import the module.

    Args:
        remedy: the distribution it is in, and how to get that, as
            ``X is not installed: pip install Y``.
    """
    import importlib.util

    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is not None:
        return ""
    package, _, inside = name.partition(".")
    if inside and _reveal(package, name):
        return ""
    other = importlib.util.find_spec(package) if inside else None
    # no namespace, which packages of several distributions share
    if other is not None and other.has_location:
        distribution = remedy.partition(" is not installed")[0]
        return (
            f"{other.origin} is found as the package {package!r}, which hides that of "
            f"{distribution}: rename it, or take its folder off Python's path"
        )
    return remedy
