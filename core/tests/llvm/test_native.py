"""Builtin functions made by LLVM, and native reading of Python objects."""

import ctypes
import dataclasses
import gc
import math
import struct
import sys

import numpy as np
import pytest

from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.llvm.native import native_functions, native_values

pytestmark = pytest.mark.skipif(
    native_functions.layout() is None, reason="this interpreter's objects cannot be read natively"
)


def compiled(text):
    triple, cpu, features = host_target()
    return compile_to_object(text, triple=triple, cpu=cpu, features=features)


@pytest.fixture(scope="module")
def reader():
    """``read(kinds, values)``: the slots as unsigned integers, None where the native code gave
    up."""
    module = ModuleWriter("nounwind")
    native_values.write_readers(module, native_functions.layout())
    w = module.function(
        "read", [("ptr", "values"), ("ptr", "kinds"), ("i64", "count"), ("ptr", "slots")], "i1"
    )
    w.ret(f"i1 {w.emit('call i1 @read_values(ptr %values, ptr %kinds, i64 %count, ptr %slots)')}")
    loaded = load_object(compiled(module.text()), ["read", "addresses"])
    # with the interpreter lock held, as in a builtin function
    function = ctypes.PYFUNCTYPE(
        ctypes.c_bool, ctypes.py_object, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p
    )(loaded.address("read"))

    def read(types, values, stored=(), writable_address=None):
        native_functions.fill_addresses(loaded.address("addresses"), writable_address)
        kinds = native_values.kinds_of(types, stored)
        slots = np.full(native_values.slots_of(kinds), 0xA5A5A5A5A5A5A5A5, np.uint64)
        return (
            slots.tolist()
            if function(tuple(values), kinds, len(values), slots.ctypes.data)
            else None
        )

    yield read
    assert loaded is not None


def test_a_builtin_function_calls_native_code():
    text = """
    define ptr @second(ptr %self, ptr %args, i64 %n) {
      %p = getelementptr ptr, ptr %args, i64 1
      %x = load ptr, ptr %p
      call void @Py_IncRef(ptr %x)
      ret ptr %x
    }
    declare void @Py_IncRef(ptr)
    """
    loaded = load_object(compiled(text), ["second"])
    function = native_functions.make_builtin(loaded.address("second"), "second", None, loaded)
    del loaded
    gc.collect()
    marker = object()
    before = sys.getrefcount(marker)
    assert all(function(1, marker) is marker for _ in range(100))
    assert sys.getrefcount(marker) == before
    assert function.__name__ == "second"
    with pytest.raises(TypeError, match="no keyword arguments"):
        function(1, b=2)


def test_the_bound_object_lives_as_long_as_the_function():
    text = (
        "define ptr @me(ptr %self, ptr %args, i64 %n) {\n  call void @Py_IncRef(ptr %self)\n"
        "  ret ptr %self\n}\ndeclare void @Py_IncRef(ptr)\n"
    )
    loaded = load_object(compiled(text), ["me"])

    class Bound:
        pass

    import weakref

    bound = Bound()
    watch = weakref.ref(bound)
    function = native_functions.make_builtin(loaded.address("me"), "me", bound, loaded)
    del bound
    assert isinstance(function(), Bound)
    del function
    gc.collect()
    assert watch() is None


def test_numbers(reader):
    values = [5, -5, 2**63 - 1, -(2**63), True, np.int32(-3)]
    assert reader(["i64"] * 6, values) == [value % 2**64 for value in map(int, values)]
    assert reader(["u64"] * 3, [0, 2**64 - 1, 2**63]) == [0, 2**64 - 1, 2**63]
    floats = [1.5, -0.0, math.inf, 1e-310, 3, np.float64(-1.0), -1.0]
    assert reader(["f64"] * 7, floats) == [
        struct.unpack("<Q", struct.pack("<d", x))[0] for x in floats
    ]
    singles = [1.5, -0.0, 0.1, 1e300, -1]
    with np.errstate(over="ignore"):
        assert reader(["f32"] * 5, singles) == [int(np.float32(x).view(np.uint32)) for x in singles]
    assert reader(["i1"] * 4, [True, False, 1, 0]) == [1, 0, 1, 0]


