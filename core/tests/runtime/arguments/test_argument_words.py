"""Arguments of a kernel as 8-byte words."""

import struct

import numpy as np
import pytest

from tilewright.ir.types import BF16, F16, F32, F64
from tilewright.runtime.arguments.argument_words import slot_codec


@pytest.mark.parametrize(
    ("type_", "dtype"), [(F16, np.float16), (F32, np.float32), (F64, np.float64)]
)
@pytest.mark.parametrize(
    "value",
    [
        0.1,
        -0.0,
        65519.0,
        65520.0,
        1e39,
        -1e39,
        3.4028235677973366e38,
        1e-50,
        float("inf"),
        float("nan"),
        7,
        np.float32(1.5),
    ],
)
def test_floats_are_rounded_to_nearest_and_infinite_beyond_the_range(type_, dtype, value):
    code, encode = slot_codec(type_, int)
    word = struct.pack("<" + code, *encode(value))
    with np.errstate(over="ignore"):
        expected = dtype(float(value))
    assert len(word) == 8
    assert np.frombuffer(word[: dtype().itemsize], dtype)[0].tobytes() == expected.tobytes()


def test_bf16_is_its_bits():
    code, encode = slot_codec(BF16, int)
    assert struct.pack("<" + code, *encode(1.0)) == b"\x80\x3f" + bytes(6)
    assert struct.pack("<" + code, *encode(1e39)) == b"\x80\x7f" + bytes(6)
