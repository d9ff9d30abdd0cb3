"""Errors of calls of operations, each with its remedy."""

import numpy as np
import pytest

import tilewright_kernels as tk
from tilewright.errors import BackendError
from tilewright_kernels.operations import Array, Launcher, Operation

X = np.ones((4, 8), np.float32)


def test_arguments_that_do_not_fit():
    with pytest.raises(TypeError, match="there is no array among the arguments: pass x, weight"):
        tk.rms_norm(None)
    with pytest.raises(TypeError, match=r"not a builtins\.list: convert it.*numpy\.asarray"):
        tk.rms_norm([1.0, 2.0])
    with pytest.raises(TypeError, match="'x' is missing"):
        tk.rows.rms_norm.RMS_NORM()
    with pytest.raises(TypeError, match="unexpected keyword argument 'epsilon'"):
        tk.rows.rms_norm.RMS_NORM(X, epsilon=1.0)


def test_arrays_of_several_frameworks():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="of numpy and torch: convert them to one"):
        tk.rms_norm(X, torch.ones(8))
    with pytest.raises(ValueError, match="pass one of those"):
        tk.rms_norm(X, out=torch.ones(4, 8))


def test_tensors_on_several_devices():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"weight is on meta.*move the arguments to one device"):
        tk.rms_norm(torch.ones(4, 8), torch.ones(8, device="meta"))
    with pytest.raises(ValueError, match=r"out= is on meta.*pass an array there"):
        tk.rms_norm(torch.ones(4, 8), out=torch.ones(4, 8, device="meta"))


def test_out_that_does_not_fit():
    with pytest.raises(ValueError, match=r"shape \(4, 9\).*\(4, 8\): pass an array of that shape"):
        tk.rms_norm(X, out=np.ones((4, 9), np.float32))
    with pytest.raises(ValueError, match="of float64, and y of float32: pass an array of that"):
        tk.rms_norm(X, out=np.ones((4, 8)))
    with pytest.raises(ValueError, match="2 arrays, and there are 1 results"):
        tk.rms_norm(X, out=(X, X))
    out = np.ones((4, 8), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only: pass a writable array"):
        tk.rms_norm(X, out=out)


def test_out_and_gradients():
    torch = pytest.importorskip("torch")
    x, tracked = torch.ones(4, 8), torch.ones(4, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"out= does not support .*within torch\.no_grad"):
        tk.rms_norm(tracked, out=x)
    with pytest.raises(ValueError, match=r"requires a gradient.*within torch\.no_grad"):
        tk.rms_norm(x, out=tracked)
    with torch.no_grad():
        assert tk.rms_norm(x, out=tracked) is tracked


def test_a_device_that_no_backend_serves_is_named():
    torch = pytest.importorskip("torch")
    with pytest.raises((BackendError, TypeError, ValueError), match="meta"):
        tk.rms_norm(torch.ones(4, 8, device="meta"))


def test_references_are_used_where_they_are_asked_for():
    def launch(run: Launcher, y, x: Array) -> None:
        raise AssertionError("the kernels are launched")

    def shapes(make, x):
        return (make(x.shape, x.dtype),)

    operation = Operation("test_twin", ("y",), shapes, launch, reference=lambda x: x + 1)
    out = np.zeros_like(X)
    with tk.use_references():
        np.testing.assert_array_equal(operation(X), X + 1)
        assert operation(X, out=out) is out
        with pytest.raises(TypeError, match="has no reference for use_references"):
            Operation("test_no_twin", ("y",), shapes, launch)(X)
        np.testing.assert_array_equal(tk.rms_norm(X, eps=0.5), tk.rms_norm_reference(X, None, 0.5))
    np.testing.assert_array_equal(out, X + 1)
    with pytest.raises(AssertionError, match="are launched"):
        operation(X)


def test_defaults_are_those_of_calls_that_name_none():
    seen = []

    def launch(
        run: Launcher, y, x: Array, deterministic: bool | None = None, invariant: bool | None = None
    ) -> None:
        seen.append((deterministic, invariant))

    operation = Operation(
        "test_defaults", ("y",), lambda make, x, *_: (make(x.shape, x.dtype),), launch
    )
    operation(X)
    with tk.use_defaults(deterministic=True, invariant=True):
        operation(X)
        operation(X, invariant=False)
    operation(X[:1], True)
    assert seen == [(False, False), (True, True), (True, False), (True, False)]
