"""A driver that no vendor has, in two forms: what its native launch function is called with, and
how much shared memory must be asked for.

Its contexts are its devices' indices, as in drivers where a thread has a current device; ``Wide``
passes a structure to its native launch function and takes attributes, ``Flat`` passes everything as
operands and knows no attributes and no capture modes.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.expressions import Expression
from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.table import (
    DEVICE_ATTRIBUTES,
    FUNCTION_ATTRIBUTES,
    DriverCall,
    DriverTable,
    Entries,
    Enumeration,
    Image,
    LaunchAttribute,
    LaunchParameters,
    NativeEntries,
    OpaqueArgument,
    Statuses,
    StreamNames,
)
from tilewright.plugins.manifest import CodeObject
from tilewright.testing.stand_in_driver import StandInBindings, StandInLibrary


class ToyBindings(StandInBindings):
    """The module of the driver's functions. A thread's current device is 0 until it says
    otherwise."""

    current = 0

    def _toyCurrent(self) -> int:
        return self.current

    def _toySetDevice(self, device: int) -> None:
        self.current = device

    def _toyLaunch(
        self,
        function: int,
        x: int,
        y: int,
        z: int,
        threads: int,
        shared: int,
        stream: int,
        addresses: int,
        *rest: Any,
    ) -> None:
        self.started(
            LaunchParameters(function, (x, y, z), threads, shared, stream, addresses, *rest),
            addresses,
        )


def _launch(toy: Any, launch: LaunchParameters) -> tuple[Any, ...]:
    return toy.toyLaunch(launch.function, *launch.grid, *launch[2:])


def _image(driver: Driver, device: int, code: CodeObject) -> Image:
    facts = {
        "binary": lambda: code.binary,
        "symbol": "k_entry",
        "threads": 128,
        "shared": 0,
        **code.metadata,
    }
    facts.pop("configuration", None)
    return Image(**facts)


ENTRIES = Entries(
    initialize=DriverCall("toyInit", lambda toy: toy.toyInit(0)),
    device_count="toyCount",
    device=DriverCall("toyDevice", lambda toy, index: (0, index)),
    device_name="toyName",
    device_memory="toyMemory",
    device_attribute="toyAttribute",
    context=DriverCall("toyDevice", lambda toy, device: (0, device)),
    context_current="toyCurrent",
    context_enter="toySetDevice",
    context_leave="toySetDevice",
    module_load="toyLoad",
    module_unload="toyUnload",
    module_function="toyFunction",
    function_attribute="toyFunctionAttribute",
    function_allow_shared="toyAllowShared",
    occupancy="toyOccupancy",
    launch=DriverCall("toyLaunch", _launch),
    memory_allocate="toyAllocate",
    memory_free="toyFree",
    memory_to_device="toyCopyIn",
    memory_to_host="toyCopyOut",
    memory_fill="toyFill",
    pointer_device="toyOwner",
    synchronize="toyWait",
    event_create="toyEvent",
    event_record="toyRecord",
    event_wait="toyWaitFor",
    event_milliseconds="toyElapsed",
    event_destroy="toyForget",
    capture_mode="toyCaptureMode",
    cluster_occupancy="toyClusters",
    peer_possible="toyReaches",
    peer_enable="toyReach",
)


class Attribute(ctypes.Structure):
    """A launch's attribute in the wide form."""

    _fields_ = (("number", ctypes.c_int64), ("value", ctypes.c_uint8 * 16))


