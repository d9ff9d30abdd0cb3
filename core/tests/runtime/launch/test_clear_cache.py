"""``kernel.clear_cache()``: forgetting what was compiled in this process."""

import threading

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.storage.disk_cache import disk_cache


@tw.jit
def put(y, a):
    tl.store(y, a)


def test_the_next_launch_compiles_or_reads_the_disk_again(recorder):
    y = np.zeros(1)
    first = put[(1,)](y, 2)
    assert put[(1,)](y, 2) is first
    put.clear_cache()
    second = put[(1,)](y, 2)
    assert second is not first
    assert second.cache_hit
    assert len(recorder.lowered) == 1
    disk_cache().clear()
    put.clear_cache()
    assert not put[(1,)](y, 2).cache_hit
    assert len(recorder.lowered) == 2
    assert put[(1,)](y, 2) is put[(1,)](y, 2)
    put.clear_cache()


def test_launches_of_other_threads_go_on(recorder):
    failures: list[BaseException] = []
    stop = threading.Event()

    def launch() -> None:
        y = np.zeros(1)
        try:
            while not stop.is_set():
                put[(1,)](y, 2)
        except BaseException as error:  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        put.clear_cache()
    stop.set()
    for thread in threads:
        thread.join(900)
    assert failures == []
    put.clear_cache()
    compiled = put[(1,)](np.zeros(1), 2)
    assert put[(1,)](np.zeros(1), 2) is compiled  # plans and binder belong together
