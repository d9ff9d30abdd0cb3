"""``triton.tools.link``: one function of C over the specializations of a kernel."""

import os
import shutil
import subprocess

import pytest

pytest.importorskip("tilewright_cpu")

from tilewright.compat import triton
from tilewright.compat.triton.tools.compile import CompileArgs, compile_kernel
from tilewright.compat.triton.tools.link import LinkerError, link, main
from tilewright.compat.triton.tools.specialization import specializations

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def mark(out, n, stride, CODE: tl.constexpr):
    tl.store(out + tl.arange(0, 1), n * stride + CODE)


@triton.jit
def other(out):
    tl.store(out, 7)
"""
#: the hints of (out, n, stride)
HINTS = [("", "", ""), ("", ":16", ""), (":16", ":16", ":1"), ("", "", ":1")]
CC = shutil.which("cc")


@pytest.fixture
def compiled(tmp_path):
    """Compiles ``mark`` with hints and a code; gives the header's path."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    triton.runtime.driver.set_active_to_cpu()

    def compile_mark(hints=HINTS[0], code=0, kernel="mark", types=("*i32", "i32", "i32"), **given):
        parts = [type_ + hint for type_, hint in zip(types, hints, strict=True)]
        signature = ", ".join((*parts, str(code))) if kernel == "mark" else "*i32"
        path, out = str(tmp_path / "kernels.py"), tmp_path / "out" / kernel
        name, paths = compile_kernel(
            CompileArgs(
                **{
                    "path": path,
                    "kernel_name": kernel,
                    "signature": signature,
                    "grid": "1, 1, 1",
                    "out_path": out,
                    **given,
                }
            )
        )
        return name, paths[0]

    yield compile_mark
    triton.runtime.driver.reset_active()


def test_headers_tell_the_linker_what_they_are(compiled):
    name, path = compiled(HINTS[2], 500)
    (found,) = specializations(path.read_text())
    assert (found.function, found.kernel, found.kind, found.configuration) == (
        name,
        "mark",
        "cpu",
        "CODE=500, num_warps=1, num_stages=3",
    )
    told = [
        (parameter.declaration, parameter.name, parameter.hint) for parameter in found.parameters
    ]
    assert told == [
        ("int32_t *out", "out", 16),
        ("int32_t n", "n", 16),
        ("int32_t stride", "stride", 1),
    ]


def test_comments_end_where_they_should(compiled):
    _, path = compiled()
    (found,) = specializations(path.read_text())
    strange = type(found)(
        **{**vars(found), "configuration": 'NAME="*/"', "parameters": found.parameters}
    )
    assert strange.line().count("*/") == 1 and list(specializations(strange.line())) == [strange]


