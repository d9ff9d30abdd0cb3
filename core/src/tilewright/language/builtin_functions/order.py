"""The argument ``order`` of reductions, scans and matmuls."""

from __future__ import annotations

from typing import Any

from tilewright.errors import with_help
from tilewright.ir.order import ANY, ORDERS, other_orders


def order_attribute(semantic: Any, op: str, order: str) -> dict[str, str]:
    """Return the attribute ``order`` of an operation, which is absent for any order.

    Raises:
        ValueError: there is no such order, or the target does not honour it for ``op``.
    """
    if order not in ORDERS:
        raise ValueError(f"order must be one of {ORDERS}, got {order!r}")
    if order == ANY:
        return {}
    capabilities = semantic.options.capabilities
    if capabilities is not None and order not in capabilities.orders.get(op, ()):
        raise ValueError(
            with_help(
                f"order {order!r} of {op} is not supported by backend "
                f"{semantic.options.backend or '?'!r}",
                other_orders(capabilities.orders.get(op, ())),
            )
        )
    return {"order": order}
