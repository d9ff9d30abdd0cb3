"""The page of the gallery, from the programs of ``examples/gallery``."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType

from drawings.png import png

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "gallery"
#: Program -> title of its section, in the order of the page.
TITLES = {
    "mandelbrot": "Mandelbrot set",
    "game_of_life": "Game of life",
    "heat": "Heat: a stencil",
    "bilateral_filter": "Bilateral filter",
    "histogram": "Histogram equalization",
    "compaction": "Prefix compaction",
    "fourier_transform": "Fourier transform by matmuls",
    "k_means": "K-means",
    "n_body": "Bodies that attract each other",
    "monte_carlo": "Monte Carlo pricing",
}
INTRODUCTION = """# Gallery

This page shows ten programs from image processing and science: their kernels, and the pictures that
they compute. Each program is a Python file in the folder `examples/gallery` of the repository. The
repository's tests compare the results of each program with those of NumPy. The pictures were
computed on a CPU when this page was built.
"""


def load(name: str) -> ModuleType:
    """Return a program of the gallery as a module."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def kernels_of(name: str) -> str:
    """Return the source of a program's kernels."""
    source = (FOLDER / f"{name}.py").read_text()
    return "\n\n".join(
        "\n".join(source.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno]) + "\n"
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    )


def section(name: str) -> str:
    """Return the Markdown of a program's section."""
    summary, _, rest = (load(name).__doc__ or "").strip().partition("\n")
    text = f"## {TITLES[name]}\n\n{summary}\n\n{rest.strip()}\n\n"
    text += f"![{summary.split(':')[0].rstrip('.')}](gallery/{name}.png)\n\n"
    return text + f"`examples/gallery/{name}.py`:\n\n```python\n{kernels_of(name)}```\n\n"


def files() -> dict[str, str | bytes]:
    """Path on the site -> content: the page and its pictures."""
    found: dict[str, str | bytes] = {
        "gallery.md": INTRODUCTION + "\n" + "".join(map(section, TITLES))
    }
    for name in TITLES:
        found[f"gallery/{name}.png"] = png(load(name).picture())
    return found
