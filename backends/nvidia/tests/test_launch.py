"""Both launchers, with stand-ins for the driver: what it is given, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from stand_ins import FakeBindings

from tilewright.errors import KernelError, LaunchError, OutOfResources
from tilewright.plugins.manifest import CodeObject, Launcher, Parameter
from tilewright_nvidia import native_launch
from tilewright_nvidia.driver import Driver
from tilewright_nvidia.launch import PythonLauncher, stream_handle
from tilewright_nvidia.runtime import LoadedKernel


class DeviceArray:
    """An array on a device, as far as launchers look."""

    dtype = np.dtype(np.float32)

    def __init__(self, address: int, device: Any = "cuda:0") -> None:
        self.address, self.device = address, device

    def data_ptr(self) -> int:
        return self.address


@pytest.fixture
def bindings() -> FakeBindings:
    return FakeBindings()


def loaded_on(bindings: FakeBindings, device: int = 0, **facts: Any) -> LoadedKernel:
    metadata = {"kernel": "k", "num_warps": 4, "shared": 0, "format": "cubin", "configuration": "num_warps=4, num_stages=3", **facts}
    return LoadedKernel(CodeObject("k", b"device code", {}, metadata), device, Driver(bindings))


PARAMETERS = (
    Parameter("x", "ptr<f32>"),
    Parameter("n", "i32"),
    Parameter("big", "u64"),
    Parameter("scale", "f32"),
    Parameter("precise", "f64"),
    Parameter("flag", "i1"),
)
VALUES = (DeviceArray(0x7F0000001000), -5, 2**64 - 1, 1.5, 2.5, True)
WORDS = [
    0x7F0000001000,
    2**64 - 5,
    2**64 - 1,
    struct.unpack("<I", struct.pack("<f", 1.5))[0],
    struct.unpack("<Q", struct.pack("<d", 2.5))[0],
    1,
]


def test_python_launcher_gives_the_driver_grid_block_and_arguments(bindings: FakeBindings) -> None:
    loaded = loaded_on(bindings, shared=1024)
    bindings.words = len(WORDS)
    PythonLauncher(loaded, PARAMETERS)((3, 2, 1), 99, VALUES)
    ((config, words),) = bindings.launches
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (3, 2, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (128, 1, 1)
    assert (config.sharedMemBytes, config.hStream, config.numAttrs) == (1024, 99, 0)
    assert words == WORDS
    assert bindings.contexts == []  # the context was made current for the launch, and no longer


def test_narrow_floats_and_descriptors_are_packed(bindings: FakeBindings) -> None:
    class Descriptor:
        base, shape, strides = DeviceArray(4096), (6, 5), (5, 1)

    loaded = loaded_on(bindings)
    launcher = PythonLauncher(loaded, (Parameter("h", "f16"), Parameter("b", "bf16"), Parameter("e", "f8e5m2"), Parameter("d", "desc<4x4xf16>", stored=False)))
    found = np.frombuffer(launcher.pack((1.0, 1.0, 1.0, Descriptor())), np.uint64).tolist()
    assert found == [0x3C00, 0x3F80, 0x3C, 4096, 6, 5, 5, 1]


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [
        (0, np.zeros(4, np.float32), r"k: argument 'x': Pointer argument cannot be accessed \(cpu tensor\?\): it is a ndarray in memory of device kind 'cpu'"),
        (0, DeviceArray(64, "cpu"), r"k: argument 'x': Pointer argument cannot be accessed \(cpu tensor\?\): it is a DeviceArray"),
        (0, DeviceArray(64, "cuda:1"), r"k: argument 'x': it is a DeviceArray on cuda:1, and the kernel was loaded on cuda:0"),
        (0, "text", r"k: argument 'x': cannot pass a str to a kernel as memory"),
        (1, 1.5, None),
        (1, "one", r"k: argument 'n' must fit i32, and a str does not"),
        (2, -1, r"k: argument 'big' must fit u64, and -1 does not"),
        (3, "one", r"k: argument 'scale' must fit f32"),
    ],
)
def test_arguments_that_do_not_fit_are_named(bindings: FakeBindings, position: int, value: Any, words: str | None) -> None:
    launcher = PythonLauncher(loaded_on(bindings), PARAMETERS)
    bindings.words = len(WORDS)
    values = tuple(value if i == position else given for i, given in enumerate(VALUES))
    if words is None:
        launcher((1, 1, 1), 0, values)
        return
    with pytest.raises(LaunchError, match=words):
        launcher((1, 1, 1), 0, values)
    assert not bindings.launches


def test_a_wrong_number_of_arguments_is_told(bindings: FakeBindings) -> None:
    with pytest.raises(LaunchError, match=r"k takes 6 runtime arguments \(x, n, big, scale, precise, flag\), not 1"):
        PythonLauncher(loaded_on(bindings), PARAMETERS)((1, 1, 1), 0, (1,))


def test_grids_out_of_range_are_refused_and_empty_ones_start_nothing(bindings: FakeBindings) -> None:
    launcher = PythonLauncher(loaded_on(bindings), ())
    with pytest.raises(LaunchError, match=r"k: the grid \(1, 65536, 1\) has 65536 programs along axis 1, and the device takes at most 65535 there"):
        launcher((1, 65536, 1), 0, ())
    with pytest.raises(LaunchError, match="extents are not negative"):
        launcher((1, -1, 1), 0, ())
    launcher((4, 0, 1), 0, ())
    assert not bindings.launches


def test_read_only_arrays_are_refused_where_the_kernel_stores(bindings: FakeBindings) -> None:
    array = DeviceArray(64)
    array.readonly = True  # type: ignore[attr-defined]
    with pytest.raises(LaunchError, match="argument 'x' is a read-only DeviceArray"):
        PythonLauncher(loaded_on(bindings), PARAMETERS[:1])((1, 1, 1), 0, (array,))


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (700, KernelError, "a kernel accessed memory that is not the device's .an illegal address.*It was the kernel launched last, or one before it"),
        (701, OutOfResources, r"registers, Required: 4096, Hardware limit: 65536, in kernel k \(num_warps=4, num_stages=3\)"),
        (1, LaunchError, "kernel k: cuLaunchKernelEx failed: CUDA_ERROR_X"),
    ],
)
def test_statuses_become_errors(bindings: FakeBindings, status: int, error: type[Exception], words: str) -> None:
    bindings.settings.failures["cuLaunchKernelEx"] = status
    with pytest.raises(error, match=words):
        PythonLauncher(loaded_on(bindings), ())((1, 1, 1), 0, ())


def test_kernels_that_may_overlap_are_launched_so(bindings: FakeBindings) -> None:
    PythonLauncher(loaded_on(bindings, launch_pdl=True), ())((1, 1, 1), 0, ())
    ((config, _),) = bindings.launches
    assert config.numAttrs == 1 and config.attrs[0].value.programmaticStreamSerializationAllowed == 1


def test_streams_of_other_libraries() -> None:
    class Torch:
        cuda_stream = 11

    class Cupy:
        ptr = 12

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 13

    assert [stream_handle(stream, 0) for stream in (7, Torch(), Cupy(), Protocol())] == [7, 11, 12, 13]
    with pytest.raises(LaunchError, match="a str is no stream"):
        stream_handle("fast", 0)


# ---- the native launcher

_CONFIG = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(native_launch._Config), ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p)
_CURRENT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64))


class NativeDriver:
    """The two entries that native launchers call."""

    def __init__(self, words: int) -> None:
        self.launches: list[dict[str, Any]] = []
        self.context, self.status = 1000, 0

        def launch(config: Any, function: int, parameters: Any, extra: Any) -> int:
            found = config.contents
            fields = {
                "grid": tuple(found.grid),
                "block": tuple(found.block),
                "shared": found.shared,
                "stream": found.stream,
                "attributes": found.attribute_count,
            }
            if found.attribute_count:
                fields["attribute"] = native_launch._Attribute.from_address(found.attributes).id
            self.launches.append({**fields, "function": function, "words": [ctypes.c_uint64.from_address(parameters[i]).value for i in range(words)]})
            return self.status

        def current(place: Any) -> int:
            place[0] = self.context
            return 0

        self._keep = _CONFIG(launch), _CURRENT(current)
        self.entries = tuple(ctypes.cast(entry, ctypes.c_void_p).value or 0 for entry in self._keep)


@pytest.fixture
def native(bindings: FakeBindings) -> Iterator[tuple[Launcher, NativeDriver, LoadedKernel]]:
    driver = NativeDriver(len(WORDS))
    loaded = loaded_on(bindings, shared=2048, launch_pdl=True)
    bindings.words = len(WORDS)
    slow = PythonLauncher(loaded, PARAMETERS)
    launcher = native_launch.native_launcher(loaded, PARAMETERS, slow, driver.entries)  # type: ignore[arg-type]
    assert launcher is not None
    yield launcher, driver, loaded


def test_native_launcher_gives_the_driver_the_same(native: tuple[Launcher, NativeDriver, LoadedKernel], bindings: FakeBindings) -> None:
    launcher, driver, loaded = native
    launcher((3, 2, 1), 99, VALUES)
    launcher((1, 1, 65535), None, VALUES)
    first, second = driver.launches
    assert first == {
        "grid": (3, 2, 1),
        "block": (128, 1, 1),
        "shared": 2048,
        "stream": 99,
        "attributes": 1,
        "attribute": 6,
        "function": loaded.function,
        "words": WORDS,
    }
    assert second["grid"] == (1, 1, 65535) and second["stream"] == 0
    assert not bindings.launches


def test_what_the_native_launcher_does_not_take_goes_to_python(native: tuple[Launcher, NativeDriver, LoadedKernel], bindings: FakeBindings) -> None:
    launcher, driver, _ = native
    with pytest.raises(LaunchError, match="cpu tensor"):
        launcher((1, 1, 1), None, (np.zeros(3, np.float32), *VALUES[1:]))
    with pytest.raises(LaunchError, match="at most 65535"):
        launcher((1, 70000, 1), None, VALUES)
    with pytest.raises(LaunchError, match="takes 6 runtime arguments"):
        launcher((1, 1, 1), None, VALUES[:2])
    launcher((0, 1, 1), None, VALUES)
    assert not driver.launches and not bindings.launches
    driver.context = 5  # another device's context is this thread's: Python makes the right one current
    launcher((1, 1, 1), None, VALUES)
    assert not driver.launches and len(bindings.launches) == 1


def test_native_launches_ask_for_the_current_stream(native: tuple[Launcher, NativeDriver, LoadedKernel], monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, driver, _ = native
    asked: list[int] = []

    def source(device: int) -> int:
        asked.append(device)
        return 2**48 + len(asked)

    place = native_launch._stream_source
    assert place is not None
    before, place.value = place.value, id(source)
    try:
        launcher((1, 1, 1), None, VALUES)
        launcher((1, 1, 1), None, VALUES)
    finally:
        place.value = before
    assert [launch["stream"] for launch in driver.launches] == [2**48 + 1, 2**48 + 2] and asked == [0, 0]


def test_errors_of_the_stream_function_are_raised(native: tuple[Launcher, NativeDriver, LoadedKernel]) -> None:
    launcher, driver, _ = native

    def source(device: int) -> int:
        raise RuntimeError("no stream today")

    place = native_launch._stream_source
    assert place is not None
    before, place.value = place.value, id(source)
    try:
        with pytest.raises(RuntimeError, match="no stream today"):
            launcher((1, 1, 1), None, VALUES)
    finally:
        place.value = before
    assert not driver.launches


def test_statuses_of_native_launches_become_errors(native: tuple[Launcher, NativeDriver, LoadedKernel]) -> None:
    launcher, driver, _ = native
    driver.status = 700
    with pytest.raises(KernelError, match="illegal address"):
        launcher((1, 1, 1), 0, VALUES)


def test_native_launches_keep_no_reference(native: tuple[Launcher, NativeDriver, LoadedKernel]) -> None:
    launcher, _, _ = native
    array = DeviceArray(64)
    gc.collect()
    gc.disable()  # what it frees refers to None
    try:
        before = sys.getrefcount(array), sys.getrefcount(None)
        for _ in range(5000):
            launcher((1, 1, 1), None, (array, *VALUES[1:]))
        assert abs(sys.getrefcount(array) - before[0]) < 5 and abs(sys.getrefcount(None) - before[1]) < 2500
    finally:
        gc.enable()


def test_arguments_that_native_code_cannot_read_have_the_python_launcher(bindings: FakeBindings) -> None:
    loaded = loaded_on(bindings)
    parameters = (Parameter("h", "f16"),)
    assert native_launch.native_launcher(loaded, parameters, PythonLauncher(loaded, parameters), (1, 1)) is None


def test_structures_are_laid_out_as_the_driver_has_them() -> None:
    from cuda.bindings import driver as bindings

    config, attribute = bindings.CUlaunchConfig(), bindings.CUlaunchAttribute()
    config.gridDimX, config.gridDimY, config.gridDimZ = 1, 2, 3
    config.blockDimX, config.blockDimY, config.blockDimZ = 4, 5, 6
    config.sharedMemBytes, config.hStream = 7, bindings.CUstream(8)
    attribute.id = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = [attribute], 1
    ours = native_launch._Config.from_address(config.getPtr())
    assert (tuple(ours.grid), tuple(ours.block), ours.shared, ours.stream, ours.attribute_count) == ((1, 2, 3), (4, 5, 6), 7, 8, 1)
    first = native_launch._Attribute.from_address(ours.attributes)
    assert (first.id, first.value[0]) == (native_launch._SERIALIZATION, 1)
