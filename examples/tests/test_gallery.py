"""Programs of ``examples/gallery``: their results against NumPy's, and that all are on the page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
try:
    from gallery_pages import gallery
finally:
    sys.path.pop(0)

#: Program -> the largest result of its check; 0 where it counts elements that differ.
LIMITS = {
    "bilateral_filter": 1e-5,
    "compaction": 0,
    "fourier_transform": 2e-6,
    "game_of_life": 0,
    "heat": 1e-6,
    "histogram": 0,
    "k_means": 1e-5,
    "mandelbrot": 0.005,
    "monte_carlo": 4,
    "n_body": 2e-6,
}


@pytest.mark.parametrize("name", LIMITS)
def test_results_are_those_of_numpy(name: str) -> None:
    assert gallery.load(name).check() <= LIMITS[name]


def test_the_page_has_all_programs() -> None:
    programs = {file.stem for file in gallery.FOLDER.glob("*.py")}
    assert programs == set(gallery.TITLES) == set(LIMITS)


def test_a_section_shows_kernels_alone() -> None:
    text = gallery.section("compaction")
    assert text.count("@tw.jit") == 2
    assert "def compact_kernel" in text and "def field" not in text
