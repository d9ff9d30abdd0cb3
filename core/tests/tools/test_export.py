"""``tilewright compile``: C programs that launch kernels."""

import os
import re
import shutil
import stat
import subprocess
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("tilewright_cpu")

from tilewright.plugins.manifest import Parameter
from tilewright.runtime.arguments.c_interface import c_parameters, comment, text_of_c
from tilewright.tools.cli import main

KERNELS = """
import tilewright as tw
import tilewright.language as tl


@tw.jit
def blend(x, y, out, n, wide, factor, double, flag, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    sums = tl.load(x + offsets, mask=inside) * factor + tl.load(y + offsets, mask=inside)
    if flag:
        sums += double.to(tl.float32)
    tl.store(out + offsets, sums + wide.to(tl.float32) + tl.num_programs(2), mask=inside)


@tw.jit
def checked(x, out):
    tl.device_assert(tl.load(x) > 0, 'not "positive"')
    tl.device_assert(tl.load(x) < 9, "too large")
    tl.store(out, tl.load(x))


@tw.jit
def copied(source, out):
    out.store([0, 4], source.load([4, 0]))


@tw.jit
def prints(x):
    tl.device_print("x", tl.load(x))


@tw.jit
def summed(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


@tw.jit
def shift(count, kept, out):
    programs = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    p = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    tl.store(kept + p, 3 * p)
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="acq_rel")
    while tl.atomic_add(count, 0, sem="acquire") < programs:
        pass
    tl.store(out + p, tl.load(kept + (p + 1) % programs, volatile=True))


@tw.jit
def run(a, b, c, K, BLOCK: tl.constexpr):
    rows, columns, inner = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, 32)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    for k in range(0, K, 32):
        x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        total += tl.dot(x, tl.load(b + (k + inner)[:, None] * BLOCK + columns[None, :]))
    tl.store(c + rows[:, None] * BLOCK + columns[None, :], total)
"""
CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler, cc")


@pytest.fixture
def compiled(tmp_path, capsys):
    """``compiled(kernel, *arguments)``: the folder that the files are in."""
    (tmp_path / "kernels.py").write_text(KERNELS)

    def compile_(kernel, *arguments, expected=0):
        assert (
            main(
                [
                    "compile",
                    f"{tmp_path}/kernels.py:{kernel}",
                    "--output",
                    str(tmp_path / "out"),
                    *arguments,
                ]
            )
            == expected
        ), capsys.readouterr()
        return tmp_path / "out"

    return compile_


