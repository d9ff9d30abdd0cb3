"""Argument blocks: words, opaque structures, what does not fit."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.errors import LaunchError
from tilewright.gpu_host.arguments import OPAQUE_ALIGNMENT, ArgumentBlock, device_address
from tilewright.gpu_host.expressions import word
from tilewright.plugins.manifest import Parameter


def block(
    *types: str, opaque: Sequence[Any] = (), peers: Sequence[tuple[int, int]] = ()
) -> ArgumentBlock:
    """The arguments of a kernel on device 1."""
    driver: Any = SimpleNamespace(
        table=SimpleNamespace(kind="toy"),
        why_no_access=lambda device, peer: "" if (device, peer) in peers else "it is far away",
    )
    parameters = [
        Parameter(f"p{position}", type_, stored=False) for position, type_ in enumerate(types)
    ]
    return ArgumentBlock("k", parameters, partial(device_address, driver, 1), opaque)


def packed(given: tuple[int, ...]) -> bytes:
    return struct.pack("<q", given[0])


def words(values: bytes) -> list[int]:
    return np.frombuffer(values, np.uint64).tolist()


def bits(form: str, value: float) -> int:
    return int.from_bytes(struct.pack(f"<{form}", value), "little")


class Descriptor:
    def __init__(self, base: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.base, self.shape, self.strides = base, shape, strides


def test_each_kind_of_argument_has_its_words(toy: SimpleNamespace) -> None:
    kinds = ("ptr<f32>", "i32", "u64", "i1", "f32", "f64", "f16", "bf16", "f8e5m2", "desc<4x4xf16>")
    values = (
        toy.array(4096),
        -5,
        2**64 - 1,
        True,
        1.5,
        2.5,
        1.0,
        1.0,
        1.0,
        Descriptor(toy.array(64), (6, 5), (5, 1)),
    )
    expected = [
        4096,
        2**64 - 5,
        2**64 - 1,
        1,
        bits("f", 1.5),
        bits("d", 2.5),
        0x3C00,
        0x3F80,
        0x3C,
        64,
        6,
        5,
        5,
        1,
    ]
    assert words(block(*kinds).pack(values)) == expected
    address, kept = block(*kinds).place(values)
    places = (ctypes.c_uint64 * len(expected)).from_address(address)
    assert [ctypes.c_uint64.from_address(place).value for place in places] == expected and kept


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (
            "ptr<f32>",
            np.zeros(4, np.float32),
            (
                r"k: argument 'p0': Pointer argument cannot be accessed \(cpu tensor\?\): it is "
                r"a ndarray in memory of device kind"
            ),
        ),
        ("ptr<f32>", "text", r"k: argument 'p0': cannot pass a str to a kernel as memory"),
        ("i32", "one", r"k: argument 'p0' must fit i32, and a str does not"),
        ("u64", -1, r"k: argument 'p0' must fit u64, and -1 does not"),
        ("f32", "one", r"k: argument 'p0' must fit f32"),
    ],
)
def test_arguments_that_do_not_fit_are_named(kind: str, value: Any, told: str) -> None:
    with pytest.raises(LaunchError, match=told):
        block(kind).pack((value,))


def test_another_devices_memory_is_refused(toy: SimpleNamespace) -> None:
    with pytest.raises(
        LaunchError,
        match=(
            r"it is a DeviceArray on toy:0, and the kernel was loaded on toy:1, which cannot "
            r"access that memory \(.*\); move it there first"
        ),
    ):
        block("ptr<f32>", peers=[(0, 1)]).place((toy.array(64, "toy:0"),))
    assert words(block("ptr<f32>", peers=[(1, 0)]).pack((toy.array(64, "toy:0"),))) == [64]
    assert words(block("ptr<f32>").pack((64,))) == [64]  # a number is an address wherever it is


def test_a_wrong_number_of_arguments_is_told() -> None:
    with pytest.raises(LaunchError, match=r"k takes 2 runtime arguments \(p0, p1\), not 1"):
        block("i32", "i32").place((1,))


def test_opaque_structures_are_encoded_once_and_lie_behind_the_words(toy: SimpleNamespace) -> None:
    made: list[tuple[Any, ...]] = []

    def encode(given: tuple[Any, ...]) -> bytes:
        made.append(given)
        return struct.pack("<5q", *given).ljust(128, b"\x7f")

    descriptor = Descriptor(toy.array(4096), (6, 5), (5, 1))
    first, second = (
        toy.opaque(tuple(word(0, index) for index in range(5)), 128, encode),
        toy.opaque((("mul", -1, word(1)),), 8, packed),
    )
    laid = block("desc<4x4xf16>", "i32", opaque=[first, second])
    for base in (4096, 4096, 8192):
        descriptor.base = toy.array(base)
        address, kept = laid.place((descriptor, 9))
        places = list((ctypes.c_uint64 * 8).from_address(address))
        assert [ctypes.c_int64.from_address(place).value for place in places[:6]] == [
            base,
            6,
            5,
            5,
            1,
            9,
        ]
        assert places[6] % OPAQUE_ALIGNMENT == places[7] % OPAQUE_ALIGNMENT == 0
        assert ctypes.string_at(places[6], 128) == struct.pack("<5q", base, 6, 5, 5, 1).ljust(
            128, b"\x7f"
        )
        assert ctypes.c_int64.from_address(places[7]).value == -9
        del kept
    assert made == [(4096, 6, 5, 5, 1), (8192, 6, 5, 5, 1)]


def test_every_launch_has_structures_of_its_own(toy: SimpleNamespace) -> None:
    laid = block("i32", opaque=[toy.opaque((word(0),), 8, packed)])
    placed = [laid.place((number,)) for number in range(4)]
    found = [
        ctypes.c_int64.from_address((ctypes.c_uint64 * 2).from_address(address)[1]).value
        for address, _ in placed
    ]
    assert found == [0, 1, 2, 3]


def test_a_structure_of_another_size_is_refused(toy: SimpleNamespace) -> None:
    with pytest.raises(
        LaunchError,
        match="k: a structure of 128 bytes is passed by value, and the backend encoded 1",
    ):
        block("i32", opaque=[toy.opaque((word(0),), 128, lambda _: b"x")]).place((1,))
