"""Launches with hundreds of arguments, and launches from many threads, run no Python of the
launcher's."""

import importlib.util

import pytest

from tilewright.testing.threads import side_by_side

pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import torch

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.llvm.native import native_functions
from tilewright.llvm.native.dispatch_entries import MAX_ARGUMENTS

pytestmark = pytest.mark.skipif(
    native_functions.layout() is None, reason="native code cannot read this interpreter's objects"
)

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def total(out, {parameters}):
    tl.store(out, {terms})
"""


def kernel_of(tmp_path, parameters, terms):
    """``total(out, *parameters)``, which stores the sum of the terms."""
    path = tmp_path / f"total_{len(parameters)}.py"
    path.write_text(SOURCE.format(parameters=", ".join(parameters), terms=" + ".join(terms)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.total


@pytest.fixture
def in_python(monkeypatch):
    """``in_python(kernel, compiled)``: what was launched by Python code since: by the binder's
    function, or by the backend's launcher."""
    from tilewright_cpu.python_launch import PythonLauncher

    seen = []
    launch = PythonLauncher.__call__
    monkeypatch.setattr(
        PythonLauncher, "__call__", lambda *args: (seen.append("launcher"), launch(*args))[1]
    )

    def watch(kernel):
        binder = kernel._make_binder()
        kernel._binder = binder._replace(
            launch=lambda *args, **keywords: (
                seen.append("binder"),
                binder.launch(*args, **keywords),
            )[1]
        )
        return seen

    return watch


@pytest.mark.parametrize("count", [63, 64, 65, 100, 119, 128, 200, 300])
def test_launches_with_many_arguments_run_no_python(count, tmp_path, in_python):
    names = [f"a{number}" for number in range(count - 1)]
    kernel = kernel_of(
        tmp_path,
        names,
        [f"tl.load({name})" if number % 2 else name for number, name in enumerate(names)],
    )
    out = torch.zeros(1)
    seen = in_python(kernel)

    def launch(seed):
        given = [
            torch.full((1,), float(number + seed)) if number % 2 else 7 * number + seed
            for number in range(len(names))
        ]
        kernel[(1,)](out, *given)
        assert out.item() == sum(
            value.item() if isinstance(value, torch.Tensor) else value for value in given
        )

    for seed in (5, 5):
        launch(seed)
    seen.clear()
    for seed in (5, 5, 5):
        launch(seed)
    assert not seen


def test_launches_with_more_arguments_than_native_code_takes_are_right(tmp_path):
    names = [f"a{number}" for number in range(MAX_ARGUMENTS + 20)]
    kernel, out = kernel_of(tmp_path, names, names[::7]), torch.zeros(1)
    for value in (3, 3, 4, 4):
        kernel[(1,)](out, *[value] * len(names))
        assert out.item() == value * len(names[::7])


# ---- threads


@triton.jit
def scale(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def scaled(x, factor):
    out = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 64),)](x, out, factor, x.numel(), BLOCK=64)
    return out


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return scaled(x, factor)

    @staticmethod
    def backward(ctx, gradient):
        return scaled(gradient.contiguous(), ctx.factor), None


def test_launches_from_many_threads_are_right():
    wrong = []

    def work(number):
        for turn in range(40):
            x = torch.full((number * 32 + turn + 1,), float(turn))
            if not torch.equal(scaled(x, float(number)), x * number):
                wrong.append((number, turn))

    side_by_side(8, work)
    assert not wrong


def test_kernels_run_in_the_backward_pass_and_in_hooks_of_it():
    x = torch.randn(200, requires_grad=True)
    seen = []
    x.register_hook(lambda gradient: seen.append(scaled(gradient, 2.0)))
    for _ in range(3):
        x.grad = None
        Scale.apply(Scale.apply(x, 3.0), 5.0).sum().backward()
        torch.testing.assert_close(x.grad, torch.full((200,), 15.0))
    assert len(seen) == 3 and all(torch.equal(each, torch.full((200,), 30.0)) for each in seen)
