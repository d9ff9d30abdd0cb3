"""Arrays of every library as kernel arguments."""

import ctypes
import dataclasses
import gc
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from optional_torch import torch

from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Device, Manifest
from tilewright.plugins.registry import registry
from tilewright.runtime.arguments import array_protocols, dlpack, pointer_device
from tilewright.runtime.arguments.array_protocols import (
    ArgumentError,
    ArrayKind,
    ArrayView,
    address_of,
    array_kind,
    is_array_type,
    launch_value,
)
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.dtypes import dtype_text
from tilewright.runtime.arguments.mock_tensors import MockTensor, TensorWrapper, reinterpret
from tilewright.runtime.devices import device_registry

NUMPY_TYPES = {
    "bool": "u1",
    **{
        f"{kind}int{bits}": f"{'u' if kind else 'i'}{bits}"
        for kind in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
}
TORCH_TYPES = {
    **{name: text for name, text in NUMPY_TYPES.items() if hasattr(torch, name)},
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}
ML_TYPES = {
    name: TORCH_TYPES[name]
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
}


class Description(NamedTuple):
    """What a launch learns of an array."""

    device_kind: str
    device_index: int
    dtype: str
    address: int
    divisible: bool


def describe(value: Any) -> Description:
    kind = array_kind(value)
    return Description(*kind.device, kind.dtype, address_of(value), kind.divisible)


@pytest.mark.parametrize(("name", "text"), NUMPY_TYPES.items())
def test_numpy_arrays(name, text):
    array = np.zeros(40, name)
    found = describe(array)
    assert (found.device_kind, found.device_index, found.dtype, found.address) == (
        "cpu",
        0,
        text,
        array.ctypes.data,
    )
    for offset in range(20):
        view = array[offset:]
        assert address_of(view) == view.ctypes.data
        assert array_kind(view).divisible == (view.ctypes.data % 16 == 0)
    assert launch_value(array) is array


@pytest.mark.parametrize(("name", "text"), TORCH_TYPES.items())
def test_torch_tensors(name, text):
    tensor = (
        torch.zeros(40, dtype=torch.uint8)[:32].view(getattr(torch, name))
        if name not in ("bool",)
        else torch.zeros(40, dtype=torch.bool)
    )
    found = describe(tensor)
    assert (found.device_kind, found.device_index, found.dtype, found.address) == (
        "cpu",
        0,
        text,
        tensor.data_ptr(),
    )
    assert array_kind(tensor[1:]).divisible == (tensor[1:].data_ptr() % 16 == 0)
    assert array_kind(tensor) is array_kind(tensor)


@pytest.mark.parametrize(("name", "text"), ML_TYPES.items())
def test_ml_dtypes_arrays(name, text):
    assert array_kind(np.zeros(8, getattr(ml_dtypes, name))).dtype == text


def test_views_with_strides_are_passed_by_their_first_element():
    base = np.arange(64, dtype=np.int32).reshape(8, 8)
    for view in (base[::2, 1::3], base[::-1], base.T, base[3:, 2], base[2, 3:4]):
        assert address_of(view) == view.__array_interface__["data"][0]


def test_subclasses_and_read_only_arrays(tmp_path):
    mapped = np.memmap(tmp_path / "m", np.float32, "w+", shape=(100,))
    assert describe(mapped).address == mapped.ctypes.data
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    assert array_kind(frozen).dtype == "fp64"
    assert describe(np.array(3.0)).dtype == "fp64"
    assert describe(np.zeros((0, 3), np.int8)).dtype == "i8"


def test_the_fast_address_and_the_portable_one_agree():
    for _ in range(50):
        array = np.empty(np.random.randint(1, 1000), np.uint8)[np.random.randint(0, 3) :]
        assert (
            array_protocols._header_address(array)
            == array.__array_interface__["data"][0]
            == array_protocols._numpy_address(array)
        )


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(3, ">f4"), "byte order"),
        (np.array([object()]), "Python objects"),
        (np.zeros(3, [("a", "i4"), ("b", "f4")]), "structure"),
        (np.zeros(3, np.complex64), "real and imaginary"),
        (np.zeros(3, "U4"), "no counterpart"),
        (np.zeros(3, "datetime64[s]"), "no counterpart"),
        (torch.zeros(3, dtype=torch.complex64), "real and imaginary"),
    ],
)
def test_arrays_that_kernels_cannot_read(array, reason):
    with pytest.raises(ArgumentError, match=reason) as raised:
        array_kind(array)
    assert isinstance(raised.value, TypeError)
    assert "cannot pass this" in str(raised.value)


