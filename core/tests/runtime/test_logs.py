"""The loggers: what they say of compilations, caches, backends and tunings, and that they cost
nothing while nobody listens."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import logs
from tilewright.errors import VariableError


class Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, name: str) -> list[str]:
        """The messages of a logger since they were last asked for."""
        found = [
            record.getMessage() for record in self.records if record.name == f"tilewright.{name}"
        ]
        self.records = [record for record in self.records if record.name != f"tilewright.{name}"]
        return found


@pytest.fixture
def listener():
    found, root = Listener(), logging.getLogger("tilewright")
    level = root.level
    root.addHandler(found)
    root.setLevel(logging.DEBUG)
    yield found
    root.removeHandler(found)
    root.setLevel(level)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv(logs.VARIABLE, raising=False)
    yield
    monkeypatch.delenv(logs.VARIABLE, raising=False)
    logs.COMPILE.on()


def make_kernel():
    @tw.jit
    def fill(x, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(x + offsets, 1, (offsets < 4) & (offsets < n))

    return fill


def test_a_compilation_once_more_is_told_with_what_differs(listener):
    kernel, x = make_kernel(), np.zeros(4, np.float32)

    def told(*args, **keywords):
        kernel[(1,)](*args, backend="reference", **keywords)
        (text,) = listener.texts("compile")
        return text

    assert told(x, 3, BLOCK=4).startswith("fill for reference:0: compiled in ")
    for args, block, reason in (
        ((x, 3), 8, "constant BLOCK is 8, was 4"),
        ((x, 16), 8, "argument n: divisibility 16, was not known"),
        ((x, 1), 8, "argument n is the constant 1, was i32"),
        (
            (np.zeros(4, np.float16), 3),
            8,
            "argument x is *fp16, was *fp32; argument n is i32, was the constant 1",
        ),
        ((x, 1 << 40 | 1), 8, "argument x is *fp32, was *fp16; argument n is i64, was i32"),
    ):
        assert told(*args, BLOCK=block).partition(", once more: ")[2] == reason
    assert (
        told(x, 1 << 40 | 1, BLOCK=8, debug=True).partition(", once more: ")[2]
        == "option debug is True, was False"
    )
    kernel.clear_cache()
    assert told(x, 1 << 40 | 1, BLOCK=8, debug=True).endswith(
        "its earlier code is no longer in memory"
    )


def test_a_function_that_has_changed_is_named(listener):
    @tw.jit
    def outer(x):
        tl.store(x, inner(2.0))

    @tw.jit
    def inner(y):
        return y + 1

    x = np.zeros(1, np.float32)
    outer[(1,)](x, backend="reference")
    inner._unsafe_update_src("def inner(y):\n    return y + 2\n")
    outer.forget_meaning()
    outer[(1,)](x, backend="reference")
    assert x[0] == 4
    text = listener.texts("compile")[-1]
    assert (
        text.partition(", once more: ")[2]
        == f"{__name__}.test_a_function_that_has_changed_is_named.<locals>.inner has changed"
    )


def test_hits_and_misses_of_the_caches_are_told(listener, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    kernel, x = make_kernel(), np.zeros(4, np.float32)
    kernel[(1,)](x, 3, BLOCK=4, backend="reference")
    (miss,) = listener.texts("cache")
    assert miss.startswith(f"fill: not in {tmp_path}")
    kernel.clear_cache()
    kernel[(1,)](x, 3, BLOCK=4, backend="reference")
    (hit,) = listener.texts("cache")
    assert hit == miss.replace("not in", "in")
    kernel.forget_plans()
    kernel[(1,)](x, 3, BLOCK=4, backend="reference")
    assert listener.texts("cache") == ["fill for reference:0: in memory"]
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "0")
    kernel.clear_cache()
    kernel[(1,)](x, 3, BLOCK=4, backend="reference")
    assert listener.texts("cache") == ["fill: not in the disk cache, which is off"]


def test_the_choice_of_a_backend_is_told_with_its_reason(listener, monkeypatch):
    from tilewright.runtime.devices import backend_choice

    x = np.zeros(4, np.float32)
    make_kernel()[(1,)](x, 3, BLOCK=4, backend="reference")
    with tw.backend("reference"):
        make_kernel()[(1,)](x, 3, BLOCK=4)
    monkeypatch.setenv("TILEWRIGHT_BACKEND", "reference")
    backend_choice.refresh_environment()
    try:
        make_kernel()[(1,)](x, 3, BLOCK=4)
    finally:
        monkeypatch.delenv("TILEWRIGHT_BACKEND")
        backend_choice.refresh_environment()
    make_kernel()[(1,)](x, 3, BLOCK=4)
    texts = listener.texts("dispatch")
    assert [text.rpartition("): ")[2] for text in texts] == [
        "the launch's backend='reference'",
        "with tilewright.backend('reference')",
        "TILEWRIGHT_BACKEND",
        "the arguments lie on cpu:0",
    ]
    assert all(text.startswith("fill: backend reference, device 0 (") for text in texts[:3])


def test_what_tuning_decides_is_told(listener):
    configs = [tw.Config({"BLOCK": 4}), tw.Config({"BLOCK": 8})]

    def bench(call, quantiles):
        call()
        return next(times)

    times = iter((2.0, 1.0))
    tuned = tw.autotune(configs, key=["n"], do_bench=bench, cache_results=False)(make_kernel())
    with tw.backend("reference"):
        tuned[(1,)](np.zeros(4, np.float32), 3)
    first, second, best = listener.texts("tuning")
    assert first.startswith("fill: 2 ms [BLOCK: 4") and second.startswith("fill: 1 ms [BLOCK: 8")
    assert (
        best.startswith("fill with key (3,): [BLOCK: 8") and "the best of 2, measured in " in best
    )
    tuned = tw.autotune(configs, key=["n"], mode="model")(make_kernel())
    with tw.backend("reference"):
        tuned[(1,)](np.zeros(4, np.float32), 3)
    (text,) = listener.texts("tuning")
    assert text.endswith("estimated, for the mode of tuning is model")


def test_the_variable_switches_loggers_on_and_off(monkeypatch, capsys):
    kernel, x = make_kernel(), np.zeros(4, np.float32)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv(logs.VARIABLE, " compile ,dispatch")
    kernel[(1,)](x, 3, BLOCK=4, backend="reference")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "tilewright.dispatch",
        "tilewright.compile",
    ]
    monkeypatch.setenv(logs.VARIABLE, "")
    kernel[(1,)](x, 3, BLOCK=8, backend="reference")
    assert capsys.readouterr().err == ""


def test_a_program_with_logging_of_its_own_gets_the_messages_once(monkeypatch, capsys):
    own, root = Listener(), logging.getLogger()
    root.addHandler(own)
    try:
        monkeypatch.setenv(logs.VARIABLE, "compile")
        make_kernel()[(1,)](np.zeros(4, np.float32), 3, BLOCK=4, backend="reference")
    finally:
        root.removeHandler(own)
    assert len(own.texts("compile")) == 1
    assert capsys.readouterr().err == ""


def test_an_unknown_logger_is_refused(monkeypatch):
    monkeypatch.setenv(logs.VARIABLE, "compile,tunning")
    wanted = (
        "TILEWRIGHT_LOG must be names of compile, cache, tuning, dispatch, with commas between "
        "them, not 'compile,tunning'"
    )
    for _ in range(2):
        with pytest.raises(VariableError, match=wanted):
            make_kernel()[(1,)](np.zeros(4, np.float32), 3, BLOCK=4, backend="reference")


def test_nothing_is_written_down_while_nobody_listens(monkeypatch):
    def tell(*args):
        raise AssertionError("a message was made")

    for channel in logs.CHANNELS.values():
        monkeypatch.setattr(channel.logger, "level", logging.WARNING)
        channel.logger.manager._clear_cache()
    monkeypatch.setattr(logs.Channel, "tell", tell)
    kernel, x = make_kernel(), np.zeros(4, np.float32)
    for block in (4, 8):
        kernel[(1,)](x, 3, BLOCK=block, backend="reference")


def test_launches_that_were_made_before_ask_no_logger(listener):
    kernel, x = make_kernel(), np.zeros(4, np.float32)
    kernel[(1,)](x, 3, BLOCK=4, backend="reference")
    asked = []

    def profile(frame, event, argument):
        if frame.f_code.co_filename == logs.__file__:
            asked.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        kernel[(1,)](x, 3, BLOCK=4, backend="reference")
        warm = list(asked)
        kernel[(1,)](x, 3, BLOCK=8, backend="reference")
    finally:
        sys.setprofile(None)
    assert warm == [] and asked
