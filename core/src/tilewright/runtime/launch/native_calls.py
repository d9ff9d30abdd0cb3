"""Native replay of calls without Python code, shared by kernels and autotuners.

A call goes through a Python function once. Then its arguments are written down as conditions that
native code checks, and calls that fulfil them are made without that function. What cannot be
written down so keeps to the Python function, and so does everything where LLVM is not loaded or the
interpreter is not one that native code can read.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tilewright.forks import setting_up

if TYPE_CHECKING:
    from tilewright.llvm.codegen.link import LoadedObject

#: Entries of a native function at most; a new one takes the place of the oldest.
ENTRIES = 16
#: Number of calls through Python that are all recorded; after them only every ``SELDOM``-th is,
#: since recording one costs as much as several launches.
OFTEN, SELDOM = 32, 64


class UnsuitedError(Exception):
    """A call cannot be described to native code."""


class NativeCalls:
    """Calls of the form ``start(grid, *args, **keywords)``.

    Attributes:
        native: the native function, once there is one.
        start: the function to call; it is another one when there is a native function.
    """

    #: The symbol of the native function.
    symbol = ""
    #: Whether the whole of a first call counts as set-up, for which forks wait.
    first_sets_up = False

    def __init__(self, name: str, python: Callable[..., Any]) -> None:
        """Begin.

        Args:
            name: of the native function, for messages.
            python: performs a call in Python.
        """
        self._name, self._python = name, python
        self._launches = 0
        self._entries: list[tuple[Any, ...]] = [()]
        # one object: launchers that are in use hold it without a count
        self._through_python: Callable[..., Any] = self._launch
        self._bound_early: list[weakref.ref[partial[Any]]] | None = []
        self.native: Callable[..., Any] | None = None
        self.start: Callable[..., Any] = self._through_python

    def launcher(self, grid: Any) -> Callable[..., Any]:
        """Return the launcher for a grid.

        It becomes native once ``native`` exists, even if it was bound before.
        """
        launch, early = partial(self.start, grid), self._bound_early
        if early is not None:
            if len(early) >= ENTRIES:
                early[:] = [kept for kept in early if kept() is not None]
            early.append(weakref.ref(launch))
        # looked at last: another thread may have adopted the native function meanwhile
        return launch if self.native is None else partial(self.native, grid)

    def bound(self) -> tuple[Any, ...]:
        """Return the objects that the native function is bound to."""
        raise NotImplementedError

    def learn(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Describe a call that was just made to the native function.

        Raises:
            UnsuitedError: it cannot be described.
        """
        raise NotImplementedError

    def _launch(self, grid: Any, /, *args: Any, **keywords: Any) -> Any:
        if self._launches or not self.first_sets_up:
            return self._launch_and_learn(grid, args, keywords)
        with setting_up():
            return self._launch_and_learn(grid, args, keywords)

    def _launch_and_learn(self, grid: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        found = self._python(grid, *args, **keywords)
        self._launches += 1
        # native code that is read from the disk is LLVM's to link: where it is not loaded, nothing
        # here needs it
        if (self._launches <= OFTEN or self._launches % SELDOM == 0) and "llvmlite" in sys.modules:
            with setting_up():
                self._remember(args, keywords)
        return found

    def _remember(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        code = _code()
        if code is None:
            self.start, self._bound_early = self._python, None
            return
        native_functions = importlib.import_module("tilewright.llvm.native.native_functions")
        native_functions.fill_addresses(code.address("addresses"))
        if self.native is None:
            self._adopt(
                native_functions.make_builtin(
                    code.address(self.symbol), self._name, self.bound(), code, keywords=True
                )
            )
        try:
            self.learn(args, keywords)
        except UnsuitedError:
            return

    def _adopt(self, function: Callable[..., Any]) -> None:
        """Switch to the native function, also in launchers that were bound earlier."""
        self.native = self.start = function
        bound, self._bound_early = self._bound_early or [], None
        for kept in list(bound):
            launch = kept()
            if launch is not None:
                launch.__setstate__(  # type: ignore[attr-defined]
                    (function, launch.args, launch.keywords, None)
                )

    def keep(self, entry: tuple[Any, ...]) -> None:
        """Add an entry, replacing the oldest if there are too many."""
        self._entries[0] = (*self._entries[0][-(ENTRIES - 1) :], entry)


@cache
def _code() -> LoadedObject | None:
    """Return the native functions; None where the interpreter's object layout is unknown."""
    from tilewright.llvm.native import native_functions
    from tilewright.llvm.native.tuned_dispatch import dispatchers_ir
    from tilewright.runtime.storage.host_code import load_host_code

    objects = native_functions.layout()
    return (
        None
        if objects is None
        else load_host_code(
            "native dispatcher",
            dispatchers_ir(objects),
            ("dispatch", "dispatch_tuned", "addresses"),
        )
    )
