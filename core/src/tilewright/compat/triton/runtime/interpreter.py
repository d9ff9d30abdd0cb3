"""``triton.runtime.interpreter``: kernels that run on Tilewright's reference.

They are decorated with ``TRITON_INTERPRET=1`` set.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tilewright.compat.triton.outside import OutsideNameError
from tilewright.compat.triton.runtime.errors import InterpreterError
from tilewright.compat.triton.runtime.jit import JITFunction
from tilewright.compat.triton.runtime.launch_policy import TritonPolicy
from tilewright.errors import CompilationError, KernelError
from tilewright.runtime.compiler.kernel_definition import KernelDefinition
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.devices.backend_choice import Choice


class InterpreterPolicy(TritonPolicy):
    """Launches run on the reference, where nothing else is said."""

    __slots__ = ()

    def select(
        self,
        kernel: KernelDefinition,
        args: tuple[Any, ...],
        kinds: tuple[Any, ...],
        options: Mapping[str, Any],
        choice: Choice | None,
    ) -> Selected:
        if choice is None:
            choice = Choice("reference", {})
        elif not choice.name:  # a block that says how kernels are compiled, and not where they run
            choice = Choice("reference", choice.options, choice.preparation)
        return super().select(kernel, args, kinds, options, choice)


class InterpretedFunction(JITFunction):
    """A kernel that is interpreted with NumPy.

    Tensors of any device are copied to the host and back. Launches and warm-ups return None.

    Raises:
        InterpreterError: at launch: the kernel breaks a rule of the language, or fails; the cause
            says which.
    """

    policy_class = InterpreterPolicy

    def __getitem__(self, grid: Any) -> Any:
        return partial(self.run, grid=grid, warmup=False)

    def launch_on(self, grid: Any) -> Any:
        launch = super().launch_on(grid)

        def run(*args: Any, **kwargs: Any) -> None:
            try:
                launch(*args, **kwargs)
            except (CompilationError, KernelError) as error:
                raise InterpreterError(str(error)) from error

        return run

    def compile_only(self, *args: Any, grid: Any, **kwargs: Any) -> None:
        """Do nothing: there is nothing to compile for."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise OutsideNameError(
        f"triton.runtime.interpreter.{name} is a part of Triton's interpreter; Tilewright's is "
        "tilewright.reference"
    )


__all__ = ["InterpretedFunction", "InterpreterError"]
