"""The refusal of launches that are sure to write outside an argument's memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import CompilationError
from tilewright.plugins.manifest import Parameter
from tilewright.runtime.arguments.bounds_check import bounds_check, memory_of


def test_memory_is_the_whole_that_an_array_is_a_view_of() -> None:
    whole = np.zeros((6, 8), np.float32)
    expected = (whole.ctypes.data, whole.ctypes.data + 6 * 8 * 4)
    for view in (
        whole,
        whole[2:4],
        whole[:, 3],
        whole[::-1],
        whole.T.reshape(8, 2, 3)[1],
        whole[1:].view(np.int16),
    ):
        if np.shares_memory(view, whole):
            assert memory_of(view) == expected
    assert memory_of(np.frombuffer(bytearray(16), np.int32)) is None, (
        "the memory is another library's"
    )
    assert memory_of(12345) is None
    assert memory_of(None) is None


def test_memory_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    from tilewright.runtime.arguments.mock_tensors import reinterpret

    whole = torch.zeros(10, dtype=torch.int32)
    expected = (whole.data_ptr(), whole.data_ptr() + 40)
    assert memory_of(whole[3:5]) == expected
    assert memory_of(reinterpret(whole[1:], np.dtype(np.uint32))) == expected


def test_writes_inside_and_outside(tmp_path: Path) -> None:
    source = tmp_path / "k.py"
    source.write_text("# a kernel\n    store(here)\n")
    memory = np.zeros(10, np.float32)
    parameters = [Parameter("n", "i32"), Parameter("out", "ptr<f32>")]

    def refused(first: int, end: int, value: object) -> str:
        check = bounds_check("k", parameters, [(1, first, end, str(source), 2, 4)])
        try:
            check((3, value))
        except CompilationError as error:
            assert (error.file, error.line, error.column) == (str(source), 2, 4)
            assert "store(here)" in str(error) and "'out'" in error.message
            return error.message
        return ""

    assert not refused(0, 40, memory)
    assert not refused(-8, 32, memory[2:])
    assert "4 bytes past the end" in refused(0, 44, memory)
    assert "4 bytes past the end" in refused(0, 36, memory[2:])
    assert "4 bytes before" in refused(-12, 4, memory[2:])
    assert not refused(0, 1000, np.frombuffer(bytearray(16), np.int32)), (
        "nobody knows how long it is"
    )
