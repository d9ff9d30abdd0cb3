"""The kernels of the benchmarks, examples and cases, compiled for up to three generations and taken
by ptxas; those of the benchmarks without a spill."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kernel_case import Case
from known_kernels import (
    BENCHMARKED,
    DESCRIBED,
    GREAT,
    OTHERS,
    PORTABLE,
    ROOT,
    built,
    described,
    forget,
    kernel_of,
    modules,
)
from triton_kernels import TRITON, TRITON_EXAMPLES

from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import lower_module
from tilewright.runtime.launch.jit import JITFunction
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.toolchain.linking import Linked, assemble

ARCHS = ("sm_80", "sm_90a", "sm_100a")

#: Those that do not fit in the registers of a thread in the blocks above.
SPILLING = frozenset(
    {
        "softmax_kernel",
        "forward_kernel",
        "keys_backward_kernel",
        "grouped_kernel",
        "host_descriptor_kernel",
        "device_descriptor_kernel",
        "block_scaled_kernel",
    }
)


#: ptxas's warning C75XX: the registers of an asynchronous matmul are accessed before the wait, so
#: it is serialized.
WARNING = re.compile(r"\bwarning\b|C75\d\d", re.I)


@pytest.fixture(scope="module", autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    forget()


def assembled(case: Case, arch: str) -> Linked:
    backend, target = registry().get("nvidia"), target_of(ARCHITECTURES[arch])
    module, options = built(case, target)
    artifact = lower_module(module, options, backend, target)
    return assemble(artifact.code.stages["ptx"], arch)


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("case", BENCHMARKED, ids=str)
def test_kernels_of_the_benchmarks_assemble_without_spills_or_warnings(
    case: Case, arch: str
) -> None:
    linked = assembled(case, arch)
    assert linked.spills == 0, linked.log
    assert not WARNING.search(linked.log), linked.log
    assert "0 bytes stack frame" in linked.log, linked.log


def configurations() -> list[tuple[Any, ...]]:
    """Kernels of the benchmark of matmuls through descriptors."""
    spec = importlib.util.spec_from_file_location("described_kernels", ROOT / DESCRIBED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [*module.GREAT, *(one for one in module.OTHERS if one.cluster > 1)]


@pytest.mark.each_value
@pytest.mark.parametrize("element", ["fp16", "bf16"])
@pytest.mark.parametrize("configuration", configurations(), ids=str)
def test_products_by_descriptors_assemble_without_spills_or_warnings(
    configuration: tuple[Any, ...], element: str
) -> None:
    linked = assembled(described(configuration, element), "sm_90a")
    assert linked.spills == 0 and not WARNING.search(linked.log), linked.log


@pytest.mark.parametrize("case", GREAT, ids=str)
def test_great_kernels_of_the_benchmarks_assemble_without_spills_or_warnings(case: Case) -> None:
    linked = assembled(case, "sm_90a")
    assert linked.spills == 0 or case.kernel in SPILLING, linked.log
    assert not WARNING.search(linked.log), linked.log


@pytest.mark.parametrize(
    ("case", "arch"),
    [
        pytest.param(case, arch, marks=() if number % 3 == turn else pytest.mark.full)
        for number, case in enumerate(OTHERS)
        for turn, arch in enumerate(ARCHS)
    ],
    ids=str,
)
def test_kernels_of_examples_and_tests_assemble(case: Case, arch: str) -> None:
    assert assembled(case, arch).binary.startswith(b"\x7fELF")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("arch", ("sm_80", "sm_90a"))
@pytest.mark.parametrize("case", TRITON_EXAMPLES, ids=str)
def test_kernels_written_for_triton_assemble(
    case: Case, arch: str, record_property: Callable[[str, object], None]
) -> None:
    linked = assembled(case, arch)
    record_property("spilled bytes", linked.spills)
    assert linked.binary.startswith(b"\x7fELF")
    assert linked.spills == 0 or case.kernel in SPILLING, linked.log
    assert not WARNING.search(linked.log), linked.log


def test_every_kernel_written_for_triton_is_here() -> None:
    found = set()
    for file in {case.file for case in TRITON_EXAMPLES}:
        kernel_of(next(case for case in TRITON_EXAMPLES if case.file == file))
        kernels = {
            name: getattr(value, "base_kernel", value)
            for name, value in vars(modules[file]).items()
        }
        found |= {
            (file, name)
            for name, value in kernels.items()
            if isinstance(value, JITFunction) and name.endswith("_kernel")
        }
    assert {case.file for case in TRITON_EXAMPLES} == {
        f"{TRITON}{path.name}" for path in (ROOT / TRITON).glob("*.py") if path.stem != "comparison"
    }
    assert found == {(case.file, case.kernel) for case in TRITON_EXAMPLES}


def test_every_kernel_of_the_benchmarks_is_here() -> None:
    kernel_of(BENCHMARKED[0])
    found = {
        name for name, value in vars(modules[PORTABLE]).items() if isinstance(value, JITFunction)
    }
    assert found - {"attention_span", "attention_blocks_span"} == {
        case.kernel for case in (*BENCHMARKED, *GREAT)
    }  # these are called by others
