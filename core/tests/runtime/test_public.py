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


@pytest.mark.parametrize(
    ("module", "name", "remedy"),
    [
        (tw, "knobs", "tilewright help reference/environment"),
        (tw, "compile", "kernel.warmup"),
        (tw.runtime, "driver", "tl.target_info.current_target()"),
        (tw.tools, "tensor_descriptor", "it is tw.TensorDescriptor"),
    ],
)
def test_names_of_triton_that_are_absent_have_a_successor(module, name, remedy):
    with pytest.raises(AttributeError) as error:
        getattr(module, name)
    assert f"module '{module.__name__}' has no attribute '{name}'\n  help: " in str(error.value)
    assert remedy in str(error.value)


def test_an_absent_name_without_successor_has_no_remedy():
    with pytest.raises(AttributeError, match=r"^module 'tilewright.runtime' has no attribute 'x'$"):
        tw.runtime.x


def test_importing_is_cheap():
    program = (
        "import sys; before = set(sys.modules); import tilewright; print(*sys.modules.keys() - "
        "before)"
    )
    modules = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    ).stdout.split()
    heavy = {
        "numpy",
        "torch",
        "llvmlite",
        "pluggy",
        "tilewright.ir",
        "tilewright.language",
        "tilewright.runtime",
    }
    assert not heavy & set(modules)
    assert len(modules) < 60  # 30 now, of which most are Python's own


def test_making_a_kernel_imports_no_array_library(tmp_path):
    file = tmp_path / "k.py"
    file.write_text(
        "import sys\nimport tilewright as tw\nimport tilewright.language as tl\n\n@tw.jit\n"
        "def k(x, B: tl.constexpr):\n    pass\n\n"
        "print(*({'torch', 'llvmlite', 'numpy'} & set(sys.modules)))\n"
    )
    assert (
        subprocess.run(
            [sys.executable, str(file)], capture_output=True, text=True, timeout=900, check=True
        ).stdout.strip()
        == ""
    )


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (10**18 + 1, 10, 10**17 + 1)],
)
def test_cdiv(x, y, expected):
    assert tw.cdiv(x, y) == expected


@pytest.mark.parametrize(
    ("n", "expected"), [(0, 0), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128), (2**40 + 1, 2**41)]
)
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
    from tilewright.runtime.devices.allocator import allocate

    tw.set_allocator(None)  # examples that ran before may have set one
    with pytest.raises(
        RuntimeError, match=r"128 bytes, but no allocator was set.*tilewright\.set_allocator"
    ):
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


def test_launching_costs_little(recorder, steps_in):
    import numpy as np

    import tilewright.language as tl

    @tw.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        tl.store(x, tl.load(y) + n)

    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    recorder.launches = type("Discard", (), {"append": lambda self, item: None})()
    for _ in range(3):
        kernel[(1,)](x, y, 17, BLOCK=64)
    assert (
        steps_in(lambda: kernel[(1,)](x, y, 17, BLOCK=64)) < 80
    )  # 50 on Python 3.11; compiling takes thousands