def test_a_c_program_calls_what_the_arguments_fit(compiled, tmp_path):
    out = tmp_path / "out"
    headers = [compiled(hints, code)[1] for code in (1000, 2000) for hints in HINTS] + [
        compiled(("",), kernel="other", types=("*i32",))[1]
    ]
    paths = link(headers, out / "all", prefix="my_")
    assert [path.name for path in paths] == ["all.h", "all.c"]
    if CC is None:
        pytest.skip("there is no C compiler, cc")
    code = """
        #include "all.h"
        #include <stdio.h>

        int main(void) {
            int32_t aligned[32] __attribute__((aligned(64))) = {0};
            int32_t *odd = aligned + 1;
            int failed = 0;
        #define SHOW(x, call) do { *(x) = 0; int status = call; printf("%d:%d ", status, (int)*(x)); failed |= status; } while (0)
            SHOW(aligned, my_mark_default(0, aligned, 32, 1));
            SHOW(odd, my_mark(0, odd, 32, 2, 0));
            SHOW(odd, my_mark(0, odd, 5, 1, 1));
            SHOW(aligned, my_mark(0, aligned, 7, 3, 1));
            SHOW(aligned, my_mark(0, aligned, 7, 3, 2));
            SHOW(odd, my_other_default(0, odd));
            printf("%d %d\\n", my_mark_get_num_algos(), my_other_get_num_algos());
            return failed ? 3 : 0;
        }
    """
    (out / "main.c").write_text(code)
    files = [path.name for path in out.iterdir() if path.suffix in (".c", ".o")]
    subprocess.run(
        [CC, "-Wall", "-Wextra", "-Werror", *files, "-lm", "-o", "program"], cwd=out, check=True
    )
    run = subprocess.run([out / "program"], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("0:1032 0:1064 0:2005 0:2021 -3:0 0:7 2 1\n", 3)


def test_the_most_specialized_function_is_tried_first(compiled, tmp_path):
    names = {hints: compiled(hints)[0] for hints in HINTS}
    source = link(sorted((tmp_path / "out").glob("*.h")), tmp_path / "linked")[1].read_text()
    tried = [line.strip() for line in source.splitlines() if line.strip().startswith("if (")]
    expected = {
        HINTS[2]: "(uintptr_t)out % 16 == 0 && n % 16 == 0 && stride == 1",
        HINTS[1]: "n % 16 == 0",
        HINTS[3]: "stride == 1",
        HINTS[0]: "1",
    }
    calls = {
        hints: (
            f"if ({expected[hints]}) return {names[hints]}(stream, (int32_t *)(uintptr_t)out, "
            f"n{', stride' * (not hints[2])});"
        )
        for hints in HINTS
    }
    assert sorted(tried) == sorted(calls.values())
    assert (tried[0], tried[-1]) == (calls[HINTS[2]], calls[HINTS[0]])


def test_no_argument_fits_where_all_are_specialized(compiled, tmp_path):
    compiled(HINTS[3])
    source = link(list((tmp_path / "out").glob("*.h")), tmp_path / "linked")[1].read_text()
    assert "if (stride == 1) return" in source and "    return -3;" in source


def test_functions_for_gpus_take_device_addresses(compiled, tmp_path):
    linking = pytest.importorskip("tilewright_nvidia.toolchain.linking")
    if linking.find_ptxas() is None:
        pytest.skip("there is no ptxas")
    for hints in HINTS[:2]:
        compiled(hints, target="cuda:90:32")
    out = tmp_path / "out"
    header, source = link(sorted(out.glob("*.h")), out / "linked")
    declared = header.read_text()
    assert (
        "CUresult mark(CUstream stream, CUdeviceptr out, int32_t n, int32_t stride, int algo_id);"
        in declared
    )
    assert (
        "CUresult mark_default(CUstream stream, CUdeviceptr out, int32_t n, int32_t stride);"
        in declared
    )
    assert "CUresult load_mark(void);" in declared and "CUresult unload_mark(void);" in declared
    assert "return CUDA_ERROR_INVALID_VALUE;" in source.read_text()
    from tilewright.compat.triton.backends.nvidia.driver import include_dirs

    if CC is None or not include_dirs:
        pytest.skip("there is no C compiler, cc, or no cuda.h")
    files = [path.name for path in out.glob("*.c")]
    subprocess.run(
        [CC, "-Wall", "-Wextra", "-Werror", "-I", include_dirs[0], "-fsyntax-only", *files],
        cwd=out,
        check=True,
    )


def test_what_cannot_be_linked_is_said(compiled, tmp_path):
    plain = tmp_path / "plain.h"
    plain.write_text("int f(void);\n")
    with pytest.raises(
        LinkerError, match=r"plain\.h is no header that triton\.tools\.compile wrote"
    ):
        link([plain], tmp_path / "linked")
    first = compiled()[1]
    with pytest.raises(LinkerError, match="are for the same arguments"):
        link([first, compiled(grid="2, 1, 1")[1]], tmp_path / "linked")
    with pytest.raises(LinkerError, match="have other parameters"):
        link([first, compiled(types=("*i32", "i64", "i32"))[1]], tmp_path / "linked")
    with pytest.raises(SystemExit):
        main([str(plain), "-o", os.fspath(tmp_path / "linked")])


def test_the_command_line_prints_the_files(compiled, tmp_path, capsys):
    main([str(compiled()[1]), "-o", str(tmp_path / "linked")])
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "linked.h"),
        str(tmp_path / "linked.c"),
    ]
