"""Models through PyTorch's compiler, on Tilewright: a pass and a step of training against eager
execution.

    python ecosystem/models.py                                on the CPU
    python ecosystem/models.py --device cuda --time on a GPU, with the time of a step and of
    compiling python ecosystem/models.py --model bert --model unet

For each model, tiny and with random weights: the results of a pass without gradients, and the loss
and the gradients of every parameter of a step of training, each with static shapes and then with
dynamic ones. All of it is done twice, by two processes one after the other that share a directory
of caches, with PyTorch's default pool of compile workers: the first one compiles ("cold"), the
second takes its graphs from PyTorch's cache ("warm") and fails where it finds none there. Where the
device is a CPU, PyTorch's backend for it is Triton's; what fails is tried with the one in C++ that
PyTorch has itself, and where that ends with the same error it is told as PyTorch's, and is no
failure.

Another implementation of ``triton`` is measured with ``--triton``: the one that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_RESULT = "model result: "
#: How a model is run: (what is compiled for, whether it is trained).
WAYS = {
    f"{kind} {shapes}": (kind == "train", shapes == "dynamic")
    for shapes in ("static", "dynamic")
    for kind in ("pass", "train")
}


@dataclass
class Outcome:
    """What became of a model in one process.

    Attributes:
        failures: way -> the first line of its error.
        others: the same of errors that PyTorch's own backend ends with, too.
        compile_s: seconds of the first calls, all ways together.
        step_ms: milliseconds of a step of training with static shapes, compiled; 0 where it was not
        measured. eager_ms: the same in eager execution.
        graphs: graphs that were found in PyTorch's cache, and those that were not.
    """

    model: str
    failures: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    compile_s: float = 0.0
    step_ms: float = 0.0
    eager_ms: float = 0.0
    graphs: tuple[int, int] = (0, 0)
    absent: str = ""


def run_here(name: str, device: str, timed: bool, warm: bool, precision: str) -> Outcome:
    """Run a model in all ways in this process."""
    sys.path.insert(0, str(HERE))
    import torch
    import torch._inductor.config as config
    from model_zoo import MODELS
    from torch._dynamo.utils import counters

    if device == "cpu":
        config.cpu_backend = "triton"
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = (
        precision != "highest"
    )  # eager and compiled convolutions may differ in what they round
    outcome = Outcome(name)
    try:
        torch.manual_seed(0)
        case = MODELS[name]()
    except ImportError as error:
        outcome.absent = str(error)
        return outcome
    model = case.model.to(device)
    for way, (trained, dynamic) in WAYS.items():
        try:
            began = time.perf_counter()
            compiled, given = compare(model, case, device, trained, dynamic)
            outcome.compile_s += time.perf_counter() - began
            if timed and way == "train static":
                outcome.step_ms = milliseconds(partial(step, compiled, given), device)
                outcome.eager_ms = milliseconds(partial(step, model, given), device)
        except Exception as error:
            traceback.print_exc()
            said = message(error)
            alike = device == "cpu" and unnumbered(said) == unnumbered(
                without_triton(partial(compare, model, case, device, trained, dynamic))
            )
            (outcome.others if alike else outcome.failures)[way] = said
    hits, misses = (
        counters["inductor"]["fxgraph_cache_hit"],
        counters["inductor"]["fxgraph_cache_miss"],
    )
    hits += counters["aot_autograd"]["autograd_cache_hit"]
    outcome.graphs = hits, misses
    if warm and not outcome.failures and (not hits or (misses and not outcome.others)):
        outcome.failures["warm"] = f"{misses} graphs were not in PyTorch's cache, {hits} were"
    return outcome


def compare(
    model: Any, case: Any, device: str, trained: bool, dynamic: bool
) -> tuple[Any, dict[str, Any]]:
    """Compile a model and check it; with it, what it was given last."""
    import torch

    torch._dynamo.reset()
    compiled = torch.compile(model, dynamic=dynamic)
    for size in (2, 3, 5) if dynamic else (2,):
        given = {key: value.to(device) for key, value in case.inputs(size).items()}
        check(model, compiled, given, trained, case.tolerance)
    return compiled, given


def without_triton(run: Callable[[], Any]) -> str:
    """What the error says that a run with PyTorch's own backend for CPUs ends with; empty where it
    passes.
    """
    import torch._inductor.config as config

    try:
        with config.patch(cpu_backend="cpp"):
            run()
    except Exception as error:
        return message(error)
    return ""


def message(error: Exception) -> str:
    """The first line of what an error says, with its type."""
    return traceback.format_exception_only(error)[-1].strip().splitlines()[0]


def unnumbered(said: str) -> str:
    """What an error says, whatever numbers the extents have that are not known."""
    return re.sub(r"\bs\d+\b", "s", said)


def step(run: Callable[..., Any], given: dict[str, Any]) -> Any:
    """A step of training; gives the loss."""
    loss = loss_of(run(**given))
    loss.backward()
    return loss.detach()


def loss_of(found: Any) -> Any:
    """A number of what a model gives: the mean of the squares of each tensor of real numbers, added
    up.
    """
    return sum(each.float().square().mean() for each in tensors(found))


def tensors(found: Any) -> list[Any]:
    """The tensors of real numbers in what a model gives, in order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [
        each
        for each in tree_leaves(found)
        if isinstance(each, torch.Tensor) and each.is_floating_point()
    ]


