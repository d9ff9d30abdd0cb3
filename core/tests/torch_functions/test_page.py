"""The pages of the documentation about functions of PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

SITE = Path(__file__).resolve().parents[3] / "docs" / "site"


@pytest.mark.parametrize("page", ["reference/pytorch.md", "guides/pytorch.md"])
def test_a_page_prints_what_it_shows(page, capsys, tmp_path) -> None:
    text = (SITE / page).read_text()
    code, expected = (
        "".join(re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S))
        for kind in ("py", "output")
    )
    file = tmp_path / "page.py"
    file.write_text(code)
    exec(compile(code, str(file), "exec"), {"__name__": "__page__", "__file__": str(file)})
    assert expected and capsys.readouterr().out == expected
