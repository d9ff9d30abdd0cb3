"""Environment variables: switches that are neither on nor off are refused, slips are found, and the
page lists all of them."""

import os
import re
from pathlib import Path

import pytest

from tilewright.environment import VARIABLES, chosen, flag, mistyped
from tilewright.errors import VariableError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("1", True),
        ("on", True),
        (" True ", True),
        ("yes", True),
        ("0", False),
        ("", False),
        ("no", False),
        ("OFF", False),
    ],
)
def test_switches_are_on_or_off(monkeypatch, text, on):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", text)
    assert flag("TILEWRIGHT_DEBUG") is on and flag("TILEWRIGHT_DEBUG", True) is on
    monkeypatch.delenv("TILEWRIGHT_DEBUG")
    assert flag("TILEWRIGHT_DEBUG", True) and not flag("TILEWRIGHT_DEBUG")


def test_variables_with_a_few_values(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_SOME_CHOICE", raising=False)
    assert chosen("TILEWRIGHT_SOME_CHOICE", ("fast", "slow")) == "fast"
    for text, wanted in (("slow", "slow"), (" slow ", "slow"), ("", "fast")):
        monkeypatch.setenv("TILEWRIGHT_SOME_CHOICE", text)
        assert chosen("TILEWRIGHT_SOME_CHOICE", ("fast", "slow")) == wanted
    monkeypatch.setenv("TILEWRIGHT_SOME_CHOICE", "SLOW")
    with pytest.raises(
        VariableError, match="TILEWRIGHT_SOME_CHOICE must be one of fast, slow, not 'SLOW'"
    ):
        chosen("TILEWRIGHT_SOME_CHOICE", ("fast", "slow"))


SIZE = 4


@pytest.mark.parametrize(
    ("text", "permitted"),
    [("1", True), ("yes", True), ("0", False), ("no", False), ("perhaps", None)],
)
def test_the_switch_for_global_variables_is_read_as_the_others(monkeypatch, text, permitted):
    import numpy as np

    import tilewright as tw
    import tilewright.language as tl

    @tw.jit
    def put(x):
        tl.store(x, SIZE)

    monkeypatch.setenv(
        "TILEWRIGHT_CACHE_SIZE", "0"
    )  # what was compiled where it was permitted is not compiled again
    monkeypatch.setenv("TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS", text)
    x = np.zeros(1)
    if permitted:
        put[(1,)](x, backend="reference")
        assert x[0] == SIZE
    else:
        with pytest.raises(
            tw.TilewrightError,
            match="Cannot access global variable SIZE"
            if permitted is False
            else "GLOBALS must be 0 or 1, not 'perhaps'",
        ):
            put[(1,)](x, backend="reference")


@pytest.mark.parametrize(
    ("name", "wanted"), [("TILEWRIGHT_DEBUG", "0 or 1"), ("TILEWRIGHT_VERIFY", "0, 1 or uses")]
)
def test_garbage_in_a_switch_is_refused(monkeypatch, name, wanted):
    import numpy as np

    import tilewright as tw
    import tilewright.language as tl

    @tw.jit
    def put(x):
        tl.store(x, 1)

    monkeypatch.setenv(name, "maybe")
    with pytest.raises(VariableError, match=f"{name} must be {wanted}, not 'maybe'"):
        put[(1,)](np.zeros(1))


def test_slips_are_found_and_what_may_be_a_backends_is_left():
    assert mistyped(
        {
            "TILEWRIGHT_DEBGU": "1",
            "TILEWRIGHT_CACHE_DRI": "x",
            "TILEWRIGHT_DEBUG": "1",
            "TILEWRIGHT_MINE_PATH": "y",
            "DEBUG": "1",
        }
    ) == [
        "TILEWRIGHT_CACHE_DRI means nothing: did you mean TILEWRIGHT_CACHE_DIR?",
        "TILEWRIGHT_DEBGU means nothing: did you mean TILEWRIGHT_DEBUG?",
    ]


def test_the_page_lists_every_variable():
    page = (ROOT / "docs/site/reference/environment.md").read_text()
    rows = re.findall(r"^\| `(TILEWRIGHT_\w+)` \| (.+) \| (.+) \|$", page, re.M)
    assert {
        name: (values, meaning) for name, values, meaning in rows if name in VARIABLES
    } == VARIABLES
    read = {
        name
        for path in ROOT.glob("*/src/**/*.py")
        for name in re.findall(r'"(TILEWRIGHT_[A-Z_]+)"', path.read_text())
    }
    read |= {
        name
        for path in ROOT.glob("backends/*/src/**/*.py")
        for name in re.findall(r'"(TILEWRIGHT_[A-Z_]+)"', path.read_text())
    }
    of_tests = (
        "TILEWRIGHT_PYTEST",
        "TILEWRIGHT_BROKEN",
        "TILEWRIGHT_IN_MEMCHECK",
        "TILEWRIGHT_EMULATION",
        "TILEWRIGHT_NO_",
    )
    assert {name for name in read if not name.startswith(of_tests) and name != "TILEWRIGHT_"} <= {
        name for name, *_ in rows
    }


@pytest.mark.parametrize("text", ["0", "", "no", "False", " off ", "1", "yes"])
def test_the_shims_switch_is_read_as_the_others_at_the_start_of_a_process(monkeypatch, text):
    """The two places that read it run before Tilewright is imported."""
    startup = ROOT / "core/src/tilewright/compat/startup/sitecustomize.py"
    (condition,) = {
        re.search(r"os\.environ\.get\(\"TILEWRIGHT_TRITON\".*?\) not in \(.*?\)", path.read_text())[
            0
        ]
        for path in (ROOT / "core/tilewright_triton.pth", startup)
    }
    monkeypatch.setenv("TILEWRIGHT_TRITON", text)
    assert eval(condition, {"os": os}) is flag("TILEWRIGHT_TRITON")
