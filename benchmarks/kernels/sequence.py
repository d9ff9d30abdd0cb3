"""The library's state space duality and gated delta rule beside mamba_ssm's and FLA's kernels.

    python benchmarks/kernels/sequence.py [errors times blocks]

``errors`` prints for short sequences the largest errors of the result and of gradients against
float64, relative to the largest element, those of the rival, and whether 20 launches on warm caches
had the same bits. ``times`` prints for long ones our time on the device and the rival's time by
ours, forward and backward. ``blocks`` prints our times with other chunks and warps than those of
the rule. Rivals are measured where they can be imported. The status is 1 where a result is wrong
or bits differ.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from linear import gpu_times
from results import Result, Results

import tilewright_kernels as tk
from tilewright_kernels.sequence import chunk_launches, gated_delta_rule

#: Launches whose bits are compared.
REPEATS = 20
#: Largest error relative to the largest result, forward and backward.
TOLERANCES = (2e-2, 4e-2)

Inputs = dict[str, torch.Tensor]


@dataclass
class Case:
    """An operation on inputs.

    Attributes:
        name: its name and sizes.
        inputs: tensors that have gradients.
        ours, rival: the operation, of those; None where the rival is not there.
        reference: the same in float64.
    """

    name: str
    inputs: Inputs
    ours: Callable[..., torch.Tensor]
    rival: Callable[..., torch.Tensor] | None
    reference: Callable[..., torch.Tensor]


def _rival(module: str, name: str) -> Callable[..., Any] | None:
    try:
        return getattr(__import__(module, fromlist=[name]), name)
    except ImportError as error:
        print(f"no {name}: {error}", flush=True)
        return None


def ssd_case(batch: int, length: int, heads: int, dims: int, state: int, dtype: Any) -> Case:
    """Return the scan of Mamba-2: one group, softplus and biases of steps, a skip connection."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int, dtype: Any = dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)

    inputs = {
        "x": draw(batch, length, heads, dims),
        "dt": draw(batch, length, heads),
        "A": -torch.exp(draw(heads, dtype=torch.float32) / 2),
        "B": draw(batch, length, 1, state) / state**0.25,
        "C": draw(batch, length, 1, state) / state**0.25,
        "D": draw(heads, dtype=torch.float32),
        "dt_bias": draw(heads, dtype=torch.float32) - 3,
    }
    scan = _rival("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined")
    return Case(
        f"ssd {batch}x{length}x{heads}x{dims} state {state}",
        inputs,
        lambda **given: tk.ssd(**given, dt_softplus=True),
        None if scan is None else lambda **given: scan(**given, chunk_size=256, dt_softplus=True),
        lambda **given: tk.ssd_reference(**given, dt_softplus=True),
    )


def delta_case(
    batch: int, length: int, key_heads: int, heads: int, keys: int, values: int, dtype: Any
) -> Case:
    """Return the gated delta rule on keys of the norm 1."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32)

    def unit(*shape: int) -> torch.Tensor:
        return torch.nn.functional.normalize(draw(*shape), dim=-1).to(dtype)

    inputs = {
        "q": unit(batch, length, key_heads, keys),
        "k": unit(batch, length, key_heads, keys),
        "v": draw(batch, length, heads, values).to(dtype),
        "g": -torch.nn.functional.softplus(draw(batch, length, heads) - 3),
        "beta": torch.sigmoid(draw(batch, length, heads)).to(dtype),
    }
    rule = _rival("fla.ops.gated_delta_rule", "chunk_gated_delta_rule")
    return Case(
        f"delta {batch}x{length}x{key_heads}/{heads}x{keys}/{values}",
        inputs,
        lambda **given: tk.gated_delta_rule(**given),
        None if rule is None else lambda **given: rule(**given)[0],
        lambda **given: tk.gated_delta_rule_reference(**given),
    )


def short_cases() -> Iterator[Callable[[], Case]]:
    bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32
    yield lambda: ssd_case(2, 300, 4, 64, 128, bf16)
    yield lambda: ssd_case(1, 211, 6, 40, 64, f16)
    yield lambda: ssd_case(1, 211, 2, 64, 128, f32)
    yield lambda: delta_case(2, 300, 2, 4, 128, 128, bf16)
    yield lambda: delta_case(1, 211, 3, 3, 64, 48, f16)
    yield lambda: delta_case(1, 211, 2, 2, 64, 64, f32)


def long_cases() -> Iterator[Callable[[], Case]]:
    bf16 = torch.bfloat16
    yield lambda: ssd_case(8, 2048, 24, 64, 128, bf16)
    yield lambda: ssd_case(8, 2048, 80, 64, 128, bf16)
    yield lambda: delta_case(8, 2048, 16, 16, 128, 128, bf16)
    yield lambda: delta_case(2, 8192, 16, 32, 128, 128, bf16)
    yield lambda: ssd_case(1, 16384, 24, 64, 128, bf16)
    yield lambda: delta_case(1, 32768, 16, 16, 128, 128, bf16)


def tracked(inputs: Inputs, dtype: Any = None) -> Inputs:
    """Return copies that gradients are taken of."""
    return {
        name: each.detach().clone().to(dtype or each.dtype).requires_grad_()
        for name, each in inputs.items()
    }


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    scale = max(float(expected.double().abs().max()), 1e-30)
    return float((found.double() - expected.double()).abs().max()) / scale


def differences(case: Case, call: Callable[..., torch.Tensor]) -> tuple[float, dict[str, float]]:
    """Return the errors of the result and of gradients against float64."""
    exact, given = tracked(case.inputs, torch.float64), tracked(case.inputs)
    expected, found = case.reference(**exact), call(**given)
    cotangent = torch.randn_like(found)
    expected.backward(cotangent.double())
    found.backward(cotangent)
    return _relative(found, expected), {
        name: _relative(given[name].grad, exact[name].grad) for name in given
    }


def has_same_bits(case: Case) -> bool:
    """Return whether repeated launches into memory of NaN give the same result and gradients."""
    first: list[torch.Tensor] = []
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills what torch.empty returns
    try:
        for _ in range(REPEATS):
            given = tracked(case.inputs)
            out = case.ours(**given)
            out.backward(torch.ones_like(out))
            found = [out, *(each.grad for each in given.values())]
            if first and not all(map(torch.equal, first, found)):
                return False
            first = first or found
    finally:
        torch.use_deterministic_algorithms(False)
    return not any(each.isnan().any() for each in first)


def timed(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of the forward passes, and of the backward passes."""
    calls = {"ours": case.ours} | ({} if case.rival is None else {"rival": case.rival})
    with torch.no_grad():
        forward = gpu_times({n: (lambda f=f: f(**case.inputs)) for n, f in calls.items()})
    graphs = {}
    for name, function in calls.items():
        given = tracked(case.inputs)
        out = function(**given)
        graph = out, list(given.values()), torch.randn_like(out)
        try:
            torch.autograd.grad(*graph, retain_graph=True)
        except RuntimeError as error:
            if name == "ours":
                raise
            print(f"{case.name} {name}: {str(error)[:300]}", flush=True)
            continue
        graphs[name] = graph
    backward = gpu_times(
        {
            name: lambda g=graph: torch.autograd.grad(*g, retain_graph=True)
            for name, graph in graphs.items()
        }
    )
    return forward, backward


