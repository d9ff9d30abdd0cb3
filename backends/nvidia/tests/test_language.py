"""``tl.extra.cuda``, and ``tl.target_info`` in kernels."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import ir
from tilewright.language.extra import cuda
from tilewright.language.options import Options
from tilewright.language.semantic import Semantic
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, compile_kernel
from tilewright.runtime.devices import device_registry
from tilewright.tools import cli
from tilewright_nvidia.architectures import ARCHITECTURES, target_of


def test_its_functions_are_operations_of_the_ir() -> None:
    module = ir.Module()
    function = module.add(ir.Function("f", ()))
    semantic = Semantic(
        ir.Builder.at_end(function.body),
        Options(target=target_of(ARCHITECTURES["sm_90a"]), num_warps=8),
    )

    def call(builtin: Any, *args: Any) -> Any:
        return builtin(*args, _semantic=semantic)

    assert (call(cuda.num_warps).value, call(cuda.num_threads).value) == (8, 256)
    assert call(cuda.smid).type is tl.int32
    assert call(cuda.globaltimer).type is tl.int64
    half = tl.float16.unflatten(iter([function.body.add_argument(tl.float16.ir_type, "x")]))
    function.argument_attributes.append({})
    for convert in (
        cuda.convert_custom_float8,
        cuda.convert_custom_float8_sm80,
        cuda.convert_custom_float8_sm70,
    ):
        assert call(convert, half, tl.float8e4b15).dtype is tl.float8e4b15
    assert call(cuda.gdc_wait) is None and call(cuda.gdc_launch_dependents) is None
    semantic.builder.return_([])
    ir.verify(module)
    assert re.findall(r'"(mov\.\S+|griddepcontrol\.\w+)', str(module)) == [
        "mov.u32",
        "mov.u64",
        "griddepcontrol.wait",
        "griddepcontrol.launch_dependents",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "tilewright.language.extra.cuda",
        "tilewright.language.extra.cuda.libdevice",
        "tilewright_nvidia.language",
    ],
)
def test_it_is_imported_without_driver_and_compiler(path: str) -> None:
    program = (
        f"import sys, {path}; assert not [name for name in ('llvmlite', 'cuda.bindings', "
        "'torch') if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@tw.jit
def asks(out):
    target: tl.constexpr = tl.target_info.current_target()
    tl.static_assert(target.backend == "cuda")
    tl.store(
        out,
        target.warp_size * 100
        + tl.target_info.is_cuda() * 10
        + tl.target_info.cuda_capability_geq(9),
    )
    tl.store(out + 1, tl.extra.cuda.smid())


@pytest.mark.parametrize(("arch", "stored"), [("sm_90a", 3211), ("sm_80", 3210)])
def test_an_architecture_without_a_device_answers_for_itself(arch: str, stored: int) -> None:
    backend = registry().get("nvidia")
    kernel = Specialization(asks, {"out": "*i32"}, options=backend.manifest.options)
    artifact = compile_kernel(
        kernel, backend, device_registry.named_target(backend, arch), anew=True
    )
    ptx = str(artifact.code.stages["ptx"])
    assert f".target {arch}" in ptx and "%smid" in ptx
    assert re.search(rf"\b{stored}\b", ptx)


def test_inspect_answers_for_the_architecture_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shown(arch: str) -> str:
        arguments = [
            "inspect",
            f"{__file__}:asks",
            "--signature",
            "*i32",
            "--backend",
            "nvidia",
            "--arch",
            arch,
            "--stage",
            "frontend",
        ]
        assert cli.main(arguments) == 0
        return capsys.readouterr().out

    texts = {arch: shown(arch) for arch in ("sm_90a", "sm_80")}
    assert "constant 3211 " in texts["sm_90a"] and "constant 3210 " in texts["sm_80"]
