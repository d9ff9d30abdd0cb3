"""The task of the example: sizes, initial parameters and batches, the same for all frameworks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model and of a batch.

    Attributes:
        batch: sequences of a batch.
        length: tokens of a sequence, but the last, which is only predicted.
        heads: attention heads.
        head: their dimension.
        hidden: the width of the feed-forward layer.
        classes: tokens that there are.
        layers: transformer blocks.
    """

    batch: int
    length: int
    heads: int
    head: int
    hidden: int
    classes: int
    layers: int

    @property
    def width(self) -> int:
        return self.heads * self.head


SIZES = {
    "tiny": Sizes(batch=2, length=24, heads=2, head=16, hidden=48, classes=50, layers=1),
    "small": Sizes(batch=4, length=64, heads=2, head=32, hidden=160, classes=96, layers=1),
    "large": Sizes(batch=8, length=512, heads=8, head=64, hidden=1408, classes=8192, layers=4),
}


def initial_parameters(sizes: Sizes) -> dict[str, Array]:
    """Return parameters by name: matrices [in, out], and weights and biases of norms."""
    rng = np.random.default_rng(0)
    width = sizes.width

    def matrix(rows: int, columns: int) -> Array:
        return rng.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)

    parameters = {
        "embedding": matrix(sizes.classes, width) * 4,
        "head": matrix(width, sizes.classes),
    }
    norms = ["norm"]
    for layer in range(sizes.layers):
        parameters[f"{layer}.qkv"] = matrix(width, 3 * width)
        parameters[f"{layer}.out"] = matrix(width, width)
        parameters[f"{layer}.gate"] = matrix(width, sizes.hidden)
        parameters[f"{layer}.up"] = matrix(width, sizes.hidden)
        parameters[f"{layer}.down"] = matrix(sizes.hidden, width)
        norms += [f"{layer}.norm1", f"{layer}.norm2"]
    for norm in norms:
        parameters[f"{norm}.weight"] = np.ones(width, np.float32)
        parameters[f"{norm}.bias"] = np.zeros(width, np.float32)
    return parameters


def batches(sizes: Sizes, steps: int) -> NDArray[np.int32]:
    """Return tokens [steps, batch, length + 1].

    Each token follows from the last one and a coin: the loss of a model that has learned the rule
    is log 2.
    """
    rng = np.random.default_rng(1)
    tokens = np.empty((steps, sizes.batch, sizes.length + 1), np.int32)
    tokens[..., 0] = rng.integers(0, sizes.classes, (steps, sizes.batch))
    coins = rng.integers(0, 2, tokens.shape)
    for place in range(sizes.length):
        tokens[..., place + 1] = (3 * tokens[..., place] + 7 + coins[..., place]) % sizes.classes
    return tokens
