"""What all tests share: an environment without the settings of whoever runs them, in which values
are defined before they are read after each pass and stage of whatever is compiled; interrupts that
interrupt; a selection of expensive tests and combinations of parameters; a garbage collector that
leaves the tests themselves alone, of which there are twenty thousand with all that they refer to,
and comes seldom; and a browser without a window."""

import gc
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
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
    """Add the option that runs what the default selection omits."""
    parser.addoption(
        "--full",
        action="store_true",
        help="run every test and combination of parameters instead of the default selection, as "
        "with TILEWRIGHT_FULL_CONFORMANCE=1",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Remove settings from the environment, and an ignored SIGINT: a test sets what it needs.

    Variables that opt in to longer tests stay.
    """
    for name in [*os.environ]:
        if name in VARIABLES or name in _OF_PYTHON or name.startswith(_PREFIXES):
            del os.environ[name]
    if config.getoption("full"):
        os.environ["TILEWRIGHT_FULL_CONFORMANCE"] = "1"
    elif os.environ.get("TILEWRIGHT_FULL_CONFORMANCE", "0") not in ("", "0"):
        config.option.full = True
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


def covering(items: list[pytest.Item], size: int) -> list[pytest.Item]:
    """Select combinations of a test's parameters that have each set of values of ``size`` marks.

    Of those that add as many sets, the one whose values were selected least often is next.
    """
    values = {id(item): list(enumerate(parameters(item)[0])) for item in items}
    sets = {key: set(itertools.combinations(found, size)) for key, found in values.items()}
    selected, missing = [], set().union(*sets.values())
    used: Counter[tuple[int, tuple[int, ...]]] = Counter()
    while missing:
        item = max(
            items,
            key=lambda one: (len(sets[id(one)] & missing), -sum(used[v] for v in values[id(one)])),
        )
        selected.append(item)
        missing -= sets[id(item)]
        used.update(values[id(item)])
    return selected


def selection(items: list[pytest.Item]) -> list[pytest.Item]:
    """Select combinations of a test by its marks.

    The mark ``sampled(n)`` spreads n combinations over all, and ``each_value`` covers each value of
    each ``parametrize`` mark. Of three and more marks every pair of values is covered.
    """
    sampled = items[0].get_closest_marker("sampled")
    if sampled is not None:
        (count,) = sampled.args
        return [items[number * len(items) // count] for number in range(min(count, len(items)))]
    if items[0].get_closest_marker("each_value") is not None:
        return covering(items, 1)
    return covering(items, 2) if len(parameters(items[0])[0]) > 2 else items


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests and combinations that run with ``--full`` alone.

    Each value of a parametrized fixture, a device say, has a selection of its own. Tests of GPUs
    run all combinations.
    """
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("gpu") is None and item.get_closest_marker("full") is None:
            fixtures = parameters(item)[1]
            groups.setdefault((item.nodeid.partition("[")[0], fixtures), []).append(item)
    kept = {id(item) for group in groups.values() for item in selection(group)}
    return [
        item for item in items if item.get_closest_marker("gpu") is None and id(item) not in kept
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several workers none is left alone with a long test at the end: these come first."""
    named = any("::" in argument for argument in config.args)  # what is named runs
    if not (named or config.getoption("full")):
        omitted = left_out(items)
        dropped = {id(item) for item in omitted}
        items[:] = [item for item in items if id(item) not in dropped]
        config.hook.pytest_deselected(items=omitted)
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
