"""Matmuls by cuBLASLt, as programs written for Triton call it."""

import pytest

from tilewright.compat.triton._C.libtriton import nvidia
from tilewright.errors import LaunchError

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def handle():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return nvidia.cublas.CublasLt(torch.empty(32 << 20, device="cuda", dtype=torch.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 32, 48), (128, 64, 256)])
def test_products_of_small_integers_are_exact(handle, m, n, k, dtype):
    a, b = (
        torch.randint(-2, 3, (rows, k), device="cuda").to(getattr(torch, dtype)) for rows in (m, n)
    )
    c = torch.full((m, n), torch.nan, device="cuda").to(a.dtype)
    handle.matmul(a, b, c)
    assert torch.equal(c.double(), (a.double() @ b.double().T).to(a.dtype).double())


def test_scales_and_an_addend(handle):
    a, b, c = (torch.randint(-2, 3, (64, 64), device="cuda").half() for _ in range(3))
    d = torch.full_like(c, torch.nan)
    handle.gemm(a, b, c, d, 2.0, -1.0)
    assert torch.equal(d, 2 * (a @ b.T) - c)


def test_shapes_that_do_not_fit_are_refused(handle):
    a, b = (torch.zeros(16, columns, device="cuda", dtype=torch.float16) for columns in (16, 32))
    with pytest.raises(
        LaunchError, match=r"given torch.float16\[16, 16\], torch.float16\[16, 32\]"
    ):
        handle.matmul(a, b, a)
