"""Checks that the tests of all operations share, against the operations' reference twins."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np

import tilewright as tw
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.compile import compile_kernel
from tilewright.runtime.devices import device_registry
from tilewright_kernels.operations import Operation
from tilewright_kernels.operations.frameworks import NUMPY, framework_of

#: Frameworks that are installed; tests of JAX run where it is.
FRAMEWORKS = tuple(
    name for name in ("numpy", "torch", "jax") if importlib.util.find_spec(name) is not None
)
#: Strides of arguments: row by row; rows that are apart; columns that are apart; the axes in
#: reverse order in memory.
LAYOUTS = ("contiguous", "rows", "columns", "transposed")
#: Architectures that kernels are compiled for without a device.
ARCHITECTURES = ("sm_90a", "gfx942", "gfx1100", "gfx1201")
#: Element type -> tolerance, relative and absolute.
TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}

#: A value of an argument: an array, a sequence of arrays, or None.
Value = Any


# -- values


def dtype_of(name: str) -> np.dtype[Any]:
    """Return NumPy's element type of a name."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def is_float(array: Any) -> bool:
    """Return whether an array of NumPy has a float type, of ``ml_dtypes`` too."""
    return array.dtype.kind in "fV" or array.dtype.name in TOLERANCES


def rounded(value: Value, dtype: str) -> Value:
    """Return arrays of floats in an element type; others as they are."""
    return _map(lambda each: each.astype(dtype_of(dtype)) if is_float(each) else each, value)


def doubled(value: Value) -> Value:
    """Return arrays of floats in float64; others as they are."""
    return _map(lambda each: each.astype(np.float64) if is_float(each) else each, value)


def to_framework(value: Value, framework: str, layout: str = "contiguous") -> Value:
    """Return arrays of NumPy as those of a framework, in one of :data:`LAYOUTS`."""
    return _map(lambda each: _converted(each, framework, layout), value)


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """Return an array of any framework as one of NumPy: of floats in float64."""
    if type(array).__module__.startswith("torch"):
        array = array.detach()
        array = (array.double() if array.dtype.is_floating_point else array).cpu().numpy()
    array = np.asarray(array)
    return array.astype(np.float64) if is_float(array) else array


def _map(function: Callable[[Any], Any], value: Value) -> Value:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [_map(function, each) for each in value]
    return function(value)


def _converted(array: Any, framework: str, layout: str) -> Any:
    if framework == "jax":
        import jax.numpy as jnp

        return jnp.asarray(array)
    if framework == "numpy":
        return _laid_out(array, layout)
    import torch

    if array.dtype.name not in ("bfloat16",) and array.dtype.kind != "V":
        return _torch_laid_out(torch.from_numpy(np.array(array, order="C")), array, layout)
    bits = torch.from_numpy(
        np.array(array, order="C").view(np.int16 if array.itemsize == 2 else np.int8)
    )
    return _torch_laid_out(bits, array, layout).view(getattr(torch, array.dtype.name))


def _torch_laid_out(tensor: Any, array: Any, layout: str) -> Any:
    import torch

    laid_out = _laid_out(tensor.numpy(), layout)
    return torch.from_numpy(laid_out)


def _laid_out(array: Any, layout: str) -> Any:
    """Return a view with the elements of an array, between elements that are none of its."""
    if layout == "contiguous" or array.ndim == 0:
        return np.array(array, order="C")
    if layout == "transposed":
        return np.array(array, order="F")
    *outer, last = array.shape
    step = 2 if layout == "columns" else 1
    memory = np.full([extent + 2 for extent in outer] + [last * step + 8], _poison(array.dtype))
    view = memory[(*(slice(1, 1 + extent) for extent in outer), slice(0, last * step, step))]
    view[...] = array
    return view


def _poison(dtype: Any) -> Any:
    """Return the element that no result has: NaN, or the largest integer."""
    if dtype.kind in "iu":
        return np.array(np.iinfo(dtype).max, dtype)
    return np.array(True if dtype.kind == "b" else np.nan, dtype)


def poisoned(array: Any, layout: str = "contiguous") -> Any:
    """Return memory like an array, filled with NaN or the largest integer."""
    framework = framework_of(array).name
    name = str(array.dtype).removeprefix("torch.")
    dtype = dtype_of(name)
    return to_framework(np.full(tuple(array.shape), _poison(dtype)), framework, layout)


# -- results


