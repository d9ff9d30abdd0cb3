"""Options of launches, compiled kernels, hooks, globals and source. A recording backend stands for
hardware."""

import copy
import gc
import pickle
import textwrap

import numpy as np
import pytest
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import DefinitionError, LaunchError
from tilewright.runtime.hooks import hooks
from tilewright.testing.threads import side_by_side


@tw.jit
def scale(x, n, factor=2.0, BLOCK: tl.constexpr = 16):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


# ---- options
def test_options_are_part_of_the_key_and_reach_the_backend(install_recorder, fresh, kernels):
    recorder = install_recorder(options={"depth": 7, "num_warps": 2})
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8)
    assert (recorder.lowered[-1]["depth"], recorder.lowered[-1]["num_warps"]) == (7, 2)
    for _ in range(2):
        kernel[(1,)](x, 8, depth=3, num_warps=8)
    assert (recorder.lowered[-1]["depth"], recorder.lowered[-1]["num_warps"]) == (3, 8)
    kernel[(1,)](x, 8, num_warps=2)
    assert len(kernels(kernel)) == len(recorder.lowered) == 2
    kernel[(1,)](x, 8, depth={"a": [1]})
    kernel[(1,)](x, 8, depth={"a": [1]})
    assert len(kernels(kernel)) == 3


@pytest.mark.parametrize(
    "option",
    [
        {"num_warps": 0},
        {"num_warps": 2.5},
        {"num_ctas": -1},
        {"num_stages": "x"},
        {"num_warps": True},
    ],
)
def test_options_that_make_no_sense(recorder, option):
    with pytest.raises(LaunchError, match=next(iter(option))):
        scale[(1,)](np.zeros(8, np.float32), 8, **option)


def test_an_option_may_be_a_constexpr_parameter_too(recorder):
    @tw.jit
    def kernel(x, num_warps: tl.constexpr):
        tl.store(x, num_warps)

    compiled = kernel[(1,)](np.zeros(1, np.int32), num_warps=8)
    assert compiled.src.constants == {"num_warps": 8}
    assert recorder.lowered[-1]["num_warps"] == 8


def test_debug_comes_from_the_decorator_the_environment_and_the_launch(
    recorder, monkeypatch, fresh
):
    x = np.zeros(8, np.float32)
    assert fresh(scale)[(1,)](x, 8).metadata.debug is False
    assert fresh(scale, debug=True)[(1,)](x, 8).metadata.debug is True
    assert fresh(scale, debug=True)[(1,)](x, 8, debug=False).metadata.debug is False
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    assert fresh(scale)[(1,)](x, 8).metadata.debug is True
    assert fresh(scale, debug=False)[(1,)](x, 8).metadata.debug is False


# ---- compiled kernels
def test_compiled_kernels_tell_about_themselves(recorder, fresh):
    compiled = fresh(scale)[(1,)](np.zeros(8, np.float32), 8, num_warps=2)
    assert compiled.name == "scale"
    assert compiled.asm["paper"] == "text"
    assert "kernel @scale" in compiled.asm["tileir"]
    assert compiled.asm["source"].startswith("def scale")
    assert set(compiled.asm) == {"source", "tileir", "paper", "binary"}
    with pytest.raises(KeyError, match="Unknown key: 'ptx'"):
        compiled.asm["ptx"]
    assert compiled.metadata.num_warps == 2
    assert compiled.metadata.shared == 12
    assert compiled.metadata.name == "scale"
    assert compiled.metadata.target.arch == "paper"
    assert compiled.metadata._asdict()["hash"] == compiled.hash
    assert compiled.packed_metadata == (2, 1, 12)
    assert (compiled.n_regs, compiled.n_spills, compiled.n_max_threads) == (0, 0, 0)
    assert compiled.kernel == b"\0code"
    assert compiled.src.fn.arg_names == ["x", "n", "factor", "BLOCK"]
    assert set(compiled.timings) >= {"frontend", "passes", "lower", "lower.write", "load"}
    assert set(compiled.metadata_group) == {"scale.tileir", "scale.paper"}


def test_compiled_kernels_launch_with_all_arguments_in_order(recorder):
    x = np.zeros(8, np.float32)
    compiled = scale[(1,)](x, 8)
    y = np.ones(8, np.float32)
    assert compiled[(3, 2)](y, 8, 4.0, 16, stream="s") is compiled
    assert recorder.launches[-1] == ((3, 2, 1), "s", (y, 8, 4.0))
    compiled[lambda meta: (meta["n"],)](y, 8, 4.0, 16)
    assert recorder.launches[-1][0] == (8, 1, 1)
    with pytest.raises(LaunchError, match="takes 4 arguments"):
        compiled[(1,)](y, 8)


