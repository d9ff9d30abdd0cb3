"""Steps of central differences and tolerances, by the narrowest type of varying floats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.derivatives.analysis.activity import Activity
from tilewright.derivatives.kernel_arguments import normalized
from tilewright.derivatives.rule_calls import callees
from tilewright.errors import TilewrightError
from tilewright.ir.core import Module
from tilewright.ir.types import FloatType, element_type


@dataclass(frozen=True)
class Precision:
    """Bounds of errors.

    Attributes:
        type: the type as Tile IR text.
        epsilon: the distance of 1 to the next number.
        steps: of central differences, relative to an input's magnitude. The best one of an element
            counts, since a kink may lie within a step.
        difference: allowed error of forward mode, relative to the largest tangent.
        dot: allowed error of reverse mode, relative to the sum of the products' magnitudes.
    """

    type: str
    epsilon: float
    steps: tuple[float, ...]
    difference: float
    dot: float


def precision_of_type(type_: FloatType) -> Precision:
    """Return the bounds of kernels whose varying floats are no narrower than a type."""
    epsilon = 2.0**-(type_.mantissa)
    if type_.bits >= 64:
        return Precision(str(type_), epsilon, (1e-6, 1e-5, 1e-7), 1e-6, 1e-10)
    root = epsilon ** (1 / 3)
    return Precision(
        str(type_), epsilon, (root, root / 4, 4 * root), 2 * root, min(1000 * epsilon, 0.1)
    )


def precision_of(module: Module, wrt: Iterable[str]) -> Precision:
    """Return the bounds of a kernel.

    Args:
        wrt: the parameters by which the derivative is taken.
    """
    source = normalized(module, rules=True)
    kernel = source.kernel
    names = set(wrt)
    inputs = [argument for argument in kernel.arguments if argument.name in names]
    scalars = [argument for argument in inputs if isinstance(argument.type, FloatType)]
    activity = Activity(
        kernel, [one for one in inputs if one not in scalars], scalars, functions=callees(source)
    )
    types = [
        element
        for value in activity.varied
        if isinstance(element := element_type(value.type), FloatType)
    ]
    if not types:
        raise TilewrightError(f"no float of the kernel depends on {', '.join(sorted(names))}")
    return precision_of_type(min(types, key=lambda type_: (type_.mantissa, type_.bits)))
