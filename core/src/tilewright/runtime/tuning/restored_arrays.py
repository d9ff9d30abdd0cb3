"""Restoring of the arrays that measured runs store to, after each run.

A kernel that is measured runs many times, on arrays of the program that tunes it.

The stored-to arguments follow from the Tile IR of each configuration. Arrays that a kernel only
stores to are kept as well: another configuration, or the
launch itself, need not store to the same elements.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from tilewright.errors import AutotunerError, CompilationError
from tilewright.runtime.arguments.array_copies import clone, copy_into
from tilewright.runtime.arguments.array_protocols import is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.storage.files import warn_user


def changed_by(trial: Trial) -> dict[str, bool]:
    """Map the parameters that a trial's kernels may store to, to whether they may read them too."""
    from tilewright.ir.table import Effect
    from tilewright.passes.analysis.argument_access import accesses_of, stored_arguments

    found: dict[str, bool] = {}
    for wanted in trial.wanted:
        try:
            module = wanted.module()
        except CompilationError:
            continue  # it is not run
        stored = stored_arguments(module)
        if not stored:
            continue
        read = {
            position
            for access in accesses_of(module)
            if access.effects & Effect.READ
            for position in access.arguments
        }
        for position in stored:
            # an item of a tuple: all of the tuple
            name = module.kernel.arguments[position].name.partition(".")[0]
            found[name] = found.get(name, False) or position in read
    return found


class KeptValues:
    """Saved values of a launch's arrays from before its tuning.

    Safe for arrays that share memory: all of them are restored.
    """

    def __init__(
        self, kernel: str, arguments: Mapping[str, Any], cared_for: Collection[str]
    ) -> None:
        """Begin.

        Args:
            kernel: its name, for errors.
            arguments: those of the launch, by parameter.
            cared_for: parameters that are restored elsewhere.
        """
        self._kernel, self._arguments, self._cared_for = kernel, arguments, frozenset(cared_for)
        self._saved: dict[int, tuple[Any, Any]] = {}
        #: Seconds that the last restoring took.
        self.seconds = 0.0
        self._skipped: set[int] = set()

    def restored(self, trial: Trial) -> AbstractContextManager[None]:
        """Run a trial in a ``with`` block, and restore the arrays that it stored to at the end.

        Raises:
            AutotunerError: an array that the kernel reads and stores to cannot be copied, or there
                is no memory for its copy.
        """
        return self._around(
            [array for name, read in changed_by(trial).items() for array in self._kept(name, read)]
        )

    @contextlib.contextmanager
    def _around(self, used: list[Any]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # a failed device's memory cannot be written
                self._restore(used)
            raise
        self._restore(used)

    def _restore(self, arrays: list[Any]) -> None:
        started = time.perf_counter()
        for array in arrays:
            copy_into(array, self._saved[id(array)][1])
        self.seconds = time.perf_counter() - started

    def _kept(self, name: str, read: bool) -> Iterator[Any]:
        """Copy the arrays of a parameter on first use, and return them."""
        if name in self._cared_for:
            return
        for array in _arrays(self._arguments.get(name)):
            if id(array) not in self._saved:
                if id(array) in self._skipped and not read:
                    continue
                try:
                    self._saved[id(array)] = (array, clone(array))
                except Exception as error:
                    if read:
                        raise AutotunerError(self._refusal(name, array, error)) from error
                    self._skipped.add(id(array))
                    warn_user(
                        f"{self._kernel} stores to argument {name!r} while it is tuned, and the "
                        f"values it had could not be kept ({error}): elements that the launch does "
                        "not store to may have changed"
                    )
                    continue
            yield array

    def _refusal(self, name: str, array: Any, error: Exception) -> str:
        return (
            f"{self._kernel} reads argument {name!r} and stores to it, so that trying its "
            f"configurations would change a {type(array).__name__} whose values could not be kept: "
            f"{error}\n  help: tune on other arrays first, such as smaller ones, for the result is "
            "kept; name it in reset_to_zero= if it begins as zeros; or launch with one "
            "configuration"
        )


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, TensorDescriptor):
        value = value.base
    if isinstance(value, tuple):
        for item in value:
            yield from _arrays(item)
    elif is_array(value):
        yield value
