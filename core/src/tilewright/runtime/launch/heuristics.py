"""Meta-parameters computed from a launch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tilewright.errors import DefinitionError
from tilewright.runtime.launch.kernel_interface import KernelInterface, launchable


class Heuristics(KernelInterface):
    """A kernel some of whose arguments are computed from the others; see :func:`heuristics`.

    Attributes:
        fn: the kernel or autotuner inside; base_kernel: the innermost kernel.
        values: parameter -> function of a dict of all arguments.
    """

    def __init__(
        self, fn: Any, arg_names: list[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        for name, compute in values.items():
            if not callable(compute):
                raise DefinitionError(
                    "heuristics take functions of a dict of all arguments, and the one of "
                    f"{name!r} is a {type(compute).__name__}: {compute!r}"
                )
        self.fn = fn
        self.base_kernel = getattr(fn, "base_kernel", fn)
        self.arg_names = arg_names
        self.values = dict(values)
        self.__name__: str = getattr(fn, "__name__", "kernel")
        self.__module__: str = getattr(fn, "__module__", __name__)
        self.__doc__: str | None = getattr(fn, "__doc__", None)
        self.__qualname__: str = getattr(fn, "__qualname__", self.__name__)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        kind = type(self)
        # a subclass's, or one that a program has put in its place
        if kind.run is not kind._own_run or "run" in self.__dict__:
            return partial(self.run, grid=grid, warmup=False)
        return partial(self._launch, grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Compute the values in order and run the kernel with them.

        Each is computed from all arguments and the earlier results.

        Launches call this method only where a subclass or a program has overridden it.
        """
        if not warmup:
            return self._launch(grid, *args, **kwargs)
        self._compute(args, kwargs)
        return self.fn.run(*args, grid=grid, warmup=True, **kwargs)

    _own_run = run

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch with the computed values."""
        self._compute(args, kwargs)
        fn = self.fn
        kind = type(fn)
        if kind.run is getattr(kind, "_own_run", None) and "run" not in fn.__dict__:
            return fn[grid](*args, **kwargs)
        return fn.run(*args, grid=grid, warmup=False, **kwargs)

    def chosen_keywords(
        self, grid: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        found = dict(keywords)
        self._compute(args, found)
        return super().chosen_keywords(grid, args, found)

    def _compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compute the values and add them to the keywords of a launch."""
        named = dict(zip(self.arg_names, args, strict=False))
        named.update(kwargs)
        for name, compute in self.values.items():
            try:
                found = compute(named.copy())
            except Exception as error:
                error.add_note(
                    f"in the heuristic of {name!r} of {self.__name__}; it is given a dict of "
                    f"{', '.join(named)}"
                )
                raise
            kwargs[name] = named[name] = found


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Decorate a kernel, so that its launches compute some of the arguments from the others.

    The dictionary ``values`` maps the name of each computed argument to the function that computes
    it. Each function receives a dictionary that maps the names of all arguments to their values.

        @tw.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
        @tw.jit
        def kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr): ...
    """
    if not isinstance(values, Mapping):
        raise DefinitionError(
            f"heuristics takes a dict from parameter to function, not a {type(values).__name__}"
        )
    return lambda fn: Heuristics(launchable(fn, "heuristics"), fn.arg_names, values)
