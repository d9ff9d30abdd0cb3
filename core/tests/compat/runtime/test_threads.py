"""Launches from several threads, PyTorch's own among them, and after interrupts."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

pytest.importorskip("tilewright_cpu")

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton import knobs
from tilewright.llvm.codegen.interrupts import uninterrupted
from tilewright.testing.threads import side_by_side

THREADS = 12


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) * factor, i < n)


@pytest.mark.parametrize("tuned", [False, True])
def test_first_launches_of_several_threads_compile_once(tuned):
    kernel, compiled = triton.jit(scale.fn), []
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    launched = (
        triton.autotune(
            configs, key=["n"], do_bench=lambda run, quantiles: (run(), [1.0] * len(quantiles))[1]
        )(kernel)
        if tuned
        else kernel
    )
    knobs.compilation.listener = lambda **told: compiled.append(told["cache_hit"])

    def work(number):
        x, y = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
        given = {} if tuned else {"BLOCK": 64}
        launched[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](
            x, y, 1000, float(number), **given
        )
        np.testing.assert_array_equal(y, x * number)

    side_by_side(THREADS, work)
    assert compiled == [False] * (2 if tuned else 1)


def test_gradients_of_kernels_from_any_thread():
    """Of which one is PyTorch's own: backward passes within backward passes go on in others from a
    depth of some sixty on."""
    torch = pytest.importorskip("torch")
    seen = set()

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor, out = factor, torch.empty_like(x)
            scale[(1,)](x, out, x.numel(), factor, BLOCK=64)
            return out

        @staticmethod
        def backward(ctx, gradient):
            seen.add(type(threading.current_thread()).__name__)
            out = torch.empty_like(gradient)
            scale[(1,)](gradient.contiguous(), out, gradient.numel(), ctx.factor, BLOCK=128)
            return out, None

    class Deeper(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                inner = x.detach().requires_grad_()
                Scaled.apply(
                    Deeper.apply(inner, ctx.depth - 1) if ctx.depth else inner, 1.0
                ).backward(gradient)
            return inner.grad, None

    def work(number):
        x = torch.arange(50.0, requires_grad=True)
        Scaled.apply(Deeper.apply(x, 70 if number == 0 else 1), number + 2.0).sum().backward()
        assert torch.equal(x.grad, torch.full((50,), number + 2.0))

    side_by_side(THREADS, work)
    assert seen == {"Thread", "_DummyThread"}, "PyTorch has started none"


def test_an_interrupt_waits_for_what_it_must_not_cut():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = []

    @uninterrupted
    def inner():
        signal.raise_signal(signal.SIGINT)
        ended.append("inner")

    @uninterrupted
    def outer():
        inner()
        ended.append("outer")

    try:
        with pytest.raises(KeyboardInterrupt):
            outer()
        assert (
            ended == ["inner", "outer"]
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        inner()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


INTERRUPTED = """
    import gc, random, signal, sys, threading
    import numpy as np
    import tilewright.compat.triton as triton, tilewright.language as tl

    signal.signal(signal.SIGINT, signal.default_int_handler)
    x = np.arange(64, dtype=np.float32)

    @triton.jit
    def shift(x, y, n, BLOCK: tl.constexpr, BY: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, i < n) + tl.sum(tl.load(x + i, i < n, 0.0), 0) * 0 + BY, i < n)

    class Counter:
        "Counts calls and returns, all or those of llvmlite's lock, and interrupts at one of them."
        def __init__(self, at, locks):
            self.at, self.locks, self.count = at, locks, 0
        def __call__(self, frame, event, argument):
            code = frame.f_code
            if not self.locks or (code.co_filename.endswith("ffi.py") and code.co_name in ("__enter__", "__exit__")):
                self.count += 1
                if self.count == self.at:
                    sys.setprofile(None)
                    signal.raise_signal(signal.SIGINT)

    def launch(kernel, by, counter=None):
        y = np.zeros(64, np.float32)
        sys.setprofile(counter)
        try:
            kernel[(1,)](x, y, 64, BLOCK=64, BY=by)
        finally:
            sys.setprofile(None)
        assert (y == x + by).all()

    launch(shift, 0)
    chosen, by, interrupts = random.Random(SEED), 0, 0
    for locks in (False, True):
        gc.collect()  # what interrupted compilations left takes locks when it is freed
        counter, by = Counter(-1, locks), by + 1
        launch(triton.jit(shift.fn), by, counter)
        for _ in range(COUNT):
            by += 1
            kernel = triton.jit(shift.fn)
            try:
                launch(kernel, by, Counter(chosen.randrange(1, counter.count), locks))
            except KeyboardInterrupt:
                interrupts += 1
            done = []
            def again():
                launch(kernel, by)
                launch(kernel, by + 0.5)
                done.append(True)
            thread = threading.Thread(target=again, daemon=True)
            thread.start()
            thread.join(GUARD)
            if not done:
                sys.exit(f"no launch after an interrupt: {locks=} {by=}")
    assert interrupts > COUNT, interrupts  # Python leaves out those that come in destructors
    print("fine")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_at_any_call_of_a_compilation_leaves_kernels_usable(tmp_path):
    code = (
        textwrap.dedent(INTERRUPTED)
        .replace("SEED", "0")
        .replace("COUNT", "20")
        .replace("GUARD", "60")
    )
    (tmp_path / "program.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    found = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.stdout == "fine\n", found.stderr[-3000:]
