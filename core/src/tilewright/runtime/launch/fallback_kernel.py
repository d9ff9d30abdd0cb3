"""Fallback kernels, for launches whose arguments the first kernel refuses.

Code may rely on what no specialisation tells, such as that the copy hardware can be told of a tensor. Where the arguments of a launch do not allow that, its
launcher raises :class:`~tilewright.errors.RefusedError`, before anything was started. The entry ``otherwise`` of the code's metadata has the options to compile
the kernel with for such launches: it is compiled when the first comes, and kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright import logs
from tilewright.errors import RefusedError
from tilewright.forks import setting_up

if TYPE_CHECKING:
    from tilewright.plugins.manifest import Launcher
    from tilewright.runtime.launch.compiled_kernel import CompiledKernel

#: Reasons of refusals that are kept.
_REASONS = 16


class Variant:
    """What launches that a kernel refuses run.

    Attributes:
        kernel: it, once one was refused.
        reasons: why launches were refused, each once, the first ones.
    """

    def __init__(self, make: Callable[[], CompiledKernel]) -> None:
        self.kernel: CompiledKernel | None = None
        self.reasons: list[str] = []
        self._make, self._lock = make, threading.Lock()

    def launcher(self, run: Launcher) -> Launcher:
        """The launcher of a kernel, with this one behind it."""

        def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
            try:
                return run(grid, stream, values)
            except RefusedError as error:
                refused = error
            return self._kernel_for(refused).run(grid, stream, values)

        return launch

    def _kernel_for(self, refused: RefusedError) -> CompiledKernel:
        with setting_up(), self._lock:
            reason = str(refused)
            if len(self.reasons) < _REASONS and reason not in self.reasons:
                self.reasons.append(reason)
                if logs.DISPATCH.on():
                    logs.DISPATCH.tell(f"a launch runs other code than its kernel's: {reason}")
            if self.kernel is None:
                self.kernel = self._make()
            return self.kernel
