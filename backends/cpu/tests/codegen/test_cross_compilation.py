"""Code for other processors: run under emulation, natively at a lower level, or only compiled."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qemu_runner import TOOLCHAINS, Launch, run_on

from tilewright.ir import Module
from tilewright.llvm.codegen.compile import assembly
from tilewright.plugins.manifest import Target
from tilewright.reference import interpreter
from tilewright_conformance.op_samples import Sample, all_samples, check_outputs
from tilewright_cpu.codegen.kernel import write_module
from tilewright_cpu.hardware import LEVELS, NAMED, named_target
from tilewright_cpu.lower import lower
from tilewright_cpu.target import llvm_target, processor

sys.path.insert(0, str(Path(__file__).parents[4] / "examples"))
from kernels.attention import attention_kernel
from kernels.layer_norm import layer_norm_kernel
from kernels.matmul import matmul_kernel
from kernels.softmax import softmax_kernel
from kernels.vector_add import add_kernel

#: Every n-th sample is run: the operations, types and shapes follow each other in steps that have
#: no factor in common with it.
_STRIDE = 29
_EMULATED = ("aarch64", "neoverse-v1", "riscv64", "riscv64-v")
#: Instructions of which an emulator ends the program by an assertion of its own (QEMU 7.2); other
#: processors' runs have the samples that need them.
_NOT_EMULATED = {"riscv64-v": r"vfn?cvt\.rtz"}


def chosen_samples() -> list[Sample]:
    """Samples of all operations, but for those that print: there is no interpreter where they
    run."""
    runnable = [
        sample
        for sample in all_samples()
        if sample.runnable and not any(op.name == "print" for op in sample.module.kernel.body)
    ]
    return runnable[::_STRIDE]


def copied(arguments: Sequence[Any]) -> list[Any]:
    """Arguments with arrays of their own."""
    found = []
    for value in arguments:
        array = value if isinstance(value, np.ndarray) else getattr(value, "base", None)
        if not isinstance(array, np.ndarray):
            found.append(value)
        else:
            found.append(
                array.copy()
                if isinstance(value, np.ndarray)
                else interpreter.DescriptorValue(
                    array.copy(), value.shape, value.strides, value.padding
                )
            )
    return found


def expected_of(sample: Sample) -> tuple[list[Any], list[Any]]:
    """A sample's arguments, and what the reference makes of them."""
    given = list(sample.make_arguments(np.random.default_rng(3)))
    expected = copied(given)
    interpreter.run(sample.module, expected, sample.grid)
    return given, expected


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Sample, list[Any], list[Any]]]:
    """Samples, their arguments, and what the reference makes of these."""
    return [(sample, *expected_of(sample)) for sample in chosen_samples()]


def check_samples(
    name: str, directory: Path, pairs: list[tuple[Sample, list[Any], list[Any]]]
) -> int:
    """Run samples for a processor and compare each with the reference; how many."""
    target, refused = named_target(name), _NOT_EMULATED.get(name)
    launches = [Launch(sample.module, given, sample.grid) for sample, given, _ in pairs]
    chosen = [
        number
        for number, launch in enumerate(launches)
        if not (refused and re.search(refused, assembly_of(launch.module, target)))
    ]
    results = run_on(target, [launches[number] for number in chosen], directory)
    for number, result in zip(chosen, results, strict=True):
        sample, _, expected = pairs[number]
        check_outputs(sample, expected, result)
    return len(chosen)


def assembly_of(module: Module, target: Target) -> str:
    triple, cpu, features = llvm_target(target)
    return assembly(
        write_module(module, target, {}).text, triple=triple, cpu=cpu, features=features
    )


def skip_without(name: str) -> None:
    missing = TOOLCHAINS[NAMED[name].arch].missing()
    if missing:
        pytest.skip(f"to run code for {name} this needs {missing}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", _EMULATED)
def test_samples_agree_with_the_reference_on_an_emulated_processor(
    name: str, tmp_path: Path, pairs: list[tuple[Sample, list[Any], list[Any]]]
) -> None:
    skip_without(name)
    assert check_samples(name, tmp_path, pairs) > 60


