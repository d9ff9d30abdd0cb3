"""The table of cases of operators."""

from __future__ import annotations

import functools

from tilewright_conformance.testlib.case_table import Table

BLOCK = 256
case = functools.partial(Table("operators", "core", "NumPy, exact integers").case, tile=BLOCK)
