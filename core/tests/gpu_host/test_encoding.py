"""Opaque structures that machine code makes at every launch, and what goes to Python instead."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.errors import RefusedError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.expressions import word
from tilewright.gpu_host.launch import PythonLauncher
from tilewright.gpu_host.native_launch import native_launcher
from tilewright.gpu_host.table import (
    STRUCTURE,
    IntegerArrayOperand,
    IntegerOperand,
    NativeCall,
    Precondition,
)
from tilewright.plugins.manifest import Parameter

#: What the structures of these tests are: an address, two extents of 32 bits, two strides, a
#: constant.
FORM = "<QIIqqi"
SIZE = 40
PARAMETERS = (Parameter("n", "i32"), Parameter("d", "desc<4x8xf16>"), Parameter("x", "ptr<f32>"))


class Descriptor:
    def __init__(self, base: Any, shape: Any, strides: Any) -> None:
        self.base, self.shape, self.strides = base, shape, strides


def described(number: int, scale: int = 2) -> dict[str, Any]:
    """A structure of the descriptor that is argument 1, in which a constant stands."""
    steps = (("mul", word(1, 3), scale), ("mul", word(1, 4), scale))
    native = NativeCall(
        "toyDescribe",
        (
            IntegerOperand("i32", number),
            STRUCTURE,
            IntegerArrayOperand("i64", steps),
            IntegerArrayOperand("i32", (word(1, 1), word(1, 2))),
            IntegerOperand("i64", word(1)),
        ),
    )
    return {
        "inputs": (word(1), word(1, 1), word(1, 2), *steps),
        "size": SIZE,
        "encode": lambda given: struct.pack(FORM, *given, number).ljust(SIZE, b"\0"),
        "conditions": (
            Precondition(steps[0], 0, 1 << 20, 16, "steps are multiples of 16 up to 2**20"),
        ),
        "native": native,
    }


class Describer:
    """The driver's function that fills a structure in."""

    def __init__(self) -> None:
        self.status, self.calls = 0, 0
        kinds = (ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(self.describe)

    def describe(self, number: int, structure: int, steps: int, extents: int, address: int) -> int:
        self.calls += 1
        assert structure % 64 == 0
        values = (
            address,
            *(ctypes.c_uint32 * 2).from_address(extents),
            *(ctypes.c_int64 * 2).from_address(steps),
            number,
        )
        ctypes.memmove(structure, struct.pack(FORM, *values).ljust(SIZE, b"\0"), SIZE)
        return self.status


@pytest.fixture
def describer() -> Describer:
    return Describer()


@pytest.fixture
def launchers(
    driver: Driver, bindings: Any, toy: SimpleNamespace, describer: Describer
) -> Callable[..., tuple[PythonLauncher, Any, Any]]:
    def make(
        *opaque: Any, parameters: tuple[Parameter, ...] = PARAMETERS, words: int = 7
    ) -> tuple[PythonLauncher, Any, Any]:
        bindings.words, bindings.sizes = words, tuple(each.size for each in opaque)
        slow = PythonLauncher(toy.load(driver, opaque=opaque), parameters)
        library = toy.library(driver.table, words)
        library.sizes = bindings.sizes
        library.functions["toyDescribe"] = describer.function
        return slow, native_launcher(slow.loaded, parameters, slow, library), library

    return make


def test_structures_are_made_without_python(
    launchers: Any, toy: SimpleNamespace, bindings: Any, describer: Describer
) -> None:
    slow, fast, library = launchers(
        toy.opaque(**described(7)), toy.opaque(**described(-9, scale=4))
    )
    descriptor = Descriptor(toy.array(4096), [6, 5], [16, 1])
    bindings.calls.clear()
    fast((2, 1, 1), 0, (-3, descriptor, toy.array(64)))
    assert describer.calls == 2 and not bindings.calls
    (native,) = library.launches
    assert native["words"][:7] == [2**64 - 3, 4096, 6, 5, 16, 1, 64]
    assert library.structures == [
        struct.pack(FORM, 4096, 6, 5, 32, 2, 7).ljust(SIZE, b"\0"),
        struct.pack(FORM, 4096, 6, 5, 64, 4, -9).ljust(SIZE, b"\0"),
    ]
    slow((2, 1, 1), 0, (-3, descriptor, toy.array(64)))
    assert bindings.structures == library.structures and bindings.launches[0][1] == native["words"]


@pytest.mark.parametrize(
    ("strides", "told"),
    [
        ([8, 1], None),
        ([9, 1], "k: no toy can play with it: steps are multiples of 16 up to 2\\*\\*20, not 18"),
        ([-8, 1], "steps are multiples of 16 up to 2\\*\\*20, not -16"),
        ([1 << 19, 1], None),
        ([(1 << 19) + 8, 1], "not 1048592"),
        (
            [1 << 62, 1],
            "no toy can play with it: the value 9223372036854775808 of .* does not fit 64 bits",
        ),
    ],
)
def test_conditions_hold_or_the_launch_is_refused(
    launchers: Any, toy: SimpleNamespace, describer: Describer, strides: list[int], told: str | None
) -> None:
    slow, fast, library = launchers(toy.opaque(**described(7)))
    values = (1, Descriptor(toy.array(4096), [6, 5], strides), 0)
    for launcher in (slow, fast):
        if told is None:
            launcher((1, 1, 1), 0, values)
        else:
            with pytest.raises(RefusedError, match=told):
                launcher((1, 1, 1), 0, values)
    assert len(library.launches) == describer.calls == (told is None)


def test_what_the_driver_refuses_is_python_s_to_tell(
    launchers: Any, toy: SimpleNamespace, bindings: Any, driver: Driver, describer: Describer
) -> None:
    facts = described(7)

    def encode(given: Any) -> bytes:
        driver("toyWait")
        raise AssertionError("the driver takes it")

    _, fast, library = launchers(toy.opaque(**{**facts, "encode": encode}))
    describer.status = bindings.settings.failures["toyWait"] = 5
    with pytest.raises(RefusedError, match="k: no toy can play with it: toyWait failed: TOY_5"):
        fast((1, 1, 1), 0, (1, Descriptor(toy.array(4096), [6, 5], [8, 1]), 0))
    assert describer.calls == 1 and not library.launches and not bindings.launches


@pytest.mark.parametrize(
    "descriptor",
    [
        SimpleNamespace(base=4096, shape=(6, 5), strides=[8, 1]),  # no list
        SimpleNamespace(base=4096, shape=[6, True], strides=[8, 1]),  # no plain int
    ],
)
def test_odd_descriptors_are_read_in_python(
    launchers: Any, toy: SimpleNamespace, bindings: Any, descriptor: Any
) -> None:
    _, fast, library = launchers(toy.opaque(**described(7)))
    fast((1, 1, 1), 0, (1, descriptor, 0))
    assert not library.launches and bindings.launches[0][1][1:6] == [
        4096,
        6,
        int(descriptor.shape[1]),
        8,
        1,
    ]


@pytest.mark.parametrize("strides", [[8], [8, 1, 1], ["eight", 1], None])
def test_what_is_no_descriptor_is_refused(
    launchers: Any, toy: SimpleNamespace, strides: Any
) -> None:
    slow, fast, library = launchers(toy.opaque(**described(7)))
    for launcher in (slow, fast):
        with pytest.raises(Exception, match=r"argument 'd'|arguments do not fit"):
            launcher((1, 1, 1), 0, (1, Descriptor(toy.array(4096), [6, 5], strides), 0))
    assert not library.launches


def test_read_only_tensors_of_descriptors_are_refused_where_the_kernel_stores(
    launchers: Any, toy: SimpleNamespace
) -> None:
    array = toy.array(4096)
    for stored in (False, True):
        _, fast, library = launchers(
            parameters=(Parameter("d", "desc<4xf16>", stored=stored),), words=3
        )
        array.readonly = False
        fast((1, 1, 1), 0, (Descriptor(array, [6], [1]),))
        array.readonly = True
        if stored:
            with pytest.raises(Exception, match="argument 'd' describes a read-only DeviceArray"):
                fast((1, 1, 1), 0, (Descriptor(array, [6], [1]),))
        assert [launch["words"] for launch in library.launches] == [[4096, 6, 1]]


def test_structures_without_a_native_call_leave_launches_to_python(
    launchers: Any, toy: SimpleNamespace
) -> None:
    assert launchers(toy.opaque(**{**described(7), "native": None}))[1] is None
    assert (
        launchers(toy.opaque(**{**described(7), "native": NativeCall("toyLost", (STRUCTURE,))}))[1]
        is None
    )
    assert launchers(*(toy.opaque(**described(number)) for number in range(33)))[1] is None
