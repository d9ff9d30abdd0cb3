"""The first launch of a kernel that is sure to write outside an argument's memory is refused, at
the line of the store."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402


@triton.jit
def spread(out, row, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i[:, None, None] * (N * N) + i[:, None] * N + i, row + i[None, :])


def test_a_store_to_more_than_a_tensor_has_is_refused():
    out = torch.zeros(4, 8, 8, dtype=torch.int32)
    with pytest.raises(
        triton.CompilationError,
        match=r"stores 1024 bytes past the end of the memory of argument 'out'",
    ) as caught:
        spread[(1,)](out, 3, 8)
    assert caught.value.line == spread.definition_line + 2
    spread[(0,)](out, 3, 8)  # nothing runs
    large = torch.zeros(8, 8, 8, dtype=torch.int32)
    spread[(1,)](large, 3, 8)
    assert torch.equal(large, (3 + torch.arange(8, dtype=torch.int32)).expand(8, 8, 8))


def test_a_part_of_a_larger_array_may_be_left():
    whole = np.zeros(100, np.int32)
    spread[(1,)](whole[10:12], 5, 4)
    assert whole.tolist() == [0] * 10 + [5, 6, 7, 8] * 16 + [0] * 26
    with pytest.raises(triton.CompilationError, match="24 bytes past the end"):
        triton.jit(spread.fn)[(1,)](whole[42:44], 5, 4)
