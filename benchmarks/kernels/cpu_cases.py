"""Cases of ``cpu.py``: every operation beside PyTorch's fastest eager functions, on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

import tilewright_kernels as tk


@dataclass
class Case:
    """An operation beside its rival.

    Attributes:
        name: its name and size.
        ours, rival: take the inputs in order.
        inputs: those that require gradients have a backward pass measured.
        tolerance: largest difference relative to the rival's largest element; None if results are
            drawn, or changed in place.
    """

    name: str
    ours: Callable[..., Any]
    rival: Callable[..., Any]
    inputs: tuple[Any, ...]
    tolerance: float | None = 1e-3


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a normally distributed leaf."""
    return torch.randn(shape).to(dtype).requires_grad_()


def plain(*shape: int) -> torch.Tensor:
    """Return normally distributed numbers without a gradient."""
    return torch.randn(shape)


def row_cases() -> Iterator[Case]:
    """Yield norms, softmaxes, losses, and operations on elements."""
    rows, columns = 512, 4096
    x, y = drawn(rows, columns), drawn(rows, columns)
    weight, bias = drawn(columns), drawn(columns)
    size = f"{rows}x{columns}"
    yield Case(
        f"rms_norm {size}", tk.rms_norm,
        lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6), (x, weight),
    )  # fmt: skip
    yield Case(
        "rms_norm 16384x128", tk.rms_norm,
        lambda x, w: functional.rms_norm(x, w.shape, w, 1e-6), (drawn(16384, 128), drawn(128)),
    )  # fmt: skip
    yield Case(
        f"add_rms_norm {size}", lambda x, y, w: tk.add_rms_norm(x, y, w)[0],
        lambda x, y, w: functional.rms_norm(x + y, w.shape, w, 1e-6), (x, y, weight),
    )  # fmt: skip
    yield Case(
        f"layer_norm {size}", tk.layer_norm,
        lambda x, w, b: functional.layer_norm(x, w.shape, w, b), (x, weight, bias),
    )  # fmt: skip
    yield Case(
        "group_norm 4x64x64x64", lambda x, w, b: tk.group_norm(x, 8, w, b),
        lambda x, w, b: functional.group_norm(x, 8, w, b),
        (drawn(4, 64, 64, 64), drawn(64), drawn(64)),
    )  # fmt: skip
    yield Case(f"softmax {size}", tk.softmax, lambda x: torch.softmax(x, -1), (x,))
    yield Case("softmax 32x65536", tk.softmax, lambda x: torch.softmax(x, -1), (drawn(32, 65536),))
    yield Case(f"log_softmax {size}", tk.log_softmax, lambda x: torch.log_softmax(x, -1), (x,))
    target = torch.randint(0, 32768, (64,))
    yield Case(
        "cross_entropy 64x32768", tk.cross_entropy, functional.cross_entropy,
        (drawn(64, 32768), target),
    )  # fmt: skip
    yield Case(
        "linear_cross_entropy 256x256 by 4096", tk.linear_cross_entropy,
        lambda x, w, t: functional.cross_entropy(x @ w.T, t),
        (drawn(256, 256), drawn(4096, 256), torch.randint(0, 4096, (256,))),
    )  # fmt: skip
    log_p, log_q = (torch.log_softmax(each.detach(), -1).requires_grad_() for each in (x, y))
    yield Case(
        f"kl_div {size}", lambda x, t: tk.kl_div(x, t, reduction="sum"),
        lambda x, t: functional.kl_div(x, t, reduction="sum"), (log_p, log_q.detach().exp()),
    )  # fmt: skip
    yield Case(f"jsd {size}", tk.jsd, tk.jsd_reference, (log_p, log_q))
    yield Case(f"swiglu {size}", tk.swiglu, lambda a, b: functional.silu(a) * b, (x, y))
    yield Case(
        f"geglu {size}", tk.geglu, lambda a, b: functional.gelu(a, approximate="tanh") * b, (x, y)
    )
    angles = torch.rand(512, 64)
    heads = (drawn(512, 32, 128), angles.cos(), angles.sin())
    yield Case("rotary 512x32x128", tk.rotary, tk.rotary_reference, heads)
    yield Case(
        "rotary interleaved", lambda *each: tk.rotary(*each, interleaved=True),
        lambda *each: tk.rotary_reference(*each, True), heads,
    )  # fmt: skip
    yield Case(
        "embedding 4096 of 8192x512", tk.embedding, functional.embedding,
        (torch.randint(0, 8192, (4096,)), drawn(8192, 512)),
    )  # fmt: skip
    yield Case(
        f"dropout {size}", lambda x: tk.dropout(x, 0.3, 1), lambda x: functional.dropout(x, 0.3),
        (x,), None,
    )  # fmt: skip


