"""The feed-forward layer of a mixture of experts: grouped SwiGLU over sorted tokens."""

from __future__ import annotations

from typing import Any

import array_api_compat

from tilewright_kernels.experts.expert_order import expert_order
from tilewright_kernels.experts.permutation import combine, permute
from tilewright_kernels.linear.grouped_matmul import grouped_matmul
from tilewright_kernels.rows.swiglu import swiglu


def grouped_swiglu(x: Any, gate_up: Any, down: Any, starts: Any) -> Any:
    """Apply the SwiGLU layer of each expert to the expert's rows.

    Args:
        x: of shape (rows, columns), with rows sorted by expert; of float16, bfloat16 or float32.
        gate_up: of shape (experts, columns, 2 * hidden): for each expert, the columns of the gate
            projection, then those of the up projection.
        down: of shape (experts, hidden, columns): the down projection of each expert.
        starts: of int32: the first row of each expert, and at the end the number of all rows.

    Returns:
        An array with the shape and element type of ``x``. All arrays except ``starts`` have
        gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Shazeer, "GLU variants improve Transformer", 2020.
    """
    hidden = down.shape[1]
    if gate_up.shape[-1] != 2 * hidden:
        raise ValueError(
            f"grouped_swiglu: gate_up has {gate_up.shape[-1]} columns, not twice the {hidden} rows "
            "of down"
        )
    both = grouped_matmul(x, gate_up, starts)
    return grouped_matmul(swiglu(both[:, :hidden], both[:, hidden:]), down, starts)


def grouped_swiglu_reference(x: Any, gate_up: Any, down: Any, starts: Any) -> Any:
    """Return each expert's SwiGLU layer of its rows."""
    xp = array_api_compat.array_namespace(x)
    hidden, found = down.shape[1], []
    for expert in range(gate_up.shape[0]):
        both = x[int(starts[expert]) : int(starts[expert + 1]), :] @ gate_up[expert]
        gate, up = both[:, :hidden], both[:, hidden:]
        found.append((gate / (1 + xp.exp(-gate)) * up) @ down[expert])
    return xp.concat(found, axis=0)


def expert_swiglu_reference(x: Any, weights: Any, experts: Any, gate_up: Any, down: Any) -> Any:
    """Return the weighted sum of the SwiGLU layers of each token's experts."""
    xp = array_api_compat.array_namespace(x)
    hidden, out = down.shape[1], xp.zeros_like(x)
    for expert in range(gate_up.shape[0]):
        both = x @ gate_up[expert]
        gate, up = both[:, :hidden], both[:, hidden:]
        y = (gate / (1 + xp.exp(-gate)) * up) @ down[expert]
        chosen = xp.where(experts == expert, weights, xp.zeros_like(weights))
        out = out + xp.sum(chosen, axis=1)[:, None] * y
    return out


def expert_swiglu(x: Any, weights: Any, experts: Any, gate_up: Any, down: Any) -> Any:
    """Compute for each token the weighted sum of the results of its experts' SwiGLU layers.

    Args:
        x: of shape (tokens, columns), of float16, bfloat16 or float32.
        weights: of shape (tokens, k), as :func:`.route` returns them.
        experts: of int32 and shape (tokens, k), as :func:`.route` returns them.
        gate_up: of shape (experts, columns, 2 * hidden): for each expert, the columns of the gate
            projection, then those of the up projection.
        down: of shape (experts, hidden, columns): the down projection of each expert.

    Returns:
        An array with the shape and element type of ``x``, with the same bits in each run. The host
        does not read ``experts``, so it does not wait for the device. All arrays except ``experts``
        have gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.
    """
    order = expert_order(experts, gate_up.shape[0])
    y = grouped_swiglu(permute(x, order), gate_up, down, order.starts)
    return combine(y, weights, order)
