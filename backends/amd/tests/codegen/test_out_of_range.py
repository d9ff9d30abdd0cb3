"""Divisors of 0, shifts past the width, and floats that no integer is: on emulated waves as
everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import listed

from tilewright_conformance.suite.session import Session, Subject
from tilewright_conformance.testlib import out_of_range


class Emulated(Session):
    """A session of the suite whose launches run on emulated waves."""

    def __init__(self, arch: str) -> None:
        super().__init__(Subject("reference"), "out_of_range")
        self.arch = arch

    def launch(self, kernel: Any, grid: Any, *args: Any, **options: Any) -> Any:
        types = [f"*{_spelled(x.dtype.name)}" if isinstance(x, np.ndarray) else "i32" for x in args]
        launched(listed(kernel, ", ".join(types), self.arch, options), args, grid)


def _spelled(name: str) -> str:
    return name.replace("uint", "u").replace("int", "i").replace("float", "fp")


@pytest.mark.parametrize(("name", "arch"), [("int32", "gfx942"), ("uint64", "gfx1100")])
def test_integers(name: str, arch: str) -> None:
    out_of_range.check_integers(name, Emulated(arch))


@pytest.mark.parametrize(("name", "arch"), [("float32", "gfx1100"), ("float64", "gfx942")])
def test_casts(name: str, arch: str) -> None:
    out_of_range.check_casts(name, Emulated(arch))
