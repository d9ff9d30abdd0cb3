"""Train the tiny model on the topics of Python's help, and store its weights in float16.

python examples/tiny_llama/train.py --steps 2000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from torch.nn import functional

_FOLDER = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, _FOLDER)

from tiny_llama.model import (
    CHARACTERS,
    HEAD,
    HEADS,
    HIDDEN,
    KEY_HEADS,
    LAYERS,
    WEIGHTS,
    WIDTH,
    Weights,
    decode,
    encode,
    logits_of,
)

# the folder triton in there is not the module
sys.path[:] = [folder for folder in sys.path if folder != _FOLDER]


def initial_weights() -> Weights:
    """Return random weights."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns) * rows**-0.5

    weights = {"embedding": torch.randn(len(CHARACTERS), WIDTH) * 0.05, "norm": torch.ones(WIDTH)}
    for layer in range(LAYERS):
        weights |= {
            f"{layer}.norm_1": torch.ones(WIDTH),
            f"{layer}.qkv": matrix(WIDTH, (HEADS + 2 * KEY_HEADS) * HEAD),
            f"{layer}.out": matrix(WIDTH, WIDTH),
            f"{layer}.norm_2": torch.ones(WIDTH),
            f"{layer}.gate_up": matrix(WIDTH, 2 * HIDDEN),
            f"{layer}.down": matrix(HIDDEN, WIDTH),
        }
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    given = parser.parse_args()
    torch.manual_seed(0)
    text = torch.tensor(encode("\n".join(topics[name] for name in sorted(topics))))
    text = text.to(given.device)
    weights = {
        name: each.to(given.device).requires_grad_() for name, each in initial_weights().items()
    }
    optimizer = torch.optim.AdamW(weights.values(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=given.steps)
    for step in range(given.steps):
        starts = torch.randint(0, len(text) - given.length - 1, (given.batch, 1))
        rows = text[(starts + torch.arange(given.length + 1)).to(given.device)]
        logits = logits_of(weights, rows[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == given.steps - 1:
            print(f"{step:5} {loss.item():.3f}", flush=True)
    stored = {
        name: each.detach().cpu().numpy().astype(np.float16) for name, each in weights.items()
    }
    np.savez_compressed(given.out, **stored)
    print(f"{given.out}: {given.out.stat().st_size} bytes")
    tokens = encode("The ")
    with torch.no_grad():
        for _ in range(120):
            logits = logits_of(weights, torch.tensor([tokens], device=given.device))
            tokens.append(int(logits[0, -1].argmax()))
    print(decode(tokens))


if __name__ == "__main__":
    main()
