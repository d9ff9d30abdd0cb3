"""Checks of the toolkit's pages: examples in the printed form, and all of the SIMT IR in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import verify
from tilewright.simt.analysis.async_hazards import check_in_flight
from tilewright.simt.compile import STAGES
from tilewright.simt.dialect import attributes, pipeline_attributes
from tilewright.simt.dialect.ops import OPS, SIMT_TABLE
from tilewright.simt.pipeline.expand import PARTITIONS
from tilewright.simt.pipeline.modulo_expander import kinds

PAGES = Path(__file__).resolve().parents[1] / "site" / "developers" / "toolkit"
TEXT = "\n".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
EXAMPLES = re.findall(r"^```simt\n(.*?)^```$", TEXT, re.M | re.S)


def read(example: str) -> Module:
    """Parse an example, with the header that the page omits."""
    return parse_module(f"tilewright.ir 1.0\n{example}", SIMT_TABLE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: re.search(r"@(\w+)", example)[1])
def test_an_example_is_right_and_in_the_printed_form(example: str) -> None:
    module = read(example)
    verify(module)
    check_in_flight(module.kernel)
    assert print_module(module, locations=False).partition("\n")[2].lstrip("\n") == example


def test_every_operation_has_an_example() -> None:
    shown = {operation.name for example in EXAMPLES for operation in read(example).kernel.walk()}
    assert {spec.name for spec in OPS} <= shown


def test_every_operation_is_explained() -> None:
    explained = set(
        re.findall(r"`(simt\.\w+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.M | re.S))
    )
    assert {spec.name for spec in OPS} <= explained


def test_every_stage_has_a_section_in_order() -> None:
    stages = [stage.name for stage in STAGES]
    text = (PAGES / "stages.md").read_text()
    assert re.findall(r"^## (\w+)$", text, re.M) == stages


def test_every_attribute_that_stages_write_is_in_the_table() -> None:
    values = [
        value
        for module in (attributes, pipeline_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    ]
    written = {value for value in values if value.startswith("simt.")}
    assert {"simt.offset", "simt.by", "simt.form"} <= written
    assert written <= set(re.findall(r"^\| `(simt\.\w+)` \|", TEXT, re.M))
    for name in (attributes.WARPS, attributes.SHARED_BYTES, *kinds(), *PARTITIONS):
        assert f"`{name}`" in TEXT