def run(folder, code, *options, files=()):
    """Return the output of a C program that uses the files of a folder."""
    (folder / "main.c").write_text(textwrap.dedent(code))
    subprocess.run(
        [
            CC,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-std=c11",
            "main.c",
            *files,
            "-o",
            "program",
            *options,
        ],
        cwd=folder,
        check=True,
        timeout=120,
    )
    return subprocess.run(
        [folder / "program"], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@needs_cc
@pytest.mark.parametrize("threads", [(), ("-fopenmp",)])
def test_all_programs_of_a_cooperative_launch_run_at_once(compiled, threads):
    folder = compiled("shift", "--signature", "*i32, *i32, *i32", "--option", "cooperative=True")
    code = """
        #include "shift.h"
        #include <pthread.h>
        #include <stdio.h>
        #include <sys/resource.h>

        int main(void) {
            int32_t count = 0, kept[24] = {0}, out[24] = {0};
            printf("%d", shift_launch(2, 4, 3, &count, kept, out));
            for (int i = 0; i < 24; ++i) printf(" %d", out[i]);
            count = 0;
            printf(" %d", shift_launch(0x7ffffff, 0x7ffffff, 1, &count, kept, out));
            printf(" %d %d\\n", shift_launch(0, 4, 3, &count, kept, out), count);
            return 0;
        }
    """
    found = run(
        folder, code, "-lm", "-pthread", *threads, files=("shift_launch.c", "shift.o")
    ).split()
    assert [int(number) for number in found] == [
        0,
        *(3 * ((i + 1) % 24) for i in range(24)),
        -4,
        0,
        0,
    ]


BLEND = (
    "blend",
    "--signature",
    "*fp32, *fp32, *fp32, i32, i64, fp32, fp64, u1",
    "--constants",
    "BLOCK=16",
)
MAIN = """
    #include "blend.h"
    #include <stdio.h>

    int main(void) {
        float x[40], y[40], out[40] = {0};
        for (int i = 0; i < 40; ++i) x[i] = i, y[i] = 100 * i;
        int32_t failed = blend_launch(3, 1, 2, x, y, out, 37, -5000000000LL, 0.5f, 0.25, 1);
        printf("%d %.2f %.2f %.2f\\n", failed, out[0] + 5e9f, out[36] + 5e9f, out[37]);
        blend_launch(3, 1, 1, x, y, out, 37, -1, 0.5f, 0.25, 0);
        for (int i = 0; i < 40; ++i) printf("%.1f ", out[i]);
        return 0;
    }
"""


@needs_cc
@pytest.mark.parametrize("threads", [(), ("-fopenmp",)])
def test_a_c_program_runs_a_kernel(compiled, threads):
    folder = compiled(*BLEND)
    assert {file.name for file in folder.iterdir()} == {
        "blend.h",
        "blend.o",
        "blend_launch.c",
        "libblend.so",
    }
    options = ("-L.", "-lblend", "-Wl,-rpath," + str(folder)) if not threads else ("-lm", *threads)
    lines = run(
        folder, MAIN, *options, files=("blend_launch.c", "blend.o") if threads else ()
    ).splitlines()
    assert lines[0].split()[0] == "0" and lines[0].split()[3] == "0.00"
    assert [float(number) for number in lines[1].split()] == [
        *(100.5 * i for i in range(37)),
        0,
        0,
        0,
    ]


@needs_cc
@pytest.mark.parametrize("threads", [(), ("-fopenmp",)])
def test_an_empty_grid_runs_nothing_and_one_that_is_too_large_is_refused(compiled, threads):
    folder = compiled(*BLEND)
    code = """
        #include "blend.h"
        #include <stdio.h>

        static int32_t launch(uint32_t x, uint32_t y, uint32_t z) { return blend_launch(x, y, z, 0, 0, 0, 0, 0, 0.5f, 0.25, 1); }

        int main(void) {
            printf("%d %d %d ", launch(0, 1, 1), launch(1, 0, 1), launch(1, 1, 0));
            printf("%d %d %d ", launch(0x80000000u, 1, 1), launch(1, 0xffffffffu, 1), launch(0x7fffffffu, 0x7fffffffu, 3));
            printf("%d", launch(3, 5, 7));
            return 0;
        }
    """
    assert (
        run(folder, code, "-lm", *threads, files=("blend_launch.c", "blend.o"))
        == "0 0 0 -3 -3 -3 0"
    )


def test_written_files_are_as_the_umask_says(compiled):
    before = os.umask(0o022)
    try:
        folder = compiled(*BLEND)
    finally:
        os.umask(before)
    modes = {
        file.name: stat.S_IMODE(file.stat().st_mode)
        for file in folder.iterdir()
        if file.suffix != ".so"
    }
    assert modes == dict.fromkeys(("blend.h", "blend.o", "blend_launch.c"), 0o644)


@needs_cc
@pytest.mark.parametrize("threads", [(), ("-fopenmp",)])
def test_a_product_that_keeps_what_it_packs_and_is_called_run(compiled, threads):
    folder = compiled("run", "--signature", "*i8, *i8, *i32, i32", "--constants", "BLOCK=64")
    code = """
        #include "run.h"
        #include <stdio.h>

        static int8_t a[256 * 128], b[128 * 64];
        static int32_t c[256 * 64];

        int main(void) {
            for (int i = 0; i < 256 * 128; ++i) a[i] = (int8_t)(i * 7 % 251);
            for (int i = 0; i < 128 * 64; ++i) b[i] = (int8_t)(i * 5 % 241);
            int32_t failed = run_launch(4, 1, 1, a, b, c, 128), wrong = 0;
            for (int i = 0; i < 256; ++i)
                for (int j = 0; j < 64; ++j) {
                    int32_t sum = 0;
                    for (int k = 0; k < 128; ++k) sum += a[i * 128 + k] * b[k * 64 + j];
                    wrong += sum != c[i * 64 + j];
                }
            printf("%d %d", failed, wrong);
            return 0;
        }
    """
    assert run(folder, code, "-lm", *threads, files=("run_launch.c", "run.o")) == "0 0"


@needs_cc
def test_the_header_is_one_of_cpp(compiled):
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    folder = compiled(*BLEND)
    (folder / "main.cpp").write_text(
        '#include "blend.h"\n#include "blend.h"\nint main() { return 0; }\n'
    )
    subprocess.run(
        ["c++", "-Wall", "-Werror", "-c", "main.cpp"], cwd=folder, check=True, timeout=60
    )


@needs_cc
def test_assertions_have_numbers_and_texts(compiled):
    code = """
        #include "mine.h"
        #include <stdio.h>

        int main(void) {
            for (float x = -1; x < 20; x += 6) {
                float out = 0;
                int32_t failed = mine_launch(1, 1, 1, &x, &out);
                printf("%g %d %s\\n", out, failed, failed ? mine_messages[failed - 1] : "");
            }
            return 0;
        }
    """
    folder = compiled(
        "checked", "--signature", "*fp32, *fp32", "--option", "debug=True", "--name", "mine"
    )
    lines = run(folder, code, "-L.", "-lmine", "-Wl,-rpath," + str(folder)).splitlines()
    assert (
        lines[1] == "5 0 "
        and 'not "positive"' in lines[0]
        and "too large" in lines[2]
        and len(lines) == 4
    )


@needs_cc
def test_descriptors_are_addresses_extents_and_strides(compiled):
    code = """
        #include "copied.h"
        #include <stdio.h>

        int main(void) {
            float x[8][8], out[4][8] = {{0}};
            for (int i = 0; i < 64; ++i) x[i / 8][i % 8] = i;
            copied_launch(1, 1, 1, *x, 8, 8, 8, 1, *out, 4, 8, 8, 1);
            for (int i = 0; i < 32; ++i) printf("%g ", out[i / 8][i % 8]);
            return 0;
        }
    """
    folder = compiled("copied", "--signature", "tensordesc<fp32[4,4]>, tensordesc<fp32[4,4]>")
    found = run(folder, code, "-L.", "-lcopied", "-Wl,-rpath," + str(folder)).split()
    assert found == [
        str(8 * (row + 4) + column - 4) if column >= 4 else "0"
        for row in range(4)
        for column in range(8)
    ]


def test_without_a_c_compiler_there_are_files_to_compile(compiled, monkeypatch):
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert {file.name for file in compiled(*BLEND).iterdir()} == {
        "blend.h",
        "blend.o",
        "blend_launch.c",
    }


def test_what_is_wrong_is_said(compiled, capsys, monkeypatch):
    compiled("prints", "--signature", "*fp32", expected=1)
    assert "prints, which C programs cannot show: leave device_print out" in capsys.readouterr().err
    compiled(*BLEND, "--name", "no-name", expected=2)
    assert "--name must be a name of C, not 'no-name'" in capsys.readouterr().err
    compiled("blend", "--signature", "*fp32", expected=2)
    compiled(*BLEND, "--backend", "reference", expected=1)
    assert "it has no tilewright_export" in capsys.readouterr().err
    if CC:
        monkeypatch.setenv("CC", f"{CC} -no-such-option-of-cc")
        compiled(*BLEND, expected=1)
        assert "no-such-option-of-cc" in capsys.readouterr().err


def test_parameters_of_c():
    given = [
        Parameter("x", "ptr<f16>", 16, False),
        Parameter("int", "i1"),
        Parameter("t.0", "u64", 16),
        Parameter("h", "bf16"),
        Parameter("p", "ptr<ptr<f32>>"),
    ]
    found = c_parameters(given)
    assert [each.declaration for each in found] == [
        "const uint16_t *x",
        "uint8_t int_",
        "uint64_t t_0",
        "uint16_t h",
        "uint64_t *p",
    ]
    assert comment("Text.", found)[1:3] == [" * Text.", " *   x: ptr<f16>, a multiple of 16 bytes"]
    assert text_of_c('a"b\\c\n?é') == '"a\\042b\\134c\\012\\077\\303\\251"'


# ---- for GPUs

CUDA_H = """
#include <stddef.h>
typedef int CUresult;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct stream *CUstream;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
                        void **arguments, void **extra);
"""
DRIVER_C = """
#include "cuda.h"
#include <stdint.h>
#include <stdio.h>
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    *module = (CUmodule)image;
    printf("load %.3s\\n", (const char *)image + 1);
    return 0;
}
CUresult cuModuleUnload(CUmodule module) { printf("unload %d\\n", module != 0); return 0; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = (CUfunction)module;
    printf("function %s\\n", name);
    return name[0] == 'n';
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) { printf("attribute %d %d\\n", attribute, value); return function == 0; }
CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
                        void **arguments, void **extra) {
    printf("launch %d %u %u %u %u %u %u %u %d %d", f != 0, x, y, z, bx, by, bz, shared, s != 0, extra != 0);
    printf(" %g %d %lld %g %g %d\\n", **(float **)arguments[0], *(int32_t *)arguments[3], (long long)*(int64_t *)arguments[4],
           *(float *)arguments[5], *(double *)arguments[6], *(int8_t *)arguments[7]);
    return 0;
}
"""


@needs_cc
def test_a_c_program_launches_device_code(compiled):
    linking = pytest.importorskip("tilewright_nvidia.toolchain.linking")
    if linking.find_ptxas() is None:
        pytest.skip("there is no ptxas")
    folder = compiled(*BLEND, "--backend", "nvidia", "--arch", "sm_80", "--option", "num_warps=2")
    assert {file.name for file in folder.iterdir()} == {"blend.h", "blend.cubin", "blend_launch.c"}
    (folder / "cuda.h").write_text(CUDA_H)
    (folder / "driver.c").write_text(DRIVER_C)
    code = """
        #include "blend.h"

        int main(void) {
            CUmodule module;
            CUfunction function;
            float x = 1.5f;
            if (blend_load(&module, &function)) return 1;
            if (blend_launch(function, 0, 3, 0, 1, &x, &x, &x, -7, 1, 0.5f, 0.25, 1) != CUDA_SUCCESS) return 2;
            if (blend_launch(function, 0, 0x80000000u, 1, 1, &x, &x, &x, -7, 1, 0.5f, 0.25, 1) != CUDA_ERROR_INVALID_VALUE) return 3;
            return blend_launch(function, 0, 3, 2, 1, &x, &x, &x, -7, -5000000000LL, 0.5f, 0.25, 1);
        }
    """
    lines = run(folder, code, "-I.", files=("blend_launch.c", "driver.c")).splitlines()
    assert lines == [
        "load ELF",
        "function blend",
        "launch 1 3 2 1 64 1 1 0 0 0 1.5 -7 -5000000000 0.5 0.25 1",
    ]
    image = re.search(r"image\[\] = \{(.*?)\};", (folder / "blend_launch.c").read_text(), re.S)[1]
    assert (
        bytes(map(int, image.replace("\n", "").strip(" ,").split(",")))
        == Path(folder, "blend.cubin").read_bytes()
    )


COOPERATIVE_H = """
#include <stddef.h>
typedef int CUresult;
typedef int CUdevice;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct stream *CUstream;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16, CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2 };
typedef struct { int id; char pad[4]; union { char pad[64]; int cooperative; } value; } CUlaunchAttribute;
typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared);
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config);
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra);
"""
COOPERATIVE_C = """
#include "cuda.h"
#include <stdint.h>
#include <stdio.h>
CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = (CUmodule)image; return 0; }
CUresult cuModuleUnload(CUmodule module) { return module == 0; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) { *function = (CUfunction)module; return name[0] == 0; }
CUresult cuCtxGetDevice(CUdevice *device) { return *device = 3, 0; }
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) { return *value = attribute == 16 && device == 3 ? 132 : 0, 0; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
    return *blocks = function && threads == 64 && shared < 64 ? 5 : 0, 0;
}
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config) {
    return *clusters = function && config->numAttrs == 0 ? (int)(100 * config->gridDimX + config->blockDimX) : 0, 0;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **arguments, void **extra) {
    printf("%d %u %u %u %u %u %u %u %d %u %d %d %d %d\\n", function != 0, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
           c->sharedMemBytes, c->hStream != 0, c->numAttrs, c->attrs->id, c->attrs->value.cooperative, extra != 0, **(int32_t **)arguments[2]);
    return c->gridDimX > 9 ? 720 : 0;
}
"""


@needs_cc
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_c_program_launches_device_code_cooperatively(compiled, blocks):
    linking = pytest.importorskip("tilewright_nvidia.toolchain.linking")
    if linking.find_ptxas() is None:
        pytest.skip("there is no ptxas")
    folder = compiled(
        "shift",
        "--signature",
        "*i32, *i32, *i32",
        "--option",
        "cooperative=True",
        "--backend",
        "nvidia",
        "--arch",
        "sm_90a",
        "--option",
        "num_warps=2",
    )
    if blocks > 1:  # as of a program that is a cluster
        from tilewright.plugins.manifest import CodeObject
        from tilewright_nvidia.host import export

        facts = {
            "kernel": "shift",
            "num_warps": 2,
            "shared": 0,
            "cluster": blocks,
            "cooperative": True,
            "format": "cubin",
        }
        code = CodeObject("shift", (folder / "shift.cubin").read_bytes(), {}, facts)
        given = [Parameter(name, "ptr<i32>") for name in ("count", "kept", "out")]
        for name, content in export.export(
            "shift", code, given, SimpleNamespace(arch="sm_90a")
        ).files.items():
            (folder / name).write_bytes(content)
    (folder / "cuda.h").write_text(COOPERATIVE_H)
    (folder / "driver.c").write_text(COOPERATIVE_C)
    code = """
        #include "shift.h"
        #include <stdio.h>

        int main(void) {
            CUmodule module;
            CUfunction function;
            int32_t x = 7;
            int programs = 0;
            if (shift_load(&module, &function)) return 1;
            int failed = shift_resident(function, &programs);
            printf("%d %d\\n", failed, programs);
            int fits = shift_launch(function, 0, 3, 2, 1, &x, &x, &x), does_not = shift_launch(function, (CUstream)&x, 30, 2, 1, &x, &x, &x);
            printf("%d %d\\n", fits, does_not);
            return shift_launch(function, 0, 0, 3, 1, &x, &x, &x);
        }
    """
    lines = run(folder, code, "-I.", files=("shift_launch.c", "driver.c")).splitlines()
    shared = re.search(r"sharedMemBytes = (\d+);", (folder / "shift_launch.c").read_text())[1]
    assert lines == [
        "0 660" if blocks == 1 else "0 264",
        f"1 {3 * blocks} 2 1 64 1 1 {shared} 0 1 2 1 0 7",
        f"1 {30 * blocks} 2 1 64 1 1 {shared} 1 1 2 1 0 7",
        "0 720",
    ]


def test_device_code_that_takes_more_than_arguments_is_refused(compiled, capsys):
    pytest.importorskip("tilewright_nvidia")
    from tilewright.plugins.manifest import CodeObject
    from tilewright.plugins.registry import registry
    from tilewright.runtime.devices import device_registry

    backend = registry().get("nvidia")
    target = device_registry.named_target(backend, "sm_90a")
    for facts, remedy in (
        ({"tensor_maps": [1]}, "--option asynchronous=False"),
        ({"launch_pdl": True}, "without launch_pdl"),
    ):
        code = CodeObject(
            "k", b"", {}, {"kernel": "k", "num_warps": 4, "shared": 0, "format": "cubin", **facts}
        )
        with pytest.raises(Exception, match=remedy):
            backend.call("tilewright_export", name="k", code=code, parameters=(), target=target)
