"""Calls of CUDA's driver by both launchers, with mocks; the toolkit's tests cover the launchers."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mock_bindings import FakeBindings

from tilewright.errors import KernelError, LaunchError, OutOfResources, ResidencyError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.launch import PythonLauncher
from tilewright.gpu_host.native_launch import attribute_records, native_launcher
from tilewright.gpu_host.streams import stream_handle
from tilewright.gpu_host.table import DriverCall, LaunchParameters
from tilewright.plugins.manifest import CodeObject, Parameter
from tilewright.testing.stand_in_driver import StandInLibrary
from tilewright_nvidia.host.driver_table import TABLE, LaunchAttribute, LaunchConfig
from tilewright_nvidia.host.image import COOPERATIVE, PROGRAMMATIC_SERIALIZATION


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
    metadata = {
        "kernel": "k",
        "num_warps": 4,
        "shared": 0,
        "format": "cubin",
        "configuration": "num_warps=4, num_stages=3",
        **facts,
    }
    return LoadedKernel(
        CodeObject("k", b"device code", {}, metadata), device, Driver(TABLE, bindings)
    )


PARAMETERS = (Parameter("x", "ptr<f32>"), Parameter("n", "i32"), Parameter("precise", "f64"))
VALUES = (DeviceArray(0x7F0000001000), -5, 2.5)
WORDS = [0x7F0000001000, 2**64 - 5, struct.unpack("<Q", struct.pack("<d", 2.5))[0]]


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


def test_native_launcher_gives_the_driver_the_same(bindings: FakeBindings) -> None:
    library = StandInLibrary(TABLE, len(WORDS), 1000)
    loaded = loaded_on(bindings, shared=2048, launch_pdl=True)
    launcher = native_launcher(loaded, PARAMETERS, PythonLauncher(loaded, PARAMETERS), library)
    assert launcher is not None
    launcher((3, 2, 1), 99, VALUES)
    launcher((1, 1, 65535), None, VALUES)
    first, second = library.launches
    assert first == {
        "grid": (3, 2, 1),
        "block": (128, 1, 1),
        "shared": 2048,
        "stream": 99,
        "attributes": [(6, 1)],
        "function": loaded.function,
        "words": WORDS,
    }
    assert second["grid"] == (1, 1, 65535) and second["stream"] == 0
    assert not bindings.launches
    with pytest.raises(LaunchError, match="at most 65535"):
        launcher((1, 70000, 1), None, VALUES)
    library.status = 700
    with pytest.raises(KernelError, match="illegal address"):
        launcher((1, 1, 1), 0, VALUES)


def test_arrays_of_other_devices_are_refused(bindings: FakeBindings) -> None:
    launcher = PythonLauncher(loaded_on(bindings), PARAMETERS)
    for array, told in (
        (
            DeviceArray(64, "cpu"),
            (
                r"k: argument 'x': Pointer argument cannot be accessed \(cpu tensor\?\): it is a "
                r"DeviceArray"
            ),
        ),
        (
            DeviceArray(64, "cuda:1"),
            r"k: argument 'x': it is a DeviceArray on cuda:1, and the kernel was loaded on cuda:0",
        ),
    ):
        with pytest.raises(LaunchError, match=told):
            launcher((1, 1, 1), 0, (array, *VALUES[1:]))


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (
            700,
            KernelError,
            (
                "a kernel accessed memory that is not the device's .an illegal address.*It was "
                "the kernel launched last, or one before it"
            ),
        ),
        (
            701,
            OutOfResources,
            (
                r"registers, Required: 4096, Hardware limit: 65536, in kernel k \(num_warps=4, "
                r"num_stages=3\)"
            ),
        ),
        (900, LaunchError, "kernel k: cuLaunchKernelEx failed.*captured into a graph"),
        (1, LaunchError, "kernel k: cuLaunchKernelEx failed: CUDA_ERROR_X"),
    ],
)
def test_statuses_become_errors(
    bindings: FakeBindings, status: int, error: type[Exception], words: str
) -> None:
    bindings.settings.failures["cuLaunchKernelEx"] = status
    with pytest.raises(error, match=words):
        PythonLauncher(loaded_on(bindings), ())((1, 1, 1), 0, ())


def test_kernels_that_may_overlap_are_launched_so(bindings: FakeBindings) -> None:
    PythonLauncher(loaded_on(bindings, launch_pdl=True), ())((1, 1, 1), 0, ())
    ((config, _),) = bindings.launches
    assert (
        config.numAttrs == 1
        and config.attrs[0].id == 6
        and config.attrs[0].value.programmaticStreamSerializationAllowed == 1
    )


@pytest.mark.parametrize("facts", [{}, {"launch_pdl": True}])
def test_cooperative_launches_have_the_attribute_for_it(
    bindings: FakeBindings, facts: dict[str, Any]
) -> None:
    loaded = loaded_on(bindings, cooperative=True, **facts)
    assert loaded.n_resident == 8 * 132
    slow, library = PythonLauncher(loaded, ()), StandInLibrary(TABLE, 0, 1000)
    fast = native_launcher(loaded, (), slow, library)
    assert fast is not None
    for launcher in (slow, fast):
        launcher((132, 8, 1), 0, ())
        with pytest.raises(
            ResidencyError,
            match=(
                r"of the 1057 of grid \(1057, 1, 1\) 1056 fit: 8 on each of the 132 SMs "
                r"\(compute units\) of cuda:0, with num_warps=4"
            ),
        ):
            launcher((1057, 1, 1), 0, ())
    ((config, _),) = bindings.launches
    assert config.numAttrs == 1 + len(facts) and (
        config.attrs[-1].id,
        config.attrs[-1].value.cooperative,
    ) == (2, 1)
    (launch,) = library.launches
    assert launch["attributes"] == [(6, 1)] * len(facts) + [(2, 1)]


def test_clusters_that_fit_are_asked_for_by_a_configuration(bindings: FakeBindings) -> None:
    bindings.settings.clusters = 60
    loaded = loaded_on(bindings, cooperative=True, cluster=2, shared=4096)
    assert loaded.most_programs == 60
    ((function, config),) = bindings.named("cuOccupancyMaxActiveClusters")
    assert (
        function,
        config.gridDimX,
        config.blockDimX,
        config.sharedMemBytes,
        config.numAttrs,
    ) == (loaded.function, 2, 128, 4096, 0)


def test_streams_of_other_libraries() -> None:
    protocol = type("Protocol", (), {"__cuda_stream__": lambda self: (0, 13)})()
    streams = (7, SimpleNamespace(cuda_stream=11), SimpleNamespace(ptr=12), protocol)
    assert [stream_handle(TABLE.streams, stream, 0) for stream in streams] == [7, 11, 12, 13]
    with pytest.raises(
        LaunchError,
        match="a str is no stream: pass a handle, or a stream of PyTorch, CuPy or cuda-python",
    ):
        stream_handle(TABLE.streams, "fast", 0)


def test_structures_are_laid_out_as_the_driver_has_them() -> None:
    from cuda.bindings import driver as cuda

    class Catching:
        """The bindings, but for the call itself, which needs a GPU."""

        def __getattr__(self, name: str) -> Any:
            return getattr(cuda, name)

        def cuLaunchKernelEx(
            self, config: Any, function: Any, addresses: int, extra: int
        ) -> tuple[int]:
            self.given = config, int(function), addresses, extra
            return (0,)

    caught, call = Catching(), TABLE.entries.launch
    assert isinstance(call, DriverCall)
    call.call(
        caught, LaunchParameters(77, (1, 2, 3), 128, 7, 8, 4096, (PROGRAMMATIC_SERIALIZATION,))
    )
    config, *others = caught.given
    ours = LaunchConfig.from_address(config.getPtr())
    assert (
        tuple(ours.grid),
        tuple(ours.block),
        ours.shared,
        ours.stream,
        ours.attribute_count,
        others,
    ) == ((1, 2, 3), (128, 1, 1), 7, 8, 1, [77, 4096, 0])
    made = attribute_records(TABLE.native, (PROGRAMMATIC_SERIALIZATION,))
    assert (
        made is not None
        and ctypes.string_at(ours.attributes, ctypes.sizeof(LaunchAttribute))[:12] == made[:12]
    )
    call.call(caught, LaunchParameters(77, (1, 2, 3), 128, 7, 8, 4096, (COOPERATIVE,), True))
    made = attribute_records(TABLE.native, (COOPERATIVE,))
    given = LaunchConfig.from_address(caught.given[0].getPtr()).attributes
    assert (
        made is not None
        and ctypes.string_at(given, ctypes.sizeof(LaunchAttribute))[:12] == made[:12]
    )
    call.call(caught, LaunchParameters(77, (1, 2, 3), 128, 7, 8, 4096))
    assert LaunchConfig.from_address(caught.given[0].getPtr()).attribute_count == 0


def test_every_function_and_number_of_the_table_is_the_bindings() -> None:
    from cuda.bindings import driver as cuda

    for field in fields(TABLE.entries):
        entry = getattr(TABLE.entries, field.name)
        assert callable(getattr(cuda, entry if isinstance(entry, str) else entry.name)), field.name
    for enumeration in (TABLE.device_attributes, TABLE.function_attributes):
        assert all(
            enumeration.member(cuda, name).name == member
            for name, member in enumeration.members.items()
        )
    statuses = TABLE.statuses
    named = {
        statuses.out_of_memory: "CUDA_ERROR_OUT_OF_MEMORY",
        statuses.no_binary: "CUDA_ERROR_NO_BINARY_FOR_GPU",
        statuses.out_of_launch_resources: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        statuses.too_many_programs: "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        min(statuses.capture): "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        max(statuses.capture): "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        min(statuses.faults): "CUDA_ERROR_ILLEGAL_ADDRESS",
        max(statuses.faults): "CUDA_ERROR_LAUNCH_FAILED",
    }
    assert {code: cuda.CUresult(code).name for code in named} == named
    assert all(cuda.CUresult(code) for code in statuses.faults)
    assert cuda.CUlaunchAttributeID(PROGRAMMATIC_SERIALIZATION.number).name.endswith(
        "PROGRAMMATIC_STREAM_SERIALIZATION"
    )
    assert cuda.CUlaunchAttributeID(COOPERATIVE.number).name.endswith("ATTRIBUTE_COOPERATIVE")
    assert cuda.CUstreamCaptureMode(2).name.endswith("RELAXED")
