"""Entries of the disk cache with a right checksum whose code cannot be loaded: they are compiled
again, and replaced."""

import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError, OutOfResources
from tilewright.plugins.hooks import hookimpl
from tilewright.runtime.storage import host_code
from tilewright.runtime.storage.artifact import pack, unpack
from tilewright.runtime.storage.disk_cache import disk_cache


@tw.jit
def put(y, a):
    tl.store(y, a)


def spoil(key):
    """Put code into an entry that no linker takes."""
    path = disk_cache().path(key)
    artifact = unpack(path.read_bytes())
    artifact.code.binary = b"no object at all"
    path.write_bytes(pack(artifact))


def test_a_kernel_is_compiled_again():
    pytest.importorskip("tilewright_cpu")
    y = np.zeros(1, np.int32)

    def launch():
        put.clear_cache()
        y[0] = 0
        kernel = put[(1,)](y, 5)
        assert y[0] == 5
        return kernel

    with tw.backend("cpu"):
        spoil(launch().hash)
        with pytest.warns(
            RuntimeWarning, match="removed a damaged entry of the kernel cache.*cannot be loaded"
        ) as seen:
            assert not launch().cache_hit
        assert seen[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert launch().cache_hit


def test_an_error_that_compiling_again_would_not_mend_is_raised(recorder, fresh):
    kernel = fresh(put)
    kernel.warmup(np.zeros(1), 5)
    errors = []

    @hookimpl
    def tilewright_load(code, device):
        raise errors[0]

    recorder.tilewright_load = tilewright_load
    from tilewright.plugins.registry import registry

    registry().unregister("recorder")
    registry().register(recorder, "recorder")
    for error, lowered in (
        (OutOfResources(2, 1, "registers"), 1),
        (LoweringError("cannot link"), 2),
    ):
        errors[:] = [error]
        fresh_kernel = fresh(put)
        with pytest.raises(type(error)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fresh_kernel[(1,)](np.zeros(1), 5)
        assert len(recorder.lowered) == lowered


def test_the_runtimes_own_code_is_compiled_again(monkeypatch):
    pytest.importorskip("llvmlite")
    import ctypes

    text = "define i32 @answer() {\n  ret i32 42\n}\n"
    keys = []
    monkeypatch.setattr(host_code, "digest", lambda *parts: keys.append("ab" * 32) or keys[-1])

    def answer():
        loaded = host_code.load_host_code("a test", text, ("answer",))
        return ctypes.CFUNCTYPE(ctypes.c_int)(loaded.address("answer"))()

    assert answer() == 42
    spoil(keys[0])
    with pytest.warns(RuntimeWarning, match="cannot be loaded"):
        assert answer() == 42
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answer() == 42
