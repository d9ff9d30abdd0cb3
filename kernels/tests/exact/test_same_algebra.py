"""Operations against plain formulas in exact mode: equal bits, whatever the blocks and their order.

The plain formulas are loops over scalars; exact mode rounds nowhere, so that an operation that
reads, masks, rescales or adds up anything else than its formula differs.
"""

import ml_dtypes
import numpy as np
import plain_kernels as plain
import pytest

import tilewright_kernels as tk
from tilewright.testing import same_algebra
from tilewright_kernels.attention.operations import ATTENTION_BACKWARD
from tilewright_kernels.rows.softmax import LOG_SOFTMAX, SOFTMAX_BACKWARD


def arrays(*shapes, dtype=np.float32):
    """Return arrays, whose elements exact mode draws."""
    return [np.ones(shape, dtype) for shape in shapes]


def assert_same(operation, formula, given):
    found = same_algebra(operation, formula, given, backend="cpu")
    assert found, found


@pytest.mark.parametrize("columns", [70, pytest.param(131101, marks=pytest.mark.full)])
@pytest.mark.parametrize("is_log", [False, True])
def test_softmax(columns, is_log):
    # over wide rows it is exp(x - log(total)), which in exact mode is not exp(x) / total
    constants = {"LOG": is_log, "BY_LOG": columns > 70}
    assert_same(
        lambda x, y: (tk.log_softmax if is_log else tk.softmax)(x, out=y),
        lambda x, y: plain.softmax_of_scalars[(3,)](x, y, columns, **constants),
        arrays((3, columns), (3, columns)),
    )


def test_softmax_is_not_its_logarithm():
    found = same_algebra(
        lambda x, y: LOG_SOFTMAX(x, out=y),
        lambda x, y: plain.softmax_of_scalars[(3,)](x, y, 70, LOG=False, BY_LOG=False),
        arrays((3, 70), (3, 70)),
        backend="cpu",
    )
    assert found.status == "different"


