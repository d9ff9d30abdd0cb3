"""``triton.tools.compile``: kernels as functions of C, with the grid in them."""

import shutil
import subprocess

import pytest

pytest.importorskip("tilewright_cpu")

from tilewright.compat import triton
from tilewright.compat.triton.tools.compile import CompileArgs, compile_kernel, main

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def scale(x, out, factor, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets * stride, tl.load(x + offsets * stride, mask=inside) * factor, mask=inside)
"""
SIGNATURE = "*fp32, *fp32, fp32, i32, i32:1, 16"
CC = shutil.which("cc")


@pytest.fixture
def args(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    triton.runtime.driver.set_active_to_cpu()
    yield lambda **given: CompileArgs(
        **{
            "path": str(tmp_path / "kernels.py"),
            "kernel_name": "scale",
            "signature": SIGNATURE,
            "grid": "(n + 15) / 16, 1, 1",
            "out_path": tmp_path / "out" / "mine",
            **given,
        }
    )
    triton.runtime.driver.reset_active()


def test_a_c_program_calls_the_function(args, tmp_path):
    name, paths = compile_kernel(args())
    assert [path.suffix for path in paths] == [".h", ".c", ".o"] and all(
        path.name.startswith("mine.") for path in paths
    )
    key = name.removeprefix("scale_")
    assert len(key) == 8 and paths[0].name == f"mine.{key}.h"
    if CC is None:
        pytest.skip("there is no C compiler, cc")
    code = f"""
        #include "{paths[0].name}"
        #include <stdio.h>

        int main(void) {{
            float x[40], out[40] = {{0}};
            for (int i = 0; i < 40; ++i) x[i] = i;
            int failed = {name}(0, x, out, 3.0f, 37) + {name}(0, x, out, 3.0f, 0) + {name}(0, x, out, 3.0f, -40);
            for (int i = 0; i < 40; ++i) printf("%g ", out[i]);
            return failed;
        }}
    """
    (tmp_path / "out" / "main.c").write_text(code)
    subprocess.run(
        [
            CC,
            "-Wall",
            "-Wextra",
            "-Werror",
            "main.c",
            *(path.name for path in paths[1:]),
            "-lm",
            "-o",
            "program",
        ],
        cwd=tmp_path / "out",
        check=True,
    )
    printed = subprocess.run(
        [tmp_path / "out" / "program"], capture_output=True, text=True, check=True
    ).stdout
    assert [float(number) for number in printed.split()] == [*(3.0 * i for i in range(37)), 0, 0, 0]


def test_other_types_grids_and_options_are_other_functions(args):
    given = [
        {},
        {"signature": SIGNATURE.replace("16", "32")},
        {"grid": "n, 1, 1"},
        {"num_warps": 4},
        {"signature": "*fp32:16" + SIGNATURE[5:]},
    ]
    names = [compile_kernel(args(**each))[0] for each in given]
    assert len(set(names)) == len(names) and compile_kernel(args())[0] == names[0]
    assert compile_kernel(args(out_name="other"))[0] == names[0].replace("scale", "other")


def test_functions_for_gpus_load_themselves(args, tmp_path):
    linking = pytest.importorskip("tilewright_nvidia.toolchain.linking")
    if linking.find_ptxas() is None:
        pytest.skip("there is no ptxas")
    name, paths = compile_kernel(args(target="cuda:90:32"))
    assert [path.suffix for path in paths] == [".h", ".c", ".cubin"]
    declared, source = paths[0].read_text(), paths[1].read_text()
    assert (
        f"CUresult {name}(CUstream stream, const float *x, float *out, float factor, int32_t n);"
        in declared
    )
    assert (
        "#include <cuda.h>" in declared
        and f"load_{name}(void);" in declared
        and f"unload_{name}(void);" in declared
    )
    assert (
        "extents_of_the_grid[3] = {(int64_t)((n + 15) / 16), (int64_t)(1), (int64_t)(1)};" in source
    )
    extents = ", ".join(f"(uint32_t)extents_of_the_grid[{axis}]" for axis in range(3))
    assert f"{name}_launch(the_function, stream, {extents}, x, out, factor, n)" in source


def test_the_command_line_prints_the_files(args, tmp_path, capsys):
    given = args()
    main(
        [
            given.path,
            "-n",
            "scale",
            "-s",
            given.signature,
            "-g",
            given.grid,
            "-o",
            str(given.out_path),
            "-w",
            "2",
        ]
    )
    printed = capsys.readouterr().out.split()
    assert len(printed) == 3 and all(
        (tmp_path / "out" / path.rpartition("/")[2]).is_file() for path in printed
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"path": "nowhere.py"}, "'nowhere.py' is no Python file"),
        ({"kernel_name": "none"}, "has no kernel 'none'"),
        ({"signature": "*fp32"}, "has 6 parts"),
        (
            {"signature": SIGNATURE.replace(", 16", ", i32")},
            "'BLOCK' of scale is a constant, and 'i32' is no value",
        ),
        ({"signature": SIGNATURE.replace(":1", ":8")}, "behind the colon stands 16 or 1"),
        ({"grid": "1, 1"}, "three expressions"),
        ({"target": "cuda:90"}, "kind:architecture:threads of a warp"),
        ({"target": "hip:gfx942:64"}, "writes C for targets of kind cuda, cpu, not hip"),
    ],
)
def test_what_is_wrong_is_said(args, wrong, said):
    with pytest.raises(Exception, match=said):
        compile_kernel(args(**wrong))
