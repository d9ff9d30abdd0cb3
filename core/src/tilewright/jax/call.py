"""From a call of a kernel with traced arrays to XLA."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import LaunchError
from tilewright.jax.batching import Batch, axes_read
from tilewright.jax.derivative_launch import PositionalDerivative
from tilewright.runtime.arguments.array_protocols import XLA_PLATFORMS, ArrayView
from tilewright.runtime.arguments.dlpack import contiguous_strides
from tilewright.runtime.arguments.dtypes import dtype_text
from tilewright.runtime.derivatives.derivative_kernel import DerivativeKernel
from tilewright.runtime.launch.grid import grid_of
from tilewright.runtime.launch.jit import JITFunction
from tilewright.runtime.storage.cache_keys import UnstableError, digest, stable_text

TARGET = "tilewright_call"
#: An address that has every alignment, for arrays that are not there yet.
_ALIGNED = 1 << 12


@dataclass(frozen=True)
class KernelCall:
    """A kernel with everything about its launch but the arrays.

    Attributes:
        key: a text that is the same for the same call in every process.
        operands: parameter -> rank, of the arrays that come in, in order.
        results: parameter -> rank, of those that go out, in order; one that is among ``operands``,
            too, begins as what comes in.
        others: parameter -> value, of all other parameters.
        axis: the axis of the grid that may number the elements of a batch; None where the kernel
            reads all of them.
    """

    key: str
    kernel: Any
    operands: Mapping[str, int]
    results: Mapping[str, int]
    others: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: tuple[int, int, int]
    axis: int | None

    def run(
        self, arrays: Sequence[ArrayView], outputs: Sequence[ArrayView], stream: int | None = None
    ) -> None:
        """Launch on memory, with one array per operand and result.

        Leading axes beyond an array's rank are those of a batch.
        """
        Batch(self, arrays, outputs, stream).run()


#: C functions that XLA may call as long as the process lives.
_kept: list[Any] = []
#: Calls that were traced in this process, by key.
calls: dict[str, KernelCall] = {}


def call(
    kernel: JITFunction | DerivativeKernel,
    /,
    *args: Any,
    grid: Any,
    out: Mapping[str, Any],
    inout: Sequence[str] = (),
    differentiable: str | Sequence[str] = (),
    saved: str | Sequence[str] = (),
    **keywords: Any,
) -> Any:
    """Call a kernel on JAX arrays, traced or not.

    Arrays do not change: what the kernel stores to are new ones.

    Args:
        kernel: made by ``jit``, or a derivative of one, by ``vjp`` or ``jvp``, whose own arguments
            (``d_x``) are given by name.
        args: the arguments of all parameters but those in ``out``, in order; arrays are passed as
            pointers to their elements, row by row, numbers as they are.
        grid: as in a launch, of one to three extents or a function of the arguments that are no
            arrays.
        out: parameter -> the array that the kernel makes, as anything with ``shape`` and ``dtype``.
            It begins with arbitrary elements.
        inout: the parameters whose arrays the kernel changes.
        differentiable: the parameters whose arrays derivatives may be taken with respect to, in
            forward and reverse mode, by :func:`tilewright.jvp` and :func:`tilewright.vjp`.
        saved: parameters in ``out`` that are kept for reverse mode, which reads them instead of
            computing them again.
        keywords: arguments by name, and launch options.

    Returns:
        The arrays of ``out``, then those of ``inout``, in their order: a tuple, or the array where
        there is one.

    Raises:
        LaunchError: arguments are missing or too many, or the kernel stores to an array that is
            neither in ``out`` nor in ``inout``.
        LaunchError: JAX computes on something else than CPUs and GPUs.
        TypeError: the kernel was not made by ``jit``, ``vjp`` or ``jvp``.
        ImportError: JAX is not installed.
    """
    jax = _jax()
    if isinstance(kernel, DerivativeKernel):
        if differentiable:
            raise TypeError(
                f"{kernel.__name__}: differentiable= is for kernels made by jit, not for their "
                "derivatives: wrap the call by jax.custom_vjp"
            )
        return _call_of_derivative(kernel, args, grid, out, inout, keywords)
    if not isinstance(kernel, JITFunction):
        raise TypeError(
            f"tilewright.jax.call takes a kernel made by jit, not a {type(kernel).__name__}: give "
            "the configuration that tuning found by name"
        )
    bound, options = _bind(kernel, args, out, keywords)
    arrays = {name: value for name, value in bound.items() if _is_array(jax, value)}
    results = _results(kernel, arrays, out, inout)
    if differentiable:
        wrt, kept = _names(differentiable), _names(saved)
        _check_differentiable(kernel, arrays, out, inout, wrt, kept)
        found = _differentiable_call(kernel, bound, arrays, results, grid, options, wrt, kept)
    else:
        found = _launched(kernel, bound, results, grid, options)
    return found[0] if len(results) == 1 else tuple(found)


def _call_of_derivative(
    kernel: DerivativeKernel,
    args: Sequence[Any],
    grid: Any,
    out: Mapping[str, Any],
    inout: Sequence[str],
    keywords: Mapping[str, Any],
) -> Any:
    """Call a kernel that ``vjp`` or ``jvp`` returns; its own arguments are given by name."""
    jax = _jax()
    positional = PositionalDerivative(kernel)
    bound, options = _bind(positional, args, out, keywords)
    arrays = {name: value for name, value in bound.items() if _is_array(jax, value)}
    results = _results(positional, arrays, out, inout)
    found = _launched(positional, bound, results, grid, options)
    return found[0] if len(results) == 1 else tuple(found)


def _results(
    kernel: JITFunction | PositionalDerivative,
    arrays: Mapping[str, Any],
    out: Mapping[str, Any],
    inout: Sequence[str],
) -> dict[str, Any]:
    """Return parameter -> shape and type of the arrays that go out.

    Raises:
        LaunchError: ``inout`` names what is no array.
    """
    jax = _jax()
    for name in inout:
        if name not in arrays:
            raise LaunchError(f"{kernel.__name__}: inout= names {name!r}, which is given no array")
    shaped = {**out, **{name: arrays[name] for name in inout}}
    return {
        name: jax.ShapeDtypeStruct(tuple(each.shape), each.dtype) for name, each in shaped.items()
    }


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_differentiable(
    kernel: JITFunction,
    arrays: Mapping[str, Any],
    out: Mapping[str, Any],
    inout: Sequence[str],
    differentiable: Sequence[str],
    saved: Sequence[str],
) -> None:
    """Check the names of inputs and saved outputs of a call that has derivatives.

    Raises:
        LaunchError: one is no array that comes in or goes out; or the kernel changes arrays.
    """
    name = kernel.__name__
    if inout:
        raise LaunchError(
            f"{name}: a kernel that changes arrays has no derivatives here: name in out= what it "
            "stores to, and let it read another array"
        )
    for each in differentiable:
        if each not in arrays:
            raise LaunchError(f"{name}: differentiable= names {each!r}, which is given no array")
    for each in saved:
        if each not in out:
            raise LaunchError(f"{name}: saved= names {each!r}, which is not in out=")


def _differentiable_call(
    kernel: JITFunction,
    bound: Mapping[str, Any],
    arrays: Mapping[str, Any],
    results: Mapping[str, Any],
    grid: Any,
    options: Mapping[str, Any],
    differentiable: tuple[str, ...],
    saved: tuple[str, ...],
) -> Sequence[Any]:
    from tilewright.jax import primitives
    from tilewright.jax.kernel_derivatives import XlaDerivatives

    others = {name: value for name, value in bound.items() if name not in arrays}
    sizes = grid_of(grid, others)
    described = XlaDerivatives(
        _launched,
        kernel,
        tuple(arrays),
        others,
        options,
        sizes,
        results,
        differentiable,
        saved,
    )

    def compute(*values: Any) -> tuple[Any, ...]:
        own = {**others, **dict(zip(arrays, values, strict=True))}
        return tuple(_launched(kernel, own, results, sizes, options))

    found: Sequence[Any] = primitives.differentiable(described, compute)(*arrays.values())
    return found


def _launched(
    kernel: Any,
    bound: Mapping[str, Any],
    results: Mapping[str, Any],
    grid: Any,
    options: Mapping[str, Any],
) -> list[Any]:
    """Launch a kernel by XLA, and return its results."""
    jax = _jax()
    arrays = {name: value for name, value in bound.items() if _is_array(jax, value)}
    kind, count = _kind(jax), len(results)
    if isinstance(kernel, PositionalDerivative) and kind != "cpu":
        stand_ins = {name: _stand_in(value, kind) for name, value in {**arrays, **results}.items()}
        given = [{**bound, **stand_ins}[name] for name in kernel.arg_names]
        kernel, memory = kernel.with_memory(given, grid, options)
        results = {
            **results,
            **{name: jax.ShapeDtypeStruct((size,), "uint8") for name, size in memory.items()},
        }
    traced = _traced(kernel, bound, arrays, results, grid, options, kind)
    calls[traced.key] = traced
    function = jax.ffi.ffi_call(TARGET, tuple(results.values()), vmap_method="expand_dims")
    return list(function(*arrays.values(), key=traced.key))[:count]


def _bind(
    kernel: JITFunction | PositionalDerivative,
    args: Sequence[Any],
    out: Mapping[str, Any],
    keywords: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameter -> value of those not in ``out``, options)."""
    name = kernel.__name__
    for unknown in out.keys() - set(kernel.arg_names):
        raise LaunchError(
            f"{name}: out= names {unknown!r}, which is no parameter; there are "
            f"{', '.join(kernel.arg_names)}"
        )
    positional = [parameter for parameter in kernel.arg_names if parameter not in out]
    if len(args) > len(positional):
        raise LaunchError(
            f"{name} takes {len(positional)} arguments beside those in out=, not {len(args)}"
        )
    bound = dict(zip(positional, args, strict=False))
    for parameter in kernel.params:
        if parameter.name in keywords:
            if parameter.name in bound or parameter.name in out:
                raise LaunchError(f"{name}: argument {parameter.name!r} is given twice")
            bound[parameter.name] = keywords[parameter.name]
        elif parameter.name in positional and parameter.name not in bound:
            if not parameter.has_default:
                raise LaunchError(f"{name}: argument {parameter.name!r} is missing")
            bound[parameter.name] = parameter.default
    return {parameter: bound[parameter] for parameter in positional}, {
        key: value for key, value in keywords.items() if key not in kernel.arg_names
    }


