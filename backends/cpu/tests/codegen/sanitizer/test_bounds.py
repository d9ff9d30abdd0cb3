"""Bounds checks of kernels compiled with ``debug``: an access outside is reported, and not done."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError
from tilewright.language.definitions.callable import device_function
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright_cpu.status import OUT_OF_BOUNDS

SOURCE = open(__file__).read().splitlines()  # noqa: SIM115
BLOCK = 64
COUNT = 512


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


# Each kernel reaches the elements start .. start + BLOCK - 1 of the argument it is named for, and
# nothing else that is not inside.


@device_function
def stores(x, y, start, n, BLOCK: tl.constexpr):
    tl.store(y + start + tl.arange(0, BLOCK), 1.0)  # here: y


@device_function
def loads(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + start + i))  # here: x


@device_function
def loads_volatile(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + start + i, volatile=True))  # here: x


@device_function
def masked_by_bound(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, 2 * BLOCK)
    tl.store(y + start + i, tl.load(x + i, mask=i < n), mask=i < n)  # here: y


@device_function
def masked_otherwise(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, 2 * BLOCK)
    inside = ((i % 3) * (i - 1) >= 0) & (i < n)
    tl.store(y + start + i, 1.0, mask=inside)  # here: y


@device_function
def backwards(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + start + (BLOCK - 1 - i)))  # here: x


@device_function
def gathers(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + start + (i * 7) % BLOCK))  # here: x


@device_function
def scatters(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + start + (i * 7) % BLOCK, 1.0, mask=i < n)  # here: y


@device_function
def scalars(x, y, start, n, BLOCK: tl.constexpr):
    for i in range(BLOCK):
        tl.store(y + i, tl.load(x + start + i))  # here: x


@device_function
def stores_scalars(x, y, start, n, BLOCK: tl.constexpr):
    for i in range(2 * BLOCK):
        tl.store(y + start + i, 1.0, mask=i < n)  # here: y


@device_function
def atomics(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, 2 * BLOCK)
    tl.atomic_add(y + start + i, 1.0, mask=i < n)  # here: y


@device_function
def described(x, y, start, n, BLOCK: tl.constexpr):
    rows = tl.make_tensor_descriptor(x + start, [4, BLOCK // 4], [BLOCK // 4, 1], [4, BLOCK // 4])
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.reshape(rows.load([0, 0]), (BLOCK,)))  # here: x


@device_function
def stores_described(x, y, start, n, BLOCK: tl.constexpr):
    rows = tl.make_tensor_descriptor(y + start, [4, BLOCK // 4], [BLOCK // 4, 1], [4, BLOCK // 4])
    rows.store([0, 0], tl.full((4, BLOCK // 4), 1.0, tl.float32))  # here: y


@device_function
def carried(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, 16)
    pointers, total = x + start + i, tl.zeros((16,), tl.float32)
    for _ in range(BLOCK // 16):
        total += tl.load(pointers)  # here: x
        pointers += 16
    tl.store(y + i, total)


@device_function
def chosen(x, y, start, n, BLOCK: tl.constexpr):
    source = x if n > 0 else y
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(source + start + i))  # here: x or y


@device_function(noinline=True)
def helper(x, start, BLOCK: tl.constexpr):
    return tl.sum(tl.load(x + start + tl.arange(0, BLOCK)))  # here: x


@device_function
def calls(x, y, start, n, BLOCK: tl.constexpr):
    tl.store(y, helper(x, start, BLOCK))


@device_function
def reduces(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y, tl.max(tl.load(x + start + i, mask=i < n, other=-1.0)))  # here: x


@device_function
def multiplies(x, y, start, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK // 4), tl.arange(0, 4)
    a = tl.load(x + start + i[:, None] * 4 + j[None, :])  # here: x
    b = tl.load(x + j[:, None] * 4 + j[None, :])
    tl.store(y + i[:, None] * 4 + j[None, :], tl.dot(a, b))


@device_function
def transposes(x, y, start, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK // 4), tl.arange(0, 4)
    tl.store(
        y + j[:, None] * (BLOCK // 4) + i[None, :],
        tl.trans(tl.load(x + start + i[:, None] * 4 + j[None, :])),  # here: x
    )


KERNELS = [
    stores, loads, loads_volatile, masked_by_bound, masked_otherwise, backwards, gathers, scatters,
    scalars, stores_scalars, atomics, described,
    stores_described, carried, chosen, calls, reduces, multiplies, transposes,
]  # fmt: skip
LAST = COUNT - BLOCK


def place_of(kernel: Any) -> tuple[int, str]:
    """(line, what it says of the argument) of the access that may be outside."""
    function = helper if kernel is calls else kernel
    lines = range(function.definition_line, len(SOURCE) + 1)
    line = next(number for number in lines if "# here: " in SOURCE[number - 1])
    return line, " or ".join(map(repr, SOURCE[line - 1].rpartition("# here: ")[2].split(" or ")))


@pytest.fixture(scope="module")
def checked(module_of: Any, compiled: Any) -> Callable[..., Any]:
    """A kernel compiled with checks of bounds; with and without the passes' rewrites."""
    known: dict[Any, Any] = {}

    def get(kernel: Any, block: int = BLOCK, optimise: bool = True) -> Any:
        key = (kernel.__name__, block, optimise)
        if key not in known:
            module = module_of(
                kernel, [numbers(COUNT), numbers(COUNT), 0, block], optimise=optimise, BLOCK=block
            )
            known[key] = compiled(module, {"debug": True})
        return known[key]

    return get


