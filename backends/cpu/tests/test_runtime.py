"""Loading code, and the timer."""

import pytest

from tilewright.errors import KernelError, LoweringError
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.plugins.manifest import CodeObject
from tilewright_cpu.runtime import HostTimer, load
from tilewright_cpu.status import OUT_OF_MEMORY


def compiled(text):
    triple, cpu, features = host_target()
    return compile_to_object(text, triple=triple, cpu=cpu, features=features)


def test_damaged_code_is_refused():
    with pytest.raises(LoweringError, match="cannot link object code"):
        load(CodeObject("k", b"not an object", {}, {"kernel": "k"}))


def test_a_missing_function_is_named_by_the_error(capfd):
    text = (
        "declare void @nowhere_to_be_found()\ndefine void @k(ptr %s, i64 %l, i64 %h) {\n"
        "  call void @nowhere_to_be_found()\n  ret void\n}"
    )
    with pytest.raises(LoweringError, match="cannot link object code with symbols k"):
        load(CodeObject("k", compiled(text), {}, {"kernel": "k"}))


def test_the_c_library_is_seen():
    text = (
        "declare float @expf(float)\ndefine void @k(ptr %s, i64 %l, i64 %h) {\n"
        "  %x = call float @expf(float 1.0)\n  ret void\n}"
    )
    kernel = load(CodeObject("k", compiled(text), {}, {"kernel": "k"}))
    assert kernel.function and not kernel.prints and kernel.messages == ()


def test_the_timer_measures_each_repetition():
    import time

    timer, calls = HostTimer(), []
    started = time.perf_counter()
    found = timer.measure(lambda: (calls.append(1), time.sleep(0.002)), 3)
    assert len(calls) == 3 and len(found) == 3
    assert min(found) >= 2.0 and sum(found) <= 1e3 * (time.perf_counter() - started)
    timer.flush_cache()


def test_a_launch_without_memory_for_its_tiles_says_so():
    kernel = load(
        CodeObject(
            "k",
            compiled("define void @k(ptr %s, i64 %l, i64 %h) {\n  ret void\n}"),
            {},
            {"kernel": "k", "arena_bytes": 4096},
        )
    )
    with pytest.raises(
        KernelError,
        match=(
            r"kernel k: there is no memory for its large tiles, 4096 bytes for each thread: take "
            r"smaller blocks; program \(1, 2, 3\)"
        ),
    ):
        kernel.raise_failure(OUT_OF_MEMORY, 0, 1, 2, 3)
