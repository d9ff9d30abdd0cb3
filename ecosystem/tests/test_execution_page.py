"""The page of executions: figures by target, and what is out of line in each kernel."""

from __future__ import annotations

from pathlib import Path

from corpus.execution.page import execution_page
from corpus.execution.record import IDS, ExecutionRecord
from corpus.execution.run import Execution

PAGE = Path(__file__).parents[2] / "docs" / "performance" / "corpus-amd.md"
EXECUTIONS = [
    Execution("p/a_b/c", "gfx942", ours=50, theirs=100, equal=True, resident=(1024, 2048)),
    Execution(
        "p/a_b/c", "gfx1201", ours=200, theirs=100, note="out differs by 0.5", scratch=(16, 0)
    ),
    Execution("p/z/c", "gfx942", note="it did not end in 120 s"),
]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = ExecutionRecord()
    record.accept(EXECUTIONS, {"triton": "3"})
    record.accept([Execution("p/z/c", "gfx942", ours=1, theirs=1)], {})
    record.write(tmp_path / "executed.json")
    read = ExecutionRecord.read(tmp_path / "executed.json")
    assert (
        read.versions == {"triton": "3"} and ExecutionRecord.read(tmp_path / "none").kernels == {}
    )
    assert sorted(read.executions(), key=lambda each: (each.kernel, -each.theirs, each.target)) == [
        *sorted(EXECUTIONS[:2], key=lambda each: each.target),
        Execution("p/z/c", "gfx942", ours=1, theirs=1),
    ]  # fmt: skip


def test_the_page_has_a_line_for_each_target_and_kernel() -> None:
    record = ExecutionRecord()
    record.accept(EXECUTIONS, {"triton": "3"})
    lines = execution_page(record).splitlines()
    assert "Made with triton 3." in lines
    assert "| gfx942 | 1 | 0.500 | 0.50 | 0.50 | 0 | 0 | 0 | 1 |" in lines
    assert "| gfx1201 | 1 | 2.000 | 2.00 | 2.00 | 1 | 1 | 1 | 0 |" in lines
    assert lines.index("| p/a\\_b/c | 0.50▾ | **2.00** |") == lines.index("| p/z/c | – |  |") - 1
    assert (
        "- p/a\\_b/c (gfx1201): out differs by 0.5" in lines
        and "- p/z/c (gfx942): it did not end in 120 s" in lines
    )


def test_the_page_is_the_record_s() -> None:
    record = ExecutionRecord.read()
    assert PAGE.read_text() == execution_page(record)
    assert set(record.kernels) == set(IDS.read_text().split())