class Config(ctypes.Structure):
    """The structure of the wide form, in an order of its own."""

    _fields_ = (
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("attribute_count", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("block", ctypes.c_uint32 * 3),
        ("grid", ctypes.c_uint32 * 3),
        ("reserved", ctypes.c_uint32),
    )


WIDE = DriverTable(
    backend="toy",
    kind="toy",
    entries=ENTRIES,
    statuses=Statuses(
        out_of_memory=21,
        no_binary=22,
        out_of_launch_resources=23,
        faults={30: "a kernel divided the device by zero"},
        capture=frozenset({40, 41}),
        texts=lambda toy, code: (f"TOY_{code}", "what the driver says"),
        too_many_programs=24,
        peer_enabled=25,
    ),
    native=NativeEntries(
        launch="toyLaunchEx",
        current="toyCurrent",
        operands=("function", "null", "config", "addresses"),
        config=Config,
        attribute=Attribute,
    ),
    streams=StreamNames(
        torch="toy",
        attributes=("toy_stream", "handle"),
        protocol="__toy_stream__",
        libraries="PyTorch or toys",
    ),
    device_attributes=Enumeration(
        "toyDeviceAttribute",
        {name: f"toyDevice_{name}" for name in (*DEVICE_ATTRIBUTES, "age", "cooperative")},
    ),
    function_attributes=Enumeration(
        "toyFunctionAttributes", {name: f"toyFunction_{name}" for name in FUNCTION_ATTRIBUTES}
    ),
    library=lambda: None,
    image=_image,
    architecture=lambda driver, device: f"toy of age {driver.attribute(device, 'age')}",
    grid_limits=(2**20, 2**10, 64),
    free_shared=16 << 10,
    alignment=64,
    flushed_bytes=1 << 20,
    array_protocol="__toy_array_interface__",
)

FLAT = replace(
    WIDE,
    entries=replace(ENTRIES, function_allow_shared=None, capture_mode=None),
    native=NativeEntries(
        launch="toyLaunch",
        current="toyCurrent",
        operands=(
            "function",
            "grid_x",
            "grid_y",
            "grid_z",
            "block_x",
            "block_y",
            "block_z",
            "shared",
            "stream",
            "addresses",
            "null",
        ),
    ),
    cooperative_native=NativeEntries(
        launch="toyLaunchTogether",
        current="toyCurrent",
        operands=(
            "stream",
            "function",
            "grid_x",
            "grid_y",
            "grid_z",
            "block_x",
            "block_y",
            "block_z",
            "shared",
            "addresses",
        ),
    ),
)


@pytest.fixture(params=[WIDE, FLAT], ids=["wide", "flat"])
def table(request: pytest.FixtureRequest) -> DriverTable:
    return request.param


@pytest.fixture
def wide() -> tuple[ToyBindings, Driver]:
    """The wide form alone, where a test is about what only it has."""
    bindings = bindings_of(WIDE)
    return bindings, Driver(WIDE, bindings)


def bindings_of(table: DriverTable) -> ToyBindings:
    made = ToyBindings(table)
    made.settings.attributes["age"] = 3
    return made


@pytest.fixture
def bindings(table: DriverTable) -> ToyBindings:
    return bindings_of(table)


@pytest.fixture
def driver(table: DriverTable, bindings: ToyBindings) -> Driver:
    return Driver(table, bindings).start()


class DeviceArray:
    """An array on a device, as far as launchers look."""

    dtype = np.dtype(np.float32)

    def __init__(self, address: int, device: Any = "toy:1") -> None:
        self.address, self.device = address, device

    def data_ptr(self) -> int:
        return self.address


@pytest.fixture
def toy() -> SimpleNamespace:
    """What tests make things of."""

    def opaque(
        inputs: tuple[Expression, ...], size: int, encode: Any, **facts: Any
    ) -> OpaqueArgument:
        return OpaqueArgument(
            subject="no toy can play with it", inputs=inputs, size=size, encode=encode, **facts
        )

    def load(
        driver: Driver, device: int = 1, code: bytes = b"device code", **facts: Any
    ) -> LoadedKernel:
        return LoadedKernel(
            CodeObject("k", code, {}, {"configuration": "num_warps=4", **facts}), device, driver
        )

    def library(table: DriverTable, words: int, device: int = 1) -> StandInLibrary:
        return StandInLibrary(table, words, device)

    return SimpleNamespace(
        load=load,
        library=library,
        array=DeviceArray,
        bindings=bindings_of,
        attribute=LaunchAttribute,
        opaque=opaque,
        wide=WIDE,
        flat=FLAT,
    )
