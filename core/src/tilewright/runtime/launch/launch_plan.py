"""The plan of a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.runtime.compiler.specialize import value_picker
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.launch.positional_launch import Converter


class Plan:
    """Plan of a launch with known kinds of arguments.

    ``launcher`` is called with ``pick(bound arguments)``, which ``converters`` describe; it may
    change in later launches until the plan is ``settled``.
    """

    __slots__ = ("converters", "kernel", "launcher", "pick", "settled")

    def __init__(
        self, kernel: CompiledKernel, launcher: Callable[..., None], converters: Sequence[Converter]
    ) -> None:
        self.kernel, self.launcher, self.converters, self.pick = (
            kernel,
            launcher,
            converters,
            value_picker(converters),
        )
        self.settled = True
