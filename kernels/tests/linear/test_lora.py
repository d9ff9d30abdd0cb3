"""A matmul with a low-rank update against its formula, and its gradients."""

import numpy as np
import pytest

import tilewright_kernels as tk

SHAPES = {"x": (2, 9, 33), "weight": (33, 20), "a": (33, 4), "b": (4, 20), "bias": (20,)}


def test_the_update_equals_its_formula():
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    out = np.full((2, 9, 20), np.nan, np.float32)
    tk.lora_matmul(**given, scale=0.5, out=out)
    exact = {name: each.astype(np.float64) for name, each in given.items()}
    expected = tk.lora_matmul_reference(**exact, scale=0.5)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


def test_gradients_of_the_update():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    given = {
        name: torch.randn(shape, generator=generator).requires_grad_()
        for name, shape in SHAPES.items()
    }
    exact = {name: each.detach().double().requires_grad_() for name, each in given.items()}
    tk.lora_matmul(**given, scale=0.5).sum().backward()
    tk.lora_matmul_reference(**exact, scale=0.5).sum().backward()
    for name, each in given.items():
        torch.testing.assert_close(each.grad.double(), exact[name].grad, rtol=1e-4, atol=1e-3)


def test_invariant_updates_do_not_depend_on_the_number_of_rows():
    rng = np.random.default_rng(1)
    x, *others = (
        rng.standard_normal(each).astype(np.float32)
        for each in ((70, 300), (300, 40), (300, 4), (4, 40))
    )
    whole = tk.lora_matmul(x, *others, invariant=True)
    for rows in (1, 33):
        found = tk.lora_matmul(x[:rows], *others, invariant=True)
        np.testing.assert_array_equal(found, whole[:rows])
