"""What all tests share: an environment without the settings of whoever runs them, in which values
are defined before they are read after each pass and stage of whatever is compiled; interrupts that
interrupt; of three and more parameters every pair of values, not every combination; a garbage
collector that leaves the tests themselves alone, of which there are twenty thousand with all that
they refer to, and comes seldom; and a browser without a window."""

import gc
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from tilewright.environment import VARIABLES

#: Settings of Python that change what the processes that tests start print and write.
_OF_PYTHON = (
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONWARNINGS",
    "PYTHONOPTIMIZE",
    "PYTHONBREAKPOINT",
)
#: What the backends' own variables and those of the Triton shim begin with.
_PREFIXES = ("TRITON_", "TILEWRIGHT_CPU_", "TILEWRIGHT_NVIDIA_", "TILEWRIGHT_AMD_")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs every combination of parameters."""
    parser.addoption(
        "--all-combinations",
        action="store_true",
        help="run every combination of three and more parametrize marks, not a selection that has "
        "every pair of values",
    )


def pytest_configure() -> None:
    """Remove settings from the environment, and an ignored SIGINT: a test sets what it needs.

    Variables that opt in to longer tests stay.
    """
    for name in [*os.environ]:
        if name in VARIABLES or name in _OF_PYTHON or name.startswith(_PREFIXES):
            del os.environ[name]
    os.environ["TILEWRIGHT_VERIFY"] = "uses"  # in the processes that tests start as well
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # as a shell leaves it to what it starts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    gc.disable()  # while they are collected


def parameters(item: pytest.Item) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the identities of a test's values: for each ``parametrize`` mark, and of fixtures."""
    values = dict(getattr(getattr(item, "callspec", None), "params", {}))
    marked = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.replace(" ", "").split(",") if isinstance(names, str) else names
        marked.append(tuple(id(values.pop(name, None)) for name in names))
    return marked, tuple(map(id, values.values()))


def all_pairs(items: list[pytest.Item]) -> list[pytest.Item]:
    """Select combinations of a test's parameters that have each pair of values of two marks."""
    found = [
        (item, set(itertools.combinations(enumerate(parameters(item)[0]), 2))) for item in items
    ]
    selected, missing = [], set().union(*(pairs for _, pairs in found))
    while missing:
        item, pairs = max(found, key=lambda one: len(one[1] & missing))
        selected.append(item)
        missing -= pairs
    return selected


def left_out_combinations(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the combinations of three and more ``parametrize`` marks that add no pair of values.

    Each value of a parametrized fixture, a device say, has a selection of its own. Tests of GPUs
    run all combinations.
    """
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        marked, fixtures = parameters(item)
        if len(marked) > 2 and item.get_closest_marker("gpu") is None:
            groups.setdefault((item.nodeid.partition("[")[0], fixtures), []).append(item)
    kept = {id(item) for group in groups.values() for item in all_pairs(group)}
    return [item for group in groups.values() for item in group if id(item) not in kept]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several workers none is left alone with a long test at the end: these come first."""
    named = any("[" in argument for argument in config.args)  # a combination that is named runs
    if not (named or config.getoption("all_combinations")):
        left_out = left_out_combinations(items)
        dropped = {id(item) for item in left_out}
        items[:] = [item for item in items if id(item) not in dropped]
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()
    # By Python's own a twentieth of the time of tests of compilers goes to it, a third of that for
    # coming too often.
    gc.set_threshold(20_000, 50, 100)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    # Pytest looked through what is left just now: it need not be again on the way out.
    gc.freeze()


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

#: What scripts of :func:`browse` may use: ``contrast`` of an element's text with what is behind it,
#: as WCAG has it; ``wait`` for milliseconds.
_TOOLS = """
const numbers = colour => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data];
};
const behind = e => {
  for (; e; e = e.parentElement) {
    const c = numbers(getComputedStyle(e).backgroundColor);
    if (c[3] === 255) return c;
  }
  return [255, 255, 255, 255];
};
const linear = v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = c => {
  const [r, g, b] = c.map(linear);
  return .2126 * r + .7152 * g + .0722 * b;
};
const contrast = e => {
  const both = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
  const [a, b] = both.sort((x, y) => y - x);
  return (a + .05) / (b + .05);
};
const wait = ms => new Promise(done => setTimeout(done, ms));
"""

_FRAME = """<!doctype html><meta charset="utf-8">
<iframe style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe>
<script>addEventListener("message", event => {{
  const pre = document.createElement("pre");
  pre.id = "saw";
  pre.textContent = event.data;
  document.body.append(pre);
}});</script>
"""


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """``browse(page, script, width=1400, dark=False)``: open a page ``width`` pixels wide, and run
    a script in it that fills the object ``saw``; the object.
    Tests are skipped where there is no Chromium."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip("there is no Chromium")

    def look(page: str, script: str, *, width: int = 1400, dark: bool = False) -> dict[str, Any]:
        run = (
            f"const saw = {{}}; try {{ {script} }} catch (error) {{ saw.error = String(error); }} "
            "parent.postMessage(JSON.stringify(saw), '*');"
        )
        tools = (
            f"<script>{_TOOLS} window.onerror = message => "
            "parent.postMessage(JSON.stringify({error: message}), '*');"
        )
        tools += f"addEventListener('load', async () => {{ {run} }});</script>"
        path = tmp_path / "page.html"
        path.write_text(_FRAME.format(width=width, page=escape(page + tools)), encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={max(width, 500) + 50},1000",
            "--virtual-time-budget=20000",
        ]
        command += [
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            path.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        found = re.search(r'<pre id="saw">(.*?)</pre>', done.stdout, re.S)
        assert found, f"the script said nothing\n{done.stderr[-2000:]}"
        saw: dict[str, Any] = json.loads(unescape(found[1]))
        assert "error" not in saw, saw["error"]
        return saw

    return look