def _traced(
    kernel: Any,
    bound: Mapping[str, Any],
    arrays: Mapping[str, Any],
    results: Mapping[str, Any],
    grid: Any,
    options: Mapping[str, Any],
    kind: str,
) -> KernelCall:
    others = {name: value for name, value in bound.items() if name not in arrays}
    sizes = grid_of(grid, others)
    stand_ins = {name: _stand_in(value, kind) for name, value in {**arrays, **results}.items()}
    given = [{**others, **stand_ins}[name] for name in kernel.arg_names]
    compiled = kernel.warmup(*given, grid=sizes, **options)
    assert compiled is not None
    for parameter in compiled.parameters:
        if parameter.stored and parameter.name.split(".")[0] in arrays.keys() - results.keys():
            raise LaunchError(
                f"{kernel.__name__}: the kernel may store to {parameter.name!r}, and arrays of JAX "
                "do not change; name it in inout=, or in out= if it is new"
            )
    if isinstance(kernel, PositionalDerivative):
        axis = 3  # its kernels run in grids of their own
    else:
        axis = _free_axis(compiled, sizes)
    try:
        key = digest(
            kernel.cache_key,
            *(
                stable_text(part)
                for part in (list(arrays), list(results), dict(others), dict(options), sizes)
            ),
        )
    except UnstableError:
        key = f"{id(kernel)}-{len(calls)}"
    operands = {name: len(value.shape) for name, value in arrays.items()}
    ranks = {name: len(value.shape) for name, value in results.items()}
    return KernelCall(
        key, kernel, operands, ranks, others, dict(options), sizes, axis if axis < 3 else None
    )


