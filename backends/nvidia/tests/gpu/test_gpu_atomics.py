"""Atomic sums on the GPU against exact ones: whole numbers, so that no order shows; odd sizes,
masks, views at odd addresses; each many times."""

from __future__ import annotations

from typing import Any

import gpu_kernels as kernels
import pytest
from gpu_support import gpu_is_there

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not gpu_is_there() or not torch.cuda.is_available(), reason="there is no NVIDIA GPU here"
    ),
]

REPEATS, PROGRAMS, MARGIN = 20, 13, 64
TYPES = ["float32", "float16", "bfloat16", "float64", "int32"]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def whole(shape: Any, dtype: str) -> Any:
    """Numbers whose sums of 13 have few bits: those of bfloat16 have eight."""
    return torch.randint(-3, 4, shape, device="cuda").to(getattr(torch, dtype))


def zeros_between(n: int, dtype: Any, shift: int) -> tuple[Any, Any]:
    """n zeros, ``shift`` elements behind an address that is a multiple of 16, and the memory that
    they lie in the middle of: all else is 7."""
    memory = torch.full((n + 2 * MARGIN + shift,), 7, dtype=dtype, device="cuda")
    part = memory[MARGIN + shift : MARGIN + shift + n]
    part.zero_()
    return part, memory


def check_surroundings(memory: Any, n: int, shift: int) -> None:
    assert bool((memory[: MARGIN + shift] == 7).all()) and bool(
        (memory[MARGIN + shift + n :] == 7).all()
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 31, 999, 1000, 1008, 2048, 4095])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_sums_of_rows(dtype: str, n: int, shift: int) -> None:
    block = 1 << max(5, (n - 1).bit_length())
    for number in range(REPEATS):
        x = whole((PROGRAMS, n), dtype)
        z, memory = zeros_between(n, x.dtype, shift)
        order = ("relaxed", "acquire", "release", "acq_rel")[number % 4]
        kernels.row_sums[(PROGRAMS,)](
            x, z, n, BLOCK=block, ORDER=order, SCOPE=("gpu", "sys")[number % 2]
        )
        assert torch.equal(z, x.double().sum(0).to(x.dtype))
        check_surroundings(memory, n, shift)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [3, 1000, 2048])
def test_old_values_are_those_of_one_order(dtype: str, n: int) -> None:
    """Where each program adds 1, the old values of an element are 0, 1, 2 ... in the order in which
    the programs came."""
    block = 1 << max(5, (n - 1).bit_length())
    x = torch.ones(n, device="cuda").to(getattr(torch, dtype))
    for _ in range(REPEATS):
        z, old = torch.zeros_like(x), torch.full((PROGRAMS, n), -1, dtype=x.dtype, device="cuda")
        kernels.row_sums_with_old[(PROGRAMS,)](x, z, old, n, BLOCK=block)
        assert bool((z == PROGRAMS).all())
        assert torch.equal(
            old.sort(0).values,
            torch.arange(PROGRAMS, device="cuda").to(x.dtype)[:, None].expand(PROGRAMS, n),
        )


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
@pytest.mark.parametrize(("m", "n"), [(32, 128), (29, 128), (32, 101), (5, 7)])
@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_sums_that_several_lanes_hold_are_added_once(
    dtype: str, m: int, n: int, stride: int, num_warps: int
) -> None:
    for _ in range(REPEATS):
        x = whole((PROGRAMS, m, n), dtype)
        z, memory = zeros_between(m * stride, x.dtype, 0)
        kernels.tile_sums[(PROGRAMS,)](
            x, z, m, n, ROWS=32, COLUMNS=128, STRIDE=stride, num_warps=num_warps
        )
        expected = torch.zeros(m, stride, dtype=x.dtype, device="cuda")
        expected[:, 0] = x.double().sum((0, 2)).to(x.dtype)
        assert torch.equal(z.view(m, stride), expected)
        check_surroundings(memory, m * stride, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 256), (63, 64, 256), (64, 61, 250), (16, 128, 512)]
)
def test_split_products(dtype: str, m: int, n: int, k: int) -> None:
    a = (torch.rand(m, k, device="cuda") < 0.1).half()
    b = torch.randint(-1, 2, (k, n), device="cuda").half()
    exact = a.double() @ b.double()
    assert exact.abs().max() < 128
    for _ in range(REPEATS):
        c, memory = zeros_between(m * n, getattr(torch, dtype), 0)
        kernels.split_product[(-(-k // 64),)](a, b, c, m, n, k, M=64, N=128 if n > 64 else 64, K=64)
        assert torch.equal(c.view(m, n).double(), exact)
        check_surroundings(memory, m * n, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize("n", [1000, 1024])
def test_the_last_program_sees_all_sums(dtype: str, n: int) -> None:
    """What each program added is ordered before its ticket by one fence."""
    for _ in range(REPEATS):
        x = whole((40, n), dtype).clamp(-1, 1)
        z, seen = (
            torch.zeros(n, dtype=x.dtype, device="cuda"),
            torch.full((n,), 7, dtype=x.dtype, device="cuda"),
        )
        kernels.published_sums[(40,)](
            x, z, torch.zeros(1, dtype=torch.int32, device="cuda"), seen, n, BLOCK=1024
        )
        assert torch.equal(seen, x.double().sum(0).to(x.dtype))
