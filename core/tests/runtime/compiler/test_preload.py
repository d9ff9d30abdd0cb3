"""Specialisations as texts: what compile hooks are given, and compiling ahead from it."""

import json
import textwrap

import fork_server
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.hooks import hooks


@tw.jit
def twice(x):
    return x * 2


@tw.jit
def apply(x, y, n, scale, FN: tl.constexpr, SHAPE: tl.constexpr, DTYPE: tl.constexpr):
    offsets = tl.arange(0, SHAPE[0])
    values = FN(tl.load(x + offsets, offsets < n)) * scale
    tl.store(y + offsets, values.to(DTYPE), offsets < n)


@tw.jit
def other(x, y, n, scale, FN: tl.constexpr, SHAPE: tl.constexpr, DTYPE: tl.constexpr):
    pass


@pytest.fixture
def watched(monkeypatch):
    """Arguments of the hooks before and after compilations."""
    told = {"before": [], "after": []}
    monkeypatch.setattr(hooks, "jit_cache", lambda **info: told["before"].append(info) and None)
    monkeypatch.setattr(hooks, "jit_post_compile", lambda **info: told["after"].append(info))
    return told


def arguments():
    return (
        np.zeros(16, np.float32),
        np.zeros(16, np.float32),
        13,
        0.5,
        twice,
        (16, (2, 3)),
        tl.float32,
    )


def test_hooks_are_told_how_to_compile_it_again(recorder, fresh, watched):
    kernel = fresh(apply)
    kernel.warmup(*arguments())
    (before,), (after,) = watched["before"], watched["after"]
    assert set(before) == {"key", "repr", "fn", "compile", "is_manual_warmup", "already_compiled"}
    assert before["compile"]["specialization_data"] == after["compile"]["specialization_data"] != ""
    assert before["compile"]["is_warmup"] is before["is_manual_warmup"] is True
    assert before["compile"]["key"] == before["key"]
    kernel[(1,)](*arguments()[:2], 7, *arguments()[3:])
    assert len(watched["before"]) == 1  # 13 and 7 are alike
    kernel[(1,)](*arguments()[:2], 16, *arguments()[3:])
    assert watched["before"][1]["compile"]["is_warmup"] is False


def test_a_launch_finds_what_was_preloaded(recorder, fresh, watched, kernels):
    kernel = fresh(apply)
    made = kernel.warmup(*arguments())
    text = watched["before"][0]["compile"]["specialization_data"]
    kernels(kernel).clear()
    assert kernel.preload(text).hash == made.hash
    assert len(kernels(kernel)) == 1
    watched["before"].clear()
    assert kernel[(1,)](*arguments()) is kernel.preload(text)
    assert watched["before"] == []


def test_functions_defined_within_functions_are_found(recorder, watched):
    @tw.jit
    def square(x):
        return x * x

    @tw.jit
    def inner(x, y, n, scale, FN: tl.constexpr):
        tl.store(y, FN(tl.load(x)) * scale + n)

    made = inner.warmup(*arguments()[:4], square)
    text = watched["before"][0]["compile"]["specialization_data"]
    inner.clear_cache()
    assert inner.preload(text).hash == made.hash


def test_another_kernel_is_refused(recorder, fresh, watched):
    fresh(apply).warmup(*arguments())
    text = watched["before"][0]["compile"]["specialization_data"]
    with pytest.raises(
        RuntimeError,
        match=r"Specialization data is for \S*\.apply but trying to preload for \S*\.other",
    ):
        other.preload(text)
    with pytest.raises(RuntimeError, match="is no specialization data"):
        other.preload("x = 1")
    data = json.loads(text)
    data["constants"]["FN"]["function"][1] = "nowhere"
    with pytest.raises(RuntimeError, match="Unable to resolve JITFunction"):
        apply.preload(json.dumps(data))


def test_constants_without_a_text_have_none(recorder, watched):
    class Mark:
        cache_key = "7"

    @tw.jit
    def marked(y, MARK: tl.constexpr):
        tl.store(y, 1)

    marked.warmup(np.zeros(4), Mark())
    assert watched["before"][0]["compile"]["specialization_data"] == ""


def test_another_process_compiles_it(tmp_path):
    """One process records its kernels, another compiles them, and a third finds them cached."""
    pytest.importorskip("tilewright_cpu")
    source = tmp_path / "kernels_of_a_library.py"
    source.write_text(
        textwrap.dedent("""
        import sys, numpy as np, tilewright as tw, tilewright.language as tl
        from tilewright.runtime.hooks import hooks

        @tw.jit
        def scale(x, n, FACTOR: tl.constexpr):
            offsets = tl.arange(0, 16)
            tl.store(x + offsets, tl.load(x + offsets, offsets < n) * FACTOR, offsets < n)

        def launch():
            x = np.arange(16, dtype=np.float32)
            kernel = scale[(1,)](x, 9, 3.0)
            assert x.tolist() == [3.0 * i if i < 9 else i for i in range(16)]
            return kernel

        def tell():
            hooks.jit_cache = lambda **info: print(info["compile"]["specialization_data"])
            launch()

        def preload():
            assert not scale.preload(sys.stdin.read()).cache_hit

        def hit():
            assert launch().cache_hit
        """)
    )

    def run(call, text="", cache="one"):
        environment = {
            "PATH": "",
            "PYTHONPATH": str(tmp_path),
            "TILEWRIGHT_CACHE_DIR": str(tmp_path / cache),
            "TILEWRIGHT_BACKEND": "cpu",
        }
        command = ["-c", f"import kernels_of_a_library as m; m.{call}()"]
        done = fork_server.run(
            command,
            env=environment,
            input=text,
            timeout=900,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    text = run("tell", cache="two")
    run("preload", text)
    run("hit")
