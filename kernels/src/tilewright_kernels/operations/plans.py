"""Plans: calls whose launches, results and scratch memory are prepared once."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright import TensorDescriptor
from tilewright_kernels.operations.frameworks import JAX, dtype_name, framework_of, strides
from tilewright_kernels.operations.launcher import plan_launchers


class PlanError(ValueError):
    """Raised if :func:`plan` cannot prepare a call, or if a plan does not fit the arguments."""


class _Recording:
    """Launches of a call, and their memory.

    Attributes:
        steps: what to do again, in order.
        scratch: the scratch memory, in the order in which launches ask for it.
        held: all arrays that the call has allocated.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = []
        self.scratch: list[Any] = []
        self.held: list[Any] = []

    def launcher(self, framework: Any, array: Any, results: Sequence[Any]) -> _RecordingLauncher:
        """Return the launcher of an operation, whose results are held."""
        self.held += [each for each in results if each is not None]
        return _RecordingLauncher(self, framework, array)


class _RecordingLauncher:
    """Launches at once, and records what it launches."""

    def __init__(self, recording: _Recording, framework: Any, array: Any) -> None:
        self._recording, self._framework, self._array = recording, framework, array

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        found = self._framework.empty(shape, dtype, self._array)
        self._recording.scratch.append(found)
        self._recording.held.append(found)
        return found

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        found = self.empty(shape, dtype)
        self._framework.fill(found, 0)
        self._recording.steps.append((self._framework.fill, None, (found, 0), {}))
        return found

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        kernel[grid](*arguments, **keywords)
        self._recording.steps.append((kernel, grid, arguments, keywords))


class _Reuse:
    """Launches of a planned call on other arrays, with the plan's scratch memory."""

    def __init__(self, scratch: Sequence[Any]) -> None:
        self._scratch = iter(scratch)
        self._framework: Any = None

    def launcher(self, framework: Any, array: Any, results: Sequence[Any]) -> _Reuse:
        """Return the launcher of an operation."""
        self._framework = framework
        return self

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        return next(self._scratch)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        found = next(self._scratch)
        self._framework.fill(found, 0)
        return found

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        kernel[grid](*arguments, **keywords)


class Plan:
    """A prepared call of a library function; see :func:`plan`.

    Attributes:
        result: the array, or the tuple of arrays, to which ``run`` stores the results.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        out: Any,
    ) -> None:
        self._function, self._arguments, self._keywords = function, arguments, dict(keywords)
        given = [*arguments, *keywords.values()]
        arrays = [each for value in given for each in _arrays_of(value)]
        if not arrays:
            raise PlanError("a plan is for arrays: there is none among the arguments")
        self._framework = framework_of(arrays[0])
        if self._framework is JAX:
            raise PlanError("jax.jit plans calls on arrays of JAX: call the function in one")
        if not all(map(self._framework.is_contiguous, _arrays_of(out))):
            raise PlanError("the arrays of out= must lie row by row")
        recording = _Recording()
        if out is not None:
            keywords = {**keywords, "out": out}
        with _launching_by(recording):
            self.result = function(*arguments, **keywords)
        self._steps, self._scratch = recording.steps, recording.scratch
        self._kinds = [_kind_of(each) for each in given]
        results = _arrays_of(self.result)
        self._check_memory([*arrays, *recording.held, *(_arrays_of(out))], results)
        self._changed = results
        self._has_out = "out" in inspect.signature(function).parameters

    def run(self, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        """Launch, and return the results.

        Without arguments the launches of the plan are repeated on its own arrays, as a CUDA graph
        does, and the results are stored to :attr:`result`.

        Args:
            arguments: other arrays of the same shapes, strides and element types, and all other
                arguments as they were planned. The function must have an argument ``out=``.
            out: memory for the results instead of the plan's; with ``arguments`` alone.
            keywords: keyword arguments of the function.

        Raises:
            PlanError: arguments do not fit the plan.
        """
        if not arguments and not keywords:
            if out is not None:
                raise PlanError("out= goes with arguments: run() stores to the plan's result")
            for kernel, grid, given, named in self._steps:
                if grid is None:
                    kernel(*given)
                else:
                    kernel[grid](*given, **named)
            self._framework.mark_changed(self._changed)
            return self.result
        if not self._has_out:
            raise PlanError(
                f"{self._function.__name__} has no argument out=, so its plans take no other "
                "arrays: call run() without arguments"
            )
        named = {**self._keywords, **keywords}
        given = [*arguments, *named.values()]
        kinds = [_kind_of(each) for each in given]
        if kinds != self._kinds:
            raise PlanError(
                f"{self._function.__name__}: the arguments are not as they were planned, which is "
                f"{self._kinds}, but {kinds}: make another plan for other shapes, strides, element "
                "types or numbers"
            )
        with _launching_by(_Reuse(self._scratch)):
            return self._function(*arguments, **named, out=self.result if out is None else out)

    def _check_memory(self, known: Sequence[Any], results: Sequence[Any]) -> None:
        """Check that launches use memory that stays, and nothing else makes the results.

        Raises:
            PlanError: an array was copied beside the launches.
        """
        memories = {self._framework.memory(each) for each in known}
        used = [
            each
            for _, _, given, named in self._steps
            for value in (*given, *named.values())
            for each in _arrays_of(value.base if isinstance(value, TensorDescriptor) else value)
        ]
        for each in (*used, *results):
            if 0 not in each.shape and self._framework.memory(each) not in memories:
                raise PlanError(
                    f"{self._function.__name__}: an array of the shape {tuple(each.shape)} is "
                    "copied beside the launches, which a plan does not repeat: pass arrays whose "
                    "last axis has the stride 1, or which lie row by row"
                )


def plan(function: Callable[..., Any], *arguments: Any, out: Any = None, **keywords: Any) -> Plan:
    """Prepare a call of a library function, for programs that repeat the call many times.

        step = tk.plan(tk.rms_norm, x, weight, eps=1e-6)
        y = step.run()

    ``tk.plan`` calls the function once, without gradients. The results and the scratch memory of
    this call stay allocated. The method ``run`` of the plan therefore allocates nothing and can be
    captured in a CUDA graph.

    Args:
        function: a function of the library, such as :func:`tilewright_kernels.rms_norm`.
        arguments: the arguments of the function. Each call of ``run`` reads the current contents of
            their arrays.
        out: the array for the result, or a tuple of arrays, in C order.
        keywords: keyword arguments of the function.

    Raises:
        PlanError: none of the arguments is an array, an argument is a JAX array, or an array has
            strides that the kernels of ``function`` do not support, so that ``function`` must copy
            the array.
    """
    return Plan(function, arguments, keywords, out)


@contextlib.contextmanager
def _launching_by(launchers: Any) -> Iterator[None]:
    """Launch by the launchers of a plan, without gradients."""
    torch = sys.modules.get("torch")
    token = plan_launchers.set(launchers)
    try:
        with contextlib.nullcontext() if torch is None else torch.no_grad():
            yield
    finally:
        plan_launchers.reset(token)


def _arrays_of(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [each for one in value for each in _arrays_of(one)]
    return [value] if hasattr(value, "dtype") and hasattr(value, "shape") else []


def _kind_of(value: Any) -> Any:
    """Return what launches depend on about an argument."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind_of, value))
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        place = getattr(value, "device", None)
        return tuple(value.shape), dtype_name(value.dtype), strides(value), str(place)
    return value