@pytest.mark.parametrize("forms", ["as the interpreter's", "by calls"])
def test_integers_of_one_digit_and_of_more(forms):
    objects = native_functions.layout()
    assert sys.version_info[:2] != (3, 11) or objects.int_signs == "size"
    if forms == "by calls":
        objects = dataclasses.replace(objects, int_signs="")
    module = ModuleWriter("nounwind")
    native_values.write_readers(module, objects)
    w = module.function("read", [("ptr", "object"), ("ptr", "slot"), ("i1", "signed")], "i1")
    signed, unsigned = w.new_block("signed"), w.new_block("unsigned")
    w.branch_if("%signed", signed, unsigned)
    for block, name in ((signed, "read_signed"), (unsigned, "read_unsigned")):
        w.place(block)
        w.ret(f"i1 {w.emit(f'call i1 @{name}(ptr %object, ptr %slot)')}")
    loaded = load_object(compiled(module.text()), ["read", "addresses"])
    native_functions.fill_addresses(loaded.address("addresses"))
    function = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.py_object, ctypes.c_void_p, ctypes.c_bool)(
        loaded.address("read")
    )
    slot = (ctypes.c_int64 * 1)()
    edges = [2**bits + more for bits in (0, 15, 29, 30, 31, 32, 60, 62, 63) for more in (-1, 0, 1)]
    for number in (*edges, *(-edge for edge in edges), 0, True, False, np.int32(-7)):
        for sign in (True, False):
            low, high = (-(2**63), 2**63 - 1) if sign else (0, 2**64 - 1)
            fits = low <= number <= high and (sign or not isinstance(number, np.integer))
            assert function(number, ctypes.addressof(slot), sign) == fits, (number, sign)
            if fits:
                assert slot[0] % 2**64 == int(number) % 2**64, (number, sign)
    assert not function("7", ctypes.addressof(slot), True)


def test_arrays(reader):
    array = np.arange(10, dtype=np.float32)
    values = [array, array[4:], array[::-1], np.zeros(0), np.float64(3).reshape(1)]
    assert reader(["ptr<f32>"] * 5, values) == [
        value.__array_interface__["data"][0] for value in values
    ]


def frozen(array):
    array.flags.writeable = False
    return array


def test_read_only_arrays_are_refused_only_where_they_would_be_stored_to(reader):
    writable, fixed = np.arange(10, dtype=np.float32), frozen(np.arange(10, dtype=np.float32))
    for array, can in (
        (writable, True),
        (writable[3:], True),
        (fixed, False),
        (fixed[3:], False),
        (np.frombuffer(b"1" * 40, np.float32), False),
    ):
        address = array.__array_interface__["data"][0]
        assert reader(["ptr<f32>"], [array]) == [address]
        assert reader(["ptr<f32>"], [array], [False]) == [address]
        assert reader(["ptr<f32>"], [array], [True]) == ([address] if can else None)
    assert reader(["ptr<f32>", "i32", "ptr<f32>"], [fixed, 3, writable], [False, False, True]) == [
        fixed.ctypes.data,
        3,
        writable.ctypes.data,
    ]
    assert (
        reader(["ptr<f32>", "i32", "ptr<f32>"], [fixed, 3, writable], [True, False, True]) is None
    )
    fixed.flags.writeable = True  # the flag is read at each launch
    assert reader(["ptr<f32>"], [fixed], [True]) == [fixed.ctypes.data]


def test_tensors_may_be_stored_to(reader):
    torch = pytest.importorskip("torch")
    for tensor in (
        torch.zeros(3),
        torch.nn.Parameter(torch.zeros(3)),
        torch.from_numpy(np.zeros(3)),
    ):
        assert reader(["ptr<f32>"], [tensor], [True]) == [tensor.data_ptr()]


def test_other_objects_are_asked_for_by_the_function_given(reader):
    class Pointer:
        def data_ptr(self):
            return 48

    def writable_address(value):
        if isinstance(value, np.ndarray):
            raise ValueError("read-only")
        return value.data_ptr() + 16

    class Subclass(np.ndarray):
        pass

    assert reader(["ptr<f32>"], [Pointer()], [True], writable_address) == [64]
    assert reader(["ptr<f32>"], [Pointer()], [False], writable_address) == [48]
    assert reader(["ptr<f32>"], [Pointer()], [True]) is None
    assert reader(["ptr<f32>"], [np.zeros(3).view(Subclass)], [True], writable_address) is None
    assert reader(["ptr<f32>"], [object()], [True], writable_address) is None
    assert reader(["i64"], [1]) == [1]  # and no exception is left behind
    value = Pointer()
    before = sys.getrefcount(value), sys.getrefcount(writable_address)
    for _ in range(50):
        reader(["ptr<f32>"], [value], [True], writable_address)
    assert (sys.getrefcount(value), sys.getrefcount(writable_address)) == before


def test_tensors(reader):
    torch = pytest.importorskip("torch")

    class Tensor(torch.Tensor):
        pass

    tensor = torch.arange(16.0)
    values = [
        tensor,
        tensor[5:],
        torch.nn.Parameter(tensor),
        tensor.as_subclass(Tensor),
        tensor.view(4, 4).T,
        torch.zeros(3, dtype=torch.bfloat16),
    ]
    assert reader(["ptr<f32>"] * 6, values) == [value.data_ptr() for value in values]
    # a tensor without memory is refused or read as a null pointer, never an address that is not
    # there
    assert reader(["ptr<f32>"], [torch.zeros(3, device="meta")]) in (None, [0])


