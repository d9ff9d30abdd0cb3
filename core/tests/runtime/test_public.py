"""The package's surface, and what importing it costs."""

import subprocess
import sys
import threading

import pytest

import tilewright as tw


@pytest.mark.parametrize("name", [name for name in tw.__all__ if name != "__version__"])
def test_every_public_name_is_there(name):
    assert getattr(tw, name) is not None
    assert name in dir(tw)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tw.nothing


def test_importing_is_cheap():
    program = "import sys, time; started = time.perf_counter(); import tilewright; print(time.perf_counter() - started); print(*sys.modules)"
    best, modules = 1.0, ""
    for _ in range(3):
        seconds, modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
        best = min(best, float(seconds))
    assert best < 0.1
    heavy = {"numpy", "torch", "llvmlite", "pluggy", "tilewright.ir", "tilewright.language", "tilewright.runtime"}
    assert not heavy & set(modules.split())


def test_making_a_kernel_imports_no_array_library(tmp_path):
    file = tmp_path / "k.py"
    file.write_text(
        "import sys\nimport tilewright as tw\nimport tilewright.language as tl\n\n@tw.jit\ndef k(x, B: tl.constexpr):\n    pass\n\n"
        "print(*({'torch', 'llvmlite', 'numpy'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60, check=True).stdout.strip() == ""


@pytest.mark.parametrize(("x", "y", "expected"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (10**18 + 1, 10, 10**17 + 1)])
def test_cdiv(x, y, expected):
    assert tw.cdiv(x, y) == expected


@pytest.mark.parametrize(("n", "expected"), [(0, 0), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128), (2**40 + 1, 2**41)])
def test_next_power_of_2(n, expected):
    assert tw.next_power_of_2(n) == expected


def test_host_functions_are_usable_in_kernels():
    import numpy as np

    import tilewright.language as tl

    @tw.jit
    def kernel(x, N: tl.constexpr):
        tl.store(x, tw.cdiv(N, 4) * 100 + tw.next_power_of_2(N))

    x = np.zeros(1, np.int32)
    with tw.backend("reference"):
        kernel[(1,)](x, 9)
    assert x[0] == 316


def test_the_allocator_is_of_its_thread():
    from tilewright.runtime.allocator import allocate

    with pytest.raises(RuntimeError, match=r"128 bytes, but no allocator was set.*tilewright\.set_allocator"):
        allocate(128, 16)
    tw.set_allocator(lambda size, alignment, stream: (size, alignment, stream))
    try:
        assert allocate(128, 16, "s") == (128, 16, "s")
        failed = []

        def elsewhere():
            with pytest.raises(RuntimeError):
                allocate(1, 1)
            failed.append(True)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert failed == [True]
    finally:
        tw.set_allocator(None)


def test_launching_costs_little(recorder):
    import time

    import numpy as np

    import tilewright.language as tl

    @tw.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        tl.store(x, tl.load(y) + n)

    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    recorder.launches = type("Discard", (), {"append": lambda self, item: None})()
    kernel[(1,)](x, y, 17, BLOCK=64)
    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(200):
            kernel[(1,)](x, y, 17, BLOCK=64)
        best = min(best, (time.perf_counter() - started) / 200)
    assert best < 20e-6  # about 2 µs on an idle machine; the bound leaves room for a busy one