@pytest.mark.parametrize("columns", [70, pytest.param(9001, marks=pytest.mark.full)])
def test_gradient_of_softmax(columns):
    assert_same(
        lambda dy, y, dx: SOFTMAX_BACKWARD(dy, y, out=dx),
        lambda dy, y, dx: plain.softmax_slopes_of_scalars[(3,)](dy, y, dx, columns),
        arrays(*[(3, columns)] * 3),
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns", [70, pytest.param(131101, marks=pytest.mark.full)])
def test_rms_norm(columns, dtype):
    assert_same(
        lambda x, weight, y: tk.rms_norm(x, weight, eps=1e-3, out=y),
        lambda x, weight, y: plain.rms_norm_of_scalars[(3,)](x, weight, y, columns, 1e-3),
        arrays((3, columns), (columns,), (3, columns), dtype=dtype),
    )


@pytest.mark.parametrize("columns", [70, pytest.param(131101, marks=pytest.mark.full)])
def test_layer_norm(columns):
    assert_same(
        lambda x, weight, bias, y: tk.layer_norm(x, weight, bias, eps=1e-3, out=y),
        lambda *given: plain.layer_norm_of_scalars[(3,)](*given, columns, 1e-3),
        arrays((3, columns), (columns,), (columns,), (3, columns)),
    )


@pytest.mark.parametrize("columns", [70, pytest.param(9001, marks=pytest.mark.full)])
def test_cross_entropy(columns):
    x, loss = arrays((3, columns), (3,))
    assert_same(
        lambda x, target, loss: tk.cross_entropy(x, target, reduction="none", out=loss),
        lambda x, target, loss: plain.cross_entropy_of_scalars[(3,)](x, target, loss, columns),
        [x, np.array([0, columns - 1, 7]), loss],
    )


def test_swiglu():
    assert_same(
        lambda gate, up, y: tk.swiglu(gate, up, out=y),
        lambda gate, up, y: plain.swiglu_of_scalars[(gate.size,)](gate, up, y),
        arrays(*[(3, 70)] * 3),
    )


def test_rotary():
    assert_same(
        lambda x, cos, sin, y: tk.rotary(x, cos, sin, out=y),
        lambda *given: plain.rotary_of_scalars[(5, 12)](*given, 3, 12),
        arrays((5, 3, 24), (5, 12), (5, 12), (5, 3, 24)),
    )


def test_moments():
    def operation(x, total, mean, var):
        tk.sum(x, 0, out=total)
        tk.mean(x, 0, out=mean)
        tk.var(x, 0, out=var)

    assert_same(
        operation,
        lambda *given: plain.moments_of_scalars[(7,)](*given, 300, 7),
        arrays((300, 7), (7,), (7,), (7,)),
    )


@pytest.mark.parametrize("columns", [300, pytest.param(9001, marks=pytest.mark.full)])
def test_prefix_sums(columns):
    assert_same(
        lambda x, y: tk.cumsum(x, out=y),
        lambda x, y: plain.prefix_sums_of_scalars[(2,)](x, y, columns),
        arrays((2, columns), (2, columns)),
    )


def test_linear_recurrence():
    assert_same(
        lambda a, x, h: tk.linear_recurrence(a, x, out=h),
        lambda a, x, h: plain.recurrence_of_scalars[(2, 5)](a, x, h, 70, 5),
        arrays(*[(2, 70, 5)] * 3),
    )


def test_causal_convolution():
    assert_same(
        lambda x, weight, y: tk.causal_conv1d(x, weight, out=y),
        lambda x, weight, y: plain.convolution_of_scalars[(5, 70)](x, weight, y, 70, WIDTH=4),
        arrays((1, 5, 70), (5, 4), (1, 5, 70)),
    )


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("batches, m, n, k", [(0, 37, 45, 70), (0, 1, 50, 700), (2, 9, 17, 33)])
def test_matmul(batches, m, n, k, dtype):
    batch = (batches,) if batches else ()
    grid = (m, n, batches or 1)
    assert_same(
        lambda a, b, c: tk.matmul(a, b, out=c),
        lambda a, b, c: plain.matmul_of_scalars[grid](a, b, c, n, k, BATCHED=batches > 0),
        arrays((*batch, m, k), (*batch, k, n), (*batch, m, n), dtype=dtype),
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_causal_attention(dtype):
    rows, heads, dims, scale = 70, 2, 16, 0.25
    q, k, v, out = arrays(*[(1, rows, heads, dims)] * 4, dtype=dtype)
    (lse,) = arrays((1, heads, rows))
    assert_same(
        lambda q, k, v, out, lse: tk.attention(
            q, k, v, scale, causal=True, return_lse=True, out=(out, lse)
        ),
        lambda *given: plain.attention_of_scalars[(rows, heads)](
            *given, rows, heads, scale, D=dims
        ),
        [q, k, v, out, lse],
    )


def test_gradients_of_attention():
    rows, dims, scale = 37, 16, 0.25
    q, k, v, out, dout, dq = arrays(*[(1, rows, 1, dims)] * 6)
    (lse,) = arrays((1, 1, rows))
    dk, dv = np.zeros_like(k), np.zeros_like(v)

    def operation(q, k, v, out, dout, dq, dk, dv, lse):
        tk.attention(q, k, v, scale, return_lse=True, out=(out, lse))
        ATTENTION_BACKWARD(
            dout, None, q, k, v, out, lse, None, None, None, None, None, 0, 0, scale, 0.0, -1, -1,
            None, out=(dq, dk, dv),
        )  # fmt: skip

    def formula(q, k, v, out, dout, dq, dk, dv, lse):
        tk.attention(q, k, v, scale, return_lse=True, out=(out, lse))
        plain.attention_slopes_of_scalars[(1,)](q, k, v, out, dout, dq, dk, dv, rows, scale, D=dims)

    assert_same(operation, formula, [q, k, v, out, dout, dq, dk, dv, lse])
