"""``KernelInterface``: the ``kernel[grid](...)`` of kernels, autotuners and heuristics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tilewright.errors import DefinitionError, HostCallError
from tilewright.runtime.arguments.mock_tensors import MockTensor


class KernelInterface:
    """Base class of what ``kernel[grid](...)`` can launch: kernels, autotuners and heuristics."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on ``grid``; with ``warmup`` compile only."""
        raise NotImplementedError(f"{type(self).__name__} must define run()")

    @property
    def record_mark(self) -> str:
        """Part of the keys of tuning records: what distinguishes this from its innermost kernel."""
        inner = getattr(self, "fn", None)
        return inner.record_mark if isinstance(inner, KernelInterface) else ""

    def chosen_keywords(
        self, grid: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the keywords with which a launch reaches the innermost kernel."""
        inner = getattr(self, "fn", None)
        if isinstance(inner, KernelInterface):
            return inner.chosen_keywords(grid, args, keywords)
        return dict(keywords)

    #: The built-in ``run`` of a class. Launches bypass it, and call ``run`` only where a subclass
    #: or a program has overridden it.
    _own_run: Callable[..., Any] | None = None

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compile for arguments without running.

        :class:`MockTensor` and element types may stand for tensors.

        An element type is a tensor's where the parameter is not constexpr.
        """
        args, kwargs = self._standing(args, kwargs)
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def _standing(
        self, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replace the non-constant element types in a warm-up's arguments by mock tensors."""
        constants = self._constant_names()
        positional = [
            value if position in constants else MockTensor.wrap_dtype(value)
            for position, value in enumerate(args)
        ]
        return tuple(positional), {
            name: value if name in constants else MockTensor.wrap_dtype(value)
            for name, value in keywords.items()
        }

    def _constant_names(self) -> frozenset[int | str]:
        """Return the constexpr parameters, by position and by name."""
        parameters = getattr(getattr(self, "base_kernel", self), "params", ())
        return frozenset(
            name
            for parameter in parameters
            if parameter.is_constexpr
            for name in (parameter.num, parameter.name)
        )

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid, warmup=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self, "__name__", "kernel")
        raise HostCallError(
            f"Cannot call @jit'd outside of the scope of a kernel: launch {name} on a grid, "
            f"{name}[grid](...)"
        )


def launchable(kernel: Any, decorator: str) -> Any:
    """Check that ``kernel`` can be launched, and return it.

    Raises:
        DefinitionError: it is not; names the decorator that was put around it.
    """
    if not hasattr(kernel, "arg_names"):
        raise DefinitionError(
            f"{decorator} decorates a kernel, not a {type(kernel).__name__}: put @tilewright.jit "
            "below it, next to the function"
        )
    return kernel
