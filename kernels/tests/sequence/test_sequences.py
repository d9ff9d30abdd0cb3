"""Linear recurrences and causal convolutions against their formulas, and their gradients."""

import checks
import numpy as np
import pytest
from checks import check_architectures, check_operation

import tilewright_kernels as tk
from tilewright_kernels.sequence.causal_convolution import CAUSAL_CONV1D
from tilewright_kernels.sequence.linear_recurrence import RECURRENCE


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("has_initial", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 70, 5), (3, 9, 300)])
def test_recurrences_equal_their_formula(shape, has_initial):
    a, x = 1 / (1 + np.exp(-draw(*shape))), draw(*shape, seed=1)
    initial = draw(shape[0], shape[2], seed=2) if has_initial else None
    out = np.full(shape, np.nan, np.float32)
    tk.linear_recurrence(a, x, initial, out=out)
    exact = [None if each is None else each.astype(np.float64) for each in (a, x, initial)]
    np.testing.assert_allclose(out, tk.linear_recurrence_reference(*exact), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="are not of"):
        tk.linear_recurrence(a, x[:, :, None], initial)


@pytest.mark.each_value
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize(("shape", "width"), [((1, 1, 1), 4), ((2, 5, 300), 4), ((3, 70, 9), 1)])
def test_convolutions_equal_their_formula(shape, width, activation):
    x, weight = draw(*shape), draw(shape[1], width, seed=1)
    bias, state = draw(shape[1], seed=2), draw(*shape[:2], width - 1, seed=3)
    for given in ((), (bias,), (None, state), (bias, state)):
        for each in (x, np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)):
            found = tk.causal_conv1d(each, weight, *given, activation=activation)
            exact = [None if one is None else one.astype(np.float64) for one in (x, weight, *given)]
            expected = tk.causal_conv1d_reference(*exact, activation=activation)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="must be None or 'silu'"):
        tk.causal_conv1d(x, weight, activation="relu")


def test_a_decoder_continues_a_sequence():
    x, weight = draw(2, 6, 11), draw(6, 4, seed=1)
    whole = tk.causal_conv1d(x, weight)
    state = x[:, :, 7:10]
    step = tk.causal_conv1d(x[:, :, 10:], weight, None, state)
    np.testing.assert_array_equal(step, whole[:, :, 10:])


def check_gradients(function, reference, arrays, **settings):
    torch = pytest.importorskip("torch")
    given = [torch.from_numpy(each).requires_grad_() for each in arrays]
    exact = [each.detach().double().requires_grad_() for each in given]
    y, expected = function(*given, **settings), reference(*exact, **settings)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    y.backward(dy)
    expected.backward(dy.double())
    for one, other in zip(given, exact, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [2, 3])
def test_gradients_of_recurrences(count):
    arrays = (1 / (1 + np.exp(-draw(2, 33, 5))), draw(2, 33, 5, seed=1), draw(2, 5, seed=2))
    check_gradients(tk.linear_recurrence, tk.linear_recurrence_reference, arrays[:count])


@pytest.mark.parametrize("activation", [None, "silu"])
def test_gradients_of_convolutions(activation):
    arrays = (draw(2, 5, 33), draw(5, 4, seed=1), draw(5, seed=2), draw(2, 5, 3, seed=3))
    for count in (2, 4):
        check_gradients(
            tk.causal_conv1d, tk.causal_conv1d_reference, arrays[:count], activation=activation
        )


@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("width", [1, 4])
def test_taps_of_other_sequences_are_zero(width, activation):
    rng = np.random.default_rng(4)
    index = np.sort(rng.integers(0, 9, (2, 33)).astype(np.int32), axis=1)
    index[1, 20:] += 3  # more than one apart
    given = {
        "x": rng.standard_normal((2, 5, 33)), "weight": rng.standard_normal((5, width)),
        "bias": rng.standard_normal(5), "state": rng.standard_normal((2, 5, width - 1)),
        "seq_idx": index,
    }  # fmt: skip
    settings = {"activation": activation}
    functions = tk.causal_conv1d, tk.causal_conv1d_reference
    check_operation(*functions, given, settings)
    checks.check_gradients(*functions, given, settings, wrt=tuple(given)[:4], rtol=1e-4)
    for row in range(2):
        for number in np.unique(index[row]):
            steps = index[row] == number
            own = {**given, "x": given["x"][row : row + 1, :, steps], "seq_idx": None}
            is_first = number == index[row, 0]
            own["state"] = given["state"][row : row + 1] if is_first else None
            np.testing.assert_allclose(
                tk.causal_conv1d_reference(**given, **settings)[row : row + 1, :, steps],
                tk.causal_conv1d_reference(**own, **settings),
                rtol=1e-12, atol=1e-12,
            )  # fmt: skip
    with pytest.raises(ValueError, match="seq_idx has the shape"):
        tk.causal_conv1d(**{**given, "seq_idx": index[:1]})


def test_kernels_compile_for_gpus():
    x = draw(2, 40, 24)
    targets = ("sm_90a",)
    check_architectures(RECURRENCE, x, x, None, architectures=targets)
    check_architectures(
        CAUSAL_CONV1D, x, x[0, :, :4], None, None, None, True, architectures=targets
    )
