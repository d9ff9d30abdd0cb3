"""Shared helpers of the tests on Hopper: launches with a time limit, operands, comparisons."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from gpu_support import gpu_is_there

from tilewright_nvidia.host.driver import driver


def hopper_is_there() -> bool:
    if not gpu_is_there():
        return False
    from tilewright_nvidia.architectures import capability_of

    return capability_of(driver(), 0) == 90


#: Seconds after which a kernel is taken to wait for what never comes.
PATIENCE = 120


def within_patience(what: str, action: Callable[[], None]) -> None:
    """Run a launch. One that does not end cannot be stopped: the process says so and ends."""
    failed: list[BaseException] = []

    def body() -> None:
        try:
            action()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        os.write(
            2,
            (
                "\n"
                f"{what} has not ended after {PATIENCE} s: an mbarrier's phase, or a barrier of "
                "threads, does not end\n"
            ).encode(),
        )
        os._exit(70)
    if failed:
        raise failed[0]


def tensor(array: np.ndarray[Any, Any], padding: str = "zero") -> Any:
    strides = [step // array.itemsize for step in array.strides]
    return SimpleNamespace(base=array, shape=list(array.shape), strides=strides, padding=padding)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Zeros whose rows are multiples of 16 bytes apart, in memory that allows no more than that."""
    width = -(-shape[-1] * np.dtype(dtype).itemsize // 16) * 16 // np.dtype(dtype).itemsize
    return np.zeros((*shape[:-1], width), dtype)[..., : shape[-1]]


def differences(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    """Return the first differences of two arrays.

    Also return where the found values stand in the expected ones.
    """
    same = (found == expected) | (
        np.isnan(found.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    )
    wrong = np.argwhere(~same)
    lines = [f"{len(wrong)} of {found.size} elements differ"]
    for point in wrong[:12]:
        at = tuple(int(i) for i in point)
        lines.append(
            f"  {at}: {found[at]!r} for {expected[at]!r}; that stands at "
            f"{[tuple(map(int, p)) for p in np.argwhere(expected == found[at])[:3]]}"
        )
    return "\n".join(lines)


def agree(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert np.array_equal(found, expected, equal_nan=found.dtype.kind == "f"), differences(
        found, expected
    )


def operand(
    rng: np.random.Generator, shape: tuple[int, int], element: str, transposed: bool
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (memory, operand in float64): small integers, whose products are exact."""
    values = rng.integers(0 if element == "u8" else -4, 5, shape)
    memory = values.T if transposed else values
    if element == "bf16":
        bits = (np.ascontiguousarray(memory.astype(np.float32)).view(np.uint32) >> 16).astype(
            np.uint16
        )
        return bits, values.astype(np.float64)
    if element.startswith("f8"):
        mantissa, bias = (3, 7) if element == "f8e4m3fn" else (2, 15)
        codes = {}
        for value in range(-4, 5):
            size = abs(value)
            exponent = size.bit_length() - 1
            code = (
                0
                if not size
                else exponent + bias << mantissa | (size << mantissa >> exponent) - (1 << mantissa)
            )
            codes[value] = code | (0x80 if value < 0 else 0)
        return np.ascontiguousarray(
            np.vectorize(codes.get)(memory).astype(np.uint8)
        ), values.astype(np.float64)
    dtype = {"f16": np.float16, "f32": np.float32, "i8": np.int8, "u8": np.uint8}[element]
    return np.ascontiguousarray(memory.astype(dtype)), values.astype(np.float64)
