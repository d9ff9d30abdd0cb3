"""The tiny model: its sizes, its weights, and its forward pass by PyTorch's operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

LAYERS, HEADS, KEY_HEADS, HEAD, HIDDEN = 2, 4, 2, 16, 128
WIDTH = HEADS * HEAD
#: Characters in the order of their numbers; others are read as the first one.
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
WEIGHTS = Path(__file__).with_name("weights.npz")

Weights = dict[str, Tensor]


def encode(text: str) -> list[int]:
    """Return the numbers of a text's characters."""
    return [max(CHARACTERS.find(each), 0) for each in text]


def decode(tokens: list[int]) -> str:
    """Return the text of numbers."""
    return "".join(CHARACTERS[each] for each in tokens)


def load_weights(device: str = "cpu") -> Weights:
    """Return the weights in float32: matrices of (in, out), and weights of norms."""
    with np.load(WEIGHTS) as file:
        return {name: torch.from_numpy(file[name]).float().to(device) for name in file.files}


def angles(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of rotary embeddings, of (..., half a head), in float32."""
    frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2, device=positions.device) / HEAD)
    found = positions[..., None].float() * frequencies
    return found.cos(), found.sin()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def logits_of(weights: Weights, tokens: Tensor) -> Tensor:
    """Return the logits of the next token after each of (batch, length)."""
    batch, length = tokens.shape
    cos, sin = angles(torch.arange(length, device=tokens.device))
    x = weights["embedding"][tokens]
    for layer in range(LAYERS):
        own = {name: weights[f"{layer}.{name}"] for name in ("qkv", "out", "gate_up", "down")}
        y = functional.rms_norm(x, (WIDTH,), weights[f"{layer}.norm_1"], 1e-6)
        heads = (y @ own["qkv"]).view(batch, length, HEADS + 2 * KEY_HEADS, HEAD).transpose(1, 2)
        q, k, v = heads.split((HEADS, KEY_HEADS, KEY_HEADS), dim=1)
        mixed = functional.scaled_dot_product_attention(
            _rotated(q, cos, sin), _rotated(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + mixed.transpose(1, 2).reshape(batch, length, WIDTH) @ own["out"]
        y = functional.rms_norm(x, (WIDTH,), weights[f"{layer}.norm_2"], 1e-6)
        gate, up = (y @ own["gate_up"]).chunk(2, dim=-1)
        x = x + (functional.silu(gate) * up) @ own["down"]
    return functional.rms_norm(x, (WIDTH,), weights["norm"], 1e-6) @ weights["embedding"].T
