"""``triton.knobs``: attributes and environment variables that are one setting."""

import os

import pytest

from tilewright.compat.triton import knobs
from tilewright.compat.triton.environment import fresh_settings


class Sample(knobs.base_knobs):
    text = knobs.env_str("SAMPLE_TEXT", "plain")
    switch = knobs.env_bool("SAMPLE_SWITCH", True)
    number = knobs.env_int("SAMPLE_NUMBER", 4)
    maybe = knobs.env_opt_str("SAMPLE_MAYBE")
    maybe_switch = knobs.env_opt_bool("SAMPLE_MAYBE_SWITCH")


@pytest.fixture
def sample(monkeypatch):
    for knob in Sample().knob_descriptors.values():
        monkeypatch.setenv(knob.key, "x")  # so that what a test sets is undone
        monkeypatch.delenv(knob.key)
    return Sample()


def test_defaults_assignments_copies_and_resets(sample):
    defaults = {"text": "plain", "switch": True, "number": 4, "maybe": None, "maybe_switch": None}
    assert sample.knobs == defaults
    knobs.propagate_env = False
    sample.switch, sample.maybe_switch = False, True
    other = sample.copy()
    other.text = "other"
    assert (
        sample.knobs == {**defaults, "switch": False, "maybe_switch": True}
        and other.text == "other"
    )
    assert other.reset() is other and other.knobs == defaults and not sample.switch


@pytest.mark.parametrize("text", ["1", "true", "True", "YES", "on", "y"])
def test_switches_read_the_environment(sample, monkeypatch, text):
    monkeypatch.setenv("SAMPLE_MAYBE_SWITCH", text)
    assert sample.maybe_switch is True
    monkeypatch.setenv("SAMPLE_MAYBE_SWITCH", {"1": "0"}.get(text, "off"))
    assert sample.maybe_switch is False
    monkeypatch.setenv("SAMPLE_SWITCH", "")
    assert sample.switch is True


def test_assignments_set_the_environment_while_they_are_to(sample):
    sample.switch, sample.number, sample.text = False, 17, "far"
    assert (
        os.environ["SAMPLE_SWITCH"],
        os.environ["SAMPLE_NUMBER"],
        os.environ["SAMPLE_TEXT"],
    ) == ("0", "17", "far")
    knobs.propagate_env = False
    sample.number = 18
    assert os.environ["SAMPLE_NUMBER"] == "17" and sample.number == 18
    sample.number = knobs.env
    assert sample.number == 17
    sample.number = 18
    del sample.number
    assert sample.number == 17


def test_assigned_values_come_before_the_environment(sample, monkeypatch):
    sample.text = "mine"
    monkeypatch.setenv("SAMPLE_TEXT", "theirs")
    assert sample.text == "mine"
    sample.text = knobs.env
    assert sample.text == "theirs"


def test_scopes_undo_what_was_assigned(sample, monkeypatch):
    sample.number = 1
    monkeypatch.setenv("SAMPLE_TEXT", "before")
    with sample.scope():
        sample.number, sample.text = 2, "within"
        assert os.environ["SAMPLE_TEXT"] == "within"
    assert sample.number == 1 and sample.text == "before" and os.environ["SAMPLE_NUMBER"] == "1"


def test_numbers_that_are_none_are_refused(sample, monkeypatch):
    monkeypatch.setenv("SAMPLE_NUMBER", "many")
    with pytest.raises(RuntimeError, match="SAMPLE_NUMBER=many: expected int"):
        sample.number


def test_directories_follow_the_home(monkeypatch):
    home = os.path.expanduser("~/")
    assert knobs.cache.home_dir == home and knobs.cache.dir == os.path.join(
        home, ".triton", "cache"
    )
    monkeypatch.setenv("TRITON_HOME", "/elsewhere")
    assert (knobs.cache.dir, knobs.cache.dump_dir, knobs.cache.override_dir) == tuple(
        f"/elsewhere/.triton/{name}" for name in ("cache", "dump", "override")
    )
    knobs.cache.home_dir = "/third"
    assert knobs.cache.dir == "/third/.triton/cache" and os.environ["TRITON_HOME"] == "/third"


def test_classes_are_named_by_module(monkeypatch):
    from tilewright.compat.triton.runtime.cache import FileCacheManager

    assert knobs.cache.manager_class is None
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "triton.runtime.cache:FileCacheManager")
    assert knobs.cache.manager_class is FileCacheManager
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "triton.runtime.cache:RemoteCacheBackend")
    with pytest.raises(RuntimeError, match="not of type 'CacheManager'"):
        knobs.cache.manager_class
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "FileCacheManager")
    with pytest.raises(RuntimeError, match="MODULE:CLASS"):
        knobs.cache.manager_class


def test_what_is_read_once_is_refreshed(monkeypatch):
    before = knobs.runtime.debug
    monkeypatch.setenv("TRITON_DEBUG", "1")
    assert knobs.runtime.debug == before
    knobs.refresh_knobs()
    assert knobs.runtime.debug is True
    monkeypatch.delenv("TRITON_DEBUG")
    knobs.refresh_knobs()
    assert knobs.runtime.debug is False


def test_fused_products_are_a_default_a_request_and_a_ban(monkeypatch):
    assert knobs.language.fp_fusion_enabled(None) and not knobs.language.fp_fusion_enabled(False)
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    assert not knobs.language.fp_fusion_enabled(None) and knobs.language.fp_fusion_enabled(True)
    monkeypatch.setenv("TRITON_FORCE_DISABLE_FP_FUSION", "1")
    assert not knobs.language.fp_fusion_enabled(True)


def test_hook_chains_call_in_order():
    said = []
    for backwards, expected in ((False, "ab"), (True, "ba")):
        chain = knobs.HookChain(reversed=backwards)
        first, second = (lambda: said.append("a")), (lambda: said.append("b"))
        chain.add(func=first)
        chain.add(second)
        chain.add(second)
        chain()
        assert "".join(said) == expected and chain.reversed is backwards
        said.clear()
        chain.remove(func=first)
        chain.remove(first)
        chain()
        assert said == ["b"]
        said.clear()


def test_fresh_settings_are_put_back(monkeypatch):
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    knobs.autotuning.print = True
    mine = knobs.autotuning
    fresh, restore = fresh_settings({"build"})
    assert fresh() is knobs
    assert (
        not knobs.compilation.always_compile
        and not knobs.autotuning.print
        and knobs.autotuning is not mine
    )
    knobs.autotuning.print = True
    restore()
    assert knobs.autotuning is mine and knobs.autotuning.print and knobs.compilation.always_compile


def test_programs_of_the_cuda_toolkit_are_looked_for(monkeypatch, tmp_path):
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.1'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tool))
    assert knobs.nvidia.ptxas == knobs.NvidiaTool(str(tool), "12.9")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TRITON_PTXAS_PATH")
    assert knobs.nvidia.ptxas.version
    with pytest.raises(
        RuntimeError, match="Cannot find no-such-tool: set TRITON_NO_SUCH_TOOL_PATH"
    ):
        knobs.env_nvidia_tool("no-such-tool").get()