def test_warmup_compiles_and_does_not_launch(recorder, fresh, types_of, kernels):
    kernel = fresh(scale)
    compiled = kernel.warmup(tw.MockTensor(torch.float16), 64, BLOCK=8, grid=(4,))
    assert types_of(compiled) == {"x": "*fp16", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    assert compiled.src.attributes == {
        "x": {"divisibility": 16},
        "n": {"divisibility": 16},
        "factor": {"untyped": 1},
    }
    kernel.warmup(torch.float16, 64, BLOCK=8, grid=(4,))
    assert len(kernels(kernel)) == 1
    assert recorder.launches == recorder.loaded == []
    kernel[(1,)](torch.zeros(64, dtype=torch.float16), 64, BLOCK=8)
    assert len(kernels(kernel)) == 1
    assert len(recorder.launches) == 1
    assert (
        kernel.run(torch.zeros(64, dtype=torch.float16), 64, BLOCK=8, grid=(2,), warmup=True)
        is compiled
    )


def test_repr_names_the_symbol(recorder, fresh):
    kernel = fresh(
        scale,
        repr=lambda context: f"scale_{context.constants['BLOCK']}_{context.signature['x'][1:]}",
    )
    compiled = kernel[(1,)](np.zeros(8, np.float32), 8, BLOCK=32)
    assert compiled.name == "scale_32_fp32"
    assert "kernel @scale_32_fp32(" in compiled.asm["tileir"]


def test_pre_run_hooks_get_the_arguments(recorder, fresh):
    kernel = fresh(scale)
    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((args, kwargs)))
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8, BLOCK=4, num_warps=2)
    assert seen == [((x, 8), {"BLOCK": 4, "num_warps": 2})]


@pytest.fixture
def clean_hooks():
    yield hooks
    hooks.reset()


def test_launch_hooks(recorder, clean_hooks, fresh):
    events = []
    kernel = fresh(
        scale,
        launch_metadata=lambda grid, metadata, arguments: {
            "flops": grid[0] * arguments["n"] * metadata.num_warps
        },
    )
    x = np.zeros(8, np.float32)
    kernel[(2,)](x, 8)
    enter = lambda metadata: events.append(("enter", metadata.get()))  # noqa: E731
    leave = lambda metadata: events.append(("exit", metadata.get()["name"]))  # noqa: E731
    hooks.launch_enter.add(enter)
    hooks.launch_exit.add(leave)
    kernel[(2,)](x, 8)
    kernel[(0,)](x, 8)
    hooks.launch_enter.remove(enter)
    hooks.launch_exit.remove(leave)
    kernel[(2,)](x, 8)
    assert [event[0] for event in events] == ["enter", "exit"]
    assert events[0][1]["flops"] == 2 * 8 * 4
    assert (events[0][1]["name"], events[0][1]["grid"]) == ("scale", (2, 1, 1))
    assert len(recorder.launches) == 3


def test_compilation_hooks(recorder, clean_hooks, fresh, kernels):
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    before, after, listened, loads = [], [], [], []
    hooks.jit_cache = lambda **facts: before.append(facts) and None
    hooks.jit_post_compile = lambda **facts: after.append(facts)
    hooks.compilation_listener = lambda **facts: listened.append(facts)
    hooks.kernel_load_start.add(lambda *facts: loads.append("start"))
    hooks.kernel_load_end.add(lambda *facts: loads.append(facts[2]))
    for _ in range(2):
        kernel[(1,)](x, 8)
    kernel.warmup(x, 8, BLOCK=64, grid=(1,))
    assert [facts["is_manual_warmup"] for facts in before] == [False, True]
    assert len(after) == len(listened) == 2
    assert before[0]["fn"].name == "scale"
    assert before[0]["fn"].jit_function is kernel
    assert before[0]["repr"] == "scale(x: *fp32, n: i32, factor: fp32, BLOCK: constexpr)"
    assert before[0]["already_compiled"] is False
    assert [facts["cache_hit"] for facts in listened] == [False, False]
    assert listened[0]["times"]["frontend"] > 0
    assert loads == ["start", "scale"]
    unloaded = []
    gc.collect()  # what earlier tests left
    hooks.kernel_unload.add(lambda *facts: unloaded.append(facts[2]))
    kernel._reset_launching()
    gc.collect()
    assert unloaded == ["scale"]  # the other one was never loaded
    hooks.jit_cache = lambda **facts: True
    assert kernel[(1,)](x, 8, BLOCK=32) is None
    assert len(kernels(kernel)) == 0


# ---- globals and source
SIZE = tl.constexpr(4)


@tw.jit
def reads_global(x):
    tl.store(x + tl.arange(0, SIZE), 1)


