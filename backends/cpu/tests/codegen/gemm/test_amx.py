"""Matmuls on tile registers (AMX): the same kernels as elsewhere, against exact results.

Where the machine has no such unit, its instructions are calls of :file:`amx_emulation.c`, which
does what the manual says of them and keeps as an error what a processor would end the process for.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
import tilewright_cpu.target
from tilewright.llvm.codegen import compile as compilation
from tilewright.runtime.devices import device_registry
from tilewright_cpu.codegen.gemm import gemm
from tilewright_cpu.codegen.gemm.batched_k import IterationQueue

RNG = np.random.default_rng(0)
FEATURES = ("+amx-tile", "+amx-bf16", "+amx-int8")
#: makes kernels that are compiled anew in each test
SALTS = itertools.count()
INSTRUCTIONS = re.compile(r"llvm\.x86\.(ldtilecfg|tile\w+|tdp\w+)")
bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
FLOATS = (bfloat16, np.float16, np.float32)
#: Maximum error of a matmul, besides the rounding of its accumulator, if a precision of f32 drops
#: bits.
LEFT_OUT = {"tf32": 2.0**-14, "bf16x3": 2.0**-14, "tf32x3": 2.0**-22, "bf16x6": 2.0**-22}


#: (M, N, K) and the tiles of a program.
SHAPES = [
    ((128, 96, 256), (64, 32, 64)),
    ((77, 130, 201), (32, 64, 128)),
    ((33, 17, 64), (16, 16, 64)),
    ((64, 64, 2048), (64, 64, 64)),
]


class TileUnit:
    """The tiles that kernels use: those of :file:`amx_emulation.c`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.tile_machine_error.restype = ctypes.c_char_p
        library.tile_machine_count.restype = ctypes.c_int64

    def reset(self) -> None:
        self._library.tile_machine_reset()

    @property
    def products(self) -> int:
        return int(self._library.tile_machine_count(0))

    @property
    def loads(self) -> int:
        return int(self._library.tile_machine_count(3))

    def check(self) -> None:
        """Fail if no matmul ran, or if a processor would have ended the process.

        Also fail if a tile configuration was left loaded.
        """
        assert self._library.tile_machine_error() == b""
        products, configurations, releases = (
            self._library.tile_machine_count(which) for which in range(3)
        )
        assert (
            products and configurations == releases and not self._library.tile_machine_configured()
        )


@pytest.fixture(scope="session")
def library(tmp_path_factory: Any) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("tiles") / "tile_machine.so"
    subprocess.run(
        [
            "cc",
            "-O2",
            "-shared",
            "-fPIC",
            "-o",
            str(made),
            str(Path(__file__).with_name("amx_emulation.c")),
        ],
        check=True,
    )
    return ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def unit(library: ctypes.CDLL, monkeypatch: Any, tmp_path: Path) -> Any:
    """A host with tiles, which are emulated."""
    here = tilewright_cpu.target.host()
    if here.arch != "x86-64":
        pytest.skip("tiles are of x86-64")
    plain = tuple(name for name in here.features if "amx" not in name)
    there = replace(here, features=(*plain, *FEATURES))
    written = compilation.compile_to_object

    def emulated(text: str, **options: Any) -> bytes:
        return written(INSTRUCTIONS.sub(r"emulated_\1", text), **options)

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(device_registry, "_targets", {})
    monkeypatch.setattr(tilewright_cpu.target, "_host", lambda level: there)
    tilewright_cpu.target.processor.cache_clear()
    monkeypatch.setattr(compilation, "compile_to_object", emulated)
    found = TileUnit(library)
    found.reset()
    yield found
    found.check()
    tilewright_cpu.target.processor.cache_clear()


