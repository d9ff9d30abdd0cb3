"""Launchers: a kernel's slots, errors, assertions, prints; the native against the Python one."""

import ctypes
import gc
import math
import struct
import sys

import numpy as np
import pytest

from tilewright.errors import KernelError, LaunchError
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.plugins.manifest import CodeObject, Parameter
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.testing.threads import side_by_side
from tilewright_cpu.launch import make_launcher
from tilewright_cpu.python_launch import PythonLauncher
from tilewright_cpu.runtime import load

# Program p copies the header's grid and the argument words after the first to row p of the array
# given as first argument.
ECHO = """
define void @echo(ptr %slots, i64 %lo, i64 %hi) {
entry:
  %q = getelementptr i64, ptr %slots, i64 5
  %out = load ptr, ptr %q
  br label %row
row:
  %p = phi i64 [ %lo, %entry ], [ %p1, %next ]
  %start = mul i64 %p, WORDS
  br label %word
word:
  %i = phi i64 [ 0, %row ], [ %i1, %word ]
  %header = icmp ult i64 %i, 3
  %later = add i64 %i, 3
  %from = select i1 %header, i64 %i, i64 %later
  %s = getelementptr i64, ptr %slots, i64 %from
  %v = load i64, ptr %s
  %at = add i64 %start, %i
  %d = getelementptr i64, ptr %out, i64 %at
  store i64 %v, ptr %d
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, WORDS
  br i1 %more, label %word, label %next
next:
  %p1 = add i64 %p, 1
  %again = icmp slt i64 %p1, %hi
  br i1 %again, label %row, label %done
done:
  ret void
}
"""

# Program 5 of the grid fails assertion 1, unless the argument is not zero.
ASSERT = """
define void @checked(ptr %slots, i64 %lo, i64 %hi) {
  %q = getelementptr i64, ptr %slots, i64 5
  %skip = load i64, ptr %q
  %on = icmp eq i64 %skip, 0
  %above = icmp sgt i64 %hi, 5
  %below = icmp sle i64 %lo, 5
  %in = and i1 %above, %below
  %fail = and i1 %in, %on
  br i1 %fail, label %f, label %out
f:
  %sp = getelementptr i64, ptr %slots, i64 3
  %status = load ptr, ptr %sp
  %old = cmpxchg ptr %status, i32 0, i32 1 monotonic monotonic
  %s1 = getelementptr i32, ptr %status, i64 1
  store i32 1, ptr %s1
  %s2 = getelementptr i32, ptr %status, i64 2
  store i32 1, ptr %s2
  %s3 = getelementptr i32, ptr %status, i64 3
  store i32 2, ptr %s3
  %s4 = getelementptr i32, ptr %status, i64 4
  store i32 0, ptr %s4
  br label %out
out:
  ret void
}
"""

