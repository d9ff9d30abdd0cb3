"""Train a transformer of four forward kernels, whose backward passes are derived.

    python examples/train_transformer.py --device cuda --size large

Layer norm, attention, SwiGLU and cross entropy are kernels of ``examples/kernels``; their gradients
come from ``tilewright.torch.function``, or with ``--framework jax`` from ``tilewright.jax.call``.
The program trains the same model of PyTorch's own operators, in float32 and in float64, and prints
the losses. It exits with 1 where those of the kernels are further from float64's than rounding
explains: more than four times as far as PyTorch's own in float32, and more than 1e-5 of the loss.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

_FOLDER = str(Path(__file__).resolve().parent)
sys.path.insert(0, _FOLDER)

from transformer.task import SIZES, batches, initial_parameters
from transformer.torch_model import KERNELS, PYTORCH, train

# the folder triton in there is not the module
sys.path[:] = [folder for folder in sys.path if folder != _FOLDER]

TIMES_ROUNDING, RELATIVE = 4.0, 1e-5


def timed(name: str, run: Callable[[], list[float]]) -> np.ndarray:
    start = time.perf_counter()
    losses = np.array(run())
    print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    return losses


def is_right(found: np.ndarray, single: np.ndarray, double: np.ndarray) -> bool:
    """Return whether losses are as near to those in float64 as rounding explains."""
    rounding = np.maximum.accumulate(np.abs(single - double))
    return bool((np.abs(found - double) <= TIMES_ROUNDING * rounding + RELATIVE * double).all())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--framework", choices=["torch", "jax"], default="torch")
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--backend",
        default="inductor",
        help="of torch.compile for the model of kernels; eager execution where it is empty",
    )
    given = parser.parse_args(arguments)
    sizes = SIZES[given.size]
    task = initial_parameters(sizes), batches(sizes, given.steps)
    torch.set_float32_matmul_precision("highest")

    def pytorch(dtype: torch.dtype) -> list[float]:
        return train(PYTORCH, sizes, *task, device=given.device, dtype=dtype)

    def kernels() -> list[float]:
        if given.framework == "jax":
            # JAX would take most of the memory of a GPU, and PyTorch's models are there, too
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
            from transformer import jax_model

            return jax_model.train(sizes, *task, device=given.device)
        return train(KERNELS, sizes, *task, device=given.device, backend=given.backend)

    double = timed("PyTorch, float64", lambda: pytorch(torch.float64))
    single = timed("PyTorch, float32", lambda: pytorch(torch.float32))
    how = "JAX" if given.framework == "jax" else given.backend or "eager"
    found = timed(f"kernels, {how}, float32", kernels)
    print(f"{'step':>5} {'float64':>11} {'PyTorch':>11} {'kernels':>11}")
    for step in sorted({*range(0, given.steps, 10), given.steps - 1}):
        print(f"{step:5} {double[step]:11.7f} {single[step]:11.7f} {found[step]:11.7f}")
    for name, losses in (("PyTorch", single), ("kernels", found)):
        print(f"{name}: at most {np.abs(losses - double).max():.1e} from float64")
    right = is_right(found, single, double)
    print("right" if right else "WRONG: the losses differ by more than rounding")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