@tw.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, SUM: tl.constexpr, SALT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr = (
        "ieee"
    ),
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
    for start in range(0, K, BLOCK_K):
        here = start + k
        a = tl.load(
            a_ptr + rows[:, None] * sam + here[None, :] * sak,
            mask=(rows[:, None] < M) & (here[None, :] < K),
            other=0,
        )
        b = tl.load(
            b_ptr + here[:, None] * sbk + columns[None, :] * sbn,
            mask=(here[:, None] < K) & (columns[None, :] < N),
            other=0,
        )
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=SUM)
    tl.store(
        c_ptr + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def draw(kind: Any, shape: tuple[int, ...]) -> Any:
    if np.dtype(kind) in FLOATS:
        return RNG.standard_normal(shape).astype(kind)
    return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)


def check(found: Any, a: Any, b: Any, precision: str = "ieee") -> None:
    """Compare integers exactly, and floats within the bound of an f32 accumulation."""
    if a.dtype in FLOATS:
        a, b = a.astype(np.float64), b.astype(np.float64)
        bound = (np.abs(a) @ np.abs(b)) * (
            min(a.shape[1], 64) * 2.0**-23 + LEFT_OUT.get(precision, 0.0)
        )
        assert (np.abs(found - a @ b) <= bound).all()
    else:
        np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


