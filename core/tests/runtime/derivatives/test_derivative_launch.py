"""Launches of ``tw.jvp`` and ``tw.vjp``: arguments, memory, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax(x, out, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + row * stride + at, mask=mask, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=mask)


@tw.jit
def scaled_sum(x, w, out, factor, n, BLOCK: tl.constexpr):
    """Each program adds a product to the sums of a column, which all programs share."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * n + at, mask=at < n)
    tl.atomic_add(out + at, v * tl.load(w + at, mask=at < n) * factor, mask=at < n)


@tw.jit
def recurrence(x, out, n, decay, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros([BLOCK], tl.float32)
    for i in range(n):
        h = tl.sin(h * decay + tl.load(x + i * 64 + at))
        tl.store(out + i * 64 + at, h)


@tw.jit
def blocks(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Read and write blocks of descriptors."""
    row = tl.program_id(0) * ROWS
    v = x.load([row, 0])
    out.store([row, 0], v * v * y.load([0, 0]))


@pytest.fixture(params=["reference", "cpu"], autouse=True)
def on_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "cpu":
        pytest.importorskip("tilewright_cpu")
    with tw.backend(request.param):
        yield


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def softmax_gradient(x: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    y = e / e.sum(1, keepdims=True)
    return y * (cotangent - (y * cotangent).sum(1, keepdims=True))


ROWS, COLUMNS = 5, 100


@pytest.mark.parametrize("saved", [(), "out"])
def test_the_gradient_of_an_input_is_written(saved) -> None:
    x, cotangent = drawn(ROWS, COLUMNS), drawn(ROWS, COLUMNS, seed=1)
    out, dx = np.zeros_like(x), np.full_like(x, np.nan)
    arguments = (x, out, COLUMNS, COLUMNS)
    softmax[(ROWS,)](*arguments, BLOCK=128)
    if not saved:
        out[:] = np.nan  # it is not read
    adjoint = tw.vjp(softmax, outputs="out", wrt="x", saved=saved)
    adjoint[(ROWS,)](*arguments, BLOCK=128, d_out=cotangent, d_x=dx)
    np.testing.assert_allclose(dx, softmax_gradient(x, cotangent), atol=1e-6)


def test_tangents_are_those_of_the_values() -> None:
    x, tangent = drawn(ROWS, COLUMNS), drawn(ROWS, COLUMNS, seed=1)
    out, found = np.zeros_like(x), np.zeros_like(x)
    forward = tw.jvp(softmax, inputs="x", outputs="out")
    forward[(ROWS,)](x, out, COLUMNS, COLUMNS, BLOCK=128, t_x=tangent, t_out=found)
    np.testing.assert_allclose(found, softmax_gradient(x, tangent), atol=1e-6)
    np.testing.assert_allclose(out.sum(1), np.ones(ROWS), atol=1e-6)


def test_gradients_of_what_programs_share_are_summed_and_floats_have_some() -> None:
    x, w, cotangent = drawn(ROWS, 60), drawn(60, seed=1), drawn(60, seed=2)
    out = np.zeros_like(w)
    dx, dw, dfactor = np.full_like(x, np.nan), np.full_like(w, np.nan), np.zeros(1, "f4")
    adjoint = tw.vjp(scaled_sum, outputs="out", wrt=("x", "w", "factor"))
    gradients = {"d_out": cotangent, "d_x": dx, "d_w": dw, "d_factor": dfactor}
    adjoint[(ROWS,)](x, w, out, 0.5, 60, BLOCK=64, **gradients)
    np.testing.assert_allclose(dx, np.tile(w * cotangent * 0.5, (ROWS, 1)), rtol=1e-5)
    np.testing.assert_allclose(dw, x.sum(0) * cotangent * 0.5, rtol=1e-4, atol=1e-5)
    expected = (x.sum(0, dtype="f8") * w * cotangent).sum()
    np.testing.assert_allclose(dfactor, expected, rtol=1e-4)


def test_a_float_has_a_tangent_that_is_a_float() -> None:
    x, w = drawn(ROWS, 60), drawn(60, seed=1)
    out, found = np.zeros_like(w), np.zeros_like(w)
    forward = tw.jvp(scaled_sum, inputs="factor", outputs="out")
    forward[(ROWS,)](x, w, out, 0.5, 60, BLOCK=64, t_factor=2.0, t_out=found)
    np.testing.assert_allclose(found, x.sum(0) * w * 2, rtol=1e-4, atol=1e-5)


def test_gradients_are_added_where_that_is_asked() -> None:
    x, cotangent = drawn(ROWS, COLUMNS), drawn(ROWS, COLUMNS, seed=1)
    out, dx = np.zeros_like(x), np.ones_like(x)
    adjoint = tw.vjp(softmax, outputs="out", wrt="x", accumulate=True)
    adjoint[(ROWS,)](x, out, COLUMNS, COLUMNS, BLOCK=128, d_out=cotangent, d_x=dx)
    np.testing.assert_allclose(dx, 1 + softmax_gradient(x, cotangent), atol=1e-6)


def test_narrow_floats_may_have_gradients_in_float32() -> None:
    x, cotangent = drawn(ROWS, COLUMNS, dtype="float16"), drawn(ROWS, COLUMNS, seed=1)
    out, dx = np.zeros_like(x), np.full(x.shape, np.nan, "float32")
    adjoint = tw.vjp(softmax, outputs="out", wrt="x")
    adjoint[(ROWS,)](x, out, COLUMNS, COLUMNS, BLOCK=128, d_out=cotangent, d_x=dx)
    np.testing.assert_allclose(dx, softmax_gradient(x, cotangent), atol=1e-3)


def recurrence_in_f64(x: np.ndarray, decay: float) -> np.ndarray:
    h, found = np.zeros(64), []
    for row in x.astype("f8"):
        h = np.sin(h * decay + row)
        found.append(h)
    return np.array(found)


def test_a_recurrence_is_walked_backward_from_a_tape() -> None:
    x, cotangent, steps = drawn(6, 64), drawn(6, 64, seed=1), 6
    out, dx, ddecay = np.zeros_like(x), np.full_like(x, np.nan), np.zeros(1, "f4")
    adjoint = tw.vjp(recurrence, outputs="out", wrt=("x", "decay"))
    before = cotangent.copy()
    adjoint[(2,)](x, out, steps, 0.7, BLOCK=32, d_out=cotangent, d_x=dx, d_decay=ddecay)
    assert (cotangent == before).all()
    tangent = drawn(6, 64, seed=2).astype("f8")

    def loss(step: float, decay: float) -> float:
        return float((recurrence_in_f64(x + step * tangent, decay) * cotangent).sum())

    by_x = (loss(1e-6, 0.7) - loss(-1e-6, 0.7)) / 2e-6
    by_decay = (loss(0, 0.7 + 1e-6) - loss(0, 0.7 - 1e-6)) / 2e-6
    assert (dx * tangent).sum() == pytest.approx(by_x, rel=1e-4)
    assert ddecay[0] == pytest.approx(by_decay, rel=1e-4)


def test_a_tape_can_be_forbidden() -> None:
    x = drawn(6, 64)
    adjoint = tw.vjp(recurrence, outputs="out", wrt="x", tape=False)
    with pytest.raises(tw.DerivativeError, match="recurrence has a loop that carries") as caught:
        adjoint[(2,)](x, x.copy(), 6, 0.7, BLOCK=32, d_out=x.copy(), d_x=x.copy())
    assert caught.value.remedy == ("let the loop only add to what it carries, or leave tape=True")


def blocks_of(array: np.ndarray) -> tw.TensorDescriptor:
    strides = [stride // array.itemsize for stride in array.strides]
    return tw.TensorDescriptor(array, list(array.shape), strides, [4, 16])


def test_descriptors_have_gradients_behind_descriptors() -> None:
    x, y, cotangent = drawn(8, 16), drawn(4, 16, seed=1), drawn(8, 16, seed=2)
    dx, dy, out = np.full_like(x, np.nan), np.full_like(y, np.nan), np.zeros_like(x)
    adjoint = tw.vjp(blocks, outputs="out", wrt=("x", "y"))
    arrays = {"x": x, "y": y, "out": out, "d_out": cotangent, "d_x": dx, "d_y": dy}
    adjoint[(2,)](**{name: blocks_of(a) for name, a in arrays.items()}, ROWS=4, COLUMNS=16)
    np.testing.assert_allclose(dx, 2 * x * np.tile(y, (2, 1)) * cotangent, rtol=1e-5)
    expected = (x * x * cotangent).reshape(2, 4, 16).sum(0)
    np.testing.assert_allclose(dy, expected, rtol=1e-5, atol=1e-6)


def test_the_second_derivative_is_that_of_the_adjoint() -> None:
    """The adjoint's module is a kernel like any other."""
    from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
    from tilewright.ir.parser import parse_module
    from tilewright.reference.interpreter import run

    module = parse_module(
        "tilewright.ir 1.0\nkernel @cube(%x: ptr<f64>, %out: ptr<f64>) {\n"
        "  %0 = load %x : f64\n  %1 = mul %0, %0 : f64\n  %2 = mul %1, %0 : f64\n"
        "  store %out, %2\n  return\n}"
    )
    once = vjp(module, AdjointRequest(("out",), ("x",)))
    twice = vjp(once, AdjointRequest(("d_x",), ("x", "d_out"), prefix="dd_"))
    x, d_out, second, by_cotangent = (np.array([number]) for number in (3.0, 1.0, 0.0, 0.0))
    values = {"x": x, "d_out": d_out, "dd_x": second, "dd_d_out": by_cotangent}
    arguments = [
        values.get(argument.name, np.ones(1) if argument.name == "dd_d_x" else np.zeros(1))
        for argument in twice.kernel.arguments
    ]
    run(twice, arguments, (1, 1, 1))
    assert second[0] == 18.0
    assert by_cotangent[0] == 27.0


@tw.jit
def weighted_best(x, out, BLOCK: tl.constexpr):
    best = tl.topk(tl.load(x + tl.arange(0, BLOCK)), 4)
    weights = 1 + tl.arange(0, 4)
    tl.store(out + tl.arange(0, 4), best.to(tl.float32) * weights)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_best_elements_have_gradients_where_they_are(dtype: str) -> None:
    x = drawn(16, dtype=dtype)
    dx, expected = np.full(16, np.nan, "f4"), np.zeros(16)
    expected[np.argsort(-x)[:4]] = [1, 2, 3, 4]
    adjoint = tw.vjp(weighted_best, outputs="out", wrt="x", deterministic=True)
    ones = np.ones(4, "f4")
    adjoint[(1,)](x, np.zeros(4, "f4"), BLOCK=16, d_out=ones, d_x=dx)
    assert (dx == expected).all()


@tw.jit
def doubled_columns(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    here = tl.program_id(0) * stride + at
    tl.store(out + tl.program_id(0) * n + at, 2 * tl.load(x + here, mask=at < n), mask=at < n)


def stage_of(kernel: tw.CompiledKernel) -> str:
    return str(kernel.asm["tileir"])


@pytest.mark.parametrize("accumulate", [False, True])
def test_gradients_are_stored_where_programs_load_apart(accumulate: bool) -> None:
    x, cotangent = drawn(ROWS, COLUMNS), drawn(ROWS, COLUMNS, seed=1)
    adjoint = tw.vjp(
        doubled_columns, outputs="out", wrt="x", deterministic=True, accumulate=accumulate
    )
    dx = np.ones_like(x)
    own = {"d_out": cotangent, "d_x": dx}
    made = adjoint[(ROWS,)](x, np.zeros_like(x), COLUMNS, COLUMNS, BLOCK=128, **own)
    assert "atomic" not in stage_of(made)
    np.testing.assert_allclose(dx, 2 * cotangent + accumulate, rtol=1e-6)


def test_gradients_are_added_up_where_rows_meet() -> None:
    x, cotangent = drawn(ROWS * COLUMNS), drawn(ROWS, COLUMNS, seed=1)
    out = np.zeros((ROWS, COLUMNS), "f4")
    expected = np.zeros_like(x)
    for row in range(ROWS):
        expected[row * 60 : row * 60 + COLUMNS] += 2 * cotangent[row]
    dx = np.full_like(x, np.nan)
    own = {"d_out": cotangent, "d_x": dx}
    adjoint = tw.vjp(doubled_columns, outputs="out", wrt="x")
    made = adjoint[(ROWS,)](x, out, COLUMNS, 60, BLOCK=128, **own)
    assert "atomic" in stage_of(made)
    np.testing.assert_allclose(dx, expected, rtol=1e-5)
    adjoint = tw.vjp(doubled_columns, outputs="out", wrt="x", deterministic=True)
    with pytest.raises(tw.DerivativeError) as caught:
        adjoint[(ROWS,)](x, out, COLUMNS, 60, BLOCK=128, **own)
    assert caught.value.reason == (
        "the gradient of x is added to atomically, in any order: the arguments do not satisfy "
        "1 >= num_programs(1) and 1 >= num_programs(2) and stride >= n"
    )


def test_two_gradients_are_two_arrays() -> None:
    x = drawn(60)
    adjoint = tw.vjp(scaled_sum, outputs="out", wrt=("x", "w"))
    with pytest.raises(tw.LaunchError, match="the gradients of x and w are one array"):
        adjoint[(1,)](x, x.copy(), x.copy(), 0.5, 60, BLOCK=64, d_out=x.copy(), d_x=x, d_w=x)


# ---- refusals


def test_names_are_checked_at_once() -> None:
    with pytest.raises(tw.errors.DefinitionError, match="no parameter 'outt', which outputs names"):
        tw.vjp(softmax, outputs="outt", wrt="x")
    with pytest.raises(tw.errors.DefinitionError, match="no parameter 'y', which inputs names"):
        tw.jvp(softmax, inputs="y", outputs="out")
    with pytest.raises(tw.errors.DefinitionError, match=r"vjp is of a kernel of tilewright\.jit"):
        tw.vjp(np.sin, outputs="out", wrt="x")


def test_integers_have_no_derivative() -> None:
    x = drawn(ROWS, COLUMNS)
    adjoint = tw.vjp(softmax, outputs="out", wrt="n")
    with pytest.raises(tw.LaunchError, match="d_n must be an array of floats, not of i32"):
        adjoint[(ROWS,)](x, x.copy(), 100, 100, BLOCK=128, d_out=x.copy(), d_n=np.zeros(1, "int32"))
    with pytest.raises(tw.DerivativeError, match="wrt names 'n', which is a i32 and not an array"):
        adjoint[(ROWS,)](x, x.copy(), 100, 100, BLOCK=128, d_out=x.copy(), d_n=np.zeros(1, "f4"))


REFUSED = [
    ({"d_x": None}, "d_x must be an array: the argument is one"),
    ({"d_x": "missing"}, "softmax_vjp takes 'd_x' by keyword"),
    ({"d_x": np.zeros((ROWS, COLUMNS), "int32")}, "d_x must be an array of floats, not of i32"),
    ({"d_x": np.zeros((ROWS, COLUMNS + 1), "f4")}, r"d_x has shape \(5, 101\)"),
    ({"d_x": np.zeros((COLUMNS, ROWS), "f4").T}, r"d_x has shape \(5, 100\) and strides \(1, 5\)"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_gradients_that_do_not_fit_are_refused(changes, message) -> None:
    x = drawn(ROWS, COLUMNS)
    own = {"d_out": x.copy(), "d_x": x.copy(), **changes}
    own = {name: value for name, value in own.items() if not isinstance(value, str)}
    adjoint = tw.vjp(softmax, outputs="out", wrt="x")
    with pytest.raises(tw.LaunchError, match=message):
        adjoint[(ROWS,)](x, x.copy(), COLUMNS, COLUMNS, BLOCK=128, **own)


def test_an_input_that_was_overwritten_is_refused() -> None:
    x = drawn(ROWS, COLUMNS)
    adjoint = tw.vjp(softmax, outputs="out", wrt="x")
    with pytest.raises(tw.LaunchError, match="x and out are one array"):
        adjoint[(ROWS,)](x, x, COLUMNS, COLUMNS, BLOCK=128, d_out=x.copy(), d_x=x.copy())


def test_there_are_no_derivatives_in_exact_mode() -> None:
    x = drawn(ROWS, COLUMNS)
    adjoint = tw.vjp(softmax, outputs="out", wrt="x")
    with tw.testing.exact_mode(), pytest.raises(tw.LaunchError, match="in exact mode"):
        adjoint[(ROWS,)](x, x.copy(), COLUMNS, COLUMNS, BLOCK=128, d_out=x.copy(), d_x=x.copy())


@tw.jit
def stored_twice_of_three(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, 2 * x)
    tl.store(out_ptr + i, 3 * x)
    tl.store(out_ptr + 4 * BLOCK + i, 5 * x)


def test_one_pair_of_stores_that_overlaps_is_enough_for_the_last_to_count():
    x, out, d_x = np.ones(16, np.float32), np.zeros(80, np.float32), np.empty(16, np.float32)
    adjoint = tw.vjp(stored_twice_of_three, outputs="out_ptr", wrt="x_ptr")
    adjoint[(1,)](x, out, BLOCK=16, d_out_ptr=np.ones(80, np.float32), d_x_ptr=d_x)
    np.testing.assert_array_equal(d_x, 8)
