"""Compiling in the background: what stands for a kernel meanwhile, and what is left when compiling
fails or is interrupted."""

import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompileTimeAssertionFailure
from tilewright.runtime.compiler.async_compile import AsyncCompileMode, FutureKernel, active_mode
from tilewright.runtime.hooks import hooks


@tw.jit
def fill(y, VALUE: tl.constexpr):
    tl.store(y, VALUE)


@tw.jit
def only_two(y, VALUE: tl.constexpr):
    tl.static_assert(VALUE == 2)
    tl.store(y, VALUE)


class Queue(Executor):
    """An executor that runs submitted jobs on request."""

    def __init__(self):
        self.jobs = []

    def submit(self, call, /, *args, **kwargs):
        future = Future()
        self.jobs.append((future, lambda: call(*args, **kwargs)))
        return future

    def run(self, count=None):
        for _ in range(len(self.jobs) if count is None else count):
            future, call = self.jobs.pop(0)
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as error:
                    future.set_exception(error)


@pytest.fixture
def interrupted():
    """A future whose work was interrupted."""
    future = Future()
    future.set_exception(KeyboardInterrupt())
    return future


def done(value):
    future = Future()
    future.set_result(value)
    return future


def failed(error):
    future = Future()
    future.set_exception(error)
    return future


def test_warm_ups_wait_for_nothing_and_are_asked_for_once(recorder, fresh, kernels):
    kernel, y, queue = fresh(fill), np.zeros(4), Queue()
    with AsyncCompileMode(queue) as mode:
        first = kernel.warmup(y, 1)
        assert kernel.warmup(y, 1) is first
        kernel.warmup(y, 2)
        assert len(queue.jobs) == len(mode.raw_futures) == 2
        assert len(kernels(kernel)) == 2
        assert recorder.lowered == []
        queue.run(1)
        assert kernel[(1,)](y, 1) is first.result()
        assert len(recorder.launches) == 1
        queue.run()
    assert active_mode.get() is None
    assert {type(found).__name__ for found in kernels(kernel).values()} == {"CompiledKernel"}
    assert len(recorder.lowered) == 2
    assert (
        kernel.warmup(y, 2) in kernels(kernel).values()
    )  # outside of the block they are compiled kernels at once


def test_what_stands_for_a_kernel_is_used_as_the_kernel(recorder, fresh):
    y = np.zeros(4)
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pending = fresh(fill).warmup(y, 7)
        assert isinstance(pending, FutureKernel)
        assert pending.name == "_fill" or pending.name == "fill"
        assert pending[(3,)](y, 7) is pending.result()
    assert recorder.launches[0][0] == (3, 1, 1)


def test_other_processes_compile(recorder, fresh):
    pytest.importorskip("tilewright_cpu")
    y = np.zeros(4, np.float32)
    with tw.backend("cpu"), ProcessPoolExecutor(1) as pool, AsyncCompileMode(pool):
        fresh_kernel = fill
        fresh_kernel.clear_cache()
        fresh_kernel.warmup(y, 5)
    with tw.backend("cpu"):
        fresh_kernel[(1,)](y, 5)
    assert y[0] == 5


def test_a_failure_ends_the_block_and_leaves_nothing_behind(recorder, fresh, kernels):
    kernel, y = fresh(only_two), np.zeros(4)
    with (
        pytest.raises(CompileTimeAssertionFailure),
        ThreadPoolExecutor(2) as pool,
        AsyncCompileMode(pool),
    ):
        for value in (1, 2, 3):
            kernel.warmup(y, value)
    assert [found.specialization.constants["VALUE"] for found in kernels(kernel).values()] == [2]
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool, ignore_errors=True):
        kernel.warmup(y, 1)
    assert len(kernels(kernel)) == 1


def test_one_mode_at_a_time():
    with AsyncCompileMode(Queue()) as mode:
        with pytest.raises(RuntimeError, match="already active"), AsyncCompileMode(Queue()):
            pass
        assert active_mode.get() is mode


