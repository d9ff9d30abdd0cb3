"""Launch options common to all GPU backends, and checks of unsupported operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import LoweringError, OutOfResources
from tilewright.ir.core import Module
from tilewright.ir.ops.debug import Extern


def check_portable(name: str, options: Mapping[str, Any], warp_size: int, max_threads: int) -> None:
    """Reject values of ``num_warps`` and ``num_ctas`` that the target does not support.

    ``warp_size`` is in lanes and ``max_threads`` is that of a program. ``name`` is the kernel's,
    for messages.

    Raises:
        LoweringError: names the option, its value and the allowed values.
        OutOfResources: more warps than a program may have.
    """
    most = max_threads // warp_size
    allowed = [1 << bit for bit in range(most.bit_length())]
    warps = options.get("num_warps", 4)
    if type(warps) is int and warps > most and warps.bit_count() == 1:
        raise OutOfResources(
            warp_size * warps,
            max_threads,
            f"threads of kernel {name} ({configuration_text(options)})",
        )
    if isinstance(warps, bool) or not isinstance(warps, int) or warps not in allowed:
        raise LoweringError(f"kernel {name}: num_warps must be {_listed(allowed)}, not {warps!r}")
    blocks = options.get("num_ctas", 1)
    if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks not in (1, 2, 4, 8, 16):
        raise LoweringError(f"kernel {name}: num_ctas must be 1, 2, 4, 8 or 16, not {blocks!r}")


def _listed(numbers: list[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}"


def configuration_text(options: Mapping[str, Any]) -> str:
    """Format the options that determine a kernel's resources, for messages."""
    named = [(name, options.get(name)) for name in ("num_warps", "num_stages", "maxnreg")]
    return ", ".join(f"{name}={value}" for name, value in named if value is not None)


def refuse_externs(module: Module) -> None:
    """Reject external functions, on a target without libraries.

    Raises:
        LoweringError: names the operation.
    """
    for operation in module.walk():
        if isinstance(operation, Extern):
            symbol = operation.symbol
            raise LoweringError(
                f"extern at {operation.location}: there is no library of functions on the GPU that "
                f"has {symbol!r}; write it in the language"
            )
