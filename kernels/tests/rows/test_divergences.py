"""Divergences against their references."""

import numpy as np
import pytest
from checks import check_architectures, check_gradients, check_operation, check_operator

import tilewright_kernels as tk
from tilewright_kernels.rows.divergences import JSD, JSD_BACKWARD, KL_DIV, KL_DIV_BACKWARD

CASES = {
    "kl": (tk.kl_div, tk.kl_div_reference, {}),
    "kl of logarithms": (tk.kl_div, tk.kl_div_reference, {"log_target": True, "reduction": "sum"}),
    "jsd": (tk.jsd, tk.jsd_reference, {"beta": 0.3, "reduction": "none"}),
}


def arrays(shape, settings):
    rng = np.random.default_rng(0)
    x, target = (
        each - np.log(np.exp(each).sum(-1, keepdims=True))
        for each in (2 * rng.standard_normal(shape) for _ in range(2))
    )
    if settings.get("log_target") or "beta" in settings:
        return {"x": x, "target": target}
    target = np.exp(target)
    target[..., 1] = 0
    return {"x": x, "target": target}


@pytest.mark.parametrize("shape", [(5, 7), (2, 2, 5001)])
@pytest.mark.parametrize("name", CASES)
def test_divergences_and_their_gradients(name, shape):
    function, reference, settings = CASES[name]
    given = arrays(shape, settings)
    check_operation(function, reference, given, settings)
    check_gradients(function, reference, given, settings, rtol=1e-4)
    check_gradients(function, reference, given, settings, wrt=("x",), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_divergences_of_narrow_types(name, dtype):
    function, reference, settings = CASES[name]
    given = arrays((4, 60), settings)
    check_operation(function, reference, given, settings, dtype=dtype)
    check_gradients(function, reference, given, settings, dtype=dtype, atol=0.03)


def test_divergences_refuse_what_does_not_fit():
    x = np.ones((3, 5), np.float32)
    with pytest.raises(ValueError, match="of one shape"):
        tk.kl_div(x, x[:2])
    with pytest.raises(ValueError, match="none, mean, sum"):
        tk.kl_div(x, x, reduction="batchmean")
    with pytest.raises(ValueError, match="between 0 and 1"):
        tk.jsd(x, x, beta=1)


def test_divergences_are_operators_of_torch():
    pytest.importorskip("torch")
    x = np.ones((3, 40), np.float32)
    check_operator(KL_DIV, x, x)
    check_operator(JSD, x, x)


def test_kernels_of_divergences_compile_for_gpus():
    x, one = np.ones((8, 5000), np.float32), np.ones((), np.float32)
    check_architectures(KL_DIV, x, x)
    for operation, setting in ((KL_DIV_BACKWARD, False), (JSD_BACKWARD, 0.5)):
        check_architectures(
            operation, one, x, x, setting, "mean", True, architectures=["sm_90a", "gfx942"]
        )
