"""Time training steps of models of Hugging Face on a GPU: as they are, by Liger's patch, by ours.

    hugging_face.py                 all families
    hugging_face.py llama gemma     those of these names

A step is the forward and the backward pass of a causal language model in bfloat16, with labels. A
line for each family and patch: the device's time with the L2 cache overwritten before, the time of
the wall clock of steps one after another, the step's peak of memory above that of the weights, and
the error of loss and gradients against the model in float32: the largest over the
parameters of the norm of the difference by the norm. Liger's patch computes the loss without
logits (`fused`) or of logits (`logits`); so does ours. Patches alternate with ours. The status is
1 where ours is more than 1.5 times as wrong as the model as it is.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from device_times import DeviceTimer

import tilewright_kernels as tk

Call = Callable[[], Any]
ROUNDS = 5
TOKENS = (2, 2048)


@dataclass(frozen=True)
class Family:
    """Models of a family: the prefix of its classes, and the extents of a configuration."""

    prefix: str
    settings: dict[str, Any]


FAMILIES = {
    "llama": Family("Llama", {
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 2,
    }),
    "qwen3": Family("Qwen3", {
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
        "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 4,
    }),
    "gemma": Family("Gemma", {
        "vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384, "head_dim": 256,
        "num_attention_heads": 8, "num_key_value_heads": 1, "num_hidden_layers": 4,
    }),
    "mixtral": Family("Mixtral", {
        "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 3584,
        "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 2,
        "num_local_experts": 8, "num_experts_per_tok": 2,
    }),
}  # fmt: skip


def model_of(family: Family) -> Any:
    """Return a model in float32 on the GPU."""
    config = getattr(transformers, f"{family.prefix}Config")(
        **family.settings, max_position_embeddings=TOKENS[1], pad_token_id=0
    )
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    with torch.device("cuda"):
        return getattr(transformers, f"{family.prefix}ForCausalLM")(config).train()


def step(model: Any, tokens: Any) -> Any:
    """Compute the loss, and gradients anew."""
    model.zero_grad(set_to_none=True)
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    return loss


def outcome(model: Any, tokens: Any) -> tuple[Any, dict[str, Any]]:
    """Return the loss and the gradients of a step."""
    loss = step(model, tokens).detach()
    return loss, {name: each.grad for name, each in model.named_parameters()}


def error_of(found: tuple[Any, dict[str, Any]], exact: tuple[Any, dict[str, Any]]) -> float:
    """Return the largest relative error of the loss and of each parameter's gradient."""
    worst = float((found[0] - exact[0]).abs() / exact[0].abs())
    for name, gradient in found[1].items():
        wanted = exact[1][name]
        if gradient is None:
            return float("inf")
        worst = max(worst, float((gradient.float() - wanted).norm() / wanted.norm()))
    return worst


@contextmanager
def restored_modules() -> Iterator[None]:
    """Undo what a patch assigns to modules of transformers and to PyTorch's functions."""
    modules = [
        each
        for name, each in sys.modules.items()
        if name.startswith(("transformers.models.", "transformers.loss.", "torch.nn.functional"))
    ]
    before = [dict(vars(each)) for each in modules]
    try:
        yield
    finally:
        for module, names in zip(modules, before, strict=True):
            vars(module).update(names)


def liger_patch(name: str, model: Any, **switches: bool) -> None:
    """Patch a model by Liger."""
    import liger_kernel.transformers as liger

    getattr(liger, f"apply_liger_kernel_to_{name}")(model=model, **switches)


#: Name of a patch -> what applies it to a model of a family.
PATCHES: dict[str, Callable[[str, Any], Any]] = {
    "as it is": lambda name, model: None,
    "ours, logits": lambda name, model: tk.apply_to(model),
    "ours, fused": lambda name, model: tk.apply_to(model, linear_cross_entropy=True),
    "Liger, fused": lambda name, model: liger_patch(name, model),
    "Liger, logits": lambda name, model: liger_patch(
        name, model, fused_linear_cross_entropy=False, cross_entropy=True
    ),
}
OURS = "ours, logits"


@dataclass
class Figures:
    """What is measured of a patch: seconds, bytes, and the relative error."""

    device: float = float("nan")
    wall: float = float("nan")
    memory: int = 0
    error: float = float("nan")


def wall_seconds(call: Call, count: int = 3) -> float:
    """Return the seconds that a call takes of many one after another."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


def measure(name: str, patch: str, model: Any, ours: Any, tokens: Any, exact: Any) -> Figures:
    """Return the figures of a patched model, whose steps alternate with ours."""
    found = Figures(error=error_of(outcome(model, tokens), exact))
    model.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(model, tokens)
    found.memory = torch.cuda.max_memory_allocated() - before
    timer, times = DeviceTimer(), []
    for _ in range(ROUNDS):
        times.append(timer.seconds(f"{name}, {patch}", functools.partial(step, model, tokens)))
        if ours is not None:
            step(ours, tokens)
    walls = [wall_seconds(functools.partial(step, model, tokens)) for _ in range(3)]
    timer.print_exposed()
    found.device, found.wall = statistics.median(times), min(walls)
    model.zero_grad(set_to_none=True)
    return found


def report(name: str) -> bool:
    """Print the figures of a family; return whether ours are right."""
    family = FAMILIES[name]
    model = model_of(family)
    tokens = torch.randint(1, family.settings["vocab_size"], TOKENS, device="cuda")
    exact = outcome(model, tokens)
    model.zero_grad(set_to_none=True)  # before the conversion, which would convert gradients, too
    model = model.to(torch.bfloat16)
    ours = copy.deepcopy(model)
    PATCHES[OURS](name, ours)
    figures: dict[str, Figures] = {}
    for patch, apply in PATCHES.items():
        gc.collect()
        torch.cuda.empty_cache()
        with restored_modules():
            patched = ours if patch == OURS else copy.deepcopy(model)
            try:
                if patch != OURS:
                    apply(name, patched)
                others = None if patch == OURS else ours
                found = measure(name, patch, patched, others, tokens, exact)
            except Exception as error:
                if patch == OURS:
                    raise
                print(f"{name:8} {patch:14} fails: {type(error).__name__}: {str(error)[:200]}")
                continue
        figures[patch] = found
        mine = figures.get(OURS)
        print(
            f"{name:8} {patch:14} device {found.device * 1e3:7.2f} ms, wall "
            f"{found.wall * 1e3:7.2f} ms, {found.memory / 1e9:6.2f} GB above the weights,"
            f" error {found.error:.2e}"
            + (f", {found.device / mine.device:.3f} of our time" if mine else ""),
            flush=True,
        )
    mine = figures[OURS]
    plain = figures["as it is"]
    print(f"{name:8} the model as it is takes {plain.device / mine.device:.3f} of our time")
    return mine.error <= 1.5 * plain.error


def main() -> int:
    """Run the families that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="FAMILY")
    wrong = []
    for name in parser.parse_args().families:
        if not report(name):
            wrong.append(name)
        gc.collect()
        torch.cuda.empty_cache()
    if wrong:
        print(f"wrong: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
