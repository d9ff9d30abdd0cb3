"""``tilewright.torch.function``: a kernel as a function of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import DefinitionError, LaunchError, similar, with_help
from tilewright.runtime.derivatives.adjoint_kernel import AdjointKernel, vjp
from tilewright.runtime.derivatives.residual_kernel import RESIDUAL_PREFIX, ResidualKernel
from tilewright.torch.call_layout import pack
from tilewright.torch.operators import KernelOperators, free_name
from tilewright.torch.outputs import MakeOutput
from tilewright.torch.second_derivatives import tangent_function


class KernelFunction:
    """A kernel as a function of tensors; see :func:`function`.

    Attributes:
        kernel: the kernel.
        outputs: output -> its allocation.
        results: the outputs that calls return: all but residuals.
        plain: the kernel without residuals.
        wrt: the inputs that have gradients.
        saved: the outputs that the adjoint reads.
        unsaved: the other outputs and their allocation.
        grid: as in a launch.
        fixed: arguments and options that all calls have in common.
        adjoint_options: options of the adjoint.
        operators: the operators of ``torch.library``.
    """

    def __init__(
        self,
        kernel: Any,
        outputs: Mapping[str, MakeOutput],
        wrt: tuple[str, ...],
        saved: tuple[str, ...],
        grid: Any,
        fixed: Mapping[str, Any],
        name: str,
        adjoint: Mapping[str, Any],
        residuals: Mapping[str, MakeOutput] | None = None,
    ) -> None:
        self.plain, self.results = kernel, dict(outputs)
        if residuals:
            kernel = ResidualKernel(kernel, tuple(residuals))
            own = {f"{RESIDUAL_PREFIX}{key}": make for key, make in residuals.items()}
            outputs, saved = {**outputs, **own}, (*saved, *own)
        self.kernel, self.outputs, self.wrt, self.saved = kernel, dict(outputs), wrt, saved
        self.unsaved = {key: make for key, make in self.outputs.items() if key not in saved}
        self.grid, self.fixed, self.adjoint_options = grid, dict(fixed), dict(adjoint)
        names = list(kernel.arg_names)
        _check_names(kernel, names, "outputs", outputs)
        _check_names(kernel, names, "wrt", wrt)
        for each in saved:
            if each not in outputs:
                raise DefinitionError(f"saved names {each!r}, which is none of the outputs")
        for each in wrt:
            if each in outputs or each in fixed:
                raise DefinitionError(
                    f"wrt names {each!r}, which is no input of the function: it is "
                    f"{'an output' if each in outputs else 'fixed'}"
                )
        self._positional = tuple(
            each for each in names if each not in outputs and each not in fixed
        )
        parameters = getattr(getattr(kernel, "base_kernel", kernel), "params", ())
        self._constants = frozenset(each.name for each in parameters if each.is_constexpr)
        self._adjoints: dict[Any, AdjointKernel] = {}
        self._tangents: dict[Any, KernelFunction] = {}
        self.__name__ = free_name(name or kernel.__name__)
        self.operators = KernelOperators(self, self.__name__)
        self._operator = self.operators.forward

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Launch the kernel.

        Args:
            args: the arguments of all parameters but the outputs and those that are fixed, in
                order.
            keywords: arguments by name, and launch options.

        Returns:
            The outputs, in order: a tuple, or the tensor where there is one.

        Raises:
            LaunchError: arguments do not fit the kernel.
        """
        if len(args) > len(self._positional):
            raise LaunchError(
                f"{self.__name__} takes {len(self._positional)} arguments, "
                f"{', '.join(self._positional)}, and was given {len(args)}"
            )
        named = dict(zip(self._positional, args, strict=False))
        for name in keywords:
            if name in named or name in self.outputs or name in self.fixed:
                raise LaunchError(
                    f"{self.__name__}: {name!r} is "
                    + ("given twice" if name in named else "an output or fixed by the function")
                )
        named.update(keywords)
        packed = pack(named, self._constants)
        results = self._operator(packed.tensors, packed.integers, packed.floats, packed.text)
        results = results[: len(self.results)]
        return results[0] if len(results) == 1 else tuple(results)

    def __repr__(self) -> str:
        return f"<tilewright.torch.function {self.__name__}>"

    def check_wrt(self, needed: Mapping[str, bool]) -> None:
        """Refuse gradients of inputs that ``wrt`` does not name.

        Raises:
            LaunchError: one is wanted.
        """
        for name, is_needed in needed.items():
            if is_needed and name not in self.wrt:
                raise LaunchError(
                    f"{self.__name__}: the gradient of {name!r} is wanted, and wrt= names "
                    f"{', '.join(self.wrt) or 'nothing'}: add it, or pass {name}.detach()"
                )

    def adjoint(
        self, outputs: tuple[str, ...], wrt: tuple[str, ...], accumulate: bool
    ) -> AdjointKernel:
        """Return the adjoint for some of the outputs' cotangents and some inputs' gradients."""
        key = outputs, wrt, accumulate
        found = self._adjoints.get(key)
        if found is None:
            found = self._adjoints[key] = vjp(
                self.kernel,
                outputs=outputs,
                wrt=wrt,
                saved=self.saved,
                accumulate=accumulate,
                **self.adjoint_options,
            )
        return found

    def tangent(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> KernelFunction:
        """Return the function of the tangents of some outputs along some inputs."""
        found = self._tangents.get((inputs, outputs))
        if found is None:
            found = self._tangents[inputs, outputs] = tangent_function(self, inputs, outputs)
        return found


def function(
    kernel: Any,
    *,
    outputs: Mapping[str, MakeOutput],
    grid: Any,
    wrt: str | Sequence[str] = (),
    saved: str | Sequence[str] = (),
    residuals: Mapping[str, MakeOutput] | None = None,
    name: str = "",
    deterministic: bool = False,
    tape: bool = True,
    **fixed: Any,
) -> KernelFunction:
    """Make a function of tensors of a kernel, with gradients by :func:`tilewright.vjp`.

        swiglu = tilewright.torch.function(
            swiglu_kernel,
            outputs={"out": like("x")},
            wrt=("x", "w"),
            grid=lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),),
            BLOCK=1024,
        )
        swiglu(x, w, x.numel()).sum().backward()

    The function is an operator of ``torch.library``: graphs of ``torch.compile`` hold it as a
    whole. It takes the kernel's arguments but the outputs, which it allocates and returns.

    Args:
        kernel: a kernel of ``tilewright.jit`` or of Triton's through the shim, which may be
            within ``autotune`` and ``heuristics``. It stores to the outputs alone.
        outputs: parameter -> allocation of the output: :func:`like`, or a function of one
            argument, the dictionary of the call's arguments by name, that returns a tensor.
        grid: as in a launch: extents, or a function of the arguments by name.
        wrt: inputs whose gradients may be wanted: tensors of floats. Where elements of one share
            memory, as in an expanded tensor, only its base may have a gradient.
        saved: outputs that are kept for the backward pass, which reads them instead of computing
            them again; as in :func:`tilewright.vjp`.
        residuals: float variables of the kernel that are kept for the backward pass, too, and their
            allocation, as of outputs; see :func:`tilewright.vjp`. The kernel stores them beside its
            outputs, row by row: an array of the grid's extents and each program's tile.
        name: the operator's name in ``torch.ops.tilewright``; the kernel's by default, with a
            number where there is one already.
        deterministic: refuse gradients that programs add to atomically.
        tape: whether loops may take memory in the backward pass.
        fixed: arguments and launch options that all calls have in common. Constants that are no
            numbers or texts, such as element types, are given here.

    Raises:
        DefinitionError: the kernel has no such parameter.
    """
    if not hasattr(kernel, "arg_names"):
        raise DefinitionError(
            f"tilewright.torch.function is of a kernel, not of a {type(kernel).__name__}"
        )
    return KernelFunction(
        kernel,
        outputs,
        _names(wrt),
        _names(saved),
        grid,
        fixed,
        name,
        {"deterministic": deterministic, "tape": tape},
        residuals,
    )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_names(kernel: Any, names: Sequence[str], role: str, given: Any) -> None:
    """Check that a kernel has parameters.

    Raises:
        DefinitionError: it has none of a name.
    """
    for name in given:
        if name not in names:
            raise DefinitionError(
                with_help(
                    f"{kernel.__name__} has no parameter {name!r}, which {role} names: it has "
                    f"{', '.join(names)}",
                    similar(name, names),
                )
            )
