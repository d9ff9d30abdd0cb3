"""The chart of the losses of the tutorial on gradients, whose program runs for it."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import Any

from drawings.line_chart import line_chart

PAGE = Path(__file__).resolve().parents[1] / "site" / "tutorials" / "gradients.md"
TITLE = "Loss of the two layers by the step of training"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
#: Steps between points of the chart.
_STRIDE = 25


def losses() -> list[float]:
    """Return the loss of each step of the page's program."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder) / "gradients.py"  # kernels are read from files
        file.write_text("\n".join(_BLOCK.findall(PAGE.read_text())))
        space: dict[str, Any] = {"__name__": "__page__", "__file__": str(file)}
        exec(compile(file.read_text(), str(file), "exec"), space)
    return [float(loss) for loss in space["losses"]]


def chart() -> str:
    """Return the chart as SVG."""
    found = losses()
    points = {step: found[step] for step in range(0, len(found), _STRIDE)}
    points[len(found)] = found[-1]
    return str(line_chart({"loss": points}, TITLE, "steps", "mean squared error"))