def check(
    model: Any, compiled: Any, given: dict[str, Any], trained: bool, tolerance: float
) -> None:
    """Fail unless the compiled model does what the model does."""
    import torch

    results = []
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for run in (model, compiled):
        model.load_state_dict(state)  # norms keep running means
        model.train(trained)
        model.zero_grad()
        if not trained:
            with torch.no_grad():
                results.append([each.clone() for each in tensors(run(**given))])
            continue
        loss = step(run, given)
        results.append(
            [
                loss,
                *(
                    parameter.grad.clone()
                    for parameter in model.parameters()
                    if parameter.grad is not None
                ),
            ]
        )
    assert results[0] and len(results[0]) == len(results[1]), (
        "the compiled model gives another number of tensors"
    )
    # a result that is zero but for rounding, such as the gradient of the bias of attention's keys,
    # is compared at the scale of the other results
    maxima = [float(each.abs().max()) if each.numel() else 0.0 for each in results[0]]
    minimum = 1e-2 * max(maxima) or 1.0
    for found, expected, own in zip(results[1], results[0], maxima, strict=True):
        scale = max(own, minimum)
        torch.testing.assert_close(found / scale, expected / scale, rtol=tolerance, atol=tolerance)


def milliseconds(function: Callable[[], Any], device: str) -> float:
    """The shortest of a number of calls, each waited for."""
    import torch

    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        function()
        wait()
        best = min(best, time.perf_counter() - began)
    return best * 1e3


def run_apart(name: str, given: argparse.Namespace, warm: bool, caches: str) -> Outcome:
    """Run a model in a process of its own, with the caches in a directory."""
    command = [
        sys.executable,
        str(HERE / "models.py"),
        "--model",
        name,
        "--device",
        given.device,
        "--precision",
        given.precision,
        "--here",
    ]
    command += ["--time"] * given.time + ["--warm"] * warm
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "TRITON_CACHE_DIR": f"{caches}/triton",
    }
    if not given.triton:
        environment |= {"TILEWRIGHT_TRITON": "1", "TILEWRIGHT_CACHE_DIR": f"{caches}/tilewright"}
    try:
        launcher = [] if given.triton else ["-m", "tilewright.compat.triton"]
        done = subprocess.run(
            [command[0], *launcher, *command[1:]],
            capture_output=True,
            text=True,
            timeout=given.limit,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(name, {"all": f"it did not end in {given.limit:g} s"})
    found = [line for line in done.stdout.splitlines() if line.startswith(_RESULT)]
    if not found:
        return Outcome(
            name, {"all": f"the process ended with {done.returncode}: {done.stderr.strip()[-400:]}"}
        )
    outcome = Outcome(**json.loads(found[-1].removeprefix(_RESULT)))
    if outcome.failures:
        print(done.stderr[-6000:], file=sys.stderr)
    return outcome


def line(cold: Outcome, warm: Outcome) -> str:
    """A line of the table, and one a failure."""
    if cold.absent:
        return f"{cold.model:12} {cold.absent}"
    states = [
        f"{sum({way, 'all'}.isdisjoint(wrong) for way in WAYS)}/{len(WAYS)}"
        for wrong in ({*cold.failures, *cold.others}, {*warm.failures, *warm.others})
    ]
    times = f"{cold.compile_s:8.1f} {warm.compile_s:8.1f}"
    steps = f" {cold.eager_ms:8.2f} {cold.step_ms:8.2f} {warm.step_ms:8.2f}" if cold.step_ms else ""
    lines = [f"{cold.model:12} {states[0]:>6} {states[1]:>6} {times} {warm.graphs[0]:6}{steps}"]
    for label, each in (("cold", cold), ("warm", warm)):
        lines += [f"    {label}, {way}: {error}" for way, error in each.failures.items()]
        lines += [
            f"    {label}, {way}: PyTorch's own backend fails alike: {error}"
            for way, error in each.others.items()
        ]
    return "\n".join(lines)


def main() -> int:
    sys.path.insert(0, str(HERE))
    from model_zoo import MODELS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        choices=sorted(MODELS),
        help="may be repeated; all otherwise",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=float, default=900, help="seconds a process may take")
    parser.add_argument("--time", action="store_true", help="measure steps of training")
    parser.add_argument(
        "--triton",
        action="store_true",
        help="with the Triton that is installed, not with Tilewright",
    )
    parser.add_argument(
        "--precision",
        default="highest",
        choices=("highest", "high"),
        help="of products of float32; see torch.set_float32_matmul_precision",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        outcome = run_here(given.model[0], given.device, given.time, given.warm, given.precision)
        print(_RESULT + json.dumps(vars(outcome)))
        return 0
    print(
        f"{'model':12} {'cold':>6} {'warm':>6} {'cold s':>8} {'warm s':>8} {'graphs':>6}"
        + (" eager ms  cold ms  warm ms" if given.time else ""),
        flush=True,
    )
    failed = False
    for name in given.model or MODELS:
        with tempfile.TemporaryDirectory() as caches:
            cold = run_apart(name, given, False, caches)
            warm = (
                Outcome(name)
                if cold.absent or "all" in cold.failures
                else run_apart(name, given, True, caches)
            )
        failed = failed or bool(cold.failures or warm.failures)
        print(line(cold, warm), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
