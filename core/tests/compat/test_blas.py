"""``triton._C.libtriton.nvidia``: what programs import at their top to compare with cuBLAS."""

import subprocess
import sys

import pytest

from tilewright.compat.triton._C.libtriton import nvidia
from tilewright.errors import BackendError


def test_programs_import_it_by_tritons_name():
    code = (
        "import tilewright.compat.triton\nfrom triton._C.libtriton import nvidia\n"
        "print(nvidia.cublas.CublasLt.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.split() == ["CublasLt"]


def test_without_the_library_the_error_names_it(monkeypatch):
    monkeypatch.setattr(nvidia, "_candidates", lambda: iter(["libcublasLt.so.none"]))
    nvidia._library.cache_clear()
    with pytest.raises(
        BackendError,
        match="libcublasLt was found neither beside PyTorch nor by the loader: install it",
    ):
        nvidia._library()
