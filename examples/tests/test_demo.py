"""Output and exit code of ``make demo``: wrong results fail it, and slow ones do not."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry

EXAMPLES = Path(__file__).resolve().parents[1]

#: the demo after some changes to it, with times that are made up: so many seconds for Tilewright,
#: and 1 for every rival
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import demo
demo.best_times = lambda calls: {{name: {seconds} if name == "tilewright" else 1.0 for name in calls}}
{change}
sys.exit(demo.main(sys.argv[2:]))
"""


def demo(seconds: float, change: str = "", *options: str) -> tuple[int, list[str]]:
    """The exit code and the lines of the demo."""
    command = [
        sys.executable,
        "-c",
        _PROGRAM.format(seconds=seconds, change=change),
        str(EXAMPLES),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def slow() -> tuple[int, list[str]]:
    """Run the demo with a plot, where Tilewright takes four times as long as its rivals."""
    return demo(4.0, "", "--plot")


@pytest.mark.full
def test_being_slower_is_a_figure_and_no_failure(slow: tuple[int, list[str]]) -> None:
    code, lines = slow
    assert code == 0
    assert "all are right" in lines
    assert len([line for line in lines if " 0.25x" in line]) == 5


def test_it_names_the_machine(slow: tuple[int, list[str]]) -> None:
    device = device_registry.find(registry().get("cpu"), None)
    assert slow[1][0].startswith(f"{device.name}, {device.properties['cores']} core")


def test_a_plot_has_a_bar_for_each_time(slow: tuple[int, list[str]]) -> None:
    bars = [(line.split()[0], line.count("#")) for line in slow[1] if "#" in line]
    assert [length for name, length in bars if name == "tilewright"] == [50] * 5
    assert {length for name, length in bars if name != "tilewright"} == {12}


def test_what_it_proposes_to_try_next_can_be_tried(slow: tuple[int, list[str]]) -> None:
    lines = slow[1]
    hints = lines[lines.index("what to try next:") + 1 :]
    commands = [shlex.split(line) for line in hints[::2]]
    assert [words[:2] for words in commands[:1]] == [["make", "demo"]]
    own = [words[1:] for words in commands if words[0].endswith("tilewright")]
    assert [words[0] for words in own] == ["inspect", "backends"]
    for words in own:
        done = subprocess.run(
            [sys.executable, "-m", "tilewright.tools.cli", *words],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    places = [words[0] for words in commands if len(words) == 1]
    assert places and all((EXAMPLES.parent / place).exists() for place in places)


def test_a_wrong_kernel_fails_however_fast_it_is() -> None:
    code, lines = demo(
        seconds=0.5,
        change=(
            "own = demo.softmax\n"
            "demo.softmax = lambda x, out: (own(x, out), out.__setitem__((7, 5), 0.5))\n"
            "demo.matmul = lambda *arguments: None"
        ),
    )
    assert code == 1
    assert lines[-1] == "wrong: fused softmax, matmul + leaky relu"
    assert not [line for line in lines if "#" in line]
    assert [line.split()[0] for line in lines if "WRONG" in line] == ["fused", "matmul"]
