"""Cache managers, extension modules, microscaling formats, ragged descriptors, timing, and the
helpers of Triton's tests."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402
from tilewright.compat.triton import _internal_testing as helpers  # noqa: E402
from tilewright.compat.triton import _utils, knobs, testing  # noqa: E402
from tilewright.compat.triton.runtime import cache  # noqa: E402
from tilewright.compat.triton.tools import disasm, mxfp, ragged_tma  # noqa: E402

KEY = "0f" * 32


@pytest.fixture
def folder(tmp_path):
    knobs.cache.dir = str(tmp_path / "triton")
    return tmp_path / "triton"


def test_files_are_kept_by_key_and_read_back(folder):
    manager = cache.get_cache_manager(KEY)
    assert manager.get_file("a.txt") is None
    path = manager.put("text", "a.txt")
    assert Path(path).read_text() == "text" and manager.get_file("a.txt") == path
    assert os.path.dirname(path) == str(folder / cache.base32(KEY)) and os.listdir(
        folder / cache.base32(KEY)
    ) == ["a.txt"]
    other = manager.put(b"\x00\x01", "b.bin")
    manager.put_group("all", {"a.txt": path, "b.bin": other})
    assert cache.get_cache_manager(KEY).get_group("all") == {"a.txt": path, "b.bin": other}
    os.remove(other)
    assert cache.get_cache_manager(KEY).get_group("all") is None  # a group is whole or not there
    assert manager.get_group("none") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"child_pa',
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b'{"child_paths": 5}',
        b'{"child_paths": {"a": 5}}',
    ],
)
def test_a_damaged_group_is_none(folder, content):
    manager = cache.get_cache_manager(KEY)
    manager.put_group("all", {"a.txt": manager.put("text", "a.txt")})
    (folder / cache.base32(KEY) / "__grp__all").write_bytes(content)
    assert manager.get_group("all") is None


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX systems")
def test_no_file_is_used_whose_folder_others_can_replace(folder):
    manager = cache.get_cache_manager(KEY)
    manager.put("text", "a.txt")
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=f"others can write to {folder} "):
        assert manager.get_file("a.txt") is None


@pytest.mark.skipif(os.name == "nt", reason="an open file is not replaced there")
def test_who_reads_a_file_reads_the_whole_of_one_however_often_it_is_put(folder):
    manager = cache.get_cache_manager(KEY)
    with open(manager.put("first", "a.txt")) as reader:
        assert reader.read(2) == "fi"
        path = manager.put("another, and longer", "a.txt")
        assert reader.read() == "rst"
    assert Path(path).read_text() == "another, and longer" and os.listdir(
        os.path.dirname(path)
    ) == ["a.txt"]


class Store(cache.RemoteCacheBackend):
    files: dict = {}  # noqa: RUF012

    def __init__(self, key):
        self.key = key

    def get(self, filenames):
        return {
            name: self.files[self.key, name] for name in filenames if (self.key, name) in self.files
        }

    def put(self, filename, data):
        self.files[self.key, filename] = data


def test_remote_stores_are_shared_by_machines(folder):
    with pytest.raises(RuntimeError, match="TRITON_REMOTE_CACHE_BACKEND"):
        cache.RemoteCacheManager(KEY)
    knobs.cache.manager_class, knobs.cache.remote_manager_class = cache.RemoteCacheManager, Store
    manager = cache.get_cache_manager(KEY)
    path = manager.put("text", "a.txt")
    manager.put_group("all", {"a.txt": path})
    shutil.rmtree(folder)  # another machine
    other = cache.get_cache_manager(KEY)
    assert Path(other.get_file("a.txt")).read_text() == "text" and other.get_file("b.txt") is None
    assert {name: Path(path).read_text() for name, path in other.get_group("all").items()} == {
        "a.txt": "text"
    }


SOURCE = """
#include <Python.h>
static PyObject *twice(PyObject *self, PyObject *value) { return PyLong_FromLong(2 * PyLong_AsLong(value)); }
static PyMethodDef methods[] = {{"twice", twice, METH_O, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sample", NULL, -1, methods};
PyMODINIT_FUNC PyInit_sample(void) { return PyModule_Create(&definition); }
"""


@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("clang")), reason="needs a C compiler")
def test_extension_modules_are_compiled_once_and_again_when_damaged(folder, monkeypatch):
    from tilewright.compat.triton.runtime import build

    key = hashlib.sha256((SOURCE + build.platform_key()).encode()).hexdigest()
    cache.get_cache_manager(key).put(b"damaged", f"sample{sysconfig.get_config_var('EXT_SUFFIX')}")
    with pytest.warns(UserWarning, match="compiled anew"):
        module = build.compile_module_from_src(SOURCE, "sample")
    assert module.twice(21) == 42
    monkeypatch.setattr(build, "_build", lambda *args: pytest.fail("it was kept"))
    assert build.compile_module_from_src(SOURCE, "sample").__file__ == module.__file__


def test_e2m1_rounds_to_the_nearest_with_ties_to_even():
    table = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    values = torch.from_numpy(np.random.default_rng(5).uniform(-7, 7, 1000).astype(np.float32))
    values[:16] = torch.tensor(
        [
            0.25,
            0.75,
            1.25,
            1.75,
            2.5,
            3.5,
            5.0,
            -0.25,
            -5.0,
            0.0,
            -0.0,
            100.0,
            -100.0,
            torch.inf,
            -torch.inf,
            6.0,
        ]
    )
    found = mxfp.MXFP4Tensor(data=values)
    magnitude = np.minimum(np.abs(values.numpy().astype(np.float64)), 6.0)
    distance = np.abs(magnitude[:, None] - table) + 1e-9 * (
        np.arange(8) % 2
    )  # an odd pattern loses a tie
    expected = np.argmin(distance, axis=1) | (np.signbit(values.numpy()) << 3)
    np.testing.assert_array_equal(found.data.numpy(), expected)
    np.testing.assert_array_equal(
        found.to(torch.float32).numpy(), np.where(expected & 8, -1.0, 1.0) * table[expected & 7]
    )
    assert np.signbit(found.to(torch.float32)[10].item())


@pytest.mark.parametrize(("shape", "dim"), [((4, 6), 1), ((5, 3), 0), ((3, 5, 7), 1), ((9,), 0)])
def test_e2m1_packs_two_to_a_byte(shape, dim):
    made = mxfp.MXFP4Tensor(size=shape, device="cpu").random()
    packed = made.to_packed_tensor(dim)
    assert packed.shape[dim] == (shape[dim] + 1) // 2
    np.testing.assert_array_equal(
        packed.select(dim, 0).numpy() & 15, made.data.select(dim, 0).numpy()
    )
    assert torch.equal(made.unpack_packed_tensor(packed, dim, shape), made.data)


def test_e8m0_rounds_down_to_powers_of_two():
    values = torch.tensor(
        [1.0, 1.99, 2.0, 0.75, 2.0**-127, 2.0**-140, 3e38, 0.0, -1.0, torch.inf, torch.nan]
    )
    assert mxfp.MXScaleTensor(data=values).data.tolist() == [
        127,
        127,
        128,
        126,
        0,
        0,
        254,
        255,
        255,
        255,
        255,
    ]
    scales = mxfp.MXScaleTensor(size=(1000,)).random(low=2.0**-3, high=2.0**4)
    assert scales.data.min() == 124 and scales.data.max() == 131
    floats = mxfp.MXScaleTensor(size=(1000,)).random().to(torch.float32)
    assert (
        torch.equal(torch.frexp(floats)[0][floats > 0], torch.full_like(floats[floats > 0], 0.5))
        and not floats.isnan().any()
    )
    assert mxfp.fp8e8m0_to_float32(torch.tensor([255, 0], dtype=torch.uint8)).isnan().tolist() == [
        True,
        False,
    ]


@triton.jit
def copy_ragged(source, target, start, size, row, DIM: tl.constexpr, RANK: tl.constexpr):
    coords = (row, 0) if RANK == 2 else ((row, 0, 0) if DIM == 0 else (0, row, 0))
    ragged_tma.store_ragged(
        target, start, size, coords, ragged_tma.load_ragged(source, start, size, coords, DIM), DIM
    )


@triton.jit
def add_ragged(source, target, start, size, row):
    ragged_tma.atomic_add_ragged(
        target, start, size, [row, 0], ragged_tma.load_ragged(source, start, size, [row, 0])
    )


@pytest.mark.parametrize(
    ("shape", "block", "dim"),
    [((40, 16), (8, 16), 0), ((20, 3, 8), (8, 1, 8), 0), ((2, 24, 8), (1, 16, 8), 1)],
)
@pytest.mark.parametrize(("start", "size", "row"), [(5, 7, 0), (5, 7, 4), (0, 3, 0), (11, 9, 8)])
def test_ragged_descriptors_stay_within_their_batch(shape, block, dim, start, size, row):
    pytest.importorskip("tilewright_cpu")
    source = torch.randn(shape)
    target = torch.full(shape, 7.0)
    copy_ragged[(1,)](
        ragged_tma.create_ragged_descriptor(source, block, dim),
        ragged_tma.create_ragged_descriptor(target, block, dim),
        start,
        size,
        row,
        dim,
        len(shape),
    )
    expected = torch.full(shape, 7.0)
    last = min(start + size, start + row + block[dim])
    where = [slice(0, extent) for extent in block]
    where[dim] = slice(start + row, last)
    expected[tuple(where)] = source[tuple(where)]
    assert torch.equal(target, expected)


def test_ragged_descriptors_add():
    pytest.importorskip("tilewright_cpu")
    source, target = torch.randn(20, 16), torch.ones(20, 16)
    add_ragged[(1,)](
        ragged_tma.create_ragged_descriptor(source, (8, 16)),
        ragged_tma.create_ragged_descriptor(target, (8, 16)),
        3,
        5,
        2,
    )
    expected = torch.ones(20, 16)
    expected[5:8] += source[5:8]
    assert torch.equal(target, expected)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (((8, 16), (8, 16), 1), "last dimension"),
        (((2, 2, 2, 8), (1, 1, 1, 8), 0), "at most 3"),
        (((8, 16), (8,), 0), "same length"),
    ],
)
def test_ragged_descriptors_refuse(arguments, rule):
    shape, block, dim = arguments
    with pytest.raises(AssertionError, match=rule):
        ragged_tma.create_ragged_descriptor(torch.zeros(shape), block, dim)


def test_machine_code_is_listed_without_addresses(monkeypatch, tmp_path):
    listing = (
        '\tFunction : kernel\n\t.headerflags\t@"EF"\n'
        "        /*0000*/                   LDC R1, c[0x0][0x28] ;   /* 0x00000a00ff017b82 */\n"
        "                                                       /* 0x000fe20000000800 */\n"
        "        /*0010*/                   EXIT ;  /* 0x1 */\n"
    )
    monkeypatch.setattr(subprocess, "check_output", lambda command, **kwargs: listing)
    monkeypatch.setattr(disasm, "path_to_cuobjdump", lambda: ("cuobjdump", "13.0"))
    assert disasm.get_sass(b"cubin").splitlines() == [
        "Function:kernel",
        "LDC R1, c[0x0][0x28] ;",
        "EXIT ;",
    ]


def test_graphs_are_not_recorded_within_a_capture(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for bench in (testing.do_bench_cudagraph, testing.do_bench_cudagraph_proton):
        with pytest.raises(RuntimeError, match="Warm up autotuned kernels"):
            bench(lambda: None)
    with pytest.raises(AttributeError, match="Proton"):
        testing.do_bench_proton(lambda: None)


def test_timing_has_tritons_return_modes():
    assert testing.do_bench(lambda: None, warmup=1, rep=1) >= 0
    assert len(testing.do_bench(lambda: None, warmup=1, rep=1, quantiles=[0.2, 0.5, 0.8])) == 3
    with pytest.raises(AssertionError):
        testing.do_bench(lambda: None, return_mode="mode")


class Gpu:
    class utils:
        get_device_properties = staticmethod(
            lambda device: {
                "multiprocessor_count": 132,
                "mem_clock_rate": 2619000,
                "mem_bus_width": 5120,
            }
        )

    def get_current_device(self):
        return 0

    def get_device_capability(self, device):
        return (9, 0)


def test_peak_figures_follow_the_hardware(monkeypatch):
    monkeypatch.setattr(testing, "_driver", lambda: Gpu())
    assert testing.get_dram_gbps() == pytest.approx(3352.3, rel=1e-3)  # an H100's HBM3
    assert testing.get_max_tensorcore_tflops(torch.float16, 1830e3) == pytest.approx(
        494.7, rel=1e-3
    )
    assert testing.get_max_tensorcore_tflops(tl.float8e5, 1830e3) == pytest.approx(989.5, rel=1e-3)
    assert testing.get_max_simd_tflops(torch.float32, 1830e3) == pytest.approx(30.9, rel=1e-3)
    with pytest.raises(RuntimeError, match="dtype not supported"):
        testing.get_max_simd_tflops(torch.float64, 1830e3)


@pytest.mark.parametrize("name", [*helpers.dtypes, "bfloat16", "bool"])
def test_test_data_goes_to_the_device_and_back(name):
    data = helpers.numpy_random((7, 5), name)
    tensor = helpers.to_triton(data, "cpu", name)
    assert helpers.torch_dtype_name(tensor.dtype) == name
    np.testing.assert_array_equal(helpers.to_numpy(tensor), data)
    if name in helpers.integral_dtypes:
        assert (
            data.dtype == name
            and (data != 0).all()
            and int(data.max()) - int(data.min()) > np.iinfo(name).max // 2
        )


def test_test_data_of_other_kinds():
    assert helpers.numpy_random(4, "float8e5").dtype == np.int8
    assert (
        helpers.to_triton(helpers.numpy_random(4, "float8e5"), "cpu", "float8e5").dtype
        is tl.float8e5
    )
    with pytest.raises(RuntimeError, match="Unknown dtype"):
        helpers.numpy_random(4, "quaternion")
    assert (
        helpers.str_to_triton_dtype("float8_e4m3fn") is tl.float8e4nv
        and helpers.str_to_triton_dtype("bool") is tl.int1
    )
    limited = helpers.numpy_random(1000, "int32", low=3, high=9)
    assert limited.min() >= 3 and limited.max() < 9


def fail_with(code, write):
    os.write(2, write.encode())
    if code:
        raise KeyError(os.environ["SAMPLE_CODE"])


def test_functions_run_in_processes_of_their_own():
    assert helpers.run_in_process(fail_with, (0, "quiet")).exc is None
    found = helpers.run_in_process(fail_with, (1,), {"write": "loud"}, env={"SAMPLE_CODE": "seven"})
    assert (
        isinstance(found.exc, KeyError)
        and found.exc.args == ("seven",)
        and found.driver_stderr_output == "loud"
    )
    ended = helpers.run_in_process(os._exit, (3,))
    assert isinstance(ended.exc, RuntimeError)


def test_element_types_of_any_library_have_one_text():
    for dtype, text in (
        (torch.float16, "fp16"),
        (torch.bool, "u1"),
        (torch.float8_e4m3fn, "fp8e4nv"),
        (tl.uint8, "u8"),
        (np.dtype("int64"), "i64"),
        ("bf16", "bf16"),
    ):
        assert _utils.canonicalize_dtype(dtype) == text
    assert _utils.canonicalize_ptr_dtype(torch.int32, True) == "*ki32"
    assert (
        _utils.get_primitive_bitwidth("fp8e5") == 8
        and _utils.get_primitive_bitwidth("bfloat16") == 16
    )
    with pytest.raises(KeyError):
        _utils.canonicalize_dtype("quaternion")


def test_paths_of_nested_tuples():
    nested = (1, [2, (3, "x")], 4)
    paths = _utils.find_paths_if(nested, lambda path, item: isinstance(item, int) and item > 1)
    assert paths == [(1, 0), (1, 1, 0), (2,)]
    assert [_utils.get_iterable_path(nested, path) for path in paths] == [2, 3, 4]
    made = tl.tuple([tl.constexpr(1), tl.tuple([tl.constexpr(2)])])
    _utils.set_iterable_path(made, (1, 0), tl.constexpr(9))
    assert made[1][0].value == 9


def test_block_shapes_are_checked():
    assert _utils.validate_block_shape([4, 8]) == 32
    with pytest.raises(ValueError, match="Shape element 1 must be a power of 2"):
        _utils.validate_block_shape([4, 6])
    with pytest.raises(TypeError, match="Shape element 0"):
        _utils.validate_block_shape([4.0])
    with pytest.raises(ValueError, match="exceeds triton maximum tensor numel"):
        _utils.validate_block_shape([1 << 21])


def test_allocators_can_be_taken_back():
    from tilewright.compat.triton.runtime._allocation import NullAllocator, _allocator
    from tilewright.runtime.devices import allocator

    triton.set_allocator(None)  # examples that ran before may have set one
    assert isinstance(_allocator.get(), NullAllocator)
    token = _allocator.set(helpers.default_alloc_fn)
    assert _allocator.get() is helpers.default_alloc_fn and allocator.allocate(8, 16).numel() == 8
    _allocator.reset(token)
    assert isinstance(_allocator.get(), NullAllocator)
    triton.set_allocator(helpers.default_alloc_fn)
    assert _allocator.get() is helpers.default_alloc_fn
    assert allocator.allocate(16, 16).numel() == 16
    triton.set_allocator(NullAllocator())
    with pytest.raises(RuntimeError, match="no allocator was set"):
        allocator.allocate(16, 16)
    triton.set_allocator(None)