def _results(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def assert_close(
    found: Any,
    expected: Any,
    dtype: str,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    message: str = "",
) -> None:
    """Check results, or a tuple of them, against those in float64."""
    found, expected = _results(found), _results(expected)
    assert len(found) == len(expected), (len(found), len(expected))
    tolerance = TOLERANCES.get(dtype, 0.07)
    for one, other in zip(found, expected, strict=True):
        one, other = to_numpy(one), to_numpy(other)
        assert one.shape == other.shape, (message, one.shape, other.shape)
        np.testing.assert_allclose(
            one,
            other,
            rtol=tolerance if rtol is None else rtol,
            atol=tolerance if atol is None else atol,
            err_msg=message,
        )


def expected_of(
    reference: Callable[..., Any],
    arrays: Mapping[str, Value],
    settings: Mapping[str, Any],
    dtype: str,
) -> tuple[Any, ...]:
    """Return the reference's results in float64, of arguments rounded to ``dtype``."""
    given = {name: doubled(rounded(each, dtype)) for name, each in arrays.items()}
    return _results(reference(**given, **settings))


# -- checks


def check_operation(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    arrays: Mapping[str, Value],
    settings: Mapping[str, Any] | None = None,
    *,
    own: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    frameworks: Sequence[str] = FRAMEWORKS,
    layouts: Sequence[str] = LAYOUTS,
    with_out: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Check a function against its reference in float64.

    In each framework, on arguments of each layout, and with results stored to memory that was
    filled with NaN, row by row and with rows apart.

    Args:
        function: takes the arguments by name, and ``out=``.
        reference: takes the same arguments, but ``own`` and ``out=``.
        arrays: argument -> array of NumPy in float64 or of integers, a list of such, or None.
        settings: arguments that are no arrays.
        own: those that the function alone takes.
        dtype: the element type to which arrays of floats are rounded.
        with_out: whether the function takes ``out=``.
    """
    settings, own = dict(settings or {}), dict(own or {})
    expected = expected_of(reference, arrays, settings, dtype)
    typed = {name: rounded(each, dtype) for name, each in arrays.items()}

    def compare(found: Any, what: str) -> None:
        message = f"{framework}, {dtype}, {what}"
        assert_close(found, expected, dtype, rtol=rtol, atol=atol, message=message)

    for framework in frameworks:
        found: Any = None
        for layout in layouts if framework != "jax" else ("contiguous",):
            given = {name: to_framework(each, framework, layout) for name, each in typed.items()}
            found = function(**given, **settings, **own)
            compare(found, layout)
        if not with_out or framework == "jax":
            continue
        given = {name: to_framework(each, framework) for name, each in typed.items()}
        for layout in ("contiguous", "rows"):
            out = tuple(poisoned(each, layout) for each in _results(found))
            returned = _results(
                function(**given, **settings, **own, out=out if len(out) > 1 else out[0])
            )
            assert all(one is other for one, other in zip(returned, out, strict=True))
            compare(out, f"out= of layout {layout!r}")


def check_gradients(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    arrays: Mapping[str, Value],
    settings: Mapping[str, Any] | None = None,
    *,
    own: Mapping[str, Any] | None = None,
    wrt: Sequence[str] | None = None,
    dtype: str = "float32",
    layouts: Sequence[str] = ("contiguous", "rows"),
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Check gradients on tensors of PyTorch against those of the reference in float64.

    Args:
        wrt: arguments that gradients are taken of; those of floats if None.
    """
    import torch

    settings, own = dict(settings or {}), dict(own or {})
    typed = {name: rounded(each, dtype) for name, each in arrays.items()}
    if wrt is None:
        wrt = [name for name, each in typed.items() if each is not None and _has_floats(each)]

    exact = {
        name: _tracked(to_framework(doubled(each), "torch"), name in wrt)
        for name, each in typed.items()
    }
    results = _differentiable(reference(**exact, **settings))
    generator = torch.Generator().manual_seed(0)
    cotangents = [
        torch.randn(each.shape, generator=generator, dtype=torch.float64)
        .to(getattr(torch, dtype))
        .double()
        for each in results
    ]
    torch.autograd.backward(results, cotangents)
    for layout in layouts:
        given = {
            name: _tracked(to_framework(each, "torch", layout), name in wrt)
            for name, each in typed.items()
        }
        found = _differentiable(function(**given, **settings, **own))
        assert len(found) == len(results), "the reference has as many differentiable results"
        torch.autograd.backward(
            found, [one.to(other.dtype) for one, other in zip(cotangents, found, strict=True)]
        )
        for name in wrt:
            for one, other in zip(_listed(given[name]), _listed(exact[name]), strict=True):
                assert one.grad is not None, f"{name} has no gradient"
                assert one.grad.dtype == one.dtype
                message = f"gradient of {name}, {dtype}, {layout}"
                assert_close(one.grad, other.grad, dtype, rtol=rtol, atol=atol, message=message)


def check_operator(operation: Operation, *arguments: Any, **keywords: Any) -> None:
    """Check the operator of ``torch.library`` of an operation by ``torch.library.opcheck``.

    Args:
        arguments: of the operation; arrays of NumPy become tensors, those of floats with gradients
            where the operation has gradients.
    """
    import torch

    from tilewright_kernels.operations.torch_library import operator_of

    operation, values = operation.resolved(*arguments, **keywords)
    has_gradients = operation.gradients is not None
    given = [
        _tracked(to_framework(each, "torch"), has_gradients and _has_floats(each))
        if _is_array(each)
        else each
        for each in values
    ]
    torch.library.opcheck(operator_of(operation), tuple(given))


def check_compiled(
    function: Callable[..., Any],
    arrays: Mapping[str, Value],
    settings: Mapping[str, Any] | None = None,
    *,
    dtype: str = "float32",
    wrt: Sequence[str] = (),
) -> None:
    """Check that ``torch.compile`` and ``torch.export`` take a function whole, and keep its bits.

    Args:
        wrt: arguments that gradients are taken of, too.
    """
    import torch

    settings = dict(settings or {})

    def given() -> dict[str, Any]:
        typed = {name: rounded(each, dtype) for name, each in arrays.items()}
        return {
            name: _tracked(to_framework(each, "torch"), name in wrt) for name, each in typed.items()
        }

    def called(values: dict[str, Any]) -> Any:
        return function(**values, **settings)

    class Module(torch.nn.Module):
        def forward(self, values: dict[str, Any]) -> Any:
            return called(values)

    torch.compiler.reset()  # tests compile one function more often than its limit allows
    eager, compiled = given(), given()
    expected = called(eager)
    found = torch.compile(called, fullgraph=True, backend="aot_eager")(compiled)
    _assert_same(found, expected)
    if wrt:
        for results in (expected, found):
            results = _differentiable(results)
            torch.autograd.backward(results, [torch.ones_like(each) for each in results])
        for name in wrt:
            for one, other in zip(_listed(compiled[name]), _listed(eager[name]), strict=True):
                _assert_same(one.grad, other.grad)
    with torch.no_grad():
        exported = torch.export.export(Module(), (given(),))
        _assert_same(exported.module()(given()), expected)


def check_architectures(
    operation: Operation,
    *arguments: Any,
    architectures: Sequence[str] = ARCHITECTURES,
    **keywords: Any,
) -> None:
    """Compile the kernels that an operation launches for architectures, without a device.

    Args:
        arguments: of the operation; arrays are those of NumPy.
    """
    operation, given = operation.resolved(*arguments, **keywords)
    for architecture in architectures:
        with mock_device(architecture):
            launcher = _CompilingLauncher()
            results = operation.shapes(lambda shape, dtype: NUMPY.empty(shape, dtype, None), *given)
            operation.launch(launcher, *results, *given)
        assert launcher.count, f"{operation.name} launches nothing"


class _CompilingLauncher:
    """Compiles what is launched, for the device of a ``with`` block."""

    def __init__(self) -> None:
        self.count = 0

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        return NUMPY.empty(shape, dtype, None)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return NUMPY.empty(shape, dtype, None)

    def __call__(
        self, kernel: Any, grid: Any, *arguments: Any, updates: Sequence[str] = (), **keywords: Any
    ) -> None:
        collected: list[Any] = []
        token = parallel_compile.collecting.set(collected)
        try:
            kernel.warmup(
                *map(_mock, arguments),
                grid=grid,
                **{name: _mock(each) for name, each in keywords.items()},
            )
        finally:
            parallel_compile.collecting.reset(token)
        for _, selected in collected:
            compile_kernel(selected.specialization, selected.backend, selected.target)
            self.count += 1


def _mock(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tw.MockTensor(value.dtype, value.shape)
    if isinstance(value, tw.TensorDescriptor):
        return replace(value, base=_mock(value.base))
    return tuple(map(_mock, value)) if isinstance(value, tuple) else value


@contextlib.contextmanager
def mock_device(architecture: str) -> Iterator[None]:
    """Select a device that need not be there, for launches that compile alone."""
    backend = registry().get("nvidia" if architecture.startswith("sm_") else "amd")
    target = device_registry.named_target(backend, architecture)
    kind = backend.manifest.device_kinds[0]
    device = Device(backend.name, kind, 0, architecture, {"arch": architecture})
    with (
        patch.object(device_registry, "find", lambda *_: device),
        patch.object(device_registry, "target_of", lambda *_: target),
        tw.backend(backend.name),
    ):
        yield


# -- tensors


def _is_array(value: Value) -> bool:
    return isinstance(value, np.ndarray) or (
        isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], np.ndarray)
    )


def _listed(value: Value) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _has_floats(value: Value) -> bool:
    return all(is_float(each) for each in _listed(value))


def _tracked(value: Value, wanted: bool) -> Value:
    return _map(lambda each: each.requires_grad_() if wanted else each, value)


def _differentiable(found: Any) -> list[Any]:
    return [each for each in _results(found) if each.requires_grad]


def _assert_same(found: Any, expected: Any) -> None:
    torch = sys.modules["torch"]
    for one, other in zip(_results(found), _results(expected), strict=True):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=0, atol=0, equal_nan=True)
