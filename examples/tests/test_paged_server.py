"""The tokens of the server of pages, and its pages and places."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

PROGRAM = Path(__file__).resolve().parents[1] / "paged_server.py"


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    path = list(sys.path)
    found = runpy.run_path(str(PROGRAM))
    sys.path[:] = path
    return found


def test_tokens_are_those_of_pytorch(program: Any, capsys: Any) -> None:
    assert program["main"](["--limit", "8"]) == 0
    *_, verdict = capsys.readouterr().out.splitlines()
    assert verdict == "right"


def test_requests_wait_for_pages_and_give_them_back(program: Any) -> None:
    request, encode = program["Request"], program["encode"]
    weights = program["load_weights"]()
    server = program["Server"](weights, pages=3, page=4, batch=2)
    with pytest.raises(ValueError, match="more pages than the cache has"):
        server.submit(request("long", 0, encode("a"), 12))
    requests = [request(str(n), 0, encode("The b"), 3) for n in range(3)]
    done = program["serve"](server, requests)
    assert [each.name for each in done] == ["0", "1", "2"]
    # a request has two of the three pages, so that none are computed together
    assert [each.began for each in done] == [0, 2, 4]
    assert all(not each.pages for each in done)
    # the pages of others leave no trace
    assert done[0].tokens == done[1].tokens == done[2].tokens
    assert done[0].tokens == program["generate"](weights, requests[0])


def test_other_tokens_are_wrong(program: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(program["main"].__globals__, "generate", lambda *_: [])
    assert program["main"](["--limit", "2"]) == 1
    assert "WRONG: other tokens" in capsys.readouterr().out