def linear_cases() -> Iterator[Case]:
    """Yield matmuls and convolutions."""
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        shapes = ((512, 512, 512), (1, 4096, 2048), (8, 4096, 1024), (384, 1000, 700))
        for m, n, k in shapes:
            weight = drawn(n, k, dtype=dtype).detach().T.requires_grad_()
            yield Case(
                f"matmul {name} {m}x{n}x{k}", tk.matmul, torch.matmul,
                (drawn(m, k, dtype=dtype), weight), 2e-2,
            )  # fmt: skip
    yield Case(
        "matmul f32 16x128x256x128", tk.matmul, torch.matmul,
        (drawn(16, 128, 128), drawn(16, 128, 256)),
    )  # fmt: skip
    yield Case(
        "matmul bias 512x512x512", tk.matmul, lambda a, b, bias: torch.addmm(bias, a, b),
        (drawn(512, 512), drawn(512, 512), drawn(512)),
    )  # fmt: skip
    yield Case(
        "lora_matmul 512x512x512", tk.lora_matmul, lambda x, w, a, b: x @ w + (x @ a) @ b,
        (drawn(512, 512), drawn(512, 512), drawn(512, 16), drawn(16, 512)),
    )  # fmt: skip
    q = torch.randint(0, 16, (2048, 2048))
    words, scales = tk.pack_weights(q.numpy(), 4), torch.rand(2048, 16) + 0.5
    spread = ((q - 8) * scales.repeat_interleave(128, 1)).contiguous()
    for m in (1, 16):
        yield Case(
            f"quantized_matmul {m}x2048x2048 by f32", tk.quantized_matmul,
            lambda a, *_: a @ spread.T, (plain(m, 2048), torch.from_numpy(words), scales),
        )  # fmt: skip
    yield Case(
        "conv2d 4x64x32x32 by 64x3x3", lambda x, w: tk.conv2d(x, w, padding=1),
        lambda x, w: functional.conv2d(x, w, padding=1),
        (drawn(4, 64, 32, 32), drawn(64, 64, 3, 3)),
    )  # fmt: skip
    starts = torch.arange(0, 513, 64, dtype=torch.int32)
    yield Case(
        "grouped_matmul 8 of 64x256x512", lambda a, b: tk.grouped_matmul(a, b, starts),
        lambda a, b: (a.view(8, 64, 256) @ b).view(512, 512), (drawn(512, 256), drawn(8, 256, 512)),
    )  # fmt: skip


def attention_cases() -> Iterator[Case]:
    """Yield attention of whole batches and of caches."""

    def rival(causal: bool) -> Callable[..., Any]:
        def attended(q: Any, k: Any, v: Any) -> Any:
            return functional.scaled_dot_product_attention(
                *(each.transpose(1, 2) for each in (q, k, v)), is_causal=causal
            ).transpose(1, 2)

        return attended

    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        for causal in (False, True):
            yield Case(
                f"attention {name} 512x4x64{' causal' * causal}",
                lambda q, k, v, causal=causal: tk.attention(q, k, v, causal=causal), rival(causal),
                tuple(drawn(1, 512, 4, 64, dtype=dtype) for _ in range(3)), 3e-2,
            )  # fmt: skip
    cache = tuple(plain(4, 1024, 4, 64) for _ in range(2))
    yield Case(
        "attention_with_kv_cache 4x1024x4x64", tk.attention_with_kv_cache, rival(False),
        (plain(4, 1, 4, 64), *cache),
    )  # fmt: skip


