"""Kernels for the CPU as shared libraries, as PyTorch's ahead-of-time packages take them."""

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import triton
import triton.language as tl

from tilewright.errors import BackendError

pytest.importorskip("tilewright_cpu")
pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")),
    reason="there is no C compiler",
)


@triton.jit
def blend(x, FIRST: tl.constexpr, out, factor, n, offset, flag, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if flag:
        value = -value
    tl.device_assert(n < 1000, "n is too great")
    tl.store(out + at, value * factor + offset, mask=at < n)


@triton.jit(repr=lambda _: "a_name_of_its_own")
def named(out):
    tl.store(out, 7.0)


@triton.jit
def saying(out):
    tl.device_print("x", tl.program_id(0))
    tl.store(out, 1.0)


@triton.jit
def halves(out, factor: tl.float16):
    tl.store(out, factor)


def compiled(kernel, signature, constants, **options):
    from triton.compiler import ASTSource

    return triton.compile(
        ASTSource(kernel, signature, constants),
        target=triton.backends.compiler.GPUTarget("cpu", "x86-64", 1),
        options=options,
    )


def loaded(kernel, tmp_path):
    path = tmp_path / f"{kernel.name}.so"
    path.write_bytes(kernel.asm["so"])
    assert kernel.asm["launcher.so"] == kernel.asm["so"]
    return ctypes.CDLL(str(path))


def run(library, grid, *values, threads=1):
    given = (ctypes.c_void_p * len(values))()
    for position, value in enumerate(values):
        if value is not None:
            given[position] = (
                value.ctypes.data if isinstance(value, np.ndarray) else ctypes.addressof(value)
            )
    library.run_from_nativert(*grid, threads, given, None)


_SIGNATURE = {
    "x": "*fp32",
    "FIRST": "constexpr",
    "out": "*fp32",
    "factor": "fp64",
    "n": "i32",
    "offset": "i64",
    "flag": "i1",
    "BLOCK": "constexpr",
}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_library_runs_a_grid(tmp_path, threads):
    library = loaded(compiled(blend, _SIGNATURE, {"FIRST": 3, "BLOCK": 16}), tmp_path)
    assert library.blend  # the kernel itself is there under its name
    x = np.arange(50, dtype=np.float32)
    for flag in (False, True):
        out = np.full(50, -1, np.float32)
        run(
            library,
            (3, 1, 1),
            x,
            None,
            out,
            ctypes.c_float(2.5),
            ctypes.c_int64(45),
            ctypes.c_int64(-4),
            ctypes.c_bool(flag),
            None,
            threads=threads,
        )
        expected = np.where(x < 45, x * (-2.5 if flag else 2.5) - 4, -1)
        np.testing.assert_array_equal(out, expected)


def test_a_kernel_is_there_under_the_name_of_its_own(tmp_path):
    kernel = named.warmup(np.zeros(1, np.float32), grid=(1,))
    library, out = loaded(kernel, tmp_path), np.zeros(1, np.float32)
    assert kernel.metadata.name == "a_name_of_its_own" and library.a_name_of_its_own
    run(library, (1, 1, 1), out)
    assert out[0] == 7


def test_assertions_end_the_process(tmp_path):
    kernel = compiled(
        blend, {**_SIGNATURE, "factor": "fp32"}, {"FIRST": 3, "BLOCK": 16}, debug=True
    )
    loaded(kernel, tmp_path)
    code = f"""
        import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
        import ctypes, numpy as np, tilewright.compat.triton
        from test_libraries import run
        x = np.zeros(16, np.float32)
        numbers = ctypes.c_float(1), ctypes.c_int64(1000), ctypes.c_int64(0), ctypes.c_bool(0)
        run(ctypes.CDLL({str(tmp_path / "blend.so")!r}), (1, 1, 1), x, None, x, *numbers, None)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode < 0 and "n is too great" in done.stderr


def test_kernels_that_are_no_libraries(monkeypatch):
    with pytest.raises(BackendError, match="kernel saying_of_tilewright prints"):
        compiled(saying, {"out": "*fp32"}, {}).asm["so"]
    kernel = compiled(halves, {"out": "*fp32", "factor": "fp16"}, {})
    assert "so" not in kernel.asm
    with pytest.raises(BackendError, match="parameter 'factor' of kernel halves is f16"):
        kernel.asm["so"]
    monkeypatch.setenv("CC", "false")
    with pytest.raises(BackendError, match=r"false .* failed"):
        compiled(named, {"out": "*fp32"}, {}).asm["so"]


@pytest.mark.full
@pytest.mark.slow
def test_a_package_of_a_model_that_launches_kernels(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "model.py").write_text(
        textwrap.dedent("""
        import torch, triton, triton.language as tl

        @triton.jit
        def scale_rows(x, out, factor, n, flag, BLOCK: tl.constexpr):
            row, columns = tl.program_id(0), tl.arange(0, BLOCK)
            value = tl.load(x + row * n + columns, mask=columns < n)
            tl.store(out + row * n + columns, (-value if flag else value) * factor, mask=columns < n)

        class Model(torch.nn.Module):
            def forward(self, x):
                out = torch.empty_like(x)
                scale_rows[(x.shape[0],)](x, out, 2.5, x.shape[1], True, BLOCK=64)
                return out + 1
        """)
    )
    package = """
        import tilewright.compat.triton, torch, torch._inductor.config as config
        from model import Model
        config.aot_inductor.compile_wrapper_opt_level, config.aot_inductor.precompile_headers = "O0", False
        shapes = ({0: torch.export.Dim("rows", min=2, max=512)},)
        exported = torch.export.export(Model(), (torch.randn(8, 40),), dynamic_shapes=shapes, strict=True)
        torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")
    """
    use = """
        import sys, torch
        model = torch._inductor.aoti_load_package("model.pt2")
        for rows in (8, 3, 100):
            x = torch.randn(rows, 40)
            torch.testing.assert_close(model(x), x * -2.5 + 1)
        assert "tilewright" not in {name.partition(".")[0] for name in sys.modules}  # Triton may be there, where it is installed: PyTorch imports it
    """
    for code, caches in (
        (package, "first"),
        (use, "second"),
    ):  # nothing of the first process is there for the second but the package
        # other tests' folders, which may have one named triton, are not on its path
        # and which vectors the compiler can make is not tried out by a dozen processes
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / caches),
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        shutil.rmtree(tmp_path / caches, ignore_errors=True)