@pytest.mark.parametrize("optimise", [False, True], ids=["as-written", "optimised"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_an_access_outside_is_reported_and_not_done(
    kernel: Any, optimise: bool, checked: Any, guarded: Any
) -> None:
    run = checked(kernel, optimise=optimise)
    line, names = place_of(kernel)
    for start, inside in (
        (0, True),
        (LAST, True),
        (-1, False),
        (LAST + 1, False),
        (-BLOCK, False),
        (COUNT, False),
        (1 << 28, False),
        (-(1 << 28), False),
    ):
        x, y = numbers(COUNT, seed=1), np.full(COUNT, 99.0, np.float32)
        x_after, y_after, *_ = guarded(run, [x, y, start, BLOCK], (1, 1, 1))
        code, message, *program = run.status[:5]
        assert (code == 0) == inside, start
        assert np.array_equal(x_after, x)
        if inside:
            assert not np.array_equal(y_after, y)
            continue
        text = run.code.metadata["asserts"][message]
        assert code == OUT_OF_BOUNDS and program == [0, 0, 0]
        assert re.fullmatch(
            rf"\w+ outside the memory of argument {names} at .*test_bounds\.py:{line}:\d+.*", text
        ), text


@pytest.mark.parametrize("block", [16, 64, 1024, 1 << 14])
@pytest.mark.parametrize(
    "kernel", [masked_by_bound, masked_otherwise, loads, stores], ids=lambda kernel: kernel.__name__
)
def test_exactly_what_is_accessed_is_checked(
    kernel: Any, block: int, checked: Any, guarded: Any
) -> None:
    """Any block, start and bound: reported if and only if an active lane is out of bounds."""
    run, random = checked(kernel, block), np.random.default_rng(block)
    size = 2 * block + 7
    for _ in range(40):
        n = int(random.integers(0, 2 * block + 3))
        start = int(
            random.choice(
                [0, -1, size - n, size - n + 1, size - 2 * block, random.integers(-block, size)]
            )
        )
        lanes = np.arange(2 * block if kernel in (masked_by_bound, masked_otherwise) else block)
        if kernel is masked_by_bound:
            lanes = lanes[lanes < n]
        elif kernel is masked_otherwise:
            lanes = lanes[((lanes % 3) * (lanes - 1) >= 0) & (lanes < n)]
        wild = bool(((lanes + start < 0) | (lanes + start >= size)).any())
        guarded(run, [numbers(size), numbers(size), start, n], (1, 1, 1))
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, (n, start)


@device_function
def unaligned(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    moved = (x.to(tl.pointer_type(tl.int8)) + start).to(tl.pointer_type(tl.float32))
    tl.store(y + i, tl.load(moved + i))


def test_parts_of_elements_are_outside_too(checked: Any, guarded: Any) -> None:
    run = checked(unaligned)
    for start, wild in (
        (0, False),
        (-1, True),
        (-3, True),
        (4 * LAST, False),
        (4 * LAST + 1, True),
        (4 * LAST + 3, True),
    ):
        guarded(run, [numbers(COUNT), numbers(COUNT), start, 0], (1, 1, 1))
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, start


# ---- launches


@tw.jit
def rows(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 1.0)  # here too


@tw.jit
def block_of(tensor, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), tl.reshape(tensor.load([0, 0]), (16,)))


def test_a_launch_raises_with_kernel_line_argument_and_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = np.zeros(1000, np.float32)
    line = next(number for number, text in enumerate(SOURCE, 1) if text.endswith("# here too"))
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    rows[(3,)](out, 1000, BLOCK=256, backend="cpu")
    with pytest.raises(
        KernelError,
        match=(
            rf"kernel rows: store outside the memory of argument 'out_ptr' at .*:{line}:4 "
            r".*program \(3, 0, 0\)"
        ),
    ):
        rows[(4,)](out, 1000, BLOCK=256, backend="cpu")


def test_a_view_may_reach_all_of_its_memory_and_what_nobody_knows_is_not_checked() -> None:
    whole = np.zeros(1024, np.float32)
    rows[(3,)](whole[256:300], 44, BLOCK=256, backend="cpu", debug=True)
    assert whole[256:].all() and not whole[:256].any()
    foreign = np.frombuffer(bytearray(4 * 1024), np.float32)
    rows[(4,)](foreign[:10], 10, BLOCK=256, backend="cpu", debug=True)
    assert foreign.all()
    with pytest.raises(KernelError, match="'out_ptr'"):
        rows[(4,)](whole[256:300], 44, BLOCK=256, backend="cpu", debug=True)


def test_a_descriptor_is_checked_against_the_memory_of_its_base() -> None:
    base, out = np.arange(32, dtype=np.float32), np.zeros(16, np.float32)
    block_of[(1,)](TensorDescriptor(base, [4, 4], [8, 1], [4, 4]), out, backend="cpu", debug=True)
    assert np.array_equal(out.reshape(4, 4), base.reshape(4, 8)[:, :4])
    lying = TensorDescriptor(base, [4, 4], [8, 1], [4, 4])
    lying.strides = [12, 1]
    with pytest.raises(KernelError, match="load outside the memory of argument 'tensor'"):
        block_of[(1,)](lying, out, backend="cpu", debug=True)


def test_without_debug_there_is_nothing_of_it(module_of: Any, compiled: Any) -> None:
    code = compiled(module_of(loads, [numbers(COUNT), numbers(COUNT), 0, 0], BLOCK=BLOCK)).code
    assert (
        "bounds" not in code.metadata
        and not code.metadata["asserts"]
        and "ptrtoint" not in code.stages["llir"]
    )


def test_programs_of_c_are_not_checked(module_of: Any, compiled: Any) -> None:
    from tilewright.plugins.manifest import Parameter
    from tilewright_cpu.export import export
    from tilewright_cpu.target import host

    code = compiled(
        module_of(loads, [numbers(COUNT), numbers(COUNT), 0, 0], BLOCK=BLOCK), {"debug": True}
    ).code
    parameters = [
        Parameter("x", "ptr<f32>"),
        Parameter("y", "ptr<f32>"),
        Parameter("start", "i32"),
        Parameter("n", "i32"),
    ]
    text = export("loads", code, parameters, host()).files["loads_launch.c"].decode()
    assert (
        "uint64_t words[13]" in text
        and "words[10] = INT64_MAX;" in text
        and "words[12] = INT64_MAX;" in text
    )
