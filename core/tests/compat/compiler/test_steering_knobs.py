"""Settings that steer what is compiled and kept: another architecture, code without texts, places
in Tile IR."""

import re
from pathlib import Path

import pytest

pytest.importorskip("tilewright_cpu")

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton import knobs
from tilewright.compat.triton.backends.compiler import GPUTarget
from tilewright.compat.triton.backends.options import require_clusters
from tilewright.compat.triton.compiler import ASTSource
from tilewright.compat.triton.compiler.places import relocate
from tilewright.compat.triton.outside import OutsideError
from tilewright.compat.triton.runtime.cache import base32
from tilewright.errors import BackendError
from tilewright.ir.parser import parse_module


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_assert(i >= 0, "below zero")
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


SIGNATURE = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}


def compiled(target=None, **options):
    return triton.compile(
        ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}), target=target, options=options
    )


@pytest.mark.parametrize(
    ("said", "arch"), [("sm_80", "sm_80"), ("sm80", "sm_80"), ("sm_90", "sm_90a")]
)
def test_another_architecture_is_compiled_for(said, arch, monkeypatch):
    pytest.importorskip("tilewright_nvidia")
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", said)
    kernel = compiled(GPUTarget("cuda", 100, 32))
    assert f".target {arch}" in kernel.asm["ptx"] and f"sm_{kernel.metadata.target.arch}" in arch
    monkeypatch.delenv("TRITON_OVERRIDE_ARCH")
    assert ".target sm_100" in compiled(GPUTarget("cuda", 100, 32)).asm["ptx"]


def test_an_architecture_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "z80")
    with pytest.raises(BackendError, match="has no target 'z80'; it has x86-64, x86-64-v2"):
        compiled()


def test_launches_are_of_the_architecture_too():
    torch = pytest.importorskip("torch")
    here = triton.runtime.driver.active.get_current_target().arch
    x, out = torch.ones(64), torch.zeros(64)
    knobs.runtime.override_arch = here
    kernel = add[(1,)](x, x, out, 64, BLOCK=64)
    assert kernel.metadata.target.arch == here and out.sum() == 128
    knobs.runtime.override_arch = "aarch64" if here == "x86-64" else "x86-64"
    with pytest.raises(
        BackendError,
        match=(
            rf"kernel add is compiled for {knobs.runtime.override_arch}, and this machine is "
            rf"{here}"
        ),
    ):
        add[(1,)](x, x, out, 64, BLOCK=32)


def test_the_code_alone_is_kept(tmp_path):
    knobs.compilation.store_binary_only = True
    kernel = compiled()
    again = compiled()
    assert again.cache_hit and not kernel.cache_hit
    for found in (kernel, again):
        assert found.asm and all(
            isinstance(stage, bytes) for name, stage in found.asm.items() if name != "source"
        )
        with pytest.raises(KeyError):
            found.asm["ttir"]
    small = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    knobs.compilation.store_binary_only = False
    knobs.compilation.always_compile = True
    assert "ttir" in compiled().asm
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) > small


def test_places_are_those_in_tile_ir(tmp_path):
    knobs.cache.dir = str(tmp_path / "triton")
    plain = compiled(debug=True)
    knobs.compilation.use_ir_loc = "ttir"
    kernel = compiled(debug=True)
    of_kernels = {base32(found.hash) for found in (plain, kernel)}
    (written,) = (
        path
        for path in Path(tmp_path, "triton").rglob("*.ttir")
        if path.parent.name not in of_kernels
    )
    lines = written.read_text().splitlines()
    places = set(re.findall(rf'"?{re.escape(str(written))}"?:(\d+)', kernel.asm["ttir"]))
    assert places and __file__ not in kernel.asm["ttir"] and __file__ in plain.asm["ttir"]
    assert any("store" in lines[int(number) - 1] for number in places)
    assert compiled(debug=True).cache_hit
    knobs.compilation.use_ir_loc = "ttgir"
    with pytest.raises(OutsideError, match="it can be 'ttir'"):
        compiled()


def test_code_says_lines_unless_they_are_switched_off(monkeypatch):
    pytest.importorskip("tilewright_nvidia")
    target = GPUTarget("cuda", 90, 32)
    assert f'"{__file__}"' in compiled(target).asm["ptx"]
    assert ".loc" not in compiled(target, line_info=False).asm["ptx"]
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    assert ".loc" not in compiled(target).asm["ptx"]
    assert ".loc" in compiled(target, line_info=True).asm["ptx"]
    monkeypatch.delenv("TRITON_DISABLE_LINE_INFO")
    knobs.compilation.disable_line_info = True
    kernel = compiled(target)
    assert ".file" not in kernel.asm["ptx"] and kernel.metadata.line_info is False


def test_every_operation_says_its_own_line():
    text = """tilewright.ir 1.0

kernel @k(%a: ptr<i32>, %n: i32) {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %s = for %zero, %n, %one, inits=[%zero] : i32 body(%i: i32, %t: i32) {
    %u = add %t, %i : i32
    yield %u
  }
  store %a, %s
  return
}
"""
    module = parse_module(text)
    relocate(module, "there.ttir")
    lines = text.splitlines()
    found = {operation.name: operation.location for operation in module.walk()}
    assert {place.file for place in found.values()} == {"there.ttir"}
    for name, place in found.items():
        assert name in lines[place.line - 1], (name, place.line)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (("cuda", 80, 32), r"requires NVIDIA SM90\+ \(Hopper\).*sm_80"),
        (("hip", "gfx942", 64), "not supported on gfx942"),
    ],
)
def test_clusters_of_blocks_where_there_are_none(target, message):
    pytest.importorskip({"cuda": "tilewright_nvidia", "hip": "tilewright_amd"}[target[0]])
    with pytest.raises(ValueError, match=f"num_ctas > 1 {message}"):
        compiled(GPUTarget(*target), num_ctas=2)


def test_clusters_of_blocks_where_there_are():
    pytest.importorskip("tilewright_nvidia")
    assert compiled(GPUTarget("cuda", 90, 32), num_ctas=2).metadata.num_ctas == 2


@pytest.mark.parametrize("arch", ["sm80", "sm_75", 86])
def test_an_architecture_named_with_clusters(arch):
    with pytest.raises(ValueError, match="num_ctas > 1 requires NVIDIA SM90"):
        require_clusters("cuda", arch, 2)
    require_clusters("cuda", arch, 1)
