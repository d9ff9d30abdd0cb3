"""Verdicts on two kernels: the same algebra, another one, or inconclusive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilewright.passes.exact.report import ExactReport, Uninterpreted
from tilewright.runtime.exact.argument_copies import ArgumentCopies
from tilewright.runtime.exact.differences import Difference, difference
from tilewright.runtime.exact.exact_mode import exact_mode
from tilewright.runtime.exact.payloads import draw, float_type
from tilewright.runtime.exact.stored_origins import LaunchReports

Status = Literal["equal", "different", "inconclusive"]
#: Differences that a verdict's text lists.
_LISTED = 4


@dataclass(frozen=True)
class Verdict:
    """The result of :func:`same_algebra`.

    Attributes:
        status: ``"equal"``: the same algebra, up to operations that are uninterpreted;
            ``"different"``: another algebra; ``"inconclusive"``: the results differ only in
            arguments that depend on operations that are uninterpreted, which may be why.
        differences: one for each argument that differs.
        uninterpreted: the operations of both kernels of which only the operands are known.
        breaks: identities of real numbers that operations of the kernels do not keep: two kernels
            that differ by one of these alone are reported as different.
        digits: the digits of f32 that were compared, 3 where a kernel has a logarithm, else 4.
    """

    status: Status
    differences: tuple[Difference, ...] = ()
    uninterpreted: tuple[Uninterpreted, ...] = ()
    breaks: tuple[str, ...] = ()
    digits: int = 4

    def __bool__(self) -> bool:
        """Return whether the kernels are the same algebra."""
        return self.status == "equal"

    def __str__(self) -> str:
        lines = [self.status, *map(str, self.differences[:_LISTED])]
        behind = dict.fromkeys(each for one in self.differences for each in one.behind)
        listed = [*behind] if self.status == "inconclusive" else self.uninterpreted
        if listed:
            lines.append("uninterpreted: " + "; ".join(map(str, listed[:_LISTED])))
        if self.status != "equal" and self.breaks:
            lines.append("identities that do not hold here: " + "; ".join(self.breaks))
        return "\n  ".join(lines)


def same_algebra(
    kernel_a: Any,
    kernel_b: Any,
    arguments: Sequence[Any] | Mapping[str, Any],
    arguments_b: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    grid: Any = None,
    grid_b: Any = None,
    constants: Mapping[str, Any] | None = None,
    constants_b: Mapping[str, Any] | None = None,
    seed: int = 0,
    backend: str = "",
    carry: Literal["float", "int"] = "float",
    dot: Literal["native", "i8"] = "native",
) -> Verdict:
    """Find out whether two kernels compute the same formula, by launching both in exact mode.

    In exact mode, kernels compute with residues of integers instead of floats. The function
    launches the kernels on copies of the arrays, so the arrays themselves do not change. In the
    copies, random payloads (see :class:`exact_mode`) replace the floats. If an array contains only
    zeros, the copies of this array contain only zeros, too, because a kernel may add to the array.
    The memory around each copy also contains random payloads, so the function detects reads and
    writes past the end of an array.

    Args:
        kernel_a, kernel_b: two kernels, which are launched on ``grid``; or two functions that
            launch kernels, which are called with the arguments.
        arguments: the arguments of kernel a, by position or by name: arrays of NumPy or PyTorch,
            numbers, and host descriptors (:class:`tilewright.TensorDescriptor`) of such arrays. The
            function draws and compares the elements of a descriptor's array.
        arguments_b: the arguments of kernel b, if they differ from those of kernel a. If the same
            array is an argument of both kernels, each kernel gets a copy. Only the copies of such
            arrays are compared.
        grid, grid_b: the grids of kernel a and kernel b, as in a launch; functions have no grid. If
            ``grid_b`` is None, both kernels have the grid ``grid``.
        constants, constants_b: the constexpr arguments and launch options of kernel a and kernel b.
            If ``constants_b`` is None, both kernels have those of kernel a.
        seed: the seed of the random payloads.
        backend, carry, dot: as for :class:`exact_mode`.

    Raises:
        ExactModeError: a kernel does something that has no meaning over a ring.
        LaunchError: an array is neither NumPy's nor PyTorch's, or a descriptor's shape and strides
            do not lie within its array.
        ValueError: no array is an argument of both kernels.
    """
    second = arguments if arguments_b is None else arguments_b
    drawn = _DrawnArguments(seed)
    left, right = drawn.side(arguments), drawn.side(second)
    found = ExactReport()
    sides: list[LaunchReports] = []
    for kernel, side, own_grid, own_constants in (
        (kernel_a, left, grid, constants),
        (
            kernel_b,
            right,
            grid if grid_b is None else grid_b,
            constants if constants_b is None else constants_b,
        ),
    ):
        with exact_mode(backend, carry=carry, dot=dot) as reports:
            reports.begin_with([array.array for _, array in side.arrays.values()])
            _run(kernel, side.arguments, own_grid, own_constants or {})
        sides.append(reports)
        for one in reports:
            found |= one
    digits = 3 if found.loses_digit else 4
    shared = [identity for identity in left.arrays if identity in right.arrays]
    if not shared:
        raise ValueError("no array is an argument of both kernels, so there is nothing to compare")
    differences = tuple(
        found_difference
        for identity in shared
        if (
            found_difference := difference(
                *left.arrays[identity],
                right.arrays[identity][1],
                digits,
                frozenset[Uninterpreted]().union(
                    *(
                        reports.behind(side.arrays[identity][1].array)
                        for side, reports in zip((left, right), sides, strict=True)
                    )
                ),
            )
        )
        is not None
    )
    status: Status = "equal"
    if differences:
        status = "inconclusive" if all(one.behind for one in differences) else "different"
    return Verdict(status, differences, found.uninterpreted, found.breaks, digits)


def _run(
    kernel: Any,
    given: list[Any] | dict[str, Any],
    grid: Any,
    constants: Mapping[str, Any],
) -> None:
    launch: Any = kernel[grid] if hasattr(kernel, "__getitem__") else kernel
    if isinstance(given, dict):
        launch(**given, **constants)
    else:
        launch(*given, **constants)


@dataclass
class _KernelCopies:
    """One kernel's copies of the arguments.

    Attributes:
        arrays: by the identity of each array given, its first name and its copy.
    """

    arguments: list[Any] | dict[str, Any]
    arrays: dict[int, tuple[str, Any]]


class _DrawnArguments(ArgumentCopies):
    """Copies of both kernels' arguments, whose arrays have the same initial contents."""

    copier = "same_algebra"

    def side(self, arguments: Sequence[Any] | Mapping[str, Any]) -> _KernelCopies:
        """Copy the arguments of one kernel."""
        arrays: dict[int, tuple[str, Any]] = {}
        if isinstance(arguments, Mapping):
            named = {
                name: self.copied(str(name), value, arrays) for name, value in arguments.items()
            }
            return _KernelCopies(named, arrays)
        positional = [self.copied(str(n), value, arrays) for n, value in enumerate(arguments)]
        return _KernelCopies(positional, arrays)

    def contents(self, array: Any) -> Any:
        if float_type(array) is None or not bool((array != 0).any()):
            return array
        return draw(array, self.rng)
