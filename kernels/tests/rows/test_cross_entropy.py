"""Cross entropy against its reference."""

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
from tilewright_kernels.rows.cross_entropy import (
    CROSS_ENTROPY,
    CROSS_ENTROPY_BACKWARD,
)
from tilewright_kernels.rows.cross_entropy_shard import CROSS_ENTROPY_SHARD

SETTINGS = [
    {},
    {"reduction": "none", "label_smoothing": 0.2},
    {"reduction": "sum", "z_loss": 1e-2},
    {"z_loss": 1e-3, "label_smoothing": 0.1, "ignore_index": 2},
]


def arrays(shape):
    rng = np.random.default_rng(0)
    target = rng.integers(0, shape[-1], shape[:-1])
    target.reshape(-1)[1::3] = 2 if shape[-1] > 2 else 0
    return {"logits": 3 * rng.standard_normal(shape), "target": target}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 9001)])
def test_cross_entropy_and_its_gradient(shape, settings):
    check_operation(tk.cross_entropy, tk.cross_entropy_reference, arrays(shape), settings)
    check_gradients(
        tk.cross_entropy, tk.cross_entropy_reference, arrays(shape), settings, wrt=("logits",)
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cross_entropy_of_narrow_types(dtype):
    given = arrays((5, 300))
    check_operation(tk.cross_entropy, tk.cross_entropy_reference, given, dtype=dtype)
    check_gradients(
        tk.cross_entropy, tk.cross_entropy_reference, given, dtype=dtype, wrt=("logits",)
    )


def test_rows_that_are_ignored_are_not_read():
    logits = np.ones((3, 5), np.float32)
    logits[1] = np.nan
    target = np.array([1, -100, 2])
    assert np.allclose(tk.cross_entropy(logits, target), np.log(5))
    losses = tk.cross_entropy(logits, target, reduction="none")
    np.testing.assert_allclose(losses, [np.log(5), 0, np.log(5)], rtol=1e-6)


def test_a_target_that_is_no_class_makes_the_loss_nan():
    losses = tk.cross_entropy(np.ones((2, 5), np.float32), np.array([5, 0]), reduction="none")
    assert np.isnan(losses[0]) and np.isfinite(losses[1])


def test_cross_entropy_of_no_rows():
    logits, target = np.ones((0, 5), np.float32), np.zeros(0, np.int64)
    assert tk.cross_entropy(logits, target, reduction="sum") == 0
    assert tk.cross_entropy(logits, target, reduction="none").shape == (0,)


def test_shards_of_classes_have_the_loss_of_all_classes_and_its_gradients():
    torch = pytest.importorskip("torch")
    given = arrays((4, 300))
    target = torch.from_numpy(given["target"])
    whole = torch.from_numpy(given["logits"]).requires_grad_()
    tk.cross_entropy_reference(whole, target).backward()
    shards = [each.detach().float().requires_grad_() for each in whole.split(100, dim=-1)]
    parts = [
        tk.cross_entropy_shard(each, target, first_class=100 * number)
        for number, each in enumerate(shards)
    ]
    lse = torch.logsumexp(torch.stack([each for each, _ in parts]), 0)
    (lse - sum(each for _, each in parts)).mean().backward()
    found = torch.cat([each.grad for each in shards], dim=-1)
    used = target != -100
    torch.testing.assert_close(found[used].double(), whole.grad[used], rtol=1e-4, atol=1e-6)


def test_cross_entropy_refuses_what_does_not_fit():
    logits = np.ones((3, 5), np.float32)
    with pytest.raises(ValueError, match="a class for each row"):
        tk.cross_entropy(logits, np.zeros(4, np.int64))
    with pytest.raises(ValueError, match="none, mean, sum"):
        tk.cross_entropy(logits, np.zeros(3, np.int64), reduction="median")


def test_cross_entropy_is_an_operator_of_torch():
    pytest.importorskip("torch")
    logits, target = np.ones((3, 40), np.float32), np.zeros(3, np.int64)
    check_operator(CROSS_ENTROPY, logits, target)
    check_operator(CROSS_ENTROPY_SHARD, logits, target, 10)
    check_compiled(tk.cross_entropy, arrays((3, 40)), wrt=("logits",))


def test_kernels_of_cross_entropy_compile_for_gpus():
    logits, target = np.ones((8, 9000), np.float32), np.zeros(8, np.int64)
    row, one = np.ones(8, np.float32), np.ones((), np.float32)
    check_architectures(CROSS_ENTROPY, logits, target, -100, 0.1)
    check_architectures(
        CROSS_ENTROPY_BACKWARD,
        *(one, logits, target, row, one, -100, 0.1, 0.0, "mean"),
        architectures=["sm_90a", "gfx942"],
    )