def _free_axis(compiled: Any, sizes: Sequence[int]) -> int:
    """Return the first axis of a grid from which on a kernel reads nothing and runs once."""
    used = max((axis + 1 for axis, extent in enumerate(sizes) if extent != 1), default=0)
    return max((used, *(read + 1 for read in axes_read(compiled))))


def _stand_in(array: Any, kind: str) -> ArrayView:
    shape = tuple(array.shape)
    return ArrayView(
        None, _ALIGNED, dtype_text(array.dtype), shape, contiguous_strides(shape), (kind, 0)
    )


def _is_array(jax: Any, value: Any) -> bool:
    import numpy as np

    return isinstance(value, jax.Array | np.ndarray)


@functools.cache
def _jax() -> Any:
    """JAX, which knows of our function from then on."""
    try:
        jax: Any = importlib.import_module("jax")
    except ImportError as error:
        raise ImportError(f"tilewright.jax needs JAX: pip install jax ({error})") from error
    from tilewright.jax.ffi import make_handler

    for kind, (platform, _) in XLA_PLATFORMS.items():
        handler = make_handler(_run, kind)
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform=platform)
        _kept.append(handler)
    return jax


def _kind(jax: Any) -> str:
    """Return the kind of JAX's default devices.

    A program traced for it runs on others, too, compiled again.
    """
    platform = jax.default_backend()
    if platform == "cpu":
        return "cpu"
    version = str(jax.devices()[0].client.platform_version).lower()
    for kind, (_, said) in XLA_PLATFORMS.items():
        if said and said in version:
            return kind
    raise LaunchError(
        f"kernels are called by JAX on CPUs and GPUs, not on {platform}: "
        "jax.config.update('jax_platforms', 'cpu')"
    )


def _run(
    attributes: Mapping[str, str],
    arrays: Sequence[ArrayView],
    outputs: Sequence[ArrayView],
    stream: int | None,
) -> None:
    """Launch the call that XLA's handler names.

    Raises:
        LaunchError: the program was compiled in another process, and this one has not traced the
            call.
    """
    found = calls.get(attributes["key"])
    if found is None:
        raise LaunchError(
            "a program that JAX has kept calls a kernel that this process has not traced: call the "
            "function that tilewright.jax.call is in"
        )
    found.run(arrays, outputs, stream)
