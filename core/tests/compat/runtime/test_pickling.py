"""Compiled kernels in other processes: pickled by themselves, and as PyTorch's compile workers do
it, which take the state of kernel and function apart."""

import copy as copies
import inspect
import os
import pickle
import subprocess
import sys
import textwrap

import fork_server
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.compat import triton
from tilewright.errors import BackendError, ForeignKernelError
from tilewright.plugins.registry import registry

pytest.importorskip("tilewright_cpu")


@tw.jit
def scaled(x, y, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


@triton.jit
def shifted(x, y, n, by, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) + by, mask=offsets < n)


LAUNCH = """
    import pickle, sys
    import numpy as np
    kernel = pickle.load(open(sys.argv[1], "rb"))
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    {launch}
    np.testing.assert_array_equal(y, {expected})
    print(kernel.name, type(kernel).__module__, kernel.hash)
"""


def elsewhere(kernel, launch, expected, tmp_path):
    """Launch a kernel in a process that has its pickle and nothing else of it; what that says."""
    (tmp_path / "kernel").write_bytes(pickle.dumps(kernel))
    code = textwrap.dedent(LAUNCH.format(launch=launch, expected=expected))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "other"),
    }
    found = fork_server.run(
        ["-c", code, str(tmp_path / "kernel")],
        cwd=tmp_path,
        env=environment,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    assert not [*(tmp_path / "other").rglob(f"*{kernel.hash}*")], "it was compiled again"
    return found.stdout.split()


def test_a_kernel_is_launched_by_the_process_that_unpickles_it(tmp_path):
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    kernel = scaled[(4,)](x, y, 100, 2.0, BLOCK=32)
    said = elsewhere(kernel, "kernel[(4,)](x, y, 100, 3.0, 32)", "3 * x", tmp_path)
    assert said == ["scaled", "tilewright.runtime.launch.compiled_kernel", kernel.hash]
    for factor, copy in ((5, pickle.loads(pickle.dumps(kernel))), (6, copies.deepcopy(kernel))):
        copy[(4,)](x, y, 100, float(factor), 32)
        np.testing.assert_array_equal(y, factor * x)
    assert (
        copy.metadata._asdict().keys() == kernel.metadata._asdict().keys()
        and copy.asm["source"] == kernel.asm["source"]
    )


def test_so_is_one_of_triton_s(tmp_path):
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    kernel = shifted[(4,)](x, y, 100, 2.0, BLOCK=32)
    launch = (
        "kernel.run(4, 1, 1, None, kernel.function, kernel.packed_metadata, None, None, None, x, "
        "y, 100, 7.0, 32)"
    )
    assert elsewhere(kernel, launch, "x + 7", tmp_path) == [
        "shifted",
        "tilewright.compat.triton.compiler.compiled",
        kernel.hash,
    ]


class Symbol:
    """A function's ``repr`` as PyTorch leaves it behind."""

    def __init__(self, name):
        self.name = name

    def __call__(self, context):
        return self.name


def test_the_state_of_a_kernel_whose_function_was_taken_away(tmp_path):
    """What PyTorch pickles: the kernel's dictionary with other words in place of what does not
    pickle, its function without what belongs to the process."""
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    fn = triton.jit(shifted.fn)
    kernel = fn[(4,)](x, y, 100, 2.0, BLOCK=32)
    kept = fn.fn, fn.__globals__, fn.used_global_vals, fn._hash_lock
    fn.fn = fn.__globals__ = fn.used_global_vals = fn._hash_lock = None
    fn.repr = Symbol("shifted")
    state = {
        **kernel.__dict__,
        "metadata": kernel.metadata._asdict(),
        "packed_metadata": kernel.packed_metadata,
        "module": None,
        "function": None,
        "run": None,
    }
    text = pickle.dumps((state, fn))
    fn.fn, fn.__globals__, fn.used_global_vals, fn._hash_lock = kept
    found, other = pickle.loads(text)
    assert (
        other.arg_names == ["x", "y", "n", "by", "BLOCK"]
        and other.constexprs == [4]
        and other.fn is None
        and other.repr(None) == "shifted"
    )
    copy = type(kernel).__new__(type(kernel))
    copy.__dict__.update(found)
    copy._init_handles()
    y[:] = 0
    copy.run(
        4, 1, 1, None, copy.function, copy.packed_metadata, None, None, None, x, y, 100, 9.0, 32
    )
    np.testing.assert_array_equal(y, x + 9)
    assert (
        copy.src.fn.arg_names == other.arg_names
        and copy.metadata.num_warps == kernel.metadata.num_warps
    )


def test_a_backend_is_pickled_by_its_name():
    backend = registry().get("cpu")
    assert pickle.loads(pickle.dumps(backend)) is backend
    assert copies.copy(backend) is not backend, "one that is changed is no other process's"
    with pytest.raises(BackendError, match="no backend named 'gpu' is installed"):
        pickle.loads(pickle.dumps(backend).replace(b"\x03cpu", b"\x03gpu"))


def test_functions_of_modules_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(scaled)) is scaled and inspect.getsource(scaled.fn)


#: Another package that answers to Triton's name: the classes of what a compile worker sends, with
#: state of their own.
ANOTHER = {
    "triton/__init__.py": "",
    "triton/runtime/__init__.py": "",
    "triton/runtime/jit.py": """
        class KernelParam:
            def __init__(self):
                self.num, self._param, self.do_not_specialize = 0, "x", False
    """,
    "triton/compiler/__init__.py": "",
    "triton/compiler/compiler.py": """
        class AsmDict(dict):
            pass
    """,
}


@pytest.mark.parametrize(
    "made",
    [
        "__import__('triton.runtime.jit').runtime.jit.KernelParam()",
        "__import__('triton.compiler.compiler').compiler.compiler.AsmDict(ptx='text')",
    ],
)
def test_kernels_of_another_package_of_that_name_are_refused_with_the_remedy(made, tmp_path):
    """As where a program imports the shim by hand, and PyTorch's compile workers find an installed
    Triton."""
    for name, text in ANOTHER.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    code = f"import pickle, sys; sys.stdout.buffer.write(pickle.dumps({made}))"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TILEWRIGHT", "TRITON"))
    }
    sent = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=120,
    )
    assert sent.returncode == 0, sent.stderr
    with pytest.raises(
        ForeignKernelError, match=r"another package.*start the program with TILEWRIGHT_TRITON=1"
    ):
        pickle.loads(sent.stdout)
