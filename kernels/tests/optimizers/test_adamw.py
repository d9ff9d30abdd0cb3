"""AdamW over many arrays against its formula, with moments in 32 and in 8 bits."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.operations.devices import Device
from tilewright_kernels.optimizers import adamw as adamw_module
from tilewright_kernels.optimizers import adamw_8bit as adamw_8bit_module
from tilewright_kernels.optimizers.adamw_8bit import (
    code_of,
    code_table,
    decoded_reference,
    dynamic_codes,
    encoded_reference,
)
from tilewright_kernels.optimizers.code_cells import code_by_cells

SHAPES = [(3,), (0,), (70, 70), (5000,), ()]


def arrays(dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES]


def test_steps_equal_the_formula():
    parameters, exact = arrays(), [each.astype(np.float64) for each in arrays()]
    parameters[2] = parameters[2].astype(np.float16)
    exact[2] = parameters[2].astype(np.float64)
    moments = [[np.zeros(shape, np.float32) for shape in SHAPES] for _ in range(2)]
    exact_moments = [(np.zeros(shape), np.zeros(shape)) for shape in SHAPES]
    settings = {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}
    for step in (1, 2, 3):
        gradients = arrays(seed=step)
        tk.adamw(parameters, gradients, *moments, step, **settings)
        for number, gradient in enumerate(gradients):
            exact[number], *exact_moments[number] = tk.adamw_reference(
                exact[number], gradient, *exact_moments[number], step, **settings
            )
            exact[number] = np.asarray(exact[number])
    for number, (found, expected) in enumerate(zip(parameters, exact, strict=True)):
        tolerance = 5e-3 if number == 2 else 2e-5
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(
            moments[0][number], exact_moments[number][0], rtol=1e-4, atol=1e-6
        )
    with pytest.raises(ValueError, match="from 1"):
        tk.adamw(parameters, gradients, *moments, 0)
    with pytest.raises(ValueError, match="different lengths"):
        tk.adamw(parameters, gradients[1:], *moments, 1)
    with pytest.raises(ValueError, match="not in C order"):
        wide = np.zeros((4, 4), np.float32)[:, ::2]
        tk.adamw([wide], [wide], [wide], [wide], 1)


def test_codes_are_in_order_and_reach_one():
    for signed in (True, False):
        codes = dynamic_codes(signed)
        assert len(codes) == 256 and codes[-1] == 1 and (np.diff(codes) > 0).sum() > 250
    moment = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    found = decoded_reference(*encoded_reference(moment, True), True)
    assert np.abs(found - moment).max() < 0.02 * np.abs(moment).max()


@tw.jit
def codes_kernel(
    x_ptr, table_ptr, y_ptr, FUNCTION: tl.constexpr, SIGNED: tl.constexpr, BLOCK: tl.constexpr
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, FUNCTION(tl.load(x_ptr + offsets), table_ptr, SIGNED))


@pytest.mark.parametrize("function", [code_of, code_by_cells])
@pytest.mark.parametrize("signed", [True, False])
def test_codes_are_those_of_the_nearest_numbers(signed, function):
    codes = dynamic_codes(signed)
    middles = (codes[1:] + codes[:-1]) / 2
    powers = np.float32(10.0) ** np.arange(-9, 1, dtype=np.float32)
    edges = np.concatenate([codes, middles, powers, -powers if signed else powers])
    rng = np.random.default_rng(0)
    random = 10 ** rng.uniform(-9, 0, 30000) * (rng.choice([-1, 1], 30000) if signed else 1)
    near = [edges, np.nextafter(edges, np.float32(-2)), np.nextafter(edges, np.float32(2)), random]
    x = np.clip(np.concatenate(near).astype(np.float32), -1 if signed else 0, 1)
    x = np.pad(x, (0, -len(x) % 1024))
    found = np.empty(len(x), np.int32)
    table = code_table(signed)
    if function is code_by_cells:
        table = table[513:].view(np.int32)
    codes_kernel[(len(x) // 1024,)](x, table, found, function, SIGNED=signed, BLOCK=1024)
    np.testing.assert_array_equal(found, np.searchsorted(middles, x, side="right"))


def test_blocks_in_turn_give_the_bits_of_blocks_at_once(monkeypatch):
    shapes, results = [(40000,), (16384,), (3,)], []
    for blocks in ((1024, 4), (4096, 1)):
        monkeypatch.setattr(adamw_module, "_CPU_BLOCKS", blocks)
        rng = np.random.default_rng(0)
        lists = [[rng.random(shape).astype(np.float32) for shape in shapes] for _ in range(4)]
        tk.adamw(*lists, 1)
        results.append(np.concatenate([*lists[0], *lists[2], *lists[3]]))
    np.testing.assert_array_equal(*results)


def test_codes_by_cells_and_by_arithmetic_give_the_same_bits(monkeypatch):
    results = []
    for family in ("cpu", "hopper"):
        device = Device(family, 1)
        monkeypatch.setattr(adamw_8bit_module, "device_of", lambda _, device=device: device)
        parameters = arrays()
        states = [tk.adamw_8bit_state(each) for each in parameters]
        for step in (1, 2):
            tk.adamw_8bit(parameters, arrays(seed=step), states, step)
        results.append([*parameters, *(part for state in states for part in state)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_steps_in_8_bits_equal_the_formula_on_decoded_moments():
    parameters = arrays()
    states = [tk.adamw_8bit_state(each) for each in parameters]
    for step in (1, 2, 3):
        before = [each.astype(np.float64) for each in parameters]
        decoded = [
            [
                decoded_reference(state[place].ravel(), state[place + 1], place == 0)
                .reshape(shape)
                .astype(np.float64)
                for place in (0, 2)
            ]
            for state, shape in zip(states, SHAPES, strict=True)
        ]
        gradients = arrays(seed=step)
        tk.adamw_8bit(parameters, gradients, states, step, lr=0.1)
        for number, gradient in enumerate(gradients):
            expected, *moments = tk.adamw_reference(
                before[number], gradient, *decoded[number], step, lr=0.1
            )
            np.testing.assert_allclose(parameters[number], expected, rtol=1e-4, atol=1e-4)
            for place, moment in zip((0, 2), moments, strict=True):
                if gradient.size == 0:
                    continue
                codes, scales = encoded_reference(np.ravel(moment).astype(np.float32), place == 0)
                np.testing.assert_allclose(states[number][place + 1], scales, rtol=1e-5)
                difference = states[number][place].ravel().astype(int) - codes.astype(int)
                # a number halfway between two codes may round to either
                assert np.abs(difference).max() <= 1 and (difference != 0).mean() < 0.01


def test_steps_of_tensors_equal_those_of_torch():
    torch = pytest.importorskip("torch")
    parameters = [torch.from_numpy(each) for each in arrays() if each.size]
    others = [torch.nn.Parameter(each.clone()) for each in parameters]
    moments = [[torch.zeros_like(each) for each in parameters] for _ in range(2)]
    optimizer = torch.optim.AdamW(others, lr=0.01)
    for step in (1, 2):
        for each in others:
            each.grad = torch.sin(each.detach() * step)
        tk.adamw(parameters, [each.grad for each in others], *moments, step, lr=0.01)
        optimizer.step()
    for found, expected in zip(parameters, others, strict=True):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