def print_errors(case: Case) -> bool:
    """Print the errors of a case; return whether it is right."""
    calls = {"ours": case.ours} | ({} if case.rival is None else {"rival": case.rival})
    is_right = has_same_bits(case)
    notes = "same bits" if is_right else "BITS DIFFER"
    for name, call in calls.items():
        try:
            error, gradients = differences(case, call)
        except Exception as failure:
            print(f"{case.name} {name}: {type(failure).__name__}: {str(failure)[:300]}", flush=True)
            is_right &= name != "ours"
            continue
        if name == "ours":
            is_right &= error <= TOLERANCES[0] and max(gradients.values()) <= TOLERANCES[1]
            notes += "" if is_right else "  WRONG"
        listed = " ".join(f"d{name} {each:.1e}" for name, each in gradients.items())
        print(f"{case.name:32s} {name:5s} {error:.1e} {listed}  {notes}", flush=True)
        notes = ""
    return is_right


def print_times(case: Case, results: Results) -> list[float]:
    """Print the times of a case; return the rival's by ours."""
    ratios = []
    for name, times in zip(("forward", "backward"), timed(case), strict=True):
        rivals = {"rival": times["rival"]} if "rival" in times else {}
        results.add(Result("sequence", f"{case.name} {name}", times["ours"], rivals=rivals))
        line = f"{case.name:40s} {name:8s} {times['ours'] * 1e6:9.1f} us"
        if "rival" in times:
            ratios.append(times["rival"] / times["ours"])
            line += f"  rival/ours {ratios[-1]:6.3f}"
        print(line, flush=True)
    return ratios


def print_blocks(case: Case) -> None:
    """Print times with other chunks, values of a tile, and warps."""
    only_ours = replace(case, rival=None)
    for steps, width, num_warps in itertools.product((64, 128), (64, 128), (4, 8)):
        if case.name.startswith("delta") and steps == 128:
            continue
        options = {"WIDTH": width, "num_warps": num_warps}
        with (
            patch.object(chunk_launches, "chunk_steps", lambda _, n=steps: n),
            patch.object(chunk_launches, "tile_options", lambda *_, o=options: o),
            patch.object(gated_delta_rule, "tile_options", lambda *_, o=options: o),
        ):
            try:
                forward, backward = timed(only_ours)
            except Exception as error:
                found = f"{type(error).__name__}: {str(error)[:200]}"
            else:
                found = f"{forward['ours'] * 1e6:.1f} us, {backward['ours'] * 1e6:.1f} us"
        print(f"{case.name:40s} steps {steps} width {width} warps {num_warps}: {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["errors", "times"])
    parser.add_argument("--json", type=Path, help="the file for results")
    options = parser.parse_args()
    parts = options.parts
    is_right, ratios, results = True, [], Results()
    if "errors" in parts:
        for make in short_cases():
            is_right &= print_errors(make())
    for make in long_cases() if "times" in parts else ():
        ratios += print_times(make(), results)
        if options.json:
            results.write(options.json, "cuda")
    for make in list(long_cases())[1:3] if "blocks" in parts else ():
        print_blocks(make())
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.3f}, least {min(ratios):.3f}")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
