"""The files of compiled kernels in Triton's directories, and who launches code by them."""

import json
import os
import re
import shutil
import stat
import warnings
from pathlib import Path

import pytest

pytest.importorskip("tilewright_cpu")

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton.backends.compiler import GPUTarget
from tilewright.compat.triton.compiler import ASTSource
from tilewright.compat.triton.runtime import build as build_module
from tilewright.compat.triton.runtime.cache import FileCacheManager, base32
from tilewright.runtime.storage.disk_cache import disk_cache

SIGNATURE = {
    "x": "*fp32",
    "out": "*fp32",
    "n": "i32",
    "factor": "fp32",
    "flag": "u1",
    "BLOCK": "constexpr",
}


@triton.jit
def scale(x, out, n, factor, flag, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offsets < n) & flag
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)


@triton.jit
def product(x, y, out, n):
    total = tl.zeros([64, 64], tl.float32)
    for k in range(0, n, 64):
        total = tl.dot(x.load([0, k]), y.load([k, 0]), total)
    out.store([0, 0], total.to(tl.float16))


def compiled(**options):
    return triton.compile(ASTSource(scale, SIGNATURE, {"BLOCK": 64}), options=options)


def compiled_for_cuda(source=None):
    pytest.importorskip("tilewright_nvidia")
    return triton.compile(
        source or ASTSource(scale, SIGNATURE, {"BLOCK": 64}), target=GPUTarget("cuda", 90, 32)
    )


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton"


def test_files_of_a_kernel(directory):
    kernel = compiled()
    own = directory / base32(kernel.hash)
    group = kernel.metadata_group
    assert (
        group["scale.ttir"] == str(own / "scale.ttir")
        and Path(group["scale.ttir"]).read_text() == kernel.asm["ttir"]
    )
    assert "def scale(" in Path(group["scale.source"]).read_text()
    facts = json.loads((own / "scale.json").read_text())
    assert (facts["hash"], facts["name"], facts["target"]["backend"]) == (
        kernel.hash,
        "scale",
        "cpu",
    )
    assert json.loads((own / "__grp__scale.json").read_text()) == {"child_paths": group}


def test_a_directory_that_is_carried_elsewhere_carries_the_kernel(directory, tmp_path, monkeypatch):
    first = compiled()
    assert not first.cache_hit
    shutil.copytree(directory / base32(first.hash), tmp_path / "elsewhere" / base32(first.hash))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert compiled().cache_hit and not compiled(num_warps=8).cache_hit


def test_without_a_directory_of_its_own_a_kernel_has_texts():
    assert compiled().metadata_group["scale.tileir"].startswith("tilewright.ir")


def test_files_that_were_removed_are_written_again(directory):
    kernel = compiled()
    Path(kernel.metadata_group["scale.json"]).unlink()
    again = compiled()
    assert again.cache_hit and Path(again.metadata_group["scale.json"]).is_file()


def test_kernels_are_put_by_the_manager_that_is_set(tmp_path, monkeypatch):
    put = []

    class Manager(FileCacheManager):
        def put(self, data, filename, binary=True):
            put.append(filename)
            return super().put(data, filename, binary)

    monkeypatch.setattr(triton.knobs.cache, "manager_class", Manager)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled()
    assert {"scale.source", "scale.ttir", "scale.json", "__grp__scale.json"} <= set(put)


def test_what_outgrows_the_cap_goes_with_its_directory(directory, monkeypatch):
    first = compiled()
    size = sum(file.stat().st_size for file in directory.rglob("tilewright.kernel"))
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", str(int(size * 1.5)))
    second = compiled(num_warps=8)
    assert (
        not (directory / base32(first.hash)).exists()
        and (directory / base32(second.hash) / "scale.json").is_file()
    )
    assert (
        disk_cache().info().entries == 1
        and disk_cache().clear() == 1
        and not list(directory.rglob("scale.*"))
    )


