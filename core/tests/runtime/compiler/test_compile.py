"""From source to code: stages, times, keys, and the disk cache in front of it all."""

import dataclasses
import math
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import BackendError, CompilationError, LoweringError, OutOfResources
from tilewright.ir.parser import parse_module
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import (
    Specialization,
    cache_key,
    compile_job,
    compile_kernel,
)
from tilewright.runtime.storage.artifact import unpack
from tilewright.runtime.storage.cache_keys import UnstableError, digest, stable_text
from tilewright.runtime.storage.disk_cache import DiskCache, disk_cache


@tw.jit
def scale(x, n, BLOCK: tl.constexpr = 16):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


#: No constant.
PLAIN = 3

BASE = Specialization(
    scale,
    {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"},
    {"BLOCK": 16},
    {"x": {"divisibility": 16}},
    {"num_warps": 4},
)
TARGET = Target("recorder", "paper", kind="cpu")


def test_a_second_process_takes_the_kernel_from_disk(recorder, monkeypatch):
    x = np.zeros(64, np.float32)
    first = tw.jit(scale.fn)[(1,)](x, 64)
    assert not first.cache_hit
    assert len(recorder.lowered) == 1
    from tilewright.frontend import compile as frontend

    monkeypatch.setattr(frontend, "compile_function", None)  # a warm start must not come here
    second = tw.jit(scale.fn)[(1,)](x, 64)
    assert second.cache_hit
    assert len(recorder.lowered) == 1
    assert (second.hash, second.asm["tileir"], second.parameters, second.kernel) == (
        first.hash,
        first.asm["tileir"],
        first.parameters,
        first.kernel,
    )
    assert second.metadata == first.metadata
    assert disk_cache().info().entries == 1


def test_damage_on_disk_compiles_anew(recorder):
    x = np.zeros(64, np.float32)
    first = tw.jit(scale.fn)[(1,)](x, 64)
    path = disk_cache().path(first.hash)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="damaged"):
        again = tw.jit(scale.fn)[(1,)](x, 64)
    assert not again.cache_hit
    assert len(recorder.lowered) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": {"x": "*fp64", "n": "i32", "BLOCK": "constexpr"}},
        {"constants": {"BLOCK": 32}},
        {"constants": {"BLOCK": 16.0}},
        {"attributes": {}},
        {"options": {"num_warps": 8}},
        {"name": "other"},
        {"fn": tw.jit(version=2)(scale.fn)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_everything_that_changes_code_changes_the_key(recorder, changes):
    backend = registry().get("recorder")
    key = cache_key(BASE, backend, TARGET)
    assert key == cache_key(dataclasses.replace(BASE), backend, TARGET)
    assert cache_key(dataclasses.replace(BASE, **changes), backend, TARGET) != key


def test_kernels_that_may_read_any_global_are_kept_apart(recorder, monkeypatch):
    @tw.jit
    def kernel(x):
        tl.store(x, PLAIN)

    monkeypatch.setenv("TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS", "1")
    x = np.zeros(1, np.int32)
    assert not kernel[(1,)](x).cache_hit
    assert tw.jit(kernel.fn)[(1,)](x).cache_hit
    monkeypatch.delenv("TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS")
    with pytest.raises(CompilationError, match="Cannot access global variable PLAIN"):
        tw.jit(kernel.fn)[(1,)](x)


def test_target_and_backend_are_in_the_key(install_recorder):
    one, two = (install_recorder(name=name) and registry().get(name) for name in ("one", "two"))
    keys = {
        cache_key(BASE, backend, target)
        for backend in (one, two)
        for target in (TARGET, Target("recorder", "paper", kind="cpu", features=("+a",)))
    }
    assert len(keys) == 4


def test_the_key_is_the_same_in_another_process(recorder, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import enum
        import tilewright as tw, tilewright.language as tl
        from tilewright.plugins.registry import registry
        from tilewright.plugins.manifest import Target
        from tilewright.runtime.compiler.compile import Specialization, cache_key

        class Mode(enum.Enum):
            FAST = 1

        @tw.jit
        def callee(a):
            return a + 1

        @tw.jit
        def kernel(x, C: tl.constexpr):
            tl.store(x, callee(tl.load(x)))

        constants = {"C": (1, 2.5, "s", None, True, Mode.FAST, tl.float32, callee, frozenset({"a", "b", "c"}), {"k": 1})}
        target = Target("reference", "numpy", kind="cpu")
        print(cache_key(Specialization(kernel, {"x": "*fp32", "C": "constexpr"}, constants), registry().get("reference"), target))
        """)
    )
    keys = {
        subprocess.run(
            [sys.executable, str(program)],
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
            env={**__import__("os").environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1
    assert len(keys.pop().strip()) == 64


@dataclasses.dataclass(frozen=True)
class Settings:
    size: int
    name: str = "x"


def test_stable_texts_tell_values_apart():
    values = [
        1,
        1.0,
        math.nextafter(1.0, 2.0),
        True,
        "1",
        None,
        "None",
        b"1",
        (1,),
        (1, 2),
        ((1,), 2),
        [1],
        0.0,
        -0.0,
        float("nan"),
        Settings(1),
        Settings(2),
        int,
        np.float32,
        np.dtype("f4"),
        {"a": 1},
    ]
    texts = [stable_text(value) for value in values]
    assert len(set(texts)) == len(values)
    assert stable_text({"b": 1, "a": 2}) == stable_text({"a": 2, "b": 1})
    with pytest.raises(UnstableError):
        stable_text(object())
    with pytest.raises(UnstableError):
        stable_text((1, [object()]))


def test_constants_without_a_stable_text_compile_and_are_not_kept(recorder, monkeypatch):
    kept = []
    monkeypatch.setattr(DiskCache, "put", lambda cache, artifact: kept.append(artifact.parameters))

    class Odd:
        pass

    @tw.jit
    def kernel(x, C: tl.constexpr):
        tl.store(x, 1)

    odd = Odd()
    for _ in range(2):
        compiled = kernel[(1,)](np.zeros(1, np.int32), odd)
    assert compiled.hash == ""
    assert len(recorder.lowered) == 1
    assert not any(kept)  # what has no parameters is code of the runtime's own
    kernel[(1,)](np.zeros(1, np.int32), 1)
    assert len(list(filter(None, kept))) == 1


def test_every_stage_can_be_kept_and_read_back(recorder):
    backend = registry().get("recorder")
    artifact = compile_kernel(BASE, backend, TARGET, keep_stages=True)
    stages = artifact.code.stages
    assert list(stages)[:2] == ["source", "frontend"]
    assert list(stages)[-2:] == ["tileir", "paper"]
    passes = [name for name in stages if name[0].isdigit()]
    assert len(passes) >= 3
    for name in ("frontend", *passes, "tileir"):
        text = stages[name]
        assert str(parse_module(text)) == text, name
        assert all(time >= 0 for time in artifact.timings.values())
    assert stages[passes[-1]] == stages["tileir"]
    assert {"frontend", "passes", "lower", *passes} <= set(artifact.timings)
    assert disk_cache().info().entries == 0  # the texts are for the reader, not for the cache


def test_ir_in_place_of_the_source(recorder, tmp_path):
    x = np.zeros(64, np.float32)
    plain = tw.jit(scale.fn)[(1,)](x, 64)
    text = plain.asm["tileir"]
    file = tmp_path / "mine.tileir"
    file.write_text(text.replace("2.0", "3.0"))
    kernel = tw.jit(scale.fn)
    other = kernel[(1,)](x, 64, ir_override=str(file))
    assert other.hash != plain.hash
    assert "3.0" in other.asm["tileir"]
    assert kernel[(1,)](x, 64).asm["tileir"] == text


def test_a_backends_passes_replace_the_standard_ones(recorder):
    from tilewright.plugins.hooks import hookimpl

    seen = []

    class WithPasses(type(recorder)):
        @hookimpl
        def tilewright_passes(self, target, options, passes):
            return [
                *passes,
                lambda module: (
                    seen.append((module.kernel.name, target.arch, options["num_warps"])) and False
                ),
            ]

    registry().register(WithPasses(name="passing"), "passing")
    try:
        with tw.backend("passing"):
            tw.jit(scale.fn)[(1,)](np.zeros(64, np.float32), 64, num_warps=8)
        assert seen == [("scale", "paper", 8)]
    finally:
        registry().unregister("passing")


@pytest.mark.parametrize(
    "error", [LoweringError("cannot lower this"), OutOfResources(300, 200, "shared memory")]
)
def test_a_backends_own_errors_pass_through(recorder, error):
    def refuse(*_):
        raise error

    recorder.on_lower = refuse
    with pytest.raises(type(error), match=str(error)[:20]):
        tw.jit(scale.fn)[(1,)](np.zeros(64, np.float32), 64)


def test_a_backends_defect_is_reported_as_one(recorder, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    recorder.on_lower = lambda *_: {}["missing"]
    with pytest.raises(
        BackendError, match=r"backend 'recorder' .* failed in tilewright_lower: KeyError: 'missing'"
    ) as caught:
        tw.jit(scale.fn)[(1,)](np.zeros(64, np.float32), 64)
    *_, told = str(caught.value).splitlines()
    reproducer = Path(told.removeprefix("reproducer, in Tile IR: "))
    assert (
        reproducer.parent == tmp_path
        and parse_module(reproducer.read_text()).kernel.name == "scale"
    )


def test_jobs_for_other_processes_can_be_pickled(recorder):
    kernel = dataclasses.replace(BASE, options=dict(BASE.options))
    again = pickle.loads(pickle.dumps(kernel))
    assert again.fn is scale
    artifact = unpack(compile_job(again, "recorder", pickle.loads(pickle.dumps(TARGET))))
    assert artifact.code.name == "scale"
    assert artifact.key == cache_key(BASE, registry().get("recorder"), TARGET)


def test_digests_separate_their_parts():
    assert digest("ab", "c") != digest("a", "bc")
