"""Cases of ``amd_instructions.py``: calls of the library and of Liger on the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

ROWS, COLUMNS, CLASSES = 32, 2048, 8192
#: Rows of norms, whose backward passes add up a few partial sums over rows at the end.
NORM_ROWS = 256


@dataclass
class Case:
    """A call and its rival.

    Attributes:
        inputs: draws the arguments.
        ours, theirs: return a function of a module (``tilewright_kernels``, or Liger's
            ``liger_kernel.transformers.functional``) that takes the arguments.
        together: whether the rival computes gradients in its forward pass.
    """

    inputs: Callable[[], tuple[Any, ...]]
    ours: Callable[[Any], Callable[..., Any]]
    theirs: Callable[[Any], Callable[..., Any]]
    together: bool = False


def drawn(*shape: int) -> torch.Tensor:
    """Return a leaf of bf16."""
    return torch.randn(shape).bfloat16().requires_grad_()


def matrices(count: int) -> Callable[[], tuple[Any, ...]]:
    """Return a function that draws matrices of ROWS x COLUMNS."""
    return lambda: tuple(drawn(ROWS, COLUMNS) for _ in range(count))


def logarithms() -> tuple[Any, ...]:
    """Draw the logarithms of two distributions in f32, of which the first has a gradient."""
    x, target = (torch.log_softmax(torch.randn(ROWS, COLUMNS), -1) for _ in range(2))
    return x.requires_grad_(), target


def heads() -> tuple[Any, ...]:
    """Draw heads of queries and of keys of (1, heads, 64, 128), and their angles."""
    angles = torch.rand(1, 64, 64)
    double = torch.cat([angles, angles], -1)
    return drawn(1, 32, 64, 128), drawn(1, 8, 64, 128), double.cos(), double.sin()


def rotated(tk: Any) -> Callable[..., Any]:
    """Return the rotation of heads in the layout that Liger takes."""

    def call(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        halves = cos[0, :, :64], sin[0, :, :64]
        return tuple(tk.rotary(each.transpose(1, 2), *halves).transpose(1, 2) for each in (q, k))

    return call


CASES = {
    "rms_norm": Case(
        lambda: (drawn(NORM_ROWS, COLUMNS), drawn(COLUMNS)),
        lambda tk: tk.rms_norm,
        lambda liger: lambda x, w: liger.liger_rms_norm(x, w, 1e-6),
    ),
    "add_rms_norm": Case(
        lambda: (drawn(NORM_ROWS, COLUMNS), drawn(NORM_ROWS, COLUMNS), drawn(COLUMNS)),
        lambda tk: tk.add_rms_norm,
        lambda liger: lambda x, y, w: liger.liger_fused_add_rms_norm(x, y, w, 1e-6),
    ),
    "layer_norm": Case(
        lambda: (drawn(NORM_ROWS, COLUMNS), drawn(COLUMNS), drawn(COLUMNS)),
        lambda tk: tk.layer_norm,
        lambda liger: lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5),
    ),
    "group_norm": Case(
        lambda: (drawn(2, 32, 256), drawn(32), drawn(32)),
        lambda tk: lambda x, w, b: tk.group_norm(x, 8, w, b),
        lambda liger: lambda x, w, b: liger.liger_group_norm(x, w, b, 32, 8, 1e-5),
    ),
    "softmax": Case(matrices(1), lambda tk: tk.softmax, lambda liger: liger.liger_softmax),
    "swiglu": Case(matrices(2), lambda tk: tk.swiglu, lambda liger: liger.liger_swiglu),
    "geglu": Case(matrices(2), lambda tk: tk.geglu, lambda liger: liger.liger_geglu),
    "rotary": Case(heads, rotated, lambda liger: liger.liger_rope),
    "cross_entropy": Case(
        lambda: (drawn(ROWS, CLASSES), torch.randint(0, CLASSES, (ROWS,))),
        lambda tk: tk.cross_entropy,
        lambda liger: liger.liger_cross_entropy,
        together=True,
    ),
    "kl_div": Case(
        logarithms,
        lambda tk: lambda x, t: tk.kl_div(x, t, log_target=True),
        lambda liger: lambda x, t: liger.liger_kl_div(x, t, reduction="mean", log_target=True),
    ),
    "jsd": Case(
        logarithms,
        lambda tk: tk.jsd,
        lambda liger: lambda x, t: liger.liger_jsd(x, t),
        together=True,
    ),
}


def results_of(case: Case, function: Callable[..., Any]) -> list[Callable[[], Any]]:
    """Return the forward and the backward pass of a function as calls, to be made in order."""
    torch.manual_seed(0)
    inputs = case.inputs()
    made: list[Any] = []

    def forward() -> Any:
        found = function(*inputs)
        made.extend(found if isinstance(found, tuple) else (found,))
        return made

    def backward() -> Any:
        tracked = [each for each in made if each is not None and each.requires_grad]
        leaves = [each for each in inputs if each.requires_grad]
        torch.manual_seed(1)
        slopes = [
            torch.randn_like(each) if each.ndim else each.detach() * 0 + 1 for each in tracked
        ]
        return torch.autograd.grad(tracked, leaves, slopes)

    return [forward, backward]
