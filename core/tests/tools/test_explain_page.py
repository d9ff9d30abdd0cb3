"""The page of ``tilewright explain`` in a browser, as a reader uses it: at the widths of a desk and
of a phone, light and dark."""

from __future__ import annotations

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.tools.explain.explanation import Explanation, explain

WIDTHS = {"desk": 1400, "phone": 390}


@tw.jit
def turned(out, x, n, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i[:, None] * n + i[None, :])  # the load
    tl.store(out + i[:, None] * N + i[None, :], a + tl.trans(a))  # the store


@pytest.fixture(scope="module")
def explained() -> Explanation:
    return explain(turned, "*fp32:16, *fp32:16, i32", backend="nvidia", arch="sm_80", N=128)


#: Reads the whole page once.
READER = """
saw.width = innerWidth;
saw.over = document.documentElement.scrollWidth - innerWidth;
saw.facts = [...document.querySelectorAll("#facts dt")].map(e => e.textContent);
saw.background = light(behind(document.body));
saw.contrast = Object.fromEntries(["body", "h1", "h2", "dt", "dd", ".note", ".slow td:nth-child(2)", ".price td:nth-child(2)", "td button", ".row.on", ".no",
  ".mark", ".weight span"].map(s => [s, contrast(document.querySelector(s))]));
const marked = [...document.querySelectorAll(".row .mark")].filter(m => m.textContent === "!");
saw.marked = marked.map(m => m.parentElement.querySelector(".no").textContent);

const panes = () => [...document.querySelectorAll(".pane")].filter(p => !p.hidden);
saw.shown = panes().map(p => p.querySelector("h3").textContent);
for (const box of document.querySelectorAll("#stages input:not(:checked)")) box.click();
saw.all = panes().map(p => p.querySelector("h3").textContent);
const on = () => panes().map(p => [...p.querySelectorAll(".row.on")].map(r => r.textContent));
document.querySelector("#findings .price button").click();
saw.conversion = on();
const machine = panes().at(-1), [store] = [...machine.querySelectorAll(".row.of")].filter(r => r.textContent.includes("st.global"));
store.click();
saw.chosen = [...panes()[0].querySelectorAll(".row.on .no")].map(e => e.textContent);
const inView = panes().map(p => { const box = p.querySelector(".code").getBoundingClientRect(), row = p.querySelector(".row.on");
  if (!row) return null; const at = row.getBoundingClientRect(); return at.top >= box.top - 1 && at.bottom <= box.bottom + 1; });
saw.inView = inView.slice(0, -1);
const [load] = [...panes()[0].querySelectorAll(".row.of")].filter(r => r.textContent.includes("# the load"));
load.focus(); load.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
saw.byKey = [...panes()[0].querySelectorAll(".row.on .no")].map(e => e.textContent);

saw.layouts = [...document.querySelectorAll("#layout option")].map(e => e.textContent);
const canvas = $("picture"), pixels = () => canvas.toDataURL();
const still = pixels();
saw.first = [$("thread-name").textContent, canvas.getBoundingClientRect().right <= innerWidth];
$("play").click();
for (let turn = 0; turn < 40 && Number($("thread").value) < 3; turn++) await wait(250);
saw.playing = [Number($("thread").value) >= 3, pixels() !== still, $("play").textContent];
$("play").click(); const stopped = $("thread").value; await wait(500);
saw.stopped = [$("thread").value === stopped, $("play").textContent];
$("thread").value = 33; $("thread").dispatchEvent(new Event("input"));
saw.thread = $("thread-name").textContent;
const box = canvas.getBoundingClientRect();
canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 1, clientY: box.top + 1 }));
saw.element = $("element").textContent;
const before = pixels(); $("colours").value = "warps"; $("colours").dispatchEvent(new Event("change"));
saw.recoloured = pixels() !== before;
"""


@pytest.mark.each_value
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_reader_finds_what_became_of_each_line(width, dark, explained, browse):
    saw = browse(explained.html(), READER, width=WIDTHS[width], dark=dark)
    assert saw["width"] == WIDTHS[width] and saw["over"] <= 0, "the page scrolls to the side"
    assert (saw["background"] < 0.1) == dark
    assert {what: ratio for what, ratio in saw["contrast"].items() if ratio < 4.5} == {}, (
        "text that is hard to read"
    )
    assert {"registers", "spills", "shared memory", "occupancy"} <= set(saw["facts"])
    store = turned.definition_line + 3
    assert saw["marked"] == [str(store - 1)]
    assert saw["shown"] == ["source", "simt", "ptx"] and saw["all"] == [
        "source",
        "Tile IR",
        "simt",
        "llir",
        "ptx",
    ]
    assert all(saw["conversion"]) and any("simt.convert" in row for row in saw["conversion"][2])
    assert any("# the load" in row for row in saw["conversion"][0]) and any(
        "st.shared" in row for row in saw["conversion"][4]
    )
    assert saw["chosen"] == [str(store)] and all(saw["inView"])
    assert saw["byKey"] == [str(store - 1)]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_picture_of_a_layout_moves_and_answers(width, explained, browse):
    saw = browse(explained.html(), READER, width=WIDTHS[width])
    assert saw["layouts"] == [
        f"{layout['name']}: {' x '.join(map(str, layout['shape']))}" for layout in explained.layouts
    ]
    name, fits = saw["first"]
    assert name.startswith("warp 0, lane 0: ") and fits
    assert saw["playing"] == [True, True, "stop"] and saw["stopped"] == [True, "play"]
    assert saw["thread"].startswith("warp 1, lane 1: ")
    assert saw["element"].startswith("element (0, 0): register 0 of lane 0 in warp 0")
    assert saw["recoloured"]


def test_in_a_cell_of_a_notebook_it_is_the_same_page(explained, browse):
    cell = f"<!doctype html><body>{explained._repr_html_()}"
    saw = browse(
        cell,
        (
            "const inner = document.querySelector('iframe').contentDocument; saw.title = "
            "inner.title; saw.rows = inner.querySelectorAll('.row').length;"
        ),
    )
    assert saw["title"] == "turned for nvidia sm_80" and saw["rows"] > 100


def test_a_kernel_without_missed_optimizations_is_told_so(browse, explained):
    good = explain(turned, "*fp32:16, *fp32:16, i32:16", backend="nvidia", arch="sm_80", N=64)
    reader = (
        "const e = $('praise'); saw.praise = [e.textContent, e.getBoundingClientRect().height > 0];"
    )
    text, shown = browse(good.html(), reader)["praise"]
    assert text.startswith("no missed optimizations; ") and shown
    assert browse(explained.html(), reader)["praise"] == ["", False]