def reduction_cases() -> Iterator[Case]:
    """Yield reductions over axes, prefix sums, segments, histograms and sorts."""
    x = drawn(1024, 4096)
    rivals: dict[str, Callable[..., Any]] = {
        "sum": torch.sum, "mean": torch.mean, "max": torch.amax, "argmax": torch.argmax,
        "var": lambda x, axis: torch.var(x, axis, correction=0),
    }  # fmt: skip
    for name, rival in rivals.items():
        for axis in (1, 0, (0, 1)):
            given = None if axis == (0, 1) and name == "argmax" else axis
            yield Case(
                f"{name} 1024x4096 axis {axis}",
                lambda x, name=name, axis=given: getattr(tk, name)(x, axis),
                lambda x, rival=rival, axis=given: rival(x, axis),
                # PyTorch's gradient of a sum is a view
                (x.detach() if name in ("sum", "argmax") else x,),
            )  # fmt: skip
    yield Case("cumsum 1024x4096", tk.cumsum, lambda x: torch.cumsum(x, -1), (x,))
    yield Case(
        "cumsum axis 0", lambda x: tk.cumsum(x, 0), lambda x: torch.cumsum(x, 0), (x.detach(),)
    )
    bounds = torch.arange(0, 16385, 64)
    yield Case(
        "segment_sum 16384x256", lambda x: tk.segment_sum(x, bounds),
        lambda x: torch.segment_reduce(x, "sum", offsets=bounds, axis=0), (plain(16384, 256),),
    )  # fmt: skip
    counted = torch.randint(0, 256, (1 << 21,), dtype=torch.int32)
    yield Case(
        "histogram 2^21 in 256", lambda x: tk.histogram(x, 256),
        lambda x: torch.bincount(x, minlength=256), (counted,),
    )  # fmt: skip
    rows = plain(64, 4096)
    yield Case("sort 64x4096", tk.sort, lambda x: torch.sort(x, -1)[0], (rows,))
    yield Case("argsort 64x4096", tk.argsort, lambda x: torch.argsort(x, -1), (rows,), None)
    yield Case("topk 8 of 256x4096", lambda x: tk.topk(x, 8)[0], lambda x: torch.topk(x, 8)[0],
               (plain(256, 4096),))  # fmt: skip
    yield Case("topk 50 of 16x65536", lambda x: tk.topk(x, 50)[0], lambda x: torch.topk(x, 50)[0],
               (plain(16, 65536),))  # fmt: skip
    p = torch.softmax(plain(64, 4096), -1)

    def top_p(x: Any) -> Any:
        ordered, order = torch.sort(x, -1, descending=True)
        kept = torch.where(ordered.cumsum(-1) - ordered < 0.9, ordered, 0)
        return torch.zeros_like(x).scatter_(-1, order, kept / kept.sum(-1, keepdim=True))

    yield Case("top_p 64x4096", lambda x: tk.top_p(x, 0.9), top_p, (p,))
    yield Case(
        "multinomial 512x4096", lambda x: tk.multinomial(x, seed=1),
        lambda x: torch.multinomial(x, 1), (torch.softmax(plain(512, 4096), -1),), None,
    )  # fmt: skip


def other_cases() -> Iterator[Case]:
    """Yield mixtures of experts, sequences and optimizers."""
    yield Case(
        "route 8 of 8192x64", lambda x: tk.route(x, 8)[0],
        lambda x: functional.normalize(torch.topk(torch.softmax(x, -1), 8)[0], 1, -1),
        (drawn(8192, 64),),
    )  # fmt: skip
    tokens, k, experts, columns = 1024, 2, 8, 512
    chosen = torch.randint(0, experts, (tokens, k), dtype=torch.int32)
    order = tk.expert_order(chosen, experts)
    index = order.order.long() // k
    yield Case(
        "permute 1024x512 by 2", lambda x: tk.permute(x, order), lambda x: x[index],
        (drawn(tokens, columns),),
    )  # fmt: skip
    slots = torch.argsort(order.order.long()).view(tokens, k)
    yield Case(
        "combine 1024x512 by 2", lambda y, w: tk.combine(y, w, order),
        lambda y, w: (y[slots] * w[..., None]).sum(1),
        (drawn(tokens * k, columns), drawn(tokens, k)),
    )  # fmt: skip
    x, weight = drawn(4, 256, 2048), drawn(256, 4)
    yield Case(
        "causal_conv1d 4x256x2048", tk.causal_conv1d,
        lambda x, w: functional.conv1d(functional.pad(x, (3, 0)), w[:, None], groups=256),
        (x, weight),
    )  # fmt: skip
    parameters, gradients = ([plain(1 << 20) for _ in range(4)] for _ in range(2))
    theirs = [torch.nn.Parameter(each.clone()) for each in parameters]
    for each, gradient in zip(theirs, gradients, strict=True):
        each.grad = gradient
    optimizer = torch.optim.AdamW(theirs, lr=1e-3, fused=True)
    first, second = ([torch.zeros(1 << 20) for _ in range(4)] for _ in range(2))
    yield Case(
        "adamw 4 of 2^20", lambda: tk.adamw(parameters, gradients, first, second, 2),
        lambda: optimizer.step(), (), None,
    )  # fmt: skip
    states = [tk.adamw_8bit_state(each) for each in parameters]
    yield Case(
        "adamw_8bit 4 of 2^20", lambda: tk.adamw_8bit(parameters, gradients, states, 2),
        lambda: optimizer.step(), (), None,
    )  # fmt: skip


def all_cases() -> Iterator[Case]:
    """Yield the cases of all families."""
    for family in (row_cases, linear_cases, attention_cases, reduction_cases, other_cases):
        yield from family()


def largest_difference(found: Any, expected: Any) -> float:
    """Return the largest difference relative to the largest element."""
    if not expected.numel():
        return 0.0
    scale = float(expected.double().abs().max()) or 1.0
    difference = float((found.double() - expected.double()).abs().max()) / scale
    return difference if math.isfinite(difference) else math.inf