@pytest.mark.parametrize("value", [3, 2.5, None, "x", [1, 2], object(), np.float32(3), np.int64(3)])
def test_what_is_no_array(value):
    assert not is_array_type(type(value))
    with pytest.raises(ArgumentError, match="pass a NumPy array, a PyTorch tensor"):
        array_kind(value)


class HostInterface:
    """Has an array interface and nothing else."""

    def __init__(self, array, **changes):
        self.array = array
        self.changes = changes

    @property
    def __array_interface__(self):
        return {**self.array.__array_interface__, **self.changes}


class DeviceInterface:
    """Looks like an array of another library on a GPU."""

    def __init__(self, pointer, typestr="<f4", strides=None):
        self.__cuda_array_interface__ = {
            "shape": (4, 6),
            "typestr": typestr,
            "data": (pointer, False),
            "version": 3,
            "strides": strides,
        }


class DeviceInterfaceWithPlace(DeviceInterface):
    def __dlpack_device__(self):
        return (2, 3)


def test_the_array_interface():
    base = np.arange(24, dtype=np.uint16).reshape(4, 6)[:, 2:]
    value = HostInterface(base)
    assert describe(value) == ("cpu", 0, "u16", base.ctypes.data, base.ctypes.data % 16 == 0)
    view = launch_value(value)
    assert isinstance(view, ArrayView)
    assert (view.shape, view.strides, view.element_size(), view.nbytes) == (
        (4, 4),
        (6, 1),
        2,
        2 * (3 * 6 + 4),
    )
    assert np.array_equal(np.asarray(view), base)
    np.asarray(view)[1, 1] = 77
    assert base[1, 1] == 77
    with pytest.raises(ArgumentError, match="byte order"):
        array_kind(HostInterface(base, typestr=">u2"))
    with pytest.raises(ArgumentError, match="'<c8'"):
        array_kind(HostInterface(base, typestr="<c8"))


def test_the_device_array_interface():
    assert describe(DeviceInterface(0x10010)) == ("cuda", 0, "fp32", 0x10010, True)
    assert describe(DeviceInterfaceWithPlace(0x10014, "|i1")) == ("cuda", 3, "i8", 0x10014, False)
    view = launch_value(DeviceInterface(0x10010, strides=(48, 8)))
    assert view.strides == (12, 2)
    assert view.data_ptr() == 0x10010
    with pytest.raises(AttributeError):
        view.__array_interface__