def test_a_global_that_changed_is_refused(recorder, monkeypatch, fresh):
    x = np.zeros(8, np.int32)
    kernel = fresh(reads_global)
    kernel[(1,)](x)
    kernel[(1,)](x)
    monkeypatch.setitem(globals(), "SIZE", tl.constexpr(8))
    with pytest.raises(
        RuntimeError, match="Global variable SIZE has changed since we compiled this kernel"
    ):
        kernel[(1,)](x)
    with pytest.raises(RuntimeError, match="Global variable SIZE has changed"):
        kernel[(1,)](np.zeros(8, np.int64))
    monkeypatch.setitem(globals(), "SIZE", tl.constexpr(4))
    kernel[(1,)](x)
    monkeypatch.delitem(globals(), "SIZE")
    with pytest.raises(RuntimeError, match="Global variable SIZE has changed"):
        kernel[(1,)](x)


def test_changed_source_compiles_anew(recorder, fresh, one_int):
    kernel = fresh(one_int)
    x = np.zeros(1, np.int32)
    first = kernel[(1,)](x, 5)
    kernel._unsafe_update_src(kernel.src.replace("tl.store(x, i)", "tl.store(x, i + 1)"))
    second = kernel[(1,)](x, 5)
    assert first is not second
    assert first.hash != second.hash


def test_kernels_copy_and_pickle_by_name(recorder):
    assert pickle.loads(pickle.dumps(scale)) is scale
    assert copy.deepcopy(scale) is scale
    assert copy.deepcopy({"kernel": scale})["kernel"] is scale


def test_changing_the_backends_makes_new_plans(install_recorder, fresh):
    low = install_recorder(name="low", priority=1500)
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8)
    high = install_recorder(name="high", priority=1600)
    kernel[(1,)](x, 8)
    assert (len(low.launches), len(high.launches)) == (1, 1)


def test_a_kernel_that_was_not_launched_has_nothing_to_forget(install_recorder, fresh):
    install_recorder(name="low", priority=1500)
    launched, idle = fresh(scale), fresh(scale)
    launched[(1,)](np.zeros(8, np.float32), 8)
    before = launched.device_caches, idle.device_caches
    install_recorder(name="high", priority=1600)
    assert launched.device_caches is not before[0] and idle.device_caches is before[1]


def test_threads_compile_a_kernel_once(recorder, fresh):
    import time

    recorder.on_lower = lambda *_: time.sleep(0.05)
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    side_by_side(4, lambda _: kernel[(1,)](x, 8))
    assert len(recorder.lowered) == 1
    assert len(recorder.launches) == 4


def test_jit_refuses_what_is_no_function():
    with pytest.raises(DefinitionError, match="Python function"):
        tw.jit(3)
    assert tw.jit(scale) is not scale
    assert tw.jit(scale).fn is scale.fn
    assert tw.jit(debug=True)(scale.fn).debug is True


def test_options_that_jit_has_not_are_told_with_what_was_meant():
    for name, remedy in (
        ("num_warps", r"options of a launch are given there: kernel\[grid\]\(..., num_warps=...\)"),
        ("noinlin", "did you mean noinline"),
    ):
        with pytest.raises(
            DefinitionError, match=rf"jit\(\) has no option '{name}'[\s\S]*help: {remedy}"
        ):
            tw.jit(**{name: 4})


def test_what_a_grids_function_may_ask_for_is_told(recorder, fresh, scale):
    kernel, x = fresh(scale), np.zeros(8, np.float32)
    for arguments in ((x, 8), (x, 8, 2.0, 16)):
        launched = kernel if len(arguments) == 2 else kernel.warmup(x, 8, grid=(1,))
        with pytest.raises(KeyError, match="m") as raised:
            launched[lambda meta: (meta["m"],)](*arguments)
        (note,) = raised.value.__notes__
        assert note.startswith(
            "in the function of a grid; it is given a dict of x, n, factor, BLOCK"
        )
    with pytest.raises(KeyError) as raised:
        kernel[lambda meta: (meta["N"],)](x, 8)
    assert raised.value.__notes__[0].endswith(": did you mean n?")


def test_kernels_whose_text_is_nowhere_are_refused_with_the_remedy():
    with pytest.raises(DefinitionError, match="@jit functions should be defined in a Python file"):
        exec(
            "".join(("import tilewright as tw\n@tw.jit\n", "def k(x):\n    pass\n")),
            {"__name__": "somewhere"},
        )


def test_kernels_in_the_cache_of_source_lines_work(recorder):
    """Emulate what IPython, Jupyter and the REPL of Python 3.13 do with typed code."""
    import linecache

    source = textwrap.dedent("""
        @tw.jit
        def typed(x, n):
            tl.store(x, n)
    """)
    name = "<ipython-input-3-abc>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = {"tw": tw, "tl": tl, "__name__": "__main__"}
    exec(compile(source, name, "exec"), namespace)
    compiled = namespace["typed"][(1,)](np.zeros(1, np.int32), 5)
    assert "store" in compiled.asm["tileir"]
