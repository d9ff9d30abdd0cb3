"""Matmuls of all kinds in exact mode, whose dots are those of i8 or of the operands' own type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright_conformance.cases.exact.exact.exact_case import (
    Form,
    Launcher,
    Operands,
    drawn,
    exact_case,
    form,
    result,
)
from tilewright_conformance.cases.mixed.kernels.whole_kernel import blocks
from tilewright_conformance.kernels import exact_kernels, indexed_rows, matrices
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    m, n, k = 35, 27, 45

    def tiled(bm: int, bn: int, bk: int, group: int = 1) -> Form:
        return form(
            exact_kernels.matmul_tiled, (blocks(m, bm) * blocks(n, bn),), "a", "b", "c", m, n, k,
            BM=bm, BN=bn, BK=bk, GROUP=group,
        )  # fmt: skip

    def walked(programs: int, bm: int, bn: int, bk: int) -> Form:
        grid = (programs or blocks(m, bm) * blocks(n, bn),)
        return form(
            matrices.blocked_matmul, grid, "a", "b", "c", m, n, k,
            PROGRAMS=programs, GROUP=2, ACTIVATION=matrices.leaky_relu, BM=bm, BN=bn, BK=bk,
        )  # fmt: skip

    def split(parts: int) -> Form:
        def run(launch: Launcher) -> None:
            scratch = launch.scratch(result("f32", parts, m, n))
            grid = (blocks(m, 16), blocks(n, 16), parts)
            sizes = {"SPLIT": parts, "BLOCK": 16, "ATOMIC": False}
            launch(exact_kernels.matmul_parts, grid, "a", "b", scratch, m, n, k, **sizes)
            summed = {"SPLIT": parts, "BLOCK": 256}
            launch(exact_kernels.add_parts, (blocks(m * n, 256),), scratch, "c", m * n, **summed)

        return run

    for type_ in ("f16", "bf16", "f32"):
        operands: Operands = {
            "a": drawn(type_, m, k),
            "b": drawn(type_, k, n),
            "c": result("f32", m, n),
        }
        forms = (tiled(16, 16, 16), tiled(32, 32, 32, 2))
        yield exact_case(f"matmul/tiled/{type_}", operands, *forms, dot="i8", quick=type_ == "f16")
        yield exact_case(f"matmul/native/{type_}", operands, *forms, dot="native")
        if type_ == "bf16":
            continue
        yield exact_case(
            f"matmul/split_k/{type_}", operands, split(2), split(3), tiled(64, 16, 64), dot="i8"
        )
        yield exact_case(
            f"matmul/persistent/{type_}",
            {**operands, "c": result(type_, m, n)},
            walked(0, 16, 16, 16),
            walked(2, 32, 16, 32),
            dot="i8",
        )
    for type_ in ("f8e4m3fn", "f8e5m2"):
        operands = {"a": drawn(type_, m, k), "b": drawn(type_, k, n), "c": result("f32", m, n)}
        forms = (tiled(16, 16, 32), tiled(32, 32, 64, 2))
        for way in ("i8", "native"):
            id_ = f"matmul/{'tiled' if way == 'i8' else way}/{type_}"
            yield exact_case(id_, operands, *forms, dot=way, dot_shape=(16, 16, 32))
    yield from (_integers(), _packed(), _gated(), _experts(), _convolution())


def _integers() -> Case:
    """Quantized operands; only their scales are floats."""
    m, n, k = 35, 27, 45
    numbers = np.random.default_rng(1)

    def run(bm: int, bn: int, bk: int) -> Form:
        return form(
            matrices.int8_matmul, (blocks(m, bm), blocks(n, bn)),
            "a", "b", "left", "right", "c", m, n, k, BM=bm, BN=bn, BK=bk,
        )  # fmt: skip

    operands: Operands = {
        "a": numbers.integers(-128, 128, (m, k), np.int8),
        "b": numbers.integers(-128, 128, (n, k), np.int8),
        "left": drawn("f32", m),
        "right": drawn("f32", n),
        "c": result("f32", m, n),
    }
    return exact_case("int8_matmul/scaled", operands, run(16, 16, 16), run(32, 16, 32), dot="i8")


def _packed() -> Case:
    """Weights of four bits, scaled by groups along K."""
    m, n, k, group = 19, 32, 64, 32
    numbers = np.random.default_rng(2)

    def run(bm: int, bn: int, bk: int) -> Form:
        return form(
            matrices.int4_matmul, (blocks(m, bm), blocks(n, bn)),
            "x", "packed", "scales", "zeros", "y", m, n, k, GROUP=group, BM=bm, BN=bn, BK=bk,
        )  # fmt: skip

    def words(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        return numbers.integers(-(2**31), 2**31, shape).astype(np.int32)

    operands: Operands = {
        "x": drawn("f16", m, k),
        "packed": words(k // 8, n),
        "scales": drawn("f32", k // group, n),
        "zeros": words(k // group, n // 8),
        "y": result("f16", m, n),
    }
    return exact_case("int4_matmul/grouped", operands, run(16, 16, 16), run(32, 32, 32), dot="i8")


def _gated() -> Case:
    m, n, k = 19, 27, 45

    def run(bm: int, bn: int, bk: int) -> Form:
        return form(
            matrices.gated_mlp, (blocks(m, bm), blocks(n, bn)),
            "x", "gate", "up", "y", m, n, k, BM=bm, BN=bn, BK=bk,
        )  # fmt: skip

    operands: Operands = {
        "x": drawn("f16", m, k),
        "gate": drawn("f16", k, n),
        "up": drawn("f16", k, n),
        "y": result("f16", m, n),
    }
    return exact_case("gated_mlp/f16", operands, run(16, 16, 16), run(32, 32, 32), dot="i8")


def _experts() -> Case:
    """A grouped matmul: rows sorted by expert, each expert's padded to a multiple of 32."""
    tokens, top, n, k, padded = 20, 2, 27, 45, 32
    experts = np.random.default_rng(3).integers(0, 3, tokens * top)
    order, expert_of_blocks = [], []
    for expert in range(3):
        own = np.flatnonzero(experts == expert)
        count = blocks(len(own), padded) * padded
        order += [*own, *[tokens * top] * (count - len(own))]
        expert_of_blocks += [expert] * (count // 16)

    def run(bm: int, bn: int, bk: int) -> Form:
        return form(
            indexed_rows.expert_rows, (len(order) // bm, blocks(n, bn)),
            "a", "b", "order", f"experts{bm}", "out", tokens, n, k, TOP=top, M=bm, BN=bn, BK=bk,
        )  # fmt: skip

    operands: Operands = {
        "a": drawn("f16", tokens, k),
        "b": drawn("f16", 3, n, k),
        "order": np.array(order, np.int32),
        "experts16": np.array(expert_of_blocks, np.int32),
        "experts32": np.array(expert_of_blocks[::2], np.int32),
        "out": result("f16", tokens * top, n),
    }
    return exact_case("grouped_gemm/f16", operands, run(16, 16, 16), run(32, 32, 32), dot="i8")


def _convolution() -> Case:
    images, channels, size, out = 2, 4, 7, 16

    def run(bm: int, bk: int) -> Form:
        return form(
            matrices.convolution, (blocks(size * size, bm), images), "x", "w", "bias", "y",
            *[size] * 4, 1, 1, C=channels, OUT=out, KH=3, KW=3, BM=bm, BK=bk,
        )  # fmt: skip

    operands: Operands = {
        "x": drawn("f16", images, channels, size, size),
        "w": drawn("f16", out, channels, 3, 3),
        "bias": drawn("f32", out),
        "y": result("f32", images, out, size, size),
    }
    return exact_case("convolution/f16", operands, run(16, 32), run(32, 64), dot="i8")
