"""RMS norm against its reference, alone and with a residual."""

import numpy as np
import pytest
from checks import (
    check_architectures,
    check_compiled,
    check_gradients,
    check_operation,
    check_operator,
)

import tilewright_kernels as tk
from tilewright_kernels.rows.rms_norm import ADD_RMS_NORM, RMS_NORM, RMS_NORM_BACKWARD

#: The last is longer than a whole row's tile; a program takes several rows of the third in turn.
SHAPES = [(1, 1), (2, 5, 1000), (301, 33), (0, 16), (2, 131101)]


def arrays(shape, has_weight=True):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape[-1]) if has_weight else None
    return {"x": rng.standard_normal(shape), "weight": weight}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_weight", [False, True])
def test_rms_norm_and_its_gradients(shape, has_weight):
    given, settings = arrays(shape, has_weight), {"eps": 1e-3, "offset": 1.0}
    check_operation(tk.rms_norm, tk.rms_norm_reference, given, settings)
    check_gradients(tk.rms_norm, tk.rms_norm_reference, given, settings, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rms_norm_of_narrow_types(dtype):
    check_operation(tk.rms_norm, tk.rms_norm_reference, arrays((5, 100)), dtype=dtype)
    check_gradients(tk.rms_norm, tk.rms_norm_reference, arrays((5, 100)), dtype=dtype, atol=0.05)


@pytest.mark.parametrize("shape", SHAPES)
def test_norm_of_a_sum_and_its_gradients(shape):
    given = {"residual": np.random.default_rng(1).standard_normal(shape), **arrays(shape)}
    check_operation(tk.add_rms_norm, tk.add_rms_norm_reference, given)
    check_gradients(tk.add_rms_norm, tk.add_rms_norm_reference, given, rtol=1e-4, atol=1e-4)
    for used in (0, 1):
        check_gradients(
            lambda used=used, **each: tk.add_rms_norm(**each)[used],
            lambda used=used, **each: tk.add_rms_norm_reference(**each)[used],
            given,
            wrt=("x", "residual"),
            layouts=("contiguous",),
            rtol=1e-4,
            atol=1e-4,
        )


def test_rms_norm_rounds_what_it_normalized():
    torch = pytest.importorskip("torch")
    x, weight = torch.randn(64, 100).bfloat16(), torch.randn(100).bfloat16()
    rounded = tk.rms_norm_reference(x.float()).bfloat16() * weight
    same = (tk.rms_norm(x, weight, round_normalized=True) == rounded).float().mean()
    others = (tk.rms_norm(x, weight) == rounded).float().mean()
    assert same > 0.99 > 0.9 > others


def test_rms_norm_refuses_what_does_not_fit():
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="an element for each column"):
        tk.rms_norm(x, np.ones(5, np.float32))
    with pytest.raises(ValueError, match="of one shape"):
        tk.add_rms_norm(x, x[:2])


def test_rms_norm_is_an_operator_of_torch():
    pytest.importorskip("torch")
    x, weight = (each.astype(np.float32) for each in arrays((3, 40)).values())
    check_operator(RMS_NORM, x, weight, 1e-5)
    check_operator(ADD_RMS_NORM, x, x, weight, 1e-5)
    check_compiled(tk.rms_norm, arrays((3, 40)), {"eps": 1e-5}, wrt=("x", "weight"))


def test_kernels_of_rms_norm_compile_for_gpus():
    for columns in (1000, 131101):
        x, weight = np.ones((8, columns), np.float32), np.ones(columns, np.float32)
        check_architectures(RMS_NORM, x, weight)
        check_architectures(
            RMS_NORM_BACKWARD,
            *(x, None, x, np.ones(8, np.float32), weight, 1e-6, 0.0, False),
            architectures=["sm_90a", "gfx942"],
        )
