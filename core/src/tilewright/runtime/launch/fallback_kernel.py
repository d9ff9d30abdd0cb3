"""Fallback kernels, for launches whose arguments the first kernel refuses.

Code may rely on properties outside the specialization key, such as that a TMA tensor map can
describe a tensor. Where the arguments of a launch lack them, its launcher raises
:class:`~tilewright.errors.RefusedError`, before anything was started. The entry ``otherwise`` of
the code's metadata has the options to compile
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

#: Maximum number of recorded reasons for refusals.
_REASONS = 16


class Variant:
    """The fallback of a kernel, for launches that it refuses.

    Attributes:
        kernel: the fallback kernel, once a launch was refused.
        reasons: the first distinct reasons for refusals.
    """

    def __init__(self, make: Callable[[], CompiledKernel]) -> None:
        self.kernel: CompiledKernel | None = None
        self.reasons: list[str] = []
        self._make, self._lock = make, threading.Lock()

    def launcher(self, run: Launcher) -> Launcher:
        """Wrap the launcher of a kernel so that refused launches run the fallback."""

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
