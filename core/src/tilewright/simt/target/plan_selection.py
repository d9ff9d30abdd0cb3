"""The plans that a target has for a product, and the one that is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import LoweringError
from tilewright.simt.dialect.ops.dot import Multiplication, Step
from tilewright.simt.target.fma_plan import fma_plan
from tilewright.simt.target.matmul_plan import Product, ProductPlan, product_of
from tilewright.simt.target.simt_target import SimtTarget


def plans(product: Product, target: SimtTarget) -> Sequence[ProductPlan]:
    """The plans for a product, those preferred first: the target's, or where it has none, multiplications and additions."""
    found = target.known_plans.get(product)
    if found is None:
        found = target.known_plans[product] = tuple(target.products(product)) or (fma_plan(target, product),)
    return found


def plan_of(operation: Multiplication | Step, target: SimtTarget) -> ProductPlan:
    """The plan that an operation names.

    Raises:
        LoweringError: the target has none of that name for the product.
    """
    name = operation.plan
    known = plans(product_of(operation), target)
    found = next((plan for plan in known if plan.name == name), None)
    if found is None:
        raise LoweringError(
            f"{operation.name} at {operation.location}: {target.name} has no plan {name!r} for this product; it has {', '.join(plan.name for plan in known)}"
        )
    return found