def run(
    a: Any,
    b: Any,
    blocks: tuple[int, int, int],
    turned: str = "",
    precision: str = "ieee",
    **options: bool,
) -> Any:
    (m, k), n = a.shape, b.shape[1]
    given_a = np.ascontiguousarray(a.T).T if "a" in turned else a
    given_b = np.ascontiguousarray(b.T).T if "b" in turned else b
    total = np.float32 if a.dtype in FLOATS else np.int32
    c = np.full((m, n), 77, total)
    strides = [stride // a.itemsize for stride in (*given_a.strides, *given_b.strides)]
    sums = tl.float32 if total is np.float32 else tl.int32
    grid = (-(-m // blocks[0]), -(-n // blocks[1]))
    product[grid](
        given_a, given_b, c, m, n, k, *strides, SUM=sums, SALT=next(SALTS),
        BLOCK_M=blocks[0], BLOCK_N=blocks[1], BLOCK_K=blocks[2], PRECISION=precision, **options,
    )  # fmt: skip
    return c


@pytest.mark.each_value
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", [bfloat16, np.float16, np.int8, np.uint8])
@pytest.mark.parametrize(("shape", "blocks"), SHAPES)
def test_matmuls(
    unit: TileUnit,
    shape: tuple[int, int, int],
    blocks: tuple[int, int, int],
    kind: Any,
    turned: str,
) -> None:
    m, n, k = shape
    a, b = draw(kind, (m, k)), draw(kind, (k, n))
    check(run(a, b, blocks, turned), a, b)


@pytest.mark.each_value
@pytest.mark.parametrize("turned", ["", "b"])
@pytest.mark.parametrize("kind", [bfloat16, np.float16])
def test_few_rows_are_multiplied_like_many(unit: TileUnit, kind: Any, turned: str) -> None:
    a, b = draw(kind, (33, 256)), draw(kind, (256, 64))

    def first_rows(**options: bool) -> int:
        found = {
            run(a[:rows], b, (32, 64, blocks), turned, **options)[0].tobytes()
            for rows, blocks in ((1, 64), (2, 64), (33, 64), (33, 128))
        }
        return len(found)

    assert first_rows() > 1
    assert first_rows(invariant=True) == 1


@pytest.mark.each_value
@pytest.mark.parametrize("turned", ["", "ab"])
@pytest.mark.parametrize("precision", LEFT_OUT)
@pytest.mark.parametrize(("shape", "blocks"), SHAPES[:2])
def test_f32_where_less_is_asked_for(
    unit: TileUnit,
    shape: tuple[int, int, int],
    blocks: tuple[int, int, int],
    precision: str,
    turned: str,
) -> None:
    m, n, k = shape
    a, b = draw(np.float32, (m, k)), draw(np.float32, (k, n))
    check(run(a, b, blocks, turned, precision), a, b, precision)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_numbers_at_the_ends_of_the_range(unit: TileUnit, kind: Any) -> None:
    """Infinities, NaN, extreme numbers and both zeros give the results of f32 accumulation."""
    limits = np.finfo(kind)
    a, b = draw(kind, (32, 64)), draw(kind, (64, 32))
    a[0, 3], a[1, 5], a[2, 7], a[3, 9], a[3, 11] = np.inf, -np.inf, np.nan, np.inf, -np.inf
    b[13, 4], b[15, 5], b[3, 6], b[17, 7] = np.inf, np.nan, 0, -np.inf
    a[4, 17], a[5] = 0, 0
    a[5, 19], b[19] = limits.max, 0.5
    a[6], a[6, 21], b[21] = (
        0,
        limits.smallest_subnormal if kind is np.float16 else limits.tiny * 2.0**30,
        2,
    )
    if kind is np.float32:
        a.view(np.uint32)[7, 23] = 0x7F800001  # a NaN whose leading bits are those of infinity
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    found = run(a, b, (32, 32, 64), precision="tf32" if kind is np.float32 else "ieee")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(found[np.isinf(exact)], exact[np.isinf(exact)])
    usual = np.isfinite(exact)
    np.testing.assert_allclose(found[usual], exact[usual], rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(found[6, usual[6]], exact[6, usual[6]], rtol=1e-6)


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3"])
def test_infinities_of_some_programs_and_iterations(unit: TileUnit, precision: str) -> None:
    """Infinities lie in one iteration of the loop and in the rows of one program; others take the
    quick way, and none sees what another has packed."""
    kind = np.float16 if precision == "ieee" else np.float32
    (m, n, k), blocks = (192, 96, 512), (64, 32, 32)
    a, b = draw(kind, (m, k)), draw(kind, (k, n))
    run(a, b, blocks, precision=precision)
    finite = unit.loads
    a[70, 100], b[300, 40], b[301, 41] = np.inf, -np.inf, np.inf
    a[70, 300] = a[100, 300] = 0
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    found = run(a, b, blocks, precision=precision)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(exact))
    np.testing.assert_array_equal(found[~np.isfinite(exact)], exact[~np.isfinite(exact)])
    usual = np.isfinite(exact)
    np.testing.assert_allclose(found[usual], exact[usual], rtol=1e-3, atol=2e-3)
    # an iteration with infinities, in each of three programs, two blocks of rows each: four loads
    # more
    assert unit.loads - 2 * finite == 2 * 3 * 2 * 4


@pytest.mark.parametrize(
    ("precision", "loads", "products"), [("ieee", 10, 16), ("tf32", 8, 12), ("tf32x3", 16, 24)]
)
def test_parts_are_loaded_as_often_as_must_be(
    unit: TileUnit, precision: str, loads: int, products: int
) -> None:
    """Of 32 rows, 32 columns and 32 numbers along K; four more loads are of sums."""
    kind = np.float16 if precision == "ieee" else np.float32
    a, b = draw(kind, (32, 64)), draw(kind, (64, 32))
    check(run(a, b, (32, 32, 64), precision=precision), a, b, precision)
    assert (unit.products, unit.loads - 4) == (2 * products, 2 * loads)


def test_iterations_are_taken_together(unit: TileUnit, monkeypatch: Any) -> None:
    queued = []

    class Counted(IterationQueue):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            queued.append(self)

    monkeypatch.setattr(gemm, "IterationQueue", Counted)
    a, b = draw(bfloat16, (64, 1000)), draw(bfloat16, (1000, 64))
    check(run(a, b, (64, 64, 32)), a, b)
    assert queued


@pytest.mark.parametrize("kind", [bfloat16, np.float16])
def test_packed_before_the_launch(unit: TileUnit, kind: Any) -> None:
    a, b = draw(kind, (64, 200)), draw(kind, (200, 128))
    packed = tw.cpu.prepack(b)
    assert packed.panel_columns == 32
    c = np.full((64, 128), 77, np.float32)

    def launch() -> None:
        product[(1, 2)](
            a, packed, c, 64, 128, 200, 200, 1, 128, 1, SUM=tl.float32, SALT=0,
            BLOCK_M=64, BLOCK_N=64, BLOCK_K=64,
        )  # fmt: skip

    launch()
    check(c, a, b)
    there = b[5, 70]
    b[5, 70], a[3, 5] = np.inf, -1
    packed.refresh()
    launch()
    assert (
        c[3, 70] == -np.inf
        and np.isinf(c[:, 70]).sum() == len(c)
        and np.isfinite(np.delete(c, 70, 1)).all()
    )
    b[5, 70] = there
    packed.refresh()
    launch()
    check(c, a, b)


@tw.jit
def chained(q_ptr, k_ptr, v_ptr, o_ptr, L, SALT: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Two matmuls with elementwise operations between, in a loop, and one in a branch."""
    rows, depth = tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + depth[None, :])
    total = tl.zeros((N, D), dtype=tl.float32)
    most = tl.full((N,), float("-inf"), dtype=tl.float32)
    weight = tl.zeros((N,), dtype=tl.float32)
    for start in range(0, L, N):
        here = start + rows
        k = tl.load(k_ptr + here[None, :] * D + depth[:, None], mask=here[None, :] < L, other=0.0)
        v = tl.load(v_ptr + here[:, None] * D + depth[None, :], mask=here[:, None] < L, other=0.0)
        scores = tl.where(here[None, :] < L, tl.dot(q, k), float("-inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        p = tl.exp(scores - new[:, None])
        scale = tl.exp(most - new)
        weight = weight * scale + tl.sum(p, 1)
        total = tl.dot(p.to(tl.bfloat16), v, total * scale[:, None])
        most = new
    total = total / weight[:, None]
    if L > 100:
        tl.device_print("long", L)
        total += tl.dot(q, tl.trans(q))
    tl.store(o_ptr + rows[:, None] * D + depth[None, :], total)


@pytest.mark.parametrize("length", [64, 200])
def test_back_to_back_matmuls(unit: TileUnit, length: int, capsys: Any) -> None:
    q, k, v = draw(bfloat16, (64, 64)), draw(bfloat16, (length, 64)), draw(bfloat16, (length, 64))
    out = np.full((64, 64), 77, np.float32)
    chained[(1,)](q, k, v, out, length, SALT=next(SALTS), N=64, D=64)
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q @ k.T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    exact = weights @ v / weights.sum(1, keepdims=True)
    if length > 100:
        exact = exact + q @ q.T
    assert np.abs(out - exact).max() < 0.02 * max(1.0, np.abs(exact).max() / 8)
    assert ("long" in capsys.readouterr().out) == (length > 100)


@tw.jit
def batched(a_ptr, b_ptr, c_ptr, SALT: tl.constexpr, B: tl.constexpr, N: tl.constexpr):
    batch, row, column = (
        tl.arange(0, B)[:, None, None],
        tl.arange(0, N)[None, :, None],
        tl.arange(0, N)[None, None, :],
    )
    at = (batch * N + row) * N + column
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


def test_batches(unit: TileUnit) -> None:
    a, b = draw(np.int8, (4, 64, 64)), draw(np.int8, (4, 64, 64))
    c = np.full((4, 64, 64), 77, np.int32)
    batched[(1,)](a, b, c, SALT=next(SALTS), B=4, N=64)
    check(c, a, b)


def test_what_the_system_refuses_is_not_used(monkeypatch: Any) -> None:
    """A machine whose system does not let the process use its tiles is one without them."""
    text = ",".join(("+avx512f", *FEATURES))
    monkeypatch.setattr(
        compilation, "host_target", lambda: ("x86_64-unknown-linux-gnu", "sapphirerapids", text)
    )
    for granted in (False, True):
        monkeypatch.setattr(tilewright_cpu.target, "ask_for_tiles", lambda granted=granted: granted)
        tilewright_cpu.target._host.cache_clear()
        try:
            assert ("+amx-tile" in tilewright_cpu.target.host().features) == granted
        finally:
            tilewright_cpu.target._host.cache_clear()
