"""Both launchers, on both forms of the driver: what it is given, and what is refused."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.errors import BackendError, KernelError, LaunchError, OutOfResources, ResidencyError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.expressions import word
from tilewright.gpu_host.launch import PythonLauncher, make_launcher
from tilewright.gpu_host.native_launch import driver_entries, native_launcher, stream_source
from tilewright.gpu_host.table import DriverTable
from tilewright.plugins.manifest import Parameter

PARAMETERS = (
    Parameter("x", "ptr<f32>"),
    Parameter("n", "i32"),
    Parameter("big", "u64"),
    Parameter("scale", "f32"),
    Parameter("precise", "f64"),
    Parameter("flag", "i1"),
)
WORDS = [
    0x7F0000001000,
    2**64 - 5,
    2**64 - 1,
    struct.unpack("<I", struct.pack("<f", 1.5))[0],
    struct.unpack("<Q", struct.pack("<d", 2.5))[0],
    1,
]


@pytest.fixture
def values(toy: SimpleNamespace) -> tuple[Any, ...]:
    return toy.array(0x7F0000001000), -5, 2**64 - 1, 1.5, 2.5, True


@pytest.fixture
def python(driver: Driver, bindings: Any, toy: SimpleNamespace) -> PythonLauncher:
    bindings.words = len(WORDS)
    return PythonLauncher(toy.load(driver, shared=1024), PARAMETERS)


def test_python_launcher_gives_the_driver_grid_and_arguments(
    python: PythonLauncher, bindings: Any, values: Sequence[Any]
) -> None:
    python((3, 2, 1), 99, tuple(values))
    ((launch, words),) = bindings.launches
    assert (
        launch.function,
        launch.grid,
        launch.threads,
        launch.shared,
        launch.stream,
        launch.attributes,
    ) == (77, (3, 2, 1), 128, 1024, 99, ())
    assert words == WORDS
    assert bindings.current == 0  # the device was made current for the launch, and no longer


def test_a_launch_is_done_within_what_its_kernel_asks_for(
    driver: Driver, bindings: Any, toy: SimpleNamespace, values: Sequence[Any]
) -> None:
    seen: list[tuple[str, int, int]] = []

    @contextlib.contextmanager
    def around(stream: int) -> Iterator[None]:
        seen.append(("before", stream, len(bindings.launches)))
        yield
        seen.append(("after", bindings.current, len(bindings.launches)))

    loaded = toy.load(driver, around=around)
    launcher = make_launcher(loaded, PARAMETERS, {})
    assert isinstance(launcher, PythonLauncher), "machine code does nothing around a launch"
    launcher((1, 1, 1), 99, tuple(values))
    assert seen == [("before", 99, 0), ("after", 1, 1)]
    assert (
        native_launcher(loaded, PARAMETERS, launcher, toy.library(driver.table, len(WORDS))) is None
    )


@pytest.mark.parametrize(
    ("position", "value", "told"),
    [
        (
            0,
            np.zeros(4, np.float32),
            r"k: argument 'x': Pointer argument cannot be accessed \(cpu tensor\?\)",
        ),
        (1, "one", r"k: argument 'n' must fit i32, and a str does not"),
        (2, -1, r"k: argument 'big' must fit u64, and -1 does not"),
    ],
)
def test_arguments_that_do_not_fit_start_nothing(
    python: PythonLauncher,
    bindings: Any,
    values: Sequence[Any],
    position: int,
    value: Any,
    told: str,
) -> None:
    with pytest.raises(LaunchError, match=told):
        python(
            (1, 1, 1), 0, tuple(value if i == position else given for i, given in enumerate(values))
        )
    assert not bindings.launches


def test_arrays_of_another_device_are_refused(
    python: PythonLauncher, values: Sequence[Any], toy: SimpleNamespace
) -> None:
    with pytest.raises(LaunchError, match="on toy:0, and the kernel was loaded on toy:1"):
        python((1, 1, 1), 0, (toy.array(64, "toy:0"), *values[1:]))


def test_arrays_of_a_device_that_can_be_accessed_are_passed(
    python: PythonLauncher, bindings: Any, table: DriverTable, values: Any, toy: SimpleNamespace
) -> None:
    bindings.settings.peers = {(1, 0)}
    library = toy.library(table, len(WORDS))
    native = native_launcher(python.loaded, PARAMETERS, python, library)
    assert native is not None
    for launcher in (python, native):
        launcher((1, 1, 1), 0, (toy.array(0x7F0000001000, "toy:0"), *values[1:]))
    passed = [words for _, words in bindings.launches] + [
        launch["words"] for launch in library.launches
    ]
    assert passed == [WORDS, WORDS] and bindings.named("toyReach") == [(0,)]


def test_grids_out_of_range_are_refused_and_empty_ones_start_nothing(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    launcher = PythonLauncher(toy.load(driver), ())
    with pytest.raises(
        LaunchError,
        match=(
            r"k: the grid \(1, 1, 65\) has 65 programs along axis 2, and the device takes at "
            r"most 64 there"
        ),
    ):
        launcher((1, 1, 65), 0, ())
    with pytest.raises(LaunchError, match="extents are not negative"):
        launcher((1, -1, 1), 0, ())
    launcher((4, 0, 1), 0, ())
    assert not bindings.launches


def test_read_only_arrays_are_refused_where_the_kernel_stores(
    driver: Driver, toy: SimpleNamespace
) -> None:
    array = toy.array(64)
    array.readonly = True
    with pytest.raises(LaunchError, match="argument 'x' is a read-only DeviceArray"):
        PythonLauncher(toy.load(driver), PARAMETERS[:1])((1, 1, 1), 0, (array,))


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        (
            30,
            KernelError,
            (
                "a kernel divided the device by zero.*It was the kernel launched last, or one "
                "before it"
            ),
        ),
        (
            23,
            OutOfResources,
            r"registers, Required: 4096, Hardware limit: 65536, in kernel k \(num_warps=4\)",
        ),
        (40, LaunchError, r"kernel k: toyLaunch failed: TOY_40.*captured into a graph"),
        (5, LaunchError, "kernel k: toyLaunch failed: TOY_5"),
    ],
)
def test_statuses_become_errors(
    driver: Driver,
    bindings: Any,
    toy: SimpleNamespace,
    status: int,
    error: type[Exception],
    told: str,
) -> None:
    loaded = toy.load(driver)
    bindings.settings.failures["toyLaunch"] = status
    with pytest.raises(error, match=told):
        PythonLauncher(loaded, ())((1, 1, 1), 0, ())
    library = toy.library(driver.table, 0)
    library.status = status
    native = native_launcher(loaded, (), PythonLauncher(loaded, ()), library)
    assert native is not None
    with pytest.raises(error, match=told):
        native((1, 1, 1), 0, ())


# ---- the native launcher


@pytest.fixture
def native(python: PythonLauncher, table: DriverTable, toy: SimpleNamespace) -> tuple[Any, Any]:
    """A launcher, and the library that it calls."""
    library = toy.library(table, len(WORDS))
    launcher = native_launcher(python.loaded, PARAMETERS, python, library)
    assert launcher is not None
    return launcher, library


def test_native_launcher_gives_the_driver_the_same(
    native: tuple[Any, Any], bindings: Any, values: tuple[Any, ...]
) -> None:
    launcher, library = native
    bindings.calls.clear()
    launcher((3, 2, 1), 99, values)
    launcher((1, 1, 64), None, values)
    first, second = library.launches
    assert first == {
        "grid": (3, 2, 1),
        "block": (128, 1, 1),
        "shared": 1024,
        "stream": 99,
        "attributes": [],
        "function": 77,
        "words": WORDS,
    }
    assert second["grid"] == (1, 1, 64) and second["stream"] == 0
    assert not bindings.calls  # nothing went through Python


def test_a_program_is_as_many_blocks_as_its_kernel_says(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    loaded = toy.load(driver, blocks=2)
    slow, library = PythonLauncher(loaded, ()), toy.library(driver.table, 0)
    fast = native_launcher(loaded, (), slow, library)
    assert fast is not None
    slow((3, 2, 1), 0, ())
    fast((3, 2, 1), 0, ())
    assert bindings.launches[0][0].grid == library.launches[0]["grid"] == (6, 2, 1)
    most = driver.table.grid_limits[0] // 2
    fast((most, 1, 1), 0, ())
    assert library.launches[1]["grid"] == (2 * most, 1, 1)
    with pytest.raises(
        LaunchError,
        match=f"has {most + 1} programs along axis 0, and the device takes at most {most} there",
    ):
        fast((most + 1, 1, 1), 0, ())


def test_attributes_are_given_where_the_driver_takes_them(toy: SimpleNamespace) -> None:
    attributes = (toy.attribute(4, "size", (2, 1)), toy.attribute(6, "overlap", (1,)))
    for table, expected in ((toy.wide, [(4, 2), (6, 1)]), (toy.flat, None)):
        bindings = toy.bindings(table)
        loaded = toy.load(Driver(table, bindings), attributes=attributes)
        slow = PythonLauncher(loaded, ())
        library = toy.library(table, 0)
        fast = native_launcher(loaded, (), slow, library)
        if expected is None:  # no native function takes them: Python launches
            assert fast is None
        else:
            assert fast is not None
            fast((1, 1, 1), 0, ())
            assert library.launches[0]["attributes"] == expected
        slow((1, 1, 1), 0, ())
        assert bindings.launches[0][0].attributes == attributes


# ---- cooperative launches


def launchers_of(
    toy: SimpleNamespace, table: DriverTable, bindings: Any, **facts: Any
) -> tuple[Any, PythonLauncher, Any, Any]:
    """The loaded kernel of a cooperative launch, both launchers and the library that the native one
    calls."""
    loaded = toy.load(Driver(table, bindings), cooperative=True, **facts)
    slow, library = PythonLauncher(loaded, ()), toy.library(table, 0)
    fast = native_launcher(loaded, (), slow, library)
    assert fast is not None
    return loaded, slow, fast, library


def test_cooperative_launches_are_told_to_the_driver(
    table: DriverTable, bindings: Any, toy: SimpleNamespace
) -> None:
    attributes = (
        (toy.attribute(2, "cooperative", (1,)),)
        if table.native.attribute is not None and table is toy.wide
        else ()
    )
    _, slow, fast, library = launchers_of(toy, table, bindings, attributes=attributes, shared=64)
    slow((8, 4, 16), 3, ())
    fast((8, 4, 16), 3, ())
    assert bindings.launches[0][0].cooperative and bindings.launches[0][0].attributes == attributes
    (launch,) = library.launches
    assert (launch["grid"], launch["block"], launch["shared"], launch["stream"]) == (
        (8, 4, 16),
        (128, 1, 1),
        64,
        3,
    )
    assert launch["attributes"] == ([(2, 1)] if attributes else []) and launch.get("called") == (
        None if table is toy.wide else "toyLaunchTogether"
    )


def test_more_programs_than_run_at_once_are_refused_by_both_launchers(
    table: DriverTable, bindings: Any, toy: SimpleNamespace
) -> None:
    """8 programs on each of 64 processors."""
    loaded, slow, fast, library = launchers_of(toy, table, bindings)
    assert loaded.n_resident == 512
    for launcher in (slow, fast):
        for grid in ((513, 1, 1), (9, 3, 19), (2**20, 2**10, 64)):
            told = (
                rf"kernel k: .* of the {grid[0] * grid[1] * grid[2]} of grid \({grid[0]}, "
                rf"{grid[1]}, {grid[2]}\) 512 fit: 8 on each of the 64 SMs"
            )
            with pytest.raises(
                ResidencyError,
                match=told + r".*toy:1, with num_warps=4. Launch at most 512 programs.*in a loop",
            ):
                launcher(grid, 0, ())
        launcher((512, 1, 1), 0, ())
        launcher((0, 9, 9), 0, ())
    assert len(bindings.launches) == len(library.launches) == 1


def test_programs_of_several_blocks_are_counted_as_clusters(
    table: DriverTable, bindings: Any, toy: SimpleNamespace
) -> None:
    bindings.settings.clusters = 30
    loaded, slow, fast, _ = launchers_of(toy, table, bindings, blocks=2)
    assert loaded.n_resident == 30
    (asked,) = bindings.named("toyClusters")[0]
    assert (asked.function, asked.grid, asked.threads) == (77, (2, 1, 1), 128)
    for launcher in (slow, fast):
        launcher((30, 1, 1), 0, ())
        with pytest.raises(
            ResidencyError,
            match=r"of the 31 of grid \(31, 1, 1\) 30 fit: clusters of 2 CTAs on the 64 SMs",
        ):
            launcher((31, 1, 1), 0, ())
    assert bindings.launches[0][0].grid == (60, 1, 1)


def test_the_driver_may_have_less_room_than_it_said(
    table: DriverTable, bindings: Any, toy: SimpleNamespace
) -> None:
    _, slow, fast, library = launchers_of(toy, table, bindings)
    bindings.settings.failures["toyLaunch"] = library.status = 24
    for launcher in (slow, fast):
        with pytest.raises(
            LaunchError,
            match=(
                r"kernel k: .*they do not fit \(TOY_24\): the device holds 512, or less where "
                r"others use a part of it. Launch fewer"
            ),
        ):
            launcher((8, 1, 1), 0, ())


def test_devices_without_cooperative_launches_refuse_the_kernel(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    bindings.settings.attributes["cooperative"] = 0
    toy.load(driver)
    with pytest.raises(
        BackendError,
        match=(
            r"kernel k: the device toy:1 \(toy of age 3\) has no cooperative launches: leave "
            r"cooperative=True out"
        ),
    ):
        toy.load(driver, cooperative=True)


def test_other_launches_are_not_counted(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    loaded = toy.load(driver)
    library = toy.library(driver.table, 0)
    slow = PythonLauncher(loaded, ())
    fast = native_launcher(loaded, (), slow, library)
    assert fast is not None
    for launcher in (slow, fast):
        launcher((2**20, 2**10, 64), 0, ())
    assert (
        len(bindings.launches) == len(library.launches) == 1
        and not bindings.launches[0][0].cooperative
    )
    assert not bindings.named("toyOccupancy")


def test_what_the_native_launcher_does_not_take_goes_to_python(
    native: tuple[Any, Any], bindings: Any, values: tuple[Any, ...]
) -> None:
    launcher, library = native
    with pytest.raises(LaunchError, match="cpu tensor"):
        launcher((1, 1, 1), None, (np.zeros(3, np.float32), *values[1:]))
    with pytest.raises(LaunchError, match="at most 1024"):
        launcher((1, 1025, 1), None, values)
    with pytest.raises(LaunchError, match="takes 6 runtime arguments"):
        launcher((1, 1, 1), None, values[:2])
    launcher((0, 1, 1), None, values)
    assert not library.launches and not bindings.launches
    library.context = 0  # another device is this thread's: Python makes the right one current
    launcher((1, 1, 1), None, values)
    assert not library.launches and len(bindings.launches) == 1


def test_native_launches_ask_for_the_current_stream(
    native: tuple[Any, Any], table: DriverTable, values: tuple[Any, ...]
) -> None:
    launcher, library = native
    asked: list[int] = []

    def source(device: int) -> int:
        if len(asked) == 2:
            raise RuntimeError("no stream today")
        asked.append(device)
        return 2**48 + len(asked)

    place = stream_source(table)
    before, place.value = place.value, id(source)
    try:
        launcher((1, 1, 1), None, values)
        launcher((1, 1, 1), None, values)
        with pytest.raises(RuntimeError, match="no stream today"):
            launcher((1, 1, 1), None, values)
    finally:
        place.value = before
    assert [launch["stream"] for launch in library.launches] == [
        2**48 + 1,
        2**48 + 2,
    ] and asked == [1, 1]


def test_native_launches_keep_no_reference(
    native: tuple[Any, Any], table: DriverTable, values: tuple[Any, ...]
) -> None:
    launcher, _ = native
    array, stream, place = values[0], 2**48 + 1, stream_source(table)

    def source(_: int) -> int:
        return stream

    native_source, place.value = place.value, id(source)
    gc.collect()
    gc.disable()  # what it frees refers to None
    try:
        before = [sys.getrefcount(found) for found in (array, stream, None)]
        for _ in range(3000):
            launcher((1, 1, 1), None, values)
        grown = [
            sys.getrefcount(found) - count
            for found, count in zip((array, stream, None), before, strict=True)
        ]
        assert abs(grown[0]) < 5 and abs(grown[1]) < 5 and abs(grown[2]) < 1500
    finally:
        place.value = native_source
        gc.enable()


def test_kernels_that_native_code_cannot_launch_have_the_python_launcher(
    driver: Driver, toy: SimpleNamespace
) -> None:
    library = toy.library(driver.table, 0)
    for parameters in (
        (Parameter("h", "f16"),),
        (Parameter("n", "i32"),) * 401,
        (Parameter("d", "desc<4x4x4x4x4xf32>"),) * 37,
    ):
        loaded = toy.load(driver)
        assert (
            native_launcher(loaded, parameters, PythonLauncher(loaded, parameters), library) is None
        )


def test_opaque_arguments_reach_the_driver(
    driver: Driver, bindings: Any, toy: SimpleNamespace
) -> None:
    bindings.words = 2
    loaded = toy.load(
        driver, opaque=(toy.opaque((word(0),), 8, lambda given: struct.pack("<Q", given[0] + 1)),)
    )
    make_launcher(loaded, (Parameter("x", "ptr<f32>"),), {})((1, 1, 1), 0, (toy.array(4096),))
    assert bindings.launches[0][1] == [4096, 4097]


def test_the_launcher_is_native_unless_the_environment_says_otherwise(
    table: DriverTable, toy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = ctypes.CDLL(None)
    found = replace(
        table, native=replace(table.native, launch="abs", current="labs"), library=lambda: process
    )
    assert driver_entries(found.native, process) == tuple(
        ctypes.cast(entry, ctypes.c_void_p).value for entry in (process.abs, process.labs)
    )
    assert driver_entries(replace(found.native, launch="no such function"), process) is None
    assert driver_entries(table.native, None) is None  # no library
    loaded = toy.load(Driver(found, toy.bindings(found)))
    assert not isinstance(make_launcher(loaded, (), {}), PythonLauncher)
    monkeypatch.setenv("TILEWRIGHT_TOY_LAUNCHER", "python")
    assert isinstance(make_launcher(loaded, (), {}), PythonLauncher)
