"""What ``make demo`` says and how it ends: wrong results fail it, and slow ones do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]

#: the demo after some changes to it, with times that are made up: so many seconds for Tilewright, and 1 for every rival
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import demo
demo.best_times = lambda calls: {{name: {seconds} if name == "tilewright" else 1.0 for name in calls}}
{change}
sys.exit(demo.main())
"""


def demo(seconds: float, change: str = "") -> tuple[int, list[str]]:
    """The exit code and the lines of the demo."""
    command = [sys.executable, "-c", _PROGRAM.format(seconds=seconds, change=change), str(EXAMPLES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_being_slower_is_a_figure_and_no_failure() -> None:
    code, lines = demo(seconds=4.0)
    assert code == 0
    assert len(lines) == 7 and lines[-1] == "all are right"
    assert all(" 0.25x" in line for line in lines[1:-1])


def test_a_wrong_kernel_fails_however_fast_it_is() -> None:
    code, lines = demo(
        seconds=0.5,
        change="own = demo.softmax\ndemo.softmax = lambda x, out: (own(x, out), out.__setitem__((7, 5), 0.5))\ndemo.matmul = lambda *arguments: None",
    )
    assert code == 1
    assert lines[-1] == "wrong: fused softmax, matmul + leaky relu"
    assert [line.split()[0] for line in lines if "WRONG" in line] == ["fused", "matmul"]
