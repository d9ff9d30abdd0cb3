"""References make their arrays on the device of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright_kernels as tk

torch = pytest.importorskip("torch")


def _array(*shape: int) -> Any:
    return torch.empty(shape, device="meta")


def _index(*shape: int) -> Any:
    return torch.empty(shape, dtype=torch.int64, device="meta")


#: Calls on arrays without memory, whose device is another one than an array's by default.
CALLS: dict[str, Callable[[], Any]] = {
    "attention": lambda: tk.attention_reference(
        _array(1, 4, 2, 8), _array(1, 6, 2, 8), _array(1, 6, 2, 8), causal=True
    ),
    "causal_conv1d": lambda: tk.causal_conv1d_reference(_array(2, 3, 8), _array(3, 4)),
    "cross_entropy": lambda: tk.cross_entropy_reference(_array(4, 9), _index(4)),
    "cross_entropy_shard": lambda: tk.cross_entropy_shard_reference(_array(4, 9), _index(4), 9),
    "dropout": lambda: tk.dropout_reference(_array(5, 7), 0.25, 3),
    "embedding": lambda: tk.embedding_reference(_index(5), _array(9, 4)),
    "expert_order": lambda: tk.expert_order_reference(_index(6, 2), 4),
    "grouped_matmul": lambda: tk.grouped_matmul_reference(
        _array(3, 4, 8), _array(3, 8, 5), _index(3)
    ),
    "histogram": lambda: tk.histogram_reference(_index(20), 8),
    "histogram of numbers": lambda: tk.histogram_reference(_array(20), 8, minimum=0.0, maximum=1.0),
    "linear_cross_entropy": lambda: tk.linear_cross_entropy_reference(
        _array(4, 6), _array(9, 6), _index(4)
    ),
    "linear_recurrence": lambda: tk.linear_recurrence_reference(_array(2, 5, 3), _array(2, 5, 3)),
    "multinomial": lambda: tk.multinomial_reference(_array(4, 9), _array(4)),
    "rotary": lambda: tk.rotary_reference(_array(6, 2, 8), _array(6, 4), _array(6, 4)),
    "top_p": lambda: tk.top_p_reference(_array(4, 9), 0.5),
    "topk": lambda: tk.topk_reference(_array(4, 9), 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_references_use_the_device_of_their_arguments(name: str) -> None:
    found = CALLS[name]()
    for each in found if isinstance(found, tuple) else (found,):
        assert each.device.type == "meta"
