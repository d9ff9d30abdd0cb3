"""Tensor maps on the device: machine code and Python make the same ones, kernels launched natively
read and write by them, launches without one still run."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hopper_gpu import hopper_is_there

import tilewright as tw
import tilewright.language as tl
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.encoding import encoder_code, functions_of
from tilewright.gpu_host.errors import DriverError
from tilewright_nvidia.async_copy.tensor_maps import BYTES, TensorMap, opaque
from tilewright_nvidia.host.driver import driver
from tilewright_nvidia.toolchain.installation import library

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]

ADDRESS = 0x7F00_0000_0000


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    """The driver makes maps for threads that have a context, as launches do."""
    with driver().use(0):
        yield


def native_map(cuda: Driver, wanted: TensorMap, words: tuple[int, ...]) -> bytes | None:
    """Return the native encoding of a descriptor's words; None if it is rejected."""
    found = opaque(cuda, wanted)
    code, functions = encoder_code("k", [found], [0]), functions_of(library(), [found])
    assert code is not None and functions is not None
    memory, place = ctypes.create_string_buffer(2 * BYTES), ctypes.c_void_p()
    start = -(-ctypes.addressof(memory) // BYTES) * BYTES
    encode = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_void_p] * 4)(code.address("encode"))
    made = encode((ctypes.c_int64 * len(words))(*words), start, ctypes.byref(place), functions)
    assert not made or place.value == start
    return ctypes.string_at(start, BYTES) if made else None


def python_map(cuda: Driver, wanted: TensorMap, words: tuple[int, ...], size: int) -> bytes | None:
    rank = len(wanted.box)
    found = opaque(cuda, wanted)
    try:
        return found.encode((*words[: 1 + rank], *(step * size for step in words[1 + rank : -1])))
    except DriverError:
        return None


@pytest.mark.parametrize(
    ("element", "size"),
    [
        ("f16", 2),
        ("bf16", 2),
        ("f32", 4),
        ("i8", 1),
        ("f8e4m3fn", 1),
        ("f64", 8),
        ("i64", 8),
        ("u16", 2),
    ],
)
def test_machine_code_makes_the_maps_that_python_makes(element: str, size: int) -> None:
    cuda = driver()
    made = set()
    for rank, span, nan in itertools.product((1, 2, 3, 5), (0, 32, 64, 128), (False, True)):
        box = (*(4,) * (rank - 1), (span or 64) // size)
        extents = tuple(range(70, 70 + rank))
        strides = tuple(16 * 1024 ** (rank - 1 - axis) for axis in range(rank - 1))
        words = (ADDRESS, *extents, *strides, 1)
        wanted = TensorMap.of_descriptor(
            0, element, box, span, nan and element in ("f16", "bf16", "f32", "f64")
        )
        found = native_map(cuda, wanted, words)
        assert found == python_map(cuda, wanted, words, size)
        if rank < 5:  # the fifth axis's strides exceed TMA's limit
            assert found is not None
            made.add(found)
    assert len(made) >= 12


@pytest.mark.parametrize(
    "words",
    [
        (ADDRESS + 8, 100, 64, 64, 1),
        (ADDRESS, 0, 64, 64, 1),
        (ADDRESS, 100, 64, 65, 1),
        (ADDRESS, 100, 64, -64, 1),
        (ADDRESS, 100, 64, 1 << 39, 1),
        (ADDRESS, (1 << 32) + 1, 64, 64, 1),
    ],
)
def test_what_is_refused_here_the_driver_refuses_too(words: tuple[int, ...]) -> None:
    cuda, wanted = driver(), TensorMap.of_descriptor(0, "f16", (64, 64), 128, False)
    assert native_map(cuda, wanted, words) is None
    with pytest.raises((DriverError, OverflowError)):
        opaque(cuda, wanted).encode((*words[:3], words[3] * 2))


@tw.jit
def doubled(a: Any, c: Any, BLOCK: tl.constexpr) -> None:
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    c.store([row, column], tl.dot(a.load([row, 0]), a.load([column, 0]).T).to(tl.float16))


def described(tensor: Any, *block: int) -> Any:
    return tw.TensorDescriptor.from_tensor(tensor, list(block))


def test_native_launches_pass_the_maps_of_their_own_arguments() -> None:
    torch = pytest.importorskip("torch")
    for round_ in range(6):
        for rows in (64, 192, 200):
            a = torch.randn(rows, 64, dtype=torch.float16, device="cuda")
            c = torch.full((rows, rows), float("nan"), dtype=torch.float16, device="cuda")
            compiled = doubled[(-(-rows // 64), -(-rows // 64))](
                described(a, 64, 64), described(c, 64, 64), BLOCK=64, asynchronous=True, num_warps=4
            )
            torch.testing.assert_close(c, a @ a.T, atol=5e-2, rtol=1e-2)
    assert (
        compiled is not None and compiled.metadata.tensor_maps and compiled.otherwise.kernel is None
    ), round_
    assert type(doubled._dispatcher.start).__name__ == "builtin_function_or_method"


def test_launches_that_have_no_map_run_the_kernel_without() -> None:
    torch = pytest.importorskip("torch")
    a, c = (
        torch.randn(64, 64, dtype=torch.float16, device="cuda"),
        torch.full((64, 64), float("nan"), dtype=torch.float16, device="cuda"),
    )
    full, given = described(a, 64, 64), described(c, 64, 64)
    for _ in range(3):
        compiled = doubled[(1, 1)](full, given, BLOCK=64, asynchronous=True, num_warps=4)
    empty = described(a, 64, 64)
    empty.shape = [0, 64]
    for _ in range(3):
        assert doubled[(1, 1)](empty, given, BLOCK=64, asynchronous=True, num_warps=4) is compiled
        torch.testing.assert_close(c, torch.zeros_like(c))
        c.fill_(float("nan"))
    assert compiled is not None and compiled.otherwise.kernel.metadata.tensor_maps == []
    assert [
        "extents must be from 1 to 2**32, not 0" in reason for reason in compiled.otherwise.reasons
    ] == [True]
    doubled[(1, 1)](full, given, BLOCK=64, asynchronous=True, num_warps=4)
    torch.testing.assert_close(c, a @ a.T, atol=5e-2, rtol=1e-2)