class DLPackOnly:
    """An array known by DLPack alone. ``versioned`` says whether it understands ``max_version``."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned
        self.exports = []

    def __dlpack__(self, **keywords):
        if keywords and not self.versioned:
            raise TypeError("unexpected keyword")
        self.exports.append(keywords)
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(30, dtype=np.float64).reshape(5, 6)[1:, ::2],
        lambda: torch.arange(30).reshape(5, 6).T,
    ],
)
def test_dlpack(versioned, make):
    base = make()
    value = DLPackOnly(base, versioned)
    expected = base.ctypes.data if isinstance(base, np.ndarray) else base.data_ptr()
    assert describe(value)[:4] == (
        "cpu",
        0,
        "fp64" if isinstance(base, np.ndarray) else "i64",
        expected,
    )
    view = launch_value(value)
    assert np.array_equal(np.asarray(view), np.asarray(base))


@pytest.mark.parametrize(
    ("name", "text"), [("bfloat16", "bf16"), ("bool", "u1"), ("float16", "fp16"), ("uint8", "u8")]
)
def test_dlpack_element_types(name, text):
    assert array_kind(DLPackOnly(torch.zeros(4, dtype=getattr(torch, name)), False)).dtype == text


def test_dlpack_keeps_the_memory_until_the_view_goes_and_returns_it_then():
    class Owned(np.ndarray):
        pass

    base = np.arange(6.0).view(Owned)
    gone = weakref.ref(base)
    view = launch_value(DLPackOnly(base, True))
    del base
    gc.collect()
    assert gone() is not None
    assert np.asarray(view)[5] == 5
    view.owner[1].array = None
    gc.collect()
    assert gone() is not None, "the capsule alone must keep the memory"
    del view
    gc.collect()
    assert gone() is None


def test_a_capsule_of_another_kind_is_refused():
    class Wrong:
        def __dlpack__(self, **keywords):
            new = ctypes.pythonapi.PyCapsule_New
            new.restype, new.argtypes = (
                ctypes.py_object,
                [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
            )
            return new(16, b"something", None)

    with pytest.raises(ArgumentError, match="no DLPack tensor"):
        array_kind(Wrong())


def test_a_used_capsule_is_refused():
    capsule = np.zeros(3).__dlpack__()
    torch.utils.dlpack.from_dlpack(capsule)

    class Reused:
        def __dlpack__(self, **keywords):
            return capsule

    with pytest.raises(ArgumentError, match="no DLPack tensor"):
        array_kind(Reused())


def test_complex_elements_of_dlpack_are_refused():
    with pytest.raises(ArgumentError, match="no counterpart"):
        array_kind(DLPackOnly(np.zeros(3, np.complex64), False))


class Pointer:
    """Imitation of a tensor: data_ptr() and dtype, and a device in some form."""

    def __init__(self, address, dtype, device):
        self.address, self.dtype, self.device = address, dtype, device

    def data_ptr(self):
        return self.address


@pytest.mark.parametrize(
    ("device", "place"),
    [
        ("cpu", ("cpu", 0)),
        ("cuda", ("cuda", 0)),
        ("cuda:2", ("cuda", 2)),
        (("hip", 1), ("hip", 1)),
        (torch.device("cuda", 1), ("cuda", 1)),
        (None, None),
    ],
)
def test_objects_with_data_ptr(device, place):
    kind = array_kind(Pointer(0x1008, "float16", device))
    assert (kind.dtype, kind.device, kind.divisible) == ("fp16", place, False)
    assert address_of(Pointer(0x1008, "float16", device)) == 0x1008


class Bare:
    """Object with data_ptr() and dtype alone."""

    def __init__(self, address):
        self.address, self.dtype = address, "float32"

    def data_ptr(self):
        return self.address


class Owner:
    """A backend whose driver knows the addresses of its two devices, from 0x10000 on."""

    __name__ = "owner"

    @hookimpl
    def tilewright_backend(self):
        return Manifest(
            "owner",
            "1",
            "somebody's",
            ("cuda",),
            ("one",),
            Capabilities(frozenset({"f32"})),
            priority=1,
        )

    @hookimpl
    def tilewright_devices(self):
        return [Device("owner", "cuda", index, "a GPU") for index in range(2)]

    @hookimpl
    def tilewright_pointer_device(self, address):
        return address // 0x10000 - 1 if address >= 0x10000 else None


@pytest.fixture
def owner():
    registry().register(Owner(), "owner")
    device_registry.forget()
    yield
    registry().unregister("owner")
    device_registry.forget()


@pytest.mark.parametrize(
    ("address", "place"), [(0x8000, ("cpu", 0)), (0x18000, ("cuda", 0)), (0x28008, ("cuda", 1))]
)
def test_where_an_object_without_a_device_lies_is_asked_of_drivers(owner, address, place):
    kind = array_kind(Bare(address))
    assert (kind.dtype, kind.device, kind.divisible) == ("fp32", place, address % 16 == 0)
    assert array_kind(TensorWrapper(Bare(address), "int32")).device == place


def test_an_object_without_a_device_is_refused_where_no_driver_can_tell(monkeypatch):
    monkeypatch.setattr(pointer_device, "registry", lambda: SimpleNamespace(backends=list))
    monkeypatch.setattr(pointer_device, "fallback", None)
    with pytest.raises(
        ArgumentError,
        match=r"Bare .* does not say where its memory lies.* Give Bare an attribute `device`",
    ):
        array_kind(Bare(0x8000))
    monkeypatch.setattr(pointer_device, "fallback", lambda: ("hip", 3))
    assert array_kind(Bare(0x8000)).device == ("hip", 3)


def test_a_rocm_build_of_torch_has_hip_devices(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    assert array_kind(Pointer(16, "int8", "cuda:1")).device == ("hip", 1)


def test_kinds_are_interned_and_hash_by_identity():
    first, second = np.zeros(64, np.float32), np.ones(64, np.float32)
    aligned = [
        a[next(i for i in range(4) if a[i:].ctypes.data % 16 == 0) :] for a in (first, second)
    ]
    assert array_kind(aligned[0]) is array_kind(aligned[1])
    assert array_kind(aligned[0]) is ArrayKind("fp32", True, ("cpu", 0))
    assert array_kind(aligned[0][1:]) is ArrayKind("fp32", False, ("cpu", 0))
    assert array_kind(torch.zeros(16)) is ArrayKind("fp32", True, ("cpu", 0))


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (np.float32, "fp32"),
        (np.dtype("int64"), "i64"),
        ("*"[1:] + "fp32", "fp32"),
        ("float8_e5m2", "fp8e5"),
        (torch.bfloat16, "bf16"),
        (ml_dtypes.bfloat16, "bf16"),
        (bool, "u1"),
    ],
)
def test_dtype_texts(dtype, text):
    assert dtype_text(dtype) == text


def test_language_dtypes():
    from tilewright.language.value_types import dtypes

    for name, text in (
        ("float32", "fp32"),
        ("int8", "i8"),
        ("uint64", "u64"),
        ("bfloat16", "bf16"),
        ("float8e4b15", "fp8e4b15"),
        ("int1", "u1"),
    ):
        assert dtype_text(getattr(dtypes, name)) in (text, {"u1": "i1"}.get(text)), name


@pytest.mark.parametrize("value", ["floaty", [1], 3.5, object()])
def test_what_is_no_dtype(value):
    with pytest.raises(TypeError):
        dtype_text(value)


# ---- stand-ins and wrappers


def test_mock_tensors_are_aligned_and_nowhere():
    mock = MockTensor(torch.float16, (4, 8))
    kind = array_kind(mock)
    assert (kind.dtype, kind.divisible, kind.device) == ("fp16", True, None)
    assert (mock.data_ptr(), mock.ptr_range(), mock.stride(), mock.stride(0), mock.nbytes) == (
        0,
        0,
        (8, 1),
        8,
        64,
    )
    assert isinstance(MockTensor.wrap_dtype(torch.float16), MockTensor)
    assert isinstance(MockTensor.wrap_dtype(np.dtype("f4")), MockTensor)
    assert isinstance(MockTensor.wrap_dtype(np.float32), MockTensor)
    assert MockTensor.wrap_dtype(3) == 3
    assert MockTensor.wrap_dtype("fp32") == "fp32"


@pytest.mark.parametrize(
    "base",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        torch.arange(12, dtype=torch.uint8).reshape(3, 4),
    ],
    ids=["numpy", "torch"],
)
def test_reinterpret(base):
    seen = reinterpret(base, "fp8e5")
    assert isinstance(seen, TensorWrapper)
    assert (array_kind(seen).dtype, address_of(seen), seen.element_size()) == (
        "fp8e5",
        address_of(base),
        1,
    )
    assert tuple(seen.stride()) == (4, 1)
    assert seen.stride(0) == 4
    assert tuple(seen.shape) == (3, 4)
    assert reinterpret(seen, base.dtype) is base
    assert reinterpret(seen, "i8").base is base
    copy = seen.clone()
    assert copy.dtype == "fp8e5"
    assert address_of(copy) != address_of(seen)
    base[0, 0] = 99
    copy.copy_(seen)
    assert copy.base[0, 0] == 99
    assert tuple(seen.new_empty((2, 5)).shape) == (2, 5)
    assert seen.cpu().dtype == "fp8e5"
    with pytest.raises(TypeError, match="1 bytes as fp32, which takes 4"):
        reinterpret(base, "fp32")
    with pytest.raises(TypeError, match="Cannot reinterpret"):
        reinterpret(3, "fp32")


def test_descriptors_check_their_rules():
    tensor = torch.zeros(8, 64, dtype=torch.float16)
    descriptor = TensorDescriptor.from_tensor(tensor, [4, 32])
    assert (descriptor.shape, descriptor.strides, descriptor.block_shape, descriptor.dtype) == (
        [8, 64],
        [64, 1],
        [4, 32],
        "fp16",
    )
    array = np.zeros((8, 64), np.float32)
    assert TensorDescriptor.from_tensor(array, [4, 32]).strides == [64, 1]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"shape": [], "strides": [], "block_shape": []}, "rank must be 1 to 5"),
        ({"shape": [1] * 6, "strides": [1] * 6, "block_shape": [1] * 6}, "rank must be 1 to 5"),
        ({"strides": [64]}, "rank mismatch"),
        ({"block_shape": [4]}, "rank mismatch"),
        ({"shape": [0, 64]}, "must be positive"),
        ({"block_shape": [3, 32]}, "Shape element 0 must be a power of 2"),
        ({"shape": [0, 64], "block_shape": [4, 0]}, "Shape element 1 must be a power of 2"),
        ({"strides": [64, 2]}, "contiguous"),
        ({"shape": [0, 63], "strides": [63, 1]}, "strides must be 16-byte aligned"),
        ({"padding": "one"}, "padding must be one of"),
        ({"base": torch.zeros(600, dtype=torch.float16)[1:]}, "16-byte aligned"),
        ({"base": torch.zeros(8, 64, dtype=torch.int16), "padding": "nan"}, "for floats"),
        ({"round_f32_to_tf32": True}, "for fp32"),
    ],
)
def test_descriptors_that_break_a_rule(changes, rule):
    facts = {
        "base": torch.zeros(8, 64, dtype=torch.float16),
        "shape": [8, 64],
        "strides": [64, 1],
        "block_shape": [4, 32],
    }
    with pytest.raises(ValueError, match=rule) as found:
        TensorDescriptor(**{**facts, **changes})
    assert isinstance(found.value, AssertionError)  # what programs written for Triton expect


def test_descriptors_like_one_before_are_not_checked_anew(monkeypatch):
    """Programs make them for every launch. What a rule or an error depends on is looked at in
    each."""
    shape = (8, 96)  # of no other test
    for base in (torch.zeros(shape), torch.zeros(shape), torch.nn.Parameter(torch.zeros(1, 8))):
        TensorDescriptor.from_tensor(base, [4, 32])
    checked = []
    old = TensorDescriptor._broken_rule
    monkeypatch.setattr(
        TensorDescriptor, "_broken_rule", lambda self, kind: checked.append(kind) or old(self, kind)
    )
    made = TensorDescriptor.from_tensor(torch.zeros(shape), [4, 32])
    assert (made.shape, made.strides, made.block_shape, made.padding) == (
        [8, 96],
        [96, 1],
        [4, 32],
        "zero",
    ) and not checked
    for changes in (
        {"dtype": torch.float16},
        {"shape": (8, 192)},
        {"base": torch.zeros(800)[1:]},
        {"base": torch.nn.Parameter(torch.zeros(shape))},
    ):
        base = changes.get(
            "base",
            torch.zeros(changes.get("shape", shape), dtype=changes.get("dtype", torch.float32)),
        )
        before = len(checked)
        try:
            TensorDescriptor(base, [8, 96], [96, 1], [4, 32])
        except ValueError:
            assert base.data_ptr() % 16
        assert len(checked) == before + (
            tuple(base.shape) != (8, 192)
        )  # it is the descriptor's shape that counts
    with pytest.raises(ArgumentError):  # of no memory, which is no aligned address
        TensorDescriptor(torch.zeros(shape, device="meta"), [8, 96], [96, 1], [4, 32])
    count = len(checked)
    TensorDescriptor(torch.zeros(shape), [8, 96], [96, 1], [np.int64(4), SimpleNamespace(value=32)])
    assert len(checked) == count


def test_dataclasses_derived_from_descriptors_are_checked():
    @dataclasses.dataclass
    class Named(TensorDescriptor):
        name: str = ""

    made = Named(torch.zeros(8, 64), (8, 64), (64, 1), [4, 32], name="a")
    assert (made.shape, made.name) == ([8, 64], "a")
    with pytest.raises(ValueError, match="contiguous"):
        Named(torch.zeros(8, 64), (8, 64), (64, 2), [4, 32])
    assert dataclasses.replace(
        TensorDescriptor.from_tensor(torch.zeros(8, 64), [4, 32]), block_shape=[8, 8]
    ).block_shape == [8, 8]


def test_dlpack_strides_of_row_major_arrays():
    assert dlpack.contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert dlpack.contiguous_strides(()) == ()
    assert dlpack.contiguous_strides((2, 0, 4)) == (4, 4, 1)
