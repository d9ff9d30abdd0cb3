"""Stand-ins for the compiled parts of packages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from corpus.compiled_parts import replace_compiled_parts


def test_a_compiled_part_that_cannot_be_loaded_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep_gemm.py").write_text(
        'raise ImportError("libcuda.so.1: cannot open shared object file")'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    replace_compiled_parts()
    finders = len(sys.meta_path)
    replace_compiled_parts()
    assert len(sys.meta_path) == finders
    part = importlib.import_module("deep_gemm.utils")
    monkeypatch.delitem(sys.modules, "deep_gemm")
    monkeypatch.delitem(sys.modules, "deep_gemm.utils")
    with pytest.raises(
        NotImplementedError, match=r"deep_gemm\.utils\.align is compiled, and not here"
    ):
        part.align(4)