@pytest.fixture(scope="module")
def demo_launches(module_of: Callable[..., Module]) -> list[tuple[Launch, list[Any]]]:
    """The demo's kernels with arguments, and what the reference makes of these. No extent is a
    multiple of a block."""
    rng = np.random.default_rng(5)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    def cases() -> Any:
        x = normal(300)
        yield add_kernel, [x, normal(300), np.zeros_like(x), 300], (3, 1, 1), {"BLOCK": 128}
        rows = normal(5, 100)
        yield softmax_kernel, [rows, np.zeros_like(rows), 100, 100, 100], (5, 1, 1), {"BLOCK": 128}
        statistics = [np.zeros(5, np.float32), np.zeros(5, np.float32)]
        yield (
            layer_norm_kernel,
            [rows, np.zeros_like(rows), normal(100), normal(100), *statistics, 100, 100, 1e-5],
            (5, 1, 1),
            {"BLOCK": 64},
        )
        for element in (np.float32, np.float16):
            a, b = (normal(*shape).astype(element) for shape in ((45, 37), (37, 50)))
            strides = [37, 1, 50, 1, 50, 1]
            blocks = {
                "BLOCK_M": 32,
                "BLOCK_N": 32,
                "BLOCK_K": 16,
                "GROUP_M": 2,
                "ACTIVATION": "leaky_relu",
            }
            yield (
                matmul_kernel,
                [a, b, np.zeros((45, 50), np.float32), 45, 50, 37, *strides],
                (4, 1, 1),
                blocks,
            )
        q, k, v = (normal(2, 40, 16) for _ in range(3))
        meta = {"CAUSAL": True, "BLOCK_M": 16, "BLOCK_N": 16, "HEAD": 16}
        yield (
            attention_kernel,
            [q, k, v, np.zeros_like(q), np.zeros((2, 40), np.float32), 0.25, 40],
            (3, 2, 1),
            meta,
        )

    found = []
    for kernel, arguments, grid, constants in cases():
        module = module_of(kernel, arguments, **constants)
        expected = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        interpreter.run(module, expected, grid)
        found.append((Launch(module, arguments, grid), expected))
    return found


def close(expected: list[Any], found: list[Any]) -> None:
    for right, ours in zip(expected, found, strict=True):
        if isinstance(right, np.ndarray):
            np.testing.assert_allclose(ours, right, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", _EMULATED)
def test_the_demo_kernels_run_on_an_emulated_processor(
    name: str, tmp_path: Path, demo_launches: list[tuple[Launch, list[Any]]]
) -> None:
    skip_without(name)
    for (_, expected), found in zip(
        demo_launches,
        run_on(named_target(name), [launch for launch, _ in demo_launches], tmp_path),
        strict=True,
    ):
        close(expected, found)


def runs_here(name: str) -> bool:
    here = processor()
    return NAMED[name].arch == here.arch and set(NAMED[name].features) <= here.features


@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", LEVELS)
def test_the_levels_of_x86_64_run_natively_with_features_masked(
    level: str,
    compiled: Any,
    pairs: list[tuple[Sample, list[Any], list[Any]]],
    demo_launches: list[tuple[Launch, list[Any]]],
) -> None:
    if not runs_here(level):
        pytest.skip(f"this machine does not run {level}")
    for sample, given, expected in pairs:
        arguments = copied(given)
        compiled(sample.module, target=named_target(level))(arguments, sample.grid)
        check_outputs(sample, expected, arguments)
    for launch, expected in demo_launches:
        arguments = [
            value.copy() if isinstance(value, np.ndarray) else value for value in launch.arguments
        ]
        compiled(launch.module, target=named_target(level))(arguments, launch.grid)
        close(expected, arguments)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", [name for name in NAMED if not runs_here(name)])
def test_objects_for_every_named_processor_are_made(
    name: str, demo_launches: list[tuple[Launch, list[Any]]]
) -> None:
    machine_type = {"x86-64": 62, "aarch64": 183, "riscv64": 243}[NAMED[name].arch]
    for launch, _ in demo_launches[:4]:
        binary = lower(launch.module, named_target(name), {}).binary
        assert binary[:4] == b"\x7fELF" and int.from_bytes(binary[18:20], "little") == machine_type


def test_the_harness_sees_what_is_wrong(
    tmp_path: Path, demo_launches: list[tuple[Launch, list[Any]]]
) -> None:
    skip_without("aarch64")
    (launch, expected) = demo_launches[0]
    x, y, out, n = launch.arguments
    (found,) = run_on(
        named_target("aarch64"), [Launch(launch.module, [x, y, out, n - 1], launch.grid)], tmp_path
    )
    with pytest.raises(AssertionError):
        close(expected, found)
    with pytest.raises(AssertionError, match="wrote beside an array"):
        run_on(
            named_target("aarch64"),
            [Launch(launch.module, [x, y, out[:290], n], launch.grid)],
            tmp_path,
        )
