"""An operation: what it launches, what it makes, its gradients."""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.errors import BackendError
from tilewright_kernels.operations.block_rules import is_trying
from tilewright_kernels.operations.defaults import DEFAULTS, OPTIONS
from tilewright_kernels.operations.devices import chosen_device
from tilewright_kernels.operations.frameworks import NUMPY, TORCH, dtype_name, framework_of
from tilewright_kernels.operations.launcher import DirectLauncher, Launcher, plan_launchers
from tilewright_kernels.operations.parameters import (
    Array,
    Arrays,
    DType,
    Function,
    Parameter,
    parameters_of,
)
from tilewright_kernels.operations.prepared_calls import (
    PreparedCall,
    PreparedCalls,
    PreparingLauncher,
    call_key,
)
from tilewright_kernels.operations.results import described, memory_for, stored, unpacked
from tilewright_kernels.operations.specialization import without_parameters


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
        shapes: ``shapes(make, *arguments)`` returns the results by ``make(shape, dtype)``; None
            for one of ``optional`` that these arguments do not ask for.
        launch: ``launch(run, *results, *arguments)`` launches the kernels by a
            :class:`Launcher`; the annotations of its arguments are those of the operation.
            Arguments may have any strides; results lie row by row. A parameter ``deterministic``
            or ``invariant`` of the type ``bool | None`` gets the library's default for None.
        residuals: results that the backward pass alone reads. The launch is given None instead
            where there is no backward pass.
        optional: results that some arguments do not ask for. Callers and the launch get None.
        mutated: arguments whose arrays it changes. Such an operation has no gradients.
        reference: the twin, for :func:`use_references`. It takes those of the operation's
            arguments that it has parameters for, and returns the results that are asked for but the
            residuals, which are converted to the operation's element types; or, where there are
            none, the new arrays of each of ``mutated``.
    """

    def __init__(
        self,
        name: str,
        results: Sequence[str],
        shapes: Callable[..., tuple[Any, ...]],
        launch: Callable[..., None],
        *,
        residuals: Sequence[str] = (),
        optional: Sequence[str] = (),
        mutated: Sequence[str] = (),
        reference: Callable[..., Any] | None = None,
    ) -> None:
        self.name, self.results, self.residuals = name, tuple(results), tuple(residuals)
        self.optional = tuple(optional)
        self.shapes, self.launch, self.reference = shapes, launch, reference
        self.parameters = parameters_of(launch, self.results, mutated)
        self.saved: tuple[str, ...] = ()
        self.saved_places: list[tuple[str, bool, int]] = []
        self.gradients: Callable[..., Mapping[str, Any]] | None = None
        self._specialized: dict[Any, Operation] = {}
        self._by_functions: dict[tuple[Any, ...], Operation] = {}
        self._signature = inspect.Signature(
            [
                inspect.Parameter(
                    each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=each.default
                )
                for each in self.parameters
            ]
        )
        self._count = len(self.parameters)
        self.array_positions = self._positions(lambda each: each.kind in (Array, Arrays))
        self._arrays_of = _getter(self.array_positions)
        self._others = self._positions(lambda each: each.kind not in (Array, Arrays))
        self._others_of = _getter(self._others)
        self.prepared, self.recorded = PreparedCalls(), PreparedCalls()
        self._functions = self._positions(lambda each: each.kind is Function)
        self._no_functions = self._positions(lambda each: each.kind is not Function)
        self._settings = self._positions(lambda each: each.kind is DType or _is_option(each))
        self.has_lists = any(each.kind is Arrays for each in self.parameters)
        self._returned = [
            position for position, each in enumerate(self.results) if each not in self.residuals
        ]
        self.residual_positions = [
            position for position, each in enumerate(self.results) if each in self.residuals
        ]
        self._mutated = self._positions(lambda each: each.is_mutated)
        self.setting_places = [(self.parameters[each].name, each) for each in self._others]

    def _positions(self, accepts: Callable[[Parameter], bool]) -> tuple[int, ...]:
        return tuple(number for number, each in enumerate(self.parameters) if accepts(each))

    def differentiate(
        self, saved: Sequence[str]
    ) -> Callable[[Callable[..., Mapping[str, Any]]], Callable[..., Mapping[str, Any]]]:
        """Decorate the function that computes gradients.

        It takes a namespace with the arrays named in ``saved`` (arguments and results) and all
        arguments that are no arrays, and the cotangent of each result but the residuals, None
        where it is zero. It returns argument -> gradient, and may leave out those that have none.
        It computes them by operations. ``saved.needed`` has the names of the arguments whose
        gradients are wanted.

        Raises:
            TypeError: the operation changes arrays.
        """
        if any(each.is_mutated for each in self.parameters):
            raise TypeError(f"{self.name}: an operation that changes arrays has no gradients")

        def decorate(gradients: Callable[..., Mapping[str, Any]]) -> Any:
            self.saved, self.gradients = tuple(saved), gradients
            names = [each.name for each in self.parameters]
            self.saved_places = [
                (name, True, self.results.index(name))
                if name in self.results
                else (name, False, names.index(name))
                for name in saved
            ]
            return gradients

        return decorate

    def __call__(self, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        """Compute the results but the residuals: a tuple, or the array where there is one.

        Args:
            arguments: of the operation.
            out: the array, or the tuple of them, to which the results are stored; those of NumPy
                or PyTorch, of any strides.
            keywords: arguments by name.

        Raises:
            TypeError: arguments do not fit the operation, there is no array among them, or arrays
                are of several frameworks.
            ValueError: ``out`` has other shapes or element types than the results, is read-only,
                or lies on another device.
        """
        if keywords or len(arguments) != self._count:
            arguments = self._bound(arguments, keywords)
        if self._settings:
            arguments = self._normalized(arguments)
        key = None if torch_observes_calls() else self.key(arguments, out)
        prepared = None if key is None else self.prepared.get(key)
        if prepared is not None and not (prepared.wants_gradient and torch_wants_gradients()):
            return unpacked(self.without_residuals(self.repeated(prepared, arguments, out)))
        arrays = self.arrays(arguments)
        framework = self._framework(arrays)
        if DEFAULTS.references:
            return self._by_reference(framework, arguments, out)
        operation = self
        if framework is TORCH:
            from tilewright_kernels.operations import torch_library

            if torch_is_compiling():
                return torch_library.call_of_operator(self, arguments, out)
            if self._functions:
                operation, arguments = self.split(arguments)
            return torch_library.call(
                operation, arguments, arrays, out, key, self.prepared.storing(key)
            )
        if self._functions:
            operation, arguments = self.split(arguments)
        if framework is NUMPY:
            store = self.prepared.storing(key)
            results = operation.launched(
                framework, arguments, out, with_residuals=False, store=store
            )
            return unpacked(self.without_residuals(results))
        from tilewright_kernels.operations import jax_functions

        return unpacked(jax_functions.call(operation, arguments, out))

    def resolved(self, *arguments: Any, **keywords: Any) -> tuple[Operation, tuple[Any, ...]]:
        """Return the operation without functions among its arguments, and the other arguments.

        Args:
            arguments: as in a call.
        """
        return self.split(self._normalized(self._bound(arguments, keywords)))

    def split(self, arguments: tuple[Any, ...]) -> tuple[Operation, tuple[Any, ...]]:
        """Return the operation without the functions among all its arguments, and the others."""
        if not self._functions:
            return self, arguments
        functions = tuple([arguments[each] for each in self._functions])
        operation = self._by_functions.get(functions)
        if operation is None:
            names = [self.parameters[each].name for each in self._functions]
            operation = self.specialized(**dict(zip(names, functions, strict=True)))
            self._by_functions[functions] = operation
        return operation, tuple([arguments[each] for each in self._no_functions])

    def operator_name(self, *functions: Any) -> str:
        """Return the name of the operator of PyTorch, which is defined at the first call.

        Args:
            functions: those among the arguments, in order.
        """
        from tilewright_kernels.operations import torch_library

        return torch_library.operator_name(self, *functions)

    def specialized(self, **functions: Any) -> Operation:
        """Return the operation with the functions that its kernels call."""
        key = tuple(functions.items())
        found = self._specialized.get(key)
        if found is None:
            parts = [each.__name__ for each in functions.values() if each is not None]
            found = Operation(
                "_".join([self.name, *parts]),
                self.results,
                without_parameters(self.shapes, functions),
                without_parameters(self.launch, functions),
                residuals=self.residuals,
                optional=self.optional,
                mutated=[each.name for each in self.parameters if each.is_mutated],
            )
            if self.gradients is not None:
                own = self.gradients

                def gradients(saved: Any, *cotangents: Any) -> Mapping[str, Any]:
                    return own(SimpleNamespace(**vars(saved), **functions), *cotangents)

                found.differentiate(self.saved)(gradients)
            self._specialized[key] = found
        return found

    def launched(
        self,
        framework: Any,
        arguments: Sequence[Any],
        out: Any,
        *,
        with_residuals: bool,
        run: Launcher | None = None,
        store: Callable[[PreparedCall | None], None] | None = None,
    ) -> list[Any]:
        """Launch on memory, and return all results; None for what is not made.

        Args:
            with_residuals: whether residuals are made.
            run: launches the kernels; at once if None.
            store: takes the prepared call, or None if it cannot be repeated.
        """
        self._check_devices(arguments)
        first = self.first_array(arguments)
        made = self.shapes(described, *arguments)
        omitted = () if with_residuals else self.residuals
        made = [
            None if name in omitted else each for name, each in zip(self.results, made, strict=True)
        ]
        given, results = self._memory(framework, made, out, first)
        launchers = plan_launchers.get()
        recording = None
        if run is None and launchers is not None:
            run = launchers.launcher(framework, first, results)
        elif run is None and store is not None:
            run = recording = PreparingLauncher(framework, [*results, *arguments], first)
        elif run is None:
            run = DirectLauncher(framework, first)
        try:
            self.launch(run, *results, *arguments)
        except BackendError as error:
            raise self._named(error) from error
        if recording is not None and store is not None:
            store(recording.prepared(made))
        return self._finished(framework, results, given, arguments)

    def repeated(self, prepared: PreparedCall, arguments: Sequence[Any], out: Any) -> list[Any]:
        """Launch what was launched for arguments of the same key, and return all results."""
        if self._functions:
            arguments = [arguments[each] for each in self._no_functions]
        first, given = arguments[prepared.first], None
        if out is None:
            results = [None if each is None else each(first) for each in prepared.allocators]
        else:
            given, results = memory_for(self, prepared.framework, prepared.made, out, first)
        try:
            prepared.launch([*results, *arguments], first)
        except BackendError as error:
            raise self._named(error) from error
        if given is None and not self._mutated:
            return results
        return self._finished(prepared.framework, results, given, arguments)

    def _memory(
        self, framework: Any, made: Sequence[Any], out: Any, first: Any
    ) -> tuple[list[Any] | None, list[Any]]:
        """Return the arrays of ``out`` if it is given, and the memory of results."""
        if out is not None:
            return memory_for(self, framework, made, out, first)
        return None, [None if each is None else framework.empty(*each, first) for each in made]

    def _finished(
        self, framework: Any, results: list[Any], given: list[Any] | None, arguments: Sequence[Any]
    ) -> list[Any]:
        """Store results to ``out`` where they are elsewhere, and return all of them."""
        if given is not None:
            results = stored(framework, results, given)
        if self._mutated:
            framework.mark_changed(self.mutated_arrays(arguments))
        return results

    def key(self, arguments: Sequence[Any], out: Any) -> Any:
        """Return the key of a call in :attr:`prepared`; None for calls that are not prepared."""
        if self.has_lists or plan_launchers.get() is not None or DEFAULTS.references or is_trying():
            return None
        arrays = self._arrays_of(arguments)
        if out is not None:
            arrays += tuple(out) if isinstance(out, (tuple, list)) else (out,)
        return call_key(arrays, self._others_of(arguments), chosen_device(arrays))

    def _named(self, error: BackendError) -> BackendError:
        """Return an error of a launch with the operation's name, and what to do."""
        return BackendError(
            f"{self.name}: {error}. `with tilewright_kernels.use_references():` computes by "
            "formulas in the array library instead"
        )

    def _check_devices(self, arguments: Sequence[Any]) -> None:
        """Check that all arrays are on one device.

        Raises:
            ValueError: they are not.
        """
        arrays = self.arrays(arguments)
        first = arrays[0]
        for each in arrays:
            if each.device != first.device:
                raise ValueError(
                    f"{self.name}: {self._name_of(each, arguments)} is on {each.device}, and the "
                    f"first array on {first.device}: move the arguments to one device"
                )

    def without_residuals(self, results: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results that callers get."""
        return tuple([results[position] for position in self._returned])

    def first_array(self, arguments: Sequence[Any]) -> Any:
        """Return the first array among arguments; None if there is none."""
        for position in self.array_positions:
            value = arguments[position]
            if isinstance(value, (list, tuple)):
                value = value[0] if value else None
            if value is not None:
                return value
        return None

    def mutated_arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arrays among arguments that the operation changes."""
        return [each for position in self._mutated for each in _flat(arguments[position])]

    def arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return all arrays among arguments."""
        if self.has_lists:
            return [
                each for position in self.array_positions for each in _flat(arguments[position])
            ]
        return [arguments[each] for each in self.array_positions if arguments[each] is not None]

    # -- arguments

    def _bound(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return all arguments in order.

        Raises:
            TypeError: they do not fit.
        """
        names = [each.name for each in self.parameters]
        given = dict(zip(names, arguments, strict=False))
        if len(arguments) > len(names) or any(
            name not in names or name in given for name in keywords
        ):
            self._signature.bind(*arguments, **keywords)  # raises
        given.update(keywords)
        found = []
        for each in self.parameters:
            value = given.get(each.name, each.default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"{self.name}: argument {each.name!r} is missing")
            found.append(value)
        return tuple(found)

    def _normalized(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments with names of element types, and the library's defaults for None."""
        found = list(arguments)
        for position in self._settings:
            parameter, value = self.parameters[position], found[position]
            if parameter.kind is DType:
                found[position] = None if value is None else dtype_name(value)
            elif value is None:
                found[position] = getattr(DEFAULTS, parameter.name) or (
                    parameter.name == "deterministic" and torch_wants_determinism()
                )
        return tuple(found)

    def _framework(self, arrays: Sequence[Any]) -> Any:
        """Return the framework of arrays.

        Raises:
            TypeError: there is no array, or they are of several frameworks.
        """
        found, kind = None, None
        for each in arrays:
            if type(each) is kind:
                continue
            framework = framework_of(each)
            if found is not None and framework is not found:
                raise TypeError(
                    f"{self.name}: takes arrays of one framework, and these are of {found.name} "
                    f"and {framework.name}: convert them to one"
                )
            found, kind = framework, type(each)
        if found is None:
            names = ", ".join(self.parameters[each].name for each in self.array_positions)
            raise TypeError(f"{self.name}: there is no array among the arguments: pass {names}")
        return found

    def _name_of(self, array: Any, arguments: Sequence[Any]) -> str:
        """Return the name of the argument that an array is of."""
        return next(
            self.parameters[position].name
            for position in self.array_positions
            if any(each is array for each in _flat(arguments[position]))
        )

    # -- reference twins

    def _by_reference(self, framework: Any, arguments: Sequence[Any], out: Any) -> Any:
        """Compute by the reference twin.

        Raises:
            TypeError: the operation has none.
        """
        if self.reference is None:
            raise TypeError(
                f"{self.name} has no reference for use_references(): call it outside of the block"
            )
        accepted = inspect.signature(self.reference).parameters
        found = self.reference(
            **{
                each.name: value
                for each, value in zip(self.parameters, arguments, strict=True)
                if each.name in accepted
            }
        )
        if self._mutated:
            for position, arrays in zip(self._mutated, found, strict=True):
                for target, source in zip(_flat(arguments[position]), _flat(arrays), strict=True):
                    framework.copy(target, source)
            return None
        made = self.shapes(described, *arguments)
        found = found if isinstance(found, tuple) else (found,)
        results = iter([each for each in found if each is not None])
        if out is None:
            return unpacked(
                tuple(
                    None if each is None else framework.converted(next(results), each[1])
                    for each in self.without_residuals(made)
                )
            )
        given, _ = memory_for(self, framework, made, out, self.first_array(arguments))
        for target in self.without_residuals(given):
            if target is not None:
                framework.copy(target, next(results))
        return out


def _getter(positions: tuple[int, ...]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return the function that returns the elements of a sequence at some positions."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return lambda values: tuple([values[each] for each in positions])


def _is_option(parameter: Parameter) -> bool:
    return parameter.name in OPTIONS and parameter.kind is bool and parameter.is_optional


def torch_is_compiling() -> bool:
    """Return whether ``torch.compile`` or ``torch.export`` traces the caller."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def torch_wants_determinism() -> bool:
    """Return whether ``torch.use_deterministic_algorithms(True)`` is in force."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.are_deterministic_algorithms_enabled())


def torch_observes_calls() -> bool:
    """Return whether something traces, records or transforms PyTorch's operators."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def torch_wants_gradients() -> bool:
    """Return whether autograd records operators on tensors that require gradients."""
    return bool(sys.modules["torch"].is_grad_enabled())


def _flat(value: Any) -> Sequence[Any]:
    """Return the arrays of an argument: of a list, one, or none."""
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)
