"""The HTML page, opened in a browser without a window, its filters used by a script."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tilewright_conformance.suite.report import html
from tilewright_conformance.suite.report.document import Document

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)

#: Uses the page as a reader would, and leaves what it saw in the document.
SCRIPT = """
<script>
window.onerror = message => { document.title = message; };
const saw = {};
const set = (id, value, event) => { $(id).value = value; $(id).dispatchEvent(new Event(event)); };
const look = name => { saw[name] = { count: $("count").textContent, rows: [...$("cases").tBodies[0].rows].map(r => r.cells[0].textContent),
  dots: document.querySelectorAll("#plot circle").length, marks: document.querySelectorAll("#plot line.bound").length }; };
look("all");
set("subject", "sqrt", "change"); look("sqrt");
set("search", "APPROXIMATE", "input"); look("approximate");
set("search", "", "input"); set("subject", "", "change"); set("status", "failed", "change"); look("failed");
set("status", "", "change"); set("verdict", "bad", "change"); look("bad");
set("verdict", "", "change"); document.querySelector("#plot circle").dispatchEvent(new Event("click")); look("clicked");
set("search", "no such case", "input"); look("none");
set("search", "", "input"); document.querySelector("#failures button").click(); look("caused"); saw.only = $("only").textContent;
$("only").click(); look("freed"); document.querySelector("#unsupported button").click(); look("lacking"); $("only").click();
saw.causes = ["failures", "unsupported"].map(id => [...$(id).tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent)));
saw.order = [...document.querySelectorAll("h2")].filter(e => e.checkVisibility()).map(e => e.textContent);
saw.wide = document.documentElement.scrollWidth - innerWidth;
saw.capabilities = $("capabilities").textContent; saw.claims = [...$("claims").tBodies[0].rows].map(r => r.textContent);
saw.headline = $("headline").textContent;
saw.about = $("about").textContent;
saw.stati = [...new Set([...$("cases").tBodies[0].rows].map(r => r.cells[1].textContent))].sort();
saw.message = "";
set("search", "", "input"); set("status", "failed", "change");
saw.message = document.querySelector("#cases pre").textContent;
document.body.append(make("pre", JSON.stringify(saw)));
document.body.lastChild.id = "saw";
</script>
"""


def test_the_page_needs_nothing_else_and_holds_the_report(report: Document) -> None:
    report["results"][0]["message"] = "</script><b>&"
    page = html.page(report)
    assert "{{" not in page and not re.search(r"(src|href)=|@import|url\(", page)
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.S)
    assert found and json.loads(found[1]) == report


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_filters_and_plot_in_a_browser(report: Document, tmp_path: Path) -> None:
    report["results"][2].update(
        status="failed", verdict="bad", message="</script>wrong & bad", exception="MismatchError"
    )
    report["results"][2]["numbers"].update(ulp=5000.0, ulp_allowed=2.0)
    report["results"][3].update(status="not-supported", lacks=["dtype f64", "atomic add on i32"])
    report["claims"][0].update(holds=True, reasons=[], waived=["elementwise/sqrt/f32/scalar"])
    saw = _use(html.page(report), tmp_path)
    total = len(report["results"])
    sqrt = [result["case"] for result in report["results"] if result["subject"] == "sqrt"]
    wrong, lacking = (report["results"][index]["case"] for index in (2, 3))
    assert (
        saw["caused"]["count"] == saw["lacking"]["count"] == f"1 of {total} cases"
        and saw["freed"]["count"] == f"{total} of {total} cases"
    )
    assert saw["caused"]["rows"][0].startswith(wrong) and saw["lacking"]["rows"] == [lacking]
    assert saw["only"] == f"only: wrong results of `{report['results'][2]['subject']}`: 1 case ×"
    lacks = [["atomic updates of i32: 1 case", "1"], ["dtype f64: 1 case", "1"]]
    assert saw["causes"] == [
        [[f"wrong results of `{report['results'][2]['subject']}`: 1 case", "1"]],
        lacks,
    ]
    order = [
        "What was tested",
        "What it can do",
        "Claims",
        "What went wrong",
        "What is not supported",
        "Results",
        "Cases",
        "Greatest errors",
        "How it was tested",
    ]
    assert saw["order"] == order and saw["wide"] <= 0
    assert "typesbf16 f16" in saw["capabilities"] and "featuresassert" in saw["capabilities"]
    assert (
        saw["claims"][0].startswith("coreyes")
        and saw["claims"][1] == "waived: elementwise/sqrt/f32/scalar"
    )
    erring = [result["case"] for result in report["results"] if result["numbers"].get("ulp", 0) > 0]
    assert saw["all"]["count"] == f"{total} of {total} cases" and len(saw["all"]["rows"]) == total
    assert saw["all"]["dots"] == len(erring) >= 1
    # a row shows the message below the id, where there is one
    told = [row.removesuffix("MismatchError: </script>wrong & bad") for row in saw["sqrt"]["rows"]]
    assert (
        sorted(told) == sorted(sqrt)
        and saw["all"]["rows"][0] == wrong + "MismatchError: </script>wrong & bad"
    ), "what went wrong comes first"
    assert saw["approximate"]["rows"] == ["elementwise/sqrt/f32/64/approximate"]
    assert len(saw["failed"]["rows"]) == len(saw["bad"]["rows"]) == 1
    assert (saw["failed"]["dots"], saw["failed"]["marks"]) == (1, 1)
    assert len(saw["clicked"]["rows"]) == 1
    assert saw["none"] == {"count": f"0 of {total} cases", "rows": [], "dots": 0, "marks": 0}
    assert saw["headline"] == f"{total} of {total} cases passed, 0 not supported, 1 wrong"
    assert report["checksum"] in saw["about"]
    assert (
        f"hostCPython {report['host']['python']}, numpy {report['host']['numpy']}, " in saw["about"]
    )
    assert saw["stati"] == ["failed", "not-supported", "passed"]
    assert saw["message"] == "MismatchError: </script>wrong & bad"


#: Looks at the page, and leaves in ``saw`` what does not fit, or is hard to read.
LOOK = """
saw.width = innerWidth;
saw.over = document.documentElement.scrollWidth - innerWidth;
saw.background = light(behind(document.body));
const kinds = "h1, h2, dt, dd, th, td, label, button, p, a, .note, .good, .bad, .expected";
const texts = [...document.querySelectorAll(kinds)].filter(e => e.checkVisibility() && e.textContent.trim());
saw.looked = texts.length;
saw.hard = texts.filter(e => contrast(e) < 4.5).map(e => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}: ${contrast(e).toFixed(1)}`);
saw.outside = texts.filter(e => {
  const box = e.getBoundingClientRect(); return box.width && (box.left < -1 || box.right > innerWidth + 1) && !e.closest("pre");
}).map(e => e.outerHTML.slice(0, 80));
"""


@pytest.mark.each_value
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390], ids=["desk", "phone"])
def test_the_page_fits_and_can_be_read(
    width: int, dark: bool, report: Document, browse: Callable[..., dict[str, Any]]
) -> None:
    report["results"][2].update(
        status="failed",
        verdict="bad",
        message="wrong by a long way " * 20,
        exception="MismatchError",
    )
    report["results"][3].update(status="not-supported", lacks=["dtype f64"])
    saw = browse(html.page(report), LOOK, width=width, dark=dark)
    assert saw["width"] == width and saw["over"] <= 0, "the page scrolls to the side"
    assert (saw["background"] < 0.1) == dark and saw["looked"] > 50
    assert saw["hard"] == [] and saw["outside"] == []


def _use(page: str, tmp_path: Path) -> dict[str, Any]:
    """Return the script's view of a page."""
    path = tmp_path / "report.html"
    path.write_text(page.replace("</html>", SCRIPT + "</html>"), encoding="utf-8")
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=500,900",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom",
        path.as_uri(),
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=900)
    saw = re.search(r'<pre id="saw">(.*?)</pre>', found.stdout, re.S)
    assert saw, (
        f"the script failed: {re.search('<title>(.*?)</title>', found.stdout, re.S)}\n"
        f"{found.stderr[-2000:]}"
    )
    return dict(json.loads(unescape(saw[1])))
