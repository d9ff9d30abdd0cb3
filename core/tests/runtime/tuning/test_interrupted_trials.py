"""State after an interrupt while configurations are compiled elsewhere."""

import concurrent.futures
import queue
import signal
import sys
import threading

import numpy as np
import pytest
from tuning_support import add_one

import tilewright as tw
from tilewright.runtime.compiler import parallel_compile

CONFIGS = [tw.Config({"BLOCK": block}) for block in (8, 16, 32, 64)]


class Elsewhere(concurrent.futures.Executor):
    """Compiles in a thread that was started before, and is handed jobs without a lock of
    Python's."""

    def __init__(self):
        self.jobs, self.futures = queue.SimpleQueue(), []
        threading.Thread(target=self._serve, daemon=True).start()

    def submit(self, function, /, *args, **kwargs):
        self.futures.append(concurrent.futures.Future())
        self.jobs.put((self.futures[-1], function))
        return self.futures[-1]

    def _serve(self):
        for future, function in iter(self.jobs.get, None):
            future.set_running_or_notify_cancel()
            future.set_result(function())


class InterruptBehindLocks:
    """A profiler that counts the locks of threads' conditions that are taken, and interrupts when
    one of them just was."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def __call__(self, frame, event, argument):
        if (
            event == "c_return"
            and frame.f_code.co_name == "__enter__"
            and frame.f_code.co_filename == threading.__file__
        ):
            self.count += 1
            if self.count == self.at:
                signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("own", [False, True], ids=["given", "own"])
@pytest.mark.parametrize("time_limit", [None, 900.0])
def test_an_interrupt_leaves_no_lock_of_a_job_taken(recorder, own, time_limit):
    """In a user's executor, and in the threads of the tuner.

    A thread that held a lock would hold it forever: a thread that reports its result, and with it
    the end of the interpreter, would hang.
    """
    interrupts, at = 0, 1
    while True:
        kernel, executor, counter = tw.jit(add_one), Elsewhere(), InterruptBehindLocks(at)
        made = parallel_compile.trials_of(
            CONFIGS,
            lambda config: kernel.run(
                np.zeros(64, np.float32), 64, grid=(1,), warmup=True, **config.all_kwargs()
            ),
            pytest.fail,
        )
        others = set(threading.enumerate())
        ready = parallel_compile.compile_trials(
            made, executor=None if own else executor, time_limit=time_limit, on_error=pytest.fail
        )
        try:
            sys.setprofile(counter)
            found = list(ready)
        except KeyboardInterrupt:
            interrupts += 1
        else:
            assert found == CONFIGS
        finally:
            sys.setprofile(None)
            executor.jobs.put(None)
        asking = threading.Thread(
            target=lambda: [future.done() for future in executor.futures], daemon=True
        )
        asking.start()
        for thread in set(threading.enumerate()) - others:
            thread.join(60)
            assert not thread.is_alive(), f"interrupted at lock {at}"
        if counter.count < at:
            break
        at += 1
    assert interrupts == at - 1 > len(CONFIGS)
