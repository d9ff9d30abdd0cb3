"""An operation: what it launches, what it makes, its gradients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright_kernels.operations.frameworks import JAX, NUMPY, framework_of
from tilewright_kernels.operations.launcher import DirectLauncher
from tilewright_kernels.operations.parameters import Array, Function, parameters_of


class Operation:
    """An operation on arrays of any framework.

        def _results(make, x, weight, eps):
            return make(x.shape, x.dtype), make(x.shape[:-1], "float32")

        def _launch(run, y, rstd, x: Array, weight: Array | None, eps: float) -> None:
            run(rms_norm_kernel, (rows,), x, weight, y, rstd, ...)

        RMS_NORM = Operation("rms_norm", ("y", "rstd"), _results, _launch, residuals=("rstd",))

    Args:
        name: its name in ``torch.ops.tilewright_kernels``.
        results: the names of what it makes.
        shapes: ``shapes(make, *arguments)`` returns the results by ``make(shape, dtype)``.
        launch: ``launch(run, *results, *arguments)`` launches the kernels by a
            :class:`Launcher`; the annotations of its arguments are those of the operation.
            Arrays may have any strides.
        residuals: results that the backward pass alone reads. The launch is given None instead
            where there is no backward pass.
    """

    def __init__(
        self,
        name: str,
        results: Sequence[str],
        shapes: Callable[..., tuple[Any, ...]],
        launch: Callable[..., None],
        *,
        residuals: Sequence[str] = (),
    ) -> None:
        self.name, self.results, self.residuals = name, tuple(results), tuple(residuals)
        self.shapes, self.launch = shapes, launch
        self.parameters = parameters_of(launch, self.results)
        self.saved: tuple[str, ...] = ()
        self.gradients: Callable[..., Mapping[str, Any]] | None = None
        self._specialized: dict[Any, Operation] = {}
        self._signature = inspect.Signature(
            [
                inspect.Parameter(
                    each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=each.default
                )
                for each in self.parameters
            ]
        )

    def differentiate(
        self, saved: Sequence[str]
    ) -> Callable[[Callable[..., Mapping[str, Any]]], Callable[..., Mapping[str, Any]]]:
        """Decorate the function that computes gradients.

        It takes a namespace with the arrays named in ``saved`` (arguments and results) and all
        arguments that are no arrays, and the cotangent of each result but the residuals, None
        where it is zero. It returns argument -> gradient, and may leave out those that have none.
        It computes them by operations.
        """

        def decorate(gradients: Callable[..., Mapping[str, Any]]) -> Any:
            self.saved, self.gradients = tuple(saved), gradients
            return gradients

        return decorate

    def __call__(self, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        """Compute the results but the residuals: a tuple, or the array where there is one.

        Args:
            arguments: of the operation.
            out: the array, or the tuple of them, to which the results are stored; those of NumPy
                or PyTorch.
            keywords: arguments by name.

        Raises:
            TypeError: arguments do not fit the operation, or there is no array among them.
            ValueError: ``out`` has other shapes than the results.
        """
        bound = self._signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        values = bound.arguments
        functions = {
            each.name: values[each.name] for each in self.parameters if each.kind is Function
        }
        if functions:
            rest = {name: value for name, value in values.items() if name not in functions}
            return self.specialized(**functions)(out=out, **rest)
        first = next(
            (
                values[each.name]
                for each in self.parameters
                if each.kind is Array and values[each.name] is not None
            ),
            None,
        )
        if first is None:
            raise TypeError(f"{self.name}: there is no array among the arguments")
        framework = framework_of(first)
        if framework is NUMPY:
            found = self.launched(framework, values, out, with_residuals=False)
        elif framework is JAX:
            from tilewright_kernels.operations.jax_functions import call

            found = call(self, values, out)
        else:
            from tilewright_kernels.operations.torch_library import call

            found = call(self, values, out)
        return found[0] if len(found) == 1 else found

    def specialized(self, **functions: Any) -> Operation:
        """Return the operation with the functions that its kernels call."""
        key = tuple(functions.items())
        found = self._specialized.get(key)
        if found is None:
            parts = [each.__name__ for each in functions.values() if each is not None]
            found = Operation(
                "_".join([self.name, *parts]),
                self.results,
                _given(self.shapes, functions),
                _given(self.launch, functions),
                residuals=self.residuals,
            )
            if self.gradients is not None:
                own = self.gradients

                def gradients(saved: Any, *cotangents: Any) -> Mapping[str, Any]:
                    return own(SimpleNamespace(**vars(saved), **functions), *cotangents)

                found.differentiate(self.saved)(gradients)
            self._specialized[key] = found
        return found

    def launched(
        self, framework: Any, values: Mapping[str, Any], out: Any, *, with_residuals: bool
    ) -> tuple[Any, ...]:
        """Launch on memory, and return the results: all of them, or without the residuals."""
        first = self.first_array(values)
        arguments = values.values()
        shapes = self.shapes(functools.partial(_Shape, first), *arguments)
        given = iter(self._outputs(out))
        results: list[Any] = []
        for name, shape in zip(self.results, shapes, strict=True):
            if name in self.residuals:
                results.append(shape.made(framework) if with_residuals else None)
                continue
            array = next(given, None)
            if array is None:
                array = shape.made(framework)
            elif tuple(array.shape) != shape.shape:
                raise ValueError(
                    f"{self.name}: out has the shape {tuple(array.shape)}, and {name} is of "
                    f"{shape.shape}"
                )
            results.append(array)
        self.launch(DirectLauncher(framework, first), *results, *arguments)
        if with_residuals:
            return tuple(results)
        return tuple(
            each
            for name, each in zip(self.results, results, strict=True)
            if name not in self.residuals
        )

    def first_array(self, values: Mapping[str, Any]) -> Any:
        """Return the first array among arguments."""
        return next(
            values[each.name]
            for each in self.parameters
            if each.kind is Array and values[each.name] is not None
        )

    def _outputs(self, out: Any) -> tuple[Any, ...]:
        if out is None:
            return ()
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)


class _Shape:
    """A result that is not made yet."""

    def __init__(self, beside: Any, shape: Sequence[int], dtype: Any) -> None:
        self.beside, self.shape, self.dtype = beside, tuple(shape), dtype

    def made(self, framework: Any) -> Any:
        """Return memory for it."""
        return framework.empty(self.shape, self.dtype, self.beside)


def _given(function: Callable[..., Any], given: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function without the parameters in ``given``."""
    signature = inspect.signature(function)
    rest = [each for each in signature.parameters.values() if each.name not in given]

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        return function(**dict(zip((each.name for each in rest), arguments, strict=True)), **given)

    called.__signature__ = signature.replace(parameters=rest)
    return called