def test_hooks_are_told_when_a_kernel_is_there(recorder, fresh, monkeypatch):
    told = []
    monkeypatch.setattr(hooks, "jit_cache", lambda **info: told.append("asked") and None)
    monkeypatch.setattr(hooks, "jit_post_compile", lambda **info: told.append("compiled"))
    queue = Queue()
    with AsyncCompileMode(queue):
        fresh(fill).warmup(np.zeros(4), 3)
        assert told == ["asked"]
        queue.run()
    assert told == ["asked", "compiled"]


def test_an_interrupt_waits_for_no_compilation():
    released, dropped = threading.Event(), []
    pool = ThreadPoolExecutor(1)
    try:
        with pytest.raises(KeyboardInterrupt), AsyncCompileMode(pool) as mode:
            slow = mode.submit("slow", released.wait, lambda _: None, dropped.append)
            raise KeyboardInterrupt
        assert dropped == [slow] and slow.future is None
        with pytest.raises(RuntimeError, match="previously failed"):
            slow.result(ignore_errors=True)
    finally:
        released.set()
        pool.shutdown()


def test_an_interrupt_of_one_compilation_drops_the_others(interrupted):
    dropped = []
    executor = Queue()
    executor.submit = lambda call: call()
    with pytest.raises(KeyboardInterrupt), AsyncCompileMode(executor) as mode:
        mode.submit("a", lambda: interrupted, lambda _: None, lambda _: dropped.append("a"))
        mode.submit("b", Future, lambda _: None, lambda _: dropped.append("b"))
    assert sorted(dropped) == ["a", "b"]


def test_what_is_asked_for_while_the_block_ends_is_waited_for():
    made = {}
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool) as mode:

        def again(compiled):
            made["first"] = compiled
            mode.submit("second", lambda: 2, lambda compiled: made.update(second=compiled))
            mode.submit("first", lambda: 1, lambda compiled: made.update(shared=compiled))

        mode.submit("first", lambda: 1, again)
    assert made == {"first": 1, "second": 2, "shared": 1}
    assert mode.raw_futures == [] and mode.future_kernels == {}


def test_an_error_is_raised_once_and_not_kept():
    kernel = FutureKernel(failed(ValueError("wrong")))
    with pytest.raises(ValueError, match="wrong"):
        kernel.result()
    with pytest.raises(RuntimeError, match="previously failed"):
        kernel.result()
    assert kernel.result(ignore_errors=True) is None
    with pytest.raises(RuntimeError, match="previously failed"):
        kernel.n_regs
    assert not any(isinstance(value, BaseException) for value in vars(kernel).values())


def test_an_error_of_one_callback_keeps_no_other_from_being_called():
    called = []

    def call(name, error=None):
        def callback(_):
            called.append(name)
            if error is not None:
                raise error

        return callback

    kernel = FutureKernel(done("code"))
    for name, error in (("a", RuntimeError("of a")), ("b", KeyboardInterrupt()), ("c", None)):
        kernel.add_callbacks(call(name, error), call(f"clean {name}"))
    with pytest.raises(KeyboardInterrupt):
        kernel.result()
    assert called == ["a", "b", "c"]
    assert kernel.result() == "code"
    called.clear()
    kernel = FutureKernel(failed(ValueError("wrong")))
    kernel.add_callbacks(call("a"), call("clean a", RuntimeError("of a clean-up")))
    kernel.add_callbacks(call("b"), call("clean b"))
    with pytest.raises(ValueError, match="wrong"):  # the compilation's error says more
        kernel.result()
    assert called == ["clean a", "clean b"]


def test_what_finalize_gives_is_the_kernel():
    kernel = FutureKernel(done(20))
    kernel.add_callbacks(lambda code: code + 1, lambda _: None)
    assert kernel.result() == 21


def test_protocols_do_not_wait():
    kernel = FutureKernel(Future())
    assert not hasattr(kernel, "__deepcopy__")
    assert not hasattr(FutureKernel.__new__(FutureKernel), "anything")