PRINT = """
@prefix = private constant [23 x i8] c"idx (%1d, %2d) value: \\00"
@scalar = private constant [15 x i8] c"idx () value: \\00"
@f32 = private constant [4 x i8] c"f32\\00"
@i16 = private constant [4 x i8] c"i16\\00"
@bf16 = private constant [5 x i8] c"bf16\\00"
declare void @tilewright_print(ptr, ptr, i32, i32, i32, ptr, i32, i64, i32)
define void @printing(ptr %slots, i64 %lo, i64 %hi) {
entry:
  %index = alloca [2 x i64]
  store i64 3, ptr %index
  %i1 = getelementptr i64, ptr %index, i64 1
  store i64 4, ptr %i1
  br label %loop
loop:
  %p = phi i64 [ %lo, %entry ], [ %p1, %loop ]
  %x = trunc i64 %p to i32
  call void @tilewright_print(ptr @prefix, ptr @f32, i32 %x, i32 0, i32 0, ptr %index, i32 2, i64 1075838976, i32 0)
  call void @tilewright_print(ptr @scalar, ptr @i16, i32 %x, i32 0, i32 0, ptr null, i32 0, i64 -2, i32 0)
  call void @tilewright_print(ptr @scalar, ptr @i16, i32 %x, i32 0, i32 0, ptr null, i32 0, i64 -2, i32 1)
  call void @tilewright_print(ptr @scalar, ptr @bf16, i32 %x, i32 0, i32 0, ptr null, i32 0, i64 16320, i32 0)
  %p1 = add i64 %p, 1
  %more = icmp slt i64 %p1, %hi
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def loaded(text, symbol, **metadata):
    triple, cpu, features = host_target()
    binary = compile_to_object(text, triple=triple, cpu=cpu, features=features)
    return load(CodeObject(symbol, binary, {}, {"kernel": symbol, **metadata}))


def launchers(kernel, parameters, monkeypatch, **options):
    """Both launchers of a kernel, the native one only where this interpreter has it."""
    monkeypatch.setenv("TILEWRIGHT_CPU_LAUNCHER", "python")
    found = [make_launcher(kernel, parameters, options)]
    assert isinstance(found[0], PythonLauncher)
    monkeypatch.delenv("TILEWRIGHT_CPU_LAUNCHER")
    second = make_launcher(kernel, parameters, options)
    if not isinstance(second, PythonLauncher):
        found.append(second)
    return found


def echo(types, values, monkeypatch, grid=(2, 3, 2)):
    """Slots that the kernel receives from both launchers."""
    words = 3 + sum(1 if "desc" not in type_ else 1 + 2 * type_.count("x") for type_ in types)
    kernel = loaded(ECHO.replace("WORDS", str(words)), "echo")
    parameters = [
        Parameter("out", "ptr<i64>"),
        *(Parameter(f"a{i}", type_) for i, type_ in enumerate(types)),
    ]
    results = []
    for launch in launchers(kernel, parameters, monkeypatch):
        out = np.zeros((math.prod(grid), words), np.uint64)
        assert launch(grid, None, (out, *values)) is None
        assert (out == out[0]).all()
        assert out[0, :3].tolist() == list(grid)
        results.append(out[0, 3:].tolist())
    assert all(result == results[0] for result in results)
    return results[0]


def bits(code, value):
    return int.from_bytes(struct.pack(code, value).ljust(8, b"\0"), "little")


def test_numbers_reach_their_slots(monkeypatch):
    types = ["i32", "i8", "u32", "i64", "u64", "i1", "i1", "f32", "f64", "i32"]
    values = [-5, -128, 2**32 - 1, -(2**63), 2**64 - 1, True, False, 0.1, 0.1, 7]
    expected = [
        -5 % 2**64,
        -128 % 2**64,
        2**32 - 1,
        2**63,
        2**64 - 1,
        1,
        0,
        bits("<f", 0.1),
        bits("<d", 0.1),
        7,
    ]
    assert echo(types, values, monkeypatch) == expected


def test_numbers_of_other_types_are_converted(monkeypatch):
    types = ["f32", "f64", "i32", "i1", "f64", "f32"]
    values = [3, True, np.int16(-7), 1, np.float32(0.5), -1]
    expected = [bits("<f", 3.0), bits("<d", 1.0), -7 % 2**64, 1, bits("<d", 0.5), bits("<f", -1.0)]
    assert echo(types, values, monkeypatch) == expected


def test_special_floats(monkeypatch):
    values = [math.inf, -math.inf, -0.0, -1.0, 1e-320, 3e38]
    assert echo(["f64"] * 6, values, monkeypatch) == [bits("<d", v) for v in values]
    assert echo(["f32"] * 4, values[:4], monkeypatch) == [bits("<f", v) for v in values[:4]]
    nan = echo(["f64", "f32"], [math.nan, math.nan], monkeypatch)
    assert math.isnan(struct.unpack("<d", struct.pack("<Q", nan[0]))[0])


def test_narrow_floats(monkeypatch):
    assert echo(["f16", "bf16", "f8e4m3fn", "f8e5m2fnuz"], [1.5, 1.5, 1.5, -1.5], monkeypatch) == [
        0x3E00,
        0x3FC0,
        0x3C,
        0xC2,
    ]


class Pointed:
    """An object with data_ptr()."""

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


def test_arrays_and_objects_with_data_ptr(monkeypatch):
    array = np.zeros(10, np.float32)

    class Subclass(np.ndarray):
        pass

    values = [array, array[3:], array.view(Subclass)[1:], Pointed(2**63 + 5), Pointed(0), 12345]
    start = array.ctypes.data
    assert echo(["ptr<f32>"] * 6, values, monkeypatch) == [
        start,
        start + 12,
        start + 4,
        2**63 + 5,
        0,
        12345,
    ]


def test_read_only_arrays_are_refused_where_the_kernel_may_store(monkeypatch, tmp_path):
    kernel = loaded(ECHO.replace("WORDS", "5"), "echo")
    parameters = [
        Parameter("out", "ptr<i64>"),
        Parameter("a", "ptr<f32>", stored=False),
        Parameter("b", "ptr<f32>", stored=True),
    ]
    array, frozen = np.zeros(64, np.float32), np.zeros(64, np.float32)
    frozen.flags.writeable = False
    array.tofile(tmp_path / "m")
    mapped, private = (
        np.memmap(tmp_path / "m", np.float32, "r"),
        np.memmap(tmp_path / "m", np.float32, "c"),
    )
    for launch in launchers(kernel, parameters, monkeypatch):
        for a in (array, frozen, mapped, frozen[3:]):
            for b in (array, private, array[1:], 4096, Pointed(4096)):
                out = np.zeros(5, np.uint64)
                launch((1, 1, 1), None, (out, a, b))
                assert out[3:].tolist() == [
                    a.ctypes.data,
                    b.ctypes.data if isinstance(b, np.ndarray) else 4096,
                ]
            for b, what in (
                (frozen, "a read-only ndarray"),
                (frozen[1:], "a read-only ndarray"),
                (mapped, "a memmap opened for reading"),
                (mapped[2:], "a memmap"),
            ):
                out = np.zeros(5, np.uint64)
                with pytest.raises(
                    LaunchError,
                    match=rf"echo: argument 'b' is {what}.*, and the kernel may store to it",
                ):
                    launch((1, 1, 1), None, (out, a, b))
                assert not out.any()


def test_a_writable_array_of_any_kind_is_taken_natively(monkeypatch, tmp_path):
    kernel = loaded(ECHO.replace("WORDS", "4"), "echo")
    _, *native = launchers(
        kernel, [Parameter("out", "ptr<i64>"), Parameter("b", "ptr<f32>")], monkeypatch
    )
    if not native:
        pytest.skip("this interpreter has no native launcher")
    monkeypatch.setattr(
        PythonLauncher, "__call__", lambda *arguments: pytest.fail("the Python launcher was called")
    )
    mapped = np.memmap(tmp_path / "m", np.float32, "w+", shape=(8,))
    for value in (np.zeros(8), mapped, Pointed(4096)):
        native[0]((1, 1, 1), None, (np.zeros(4, np.uint64), value))


def test_torch_tensors(monkeypatch):
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(8, 8)

    class Subclass(torch.Tensor):
        pass

    values = [
        tensor,
        tensor[2:],
        torch.nn.Parameter(tensor),
        tensor.as_subclass(Subclass),
        torch.zeros(0),
        tensor.T,
    ]
    found = echo(["ptr<f32>"] * 6, values, monkeypatch)
    assert found == [value.data_ptr() for value in values]


def test_descriptors(monkeypatch):
    array = np.zeros((16, 32), np.float32)
    descriptor = TensorDescriptor.from_tensor(array, [4, 8])
    assert echo(["desc<4x8xf32>", "i32"], [descriptor, 3], monkeypatch) == [
        array.ctypes.data,
        16,
        32,
        32,
        1,
        3,
    ]


def test_empty_grids_launch_nothing(monkeypatch):
    kernel = loaded(ECHO.replace("WORDS", "3"), "echo")
    for launch in launchers(kernel, [Parameter("out", "ptr<i64>")], monkeypatch):
        out = np.zeros(3, np.int64)
        for grid in ((0, 1, 1), (3, 0, 2), (1, 1, 0)):
            launch(grid, None, (out,))
        assert not out.any()
        with pytest.raises(LaunchError, match="extents are not negative"):
            launch((1, -1, 1), None, (out,))


@pytest.mark.parametrize(
    "type_, value, message",
    [
        ("i32", "three", "argument 'a' must fit i32, and a str does not"),
        ("i64", 2**63, "argument 'a' must fit i64, and 9223372036854775808 does not"),
        ("u64", -1, "argument 'a' must fit u64, and -1 does not"),
        ("f32", [1.0], "argument 'a' must fit f32, and a list does not"),
        ("ptr<f32>", object(), "argument 'a': cannot pass a object to a kernel as memory"),
    ],
)
def test_misfits_name_the_argument(monkeypatch, type_, value, message):
    kernel = loaded(ECHO.replace("WORDS", "4"), "echo")
    for launch in launchers(
        kernel, [Parameter("out", "ptr<i64>"), Parameter("a", type_)], monkeypatch
    ):
        with pytest.raises(LaunchError, match=message):
            launch((1, 1, 1), None, (np.zeros(4, np.int64), value))


def test_what_is_no_array_is_an_error_of_the_argument(monkeypatch):
    kernel = loaded(ECHO.replace("WORDS", "4"), "echo")
    for launch in launchers(
        kernel, [Parameter("out", "ptr<i64>"), Parameter("a", "ptr<f32>")], monkeypatch
    ):
        with pytest.raises(ArgumentError, match="echo: argument 'a': cannot pass a object"):
            launch((1, 1, 1), None, (np.zeros(4, np.int64), object()))


def test_the_number_of_arguments_is_checked(monkeypatch):
    kernel = loaded(ECHO.replace("WORDS", "3"), "echo")
    for launch in launchers(kernel, [Parameter("out", "ptr<i64>")], monkeypatch):
        with pytest.raises(LaunchError, match=r"echo takes 1 runtime arguments \(out\), not 0"):
            launch((1, 1, 1), None, ())
        with pytest.raises(TypeError):
            launch((1, 1, 1), None)


def test_option_num_threads_is_checked():
    kernel = loaded(ECHO.replace("WORDS", "3"), "echo")
    with pytest.raises(LaunchError, match="num_threads must be 0"):
        make_launcher(kernel, [Parameter("out", "ptr<i64>")], {"num_threads": -2})
    make_launcher(kernel, [Parameter("out", "ptr<i64>")], {"num_threads": 3})
    assert kernel.record.limit == 3


def test_failed_assertions_raise_with_message_and_program(monkeypatch):
    kernel = loaded(ASSERT, "checked", asserts=["first", "x is odd at kernel.py:12:4"])
    for launch in launchers(kernel, [Parameter("skip", "i64")], monkeypatch):
        launch((2, 1, 1), None, (0,))
        for _ in range(20):
            with pytest.raises(
                KernelError,
                match=(
                    r"kernel checked: device-side assertion failed: x is odd at kernel.py:12:4; "
                    r"program \(1, 2, 0\)"
                ),
            ):
                launch((2, 3, 1), None, (0,))
            launch((2, 3, 1), None, (1,))


def test_prints_come_in_the_order_of_programs(monkeypatch, capsys):
    kernel = loaded(PRINT, "printing")
    assert kernel.prints
    (launch,) = launchers(kernel, [], monkeypatch)
    launch((40, 1, 1), None, ())
    lines = capsys.readouterr().out.splitlines()
    expected = []
    for pid in range(40):
        expected += [
            f"pid ({pid}, 0, 0) idx ({i}) value: {text}"
            for i, text in (("3,  4", "2.500000"), ("", "-2"), ("", "0xfffe"), ("", "1.500000"))
        ]
    assert lines == expected


def test_launches_from_threads_do_not_share_slots(monkeypatch):
    kernel = loaded(ECHO.replace("WORDS", "4"), "echo")
    for launch in launchers(
        kernel, [Parameter("out", "ptr<i64>"), Parameter("n", "i32")], monkeypatch
    ):

        def work(seed, launch=launch):
            for i in range(2000):
                out = np.zeros((3, 4), np.int64)
                launch((3, 1, 1), None, (out, seed * 10000 + i))
                assert (out == [3, 1, 1, seed * 10000 + i]).all(), (seed, i, out)

        side_by_side(3, work)


def test_the_native_launcher_keeps_reference_counts(monkeypatch):
    found = launchers(
        loaded(ECHO.replace("WORDS", "6"), "echo"),
        [
            Parameter("out", "ptr<i64>"),
            *(Parameter(f"a{i}", t) for i, t in enumerate(["ptr<f32>", "i64", "f32"])),
        ],
        monkeypatch,
    )
    if len(found) == 1:
        pytest.skip("no native launcher here")
    launch = found[1]
    out, other, number, real, grid = (
        np.zeros((2, 6), np.int64),
        Pointed(64),
        123456789,
        1.25,
        (2, 1, 1),
    )
    objects = [out, other, number, real, grid, None, Pointed, np.ndarray]
    values = (out, other, number, real)
    launch(grid, None, values)
    while gc.collect():  # what is freed may free more, and with it references to None
        pass
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(1000):
        launch(grid, None, values)
        with pytest.raises(LaunchError):
            launch(grid, None, (out, other, number, "x"))
    gc.collect()
    after = [sys.getrefcount(x) for x in objects]
    assert all(abs(a - b) < 200 for a, b in zip(after, before, strict=True)), (before, after)


def test_errors_of_an_argument_do_not_leak_into_the_next_launch(monkeypatch):
    class Broken:
        def data_ptr(self):
            raise RuntimeError("gone")

    for launch in launchers(
        loaded(ECHO.replace("WORDS", "3"), "echo"), [Parameter("out", "ptr<i64>")], monkeypatch
    ):
        with pytest.raises((LaunchError, RuntimeError)):
            launch((1, 1, 1), None, (Broken(),))
        out = np.zeros(3, np.int64)
        launch((1, 1, 1), None, (out,))
        assert out.tolist() == [1, 1, 1]


def test_kernels_outlive_nothing_that_launches_them(monkeypatch):
    """The launcher keeps the code mapped after everything else let go of it."""
    (_, *native) = launchers(
        loaded(ECHO.replace("WORDS", "3"), "echo"), [Parameter("out", "ptr<i64>")], monkeypatch
    )
    gc.collect()
    for launch in native:
        out = np.zeros((70, 3), np.int64)
        launch((70, 1, 1), None, (out,))
        assert (out == [70, 1, 1]).all()
    assert ctypes.sizeof(ctypes.c_void_p) == 8