def test_objects_with_data_ptr(reader):
    class Pointer:
        def __init__(self, value):
            self.value = value

        def data_ptr(self):
            if isinstance(self.value, Exception):
                raise self.value
            return self.value

    assert reader(["ptr<i8>"] * 3, [Pointer(0), Pointer(2**64 - 1), Pointer(2**63)]) == [
        0,
        2**64 - 1,
        2**63,
    ]
    for value in (RuntimeError("no"), "text", -1, 2**64, None):
        assert reader(["ptr<i8>"], [Pointer(value)]) is None
    result = 10**15
    before = sys.getrefcount(result)
    for _ in range(50):
        reader(["ptr<i8>"], [Pointer(result)])
    assert sys.getrefcount(result) == before


class Unruly:
    def __index__(self):
        raise ValueError("no index")

    def __float__(self):
        raise ValueError("no float")

    def __bool__(self):
        raise ValueError("neither")


@pytest.mark.parametrize(
    "type_, values",
    [
        ("i64", [2**63, -(2**63) - 1, "1", 1.5, None, Unruly()]),
        ("u64", [-1, 2**64, 1.0, Unruly()]),
        ("f64", ["1", None, [1.0], 10**400, Unruly()]),
        ("f32", ["1", Unruly()]),
        ("i1", [Unruly()]),
        ("ptr<f32>", [object(), 5, None, "x"]),
    ],
)
def test_what_does_not_fit_is_left_to_python_without_an_exception(reader, type_, values):
    for value in values:
        assert reader([type_], [value]) is None
        assert reader(["i64"], [1]) == [1]


class Described:
    def __init__(self, base, shape, strides):
        self.base, self.shape, self.strides = base, shape, strides


def test_descriptors_take_a_slot_for_each_word(reader):
    x, y = np.zeros(8, np.float32), np.zeros(8, np.int8)
    first, second = Described(x, [2, 3], [-4, 1]), Described(y, [2**31 - 1], [1])
    read = reader(
        ["i32", "desc<4x4xf32>", "desc<8xi8>", "u64"],
        (7, first, second, 2**64 - 1),
        stored=[False, True, False, False],
    )
    assert read == [7, x.ctypes.data, 2, 3, 2**64 - 4, 1, y.ctypes.data, 2**31 - 1, 1, 2**64 - 1]
    x.flags.writeable = False
    assert reader(["desc<4x4xf32>"], (first,), stored=[True]) is None
    assert reader(["desc<4x4xf32>"], (first,))[0] == x.ctypes.data


@pytest.mark.parametrize(
    "value",
    [
        Described(None, [2, 3], [4, 1]),
        Described(np.zeros(8), [2], [4, 1]),
        Described(np.zeros(8), [2, 3], [4, 1, 1]),
        Described(np.zeros(8), (2, 3), [4, 1]),
        Described(np.zeros(8), [2, True], [4, 1]),
        Described(np.zeros(8), [2, 2**63], [4, 1]),
        Described(np.zeros(8), [2, 3], None),
        np.zeros(8),
        object(),
    ],
)
def test_what_is_no_plain_descriptor_is_left_to_python(reader, value):
    assert reader(["desc<4x4xf64>"], (value,)) is None


def test_reading_descriptors_keeps_no_reference(reader):
    base, shape, strides = np.zeros(8), [1000003, 1000005], [1000007, 1]
    kept = (base, shape, strides, shape[0], strides[0])
    given, odd = Described(base, shape, strides), Described(base, shape, [1000007, None])
    before = [sys.getrefcount(each) for each in kept]
    for _ in range(100):
        assert reader(["desc<4x4xf64>"], (given,)) and reader(["desc<4x4xf64>"], (odd,)) is None
    assert [sys.getrefcount(each) for each in kept] == before


def test_kinds_of_types():
    assert (
        native_values.kinds_of(
            ["ptr<f32>", "i32", "u32", "u64", "f64", "f32", "i1", "ptr<ptr<i8>>"]
        )
        == b"piiudfbp"
    )
    assert native_values.kinds_of(["desc<4x4xf32>", "desc<8xi8>"], [True, False]) == b"\x85\x03"
    assert native_values.slots_of(b"pi\x85\x03u") == 11
    for type_ in ("f16", "bf16", "f8e4m3fn", "desc<1x1x1x1x1x4xf32>"):
        assert native_values.kinds_of(["i32", type_]) is None
    assert (
        native_values.kinds_of(["ptr<f32>", "i32", "ptr<f32>", "f32"], [True, True, False, True])
        == b"wipf"
    )
    assert native_values.kinds_of([]) == b""