def test_a_directory_that_cannot_be_written_is_warned_of(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.warns(RuntimeWarning, match="cannot be written") as warned:
        assert compiled().asm["ttir"]
    assert any("files of kernel scale" in str(warning.message) for warning in warned)


# ---- code that others launch


def test_device_code_is_there_without_a_device(monkeypatch):
    from tilewright_nvidia.host import ahead_of_time
    from tilewright_nvidia.toolchain import linking

    kernel = compiled_for_cuda()
    assert triton.compiler.make_backend(GPUTarget("cuda", 90, 32)).binary_ext == "cubin"
    monkeypatch.setattr(linking, "find_ptxas", lambda: None)
    monkeypatch.setattr(ahead_of_time, "link_here", lambda *given: None)
    assert "cubin" not in kernel.asm and kernel.asm.get("ttgir") is None
    with pytest.raises(Exception, match="ptxas was not found: pip install"):
        kernel.asm["cubin"]
    monkeypatch.undo()
    if linking.find_ptxas() is None:
        pytest.skip("there is no ptxas")
    assert kernel.asm["cubin"].startswith(b"\x7fELF") and "cubin" in kernel.asm


def words_of(kernel):
    """(name, bits) of each parameter in the PTX of a kernel."""
    return [
        (name, int(bits))
        for bits, name in re.findall(
            r"\.param \.[a-z](\d+) (?:\.ptr \.align \d+ )?(\w+)", kernel.asm["ptx"]
        )
    ]


def test_pytorchs_static_launcher_takes_kernels(directory):
    pytest.importorskip("torch")
    from torch._inductor.runtime.static_triton_launcher import StaticallyLaunchedCudaKernel

    from tilewright_nvidia.toolchain.linking import find_ptxas

    if find_ptxas() is None:
        pytest.skip("there is no ptxas")
    kernel = compiled_for_cuda()
    path = directory / base32(kernel.hash) / "scale.cubin"
    assert path.read_bytes() == kernel.asm["cubin"] and b"scale" in path.read_bytes()
    kernel._cubin_path = str(path)
    launcher = StaticallyLaunchedCudaKernel(kernel)
    assert (launcher.name, launcher.arg_tys, launcher.num_warps, launcher.shared) == (
        "scale",
        "OOifI",
        4,
        0,
    )
    sizes = {"O": 64, "i": 32, "f": 32, "I": 32}
    parameters = words_of(kernel)
    assert [name for name, _ in parameters] == [f"scale_param_{number}" for number in range(5)]
    assert all(
        bits <= sizes[type_] for (_, bits), type_ in zip(parameters, launcher.arg_tys, strict=True)
    )
    schema = kernel.launch_metadata_schema
    assert schema == {
        "entry_name": "scale",
        "num_warps": 4,
        "shared_mem": 0,
        "tensordesc_meta": None,
    }
    assert kernel.metadata.global_scratch_size == kernel.metadata.profile_scratch_size == 0


def test_code_that_takes_more_than_its_arguments_is_left_to_its_launcher(directory):
    aligned = {(position,): [["tt.divisibility", 16]] for position in range(4)}
    signature = {**dict.fromkeys(("x", "y", "out"), "tensordesc<fp16[64, 64]>"), "n": "i32"}
    kernel = compiled_for_cuda(ASTSource(product, signature, {}, aligned))
    assert kernel.artifact.code.metadata["tensor_maps"]
    assert "product.ptx" in kernel.metadata_group and "product.cubin" not in kernel.metadata_group
    half = triton.compile(
        ASTSource(scale, {**SIGNATURE, "factor": "fp16"}, {"BLOCK": 64}),
        target=GPUTarget("cuda", 90, 32),
    )
    assert "scale.cubin" not in half.metadata_group


@pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX systems")
@pytest.mark.parametrize("attacked", ["file", "folder"])
def test_files_of_other_users_are_neither_found_nor_run(tmp_path, monkeypatch, attacked):
    """A kept extension module is machine code that the process loads."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kept"))
    made = []

    def build(name, source, folder, *_):
        made.append(Path(folder, f"{name}.so"))
        made[-1].write_bytes(b"ours")
        return str(made[-1])

    loaded = []
    monkeypatch.setattr(triton.knobs.build, "impl", build)
    monkeypatch.setattr(
        build_module,
        "_load_module_from_path",
        lambda name, path: loaded.append(Path(path).read_bytes()),
    )
    build_module.compile_module_from_src("int x;", "module")
    (kept,) = (path for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert {stat.S_IMODE(path.stat().st_mode) for path in (kept.parent, kept.parent.parent)} == {
        0o700
    } and stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.write_bytes(b"theirs")
    try:
        os.chown(kept if attacked == "file" else kept.parent, 12345, -1)
    except PermissionError:
        pytest.skip("only the administrator gives files away")
    with (
        warnings.catch_warnings(),
        pytest.warns(
            RuntimeWarning,
            match=r"a file of a kernel is not used: .* belongs to another user \(uid 12345\)",
        ),
    ):
        warnings.filterwarnings("ignore", ".* cannot be kept", UserWarning)
        build_module.compile_module_from_src("int x;", "module")
    assert loaded == [b"ours", b"ours"] and len(made) == 2
    assert kept.read_bytes() == (b"ours" if attacked == "file" else b"theirs")
