"""``tilewright explain``.

Every stage refers to the user's lines, which carry the compiler's decisions.
"""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.plugins.registry import registry
from tilewright.simt.layouts.linear_layout import span
from tilewright.tools import cli
from tilewright.tools.explain.explanation import explain
from tilewright.tools.explain.source_lines import Line, SourceLine, lines_of
from tilewright.tools.usage import UsageError

SOURCE = Path(__file__).read_text().splitlines()
PLACES = [("cpu", None), ("nvidia", "sm_80"), ("amd", "gfx942")]


def line_of(comment: str) -> SourceLine:
    (found,) = (number for number, line in enumerate(SOURCE, 1) if line.endswith(f"# {comment}"))
    return SourceLine(__file__, found)


@tw.jit
def scaled(x, factor):
    return x * factor  # the helper


@tw.jit
def rows(out, x, n, BLOCK: tl.constexpr):  # the kernel
    i = tl.arange(0, BLOCK)
    a = tl.load(x + tl.program_id(0) * n + i, mask=i < n)  # the load
    s = tl.sum(a, axis=0)  # the sum
    tl.store(out + tl.program_id(0) * n + i, scaled(a, s), mask=i < n)  # </script> {{b}} "store"


@tw.jit
def turned(out, x, N: tl.constexpr):
    i = tl.arange(0, N)
    for _ in range(3):  # the loop
        a = tl.load(x + i[:, None] * N + i[None, :])
        tl.store(out + i[:, None] * N + i[None, :], a + tl.trans(a))


@tw.jit
def picked(out, x, where, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + tl.load(where + i)))  # the gather


@tw.jit
def multiplied(a, b, c, K, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        left = tl.load(a + i * K + (k + j))
        total = tl.dot(left, tl.load(b + (k + i) * N + j), total)
    tl.atomic_add(c + i * N + j, total)


STORE = line_of('</script> {{b}} "store"')
#: a part of an instruction of machine code -> the line it is of
EXPECTED = {
    "cpu": {"vmulps": line_of("the helper")},
    "nvidia": {
        "ld.global": line_of("the load"),
        "shfl": line_of("the sum"),
        "mul.f32": line_of("the helper"),
        "st.global": STORE,
    },
    "amd": {
        "global_load": line_of("the load"),
        "v_mul_f32": line_of("the helper"),
        "global_store": STORE,
    },
}


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: place[0])
def rows_explained(request):
    backend, arch = request.param
    return backend, explain(rows, "*fp32:16, *fp32:16, i32", backend=backend, arch=arch, BLOCK=512)


def test_lines_of_every_stage_are_the_users_own(rows_explained):
    _, found = rows_explained
    own = {
        line_of("the helper"),
        line_of("the kernel"),
        line_of("the load"),
        line_of("the sum"),
        STORE,
    }
    own |= {SourceLine(__file__, line_of("the kernel").line + 1)}
    for name, lines in found.panes.items():
        assert {line.place for line in lines if line.place is not None} <= own, name
        assert {line_of("the load"), STORE} <= {line.place for line in lines}, name


def test_machine_code_is_of_the_lines_that_it_was_written_for(rows_explained):
    backend, found = rows_explained
    *_, lines = found.panes.values()
    for part, place in EXPECTED[backend].items():
        found_at = {line.place for line in lines if part in line.text}
        assert found_at - {None} == {place}, part  # None: of several lines
    assert found.instructions[STORE] > 0 and set(found.instructions) <= {
        line.place for line in lines
    }
    text = "\n".join(line.text for line in lines)
    assert not re.search(r"^\s*\.(loc|file|cfi_\w+)\b", text, re.M)


def test_the_functions_of_the_source_are_whole_and_the_kernel_is_first(rows_explained):
    _, found = rows_explained
    kernel, helper = found.sections
    assert (kernel.file, kernel.first, kernel.lines[0], kernel.lines[-1]) == (
        __file__,
        line_of("the kernel").line - 1,
        "@tw.jit",
        SOURCE[STORE.line - 1],
    )
    assert helper.lines[-1].endswith("# the helper") and len(helper.lines) == 3


def test_functions_of_other_files_keep_their_lines(tmp_path, monkeypatch):
    (tmp_path / "explained_helper.py").write_text(
        "import tilewright as tw\n\n\n@tw.jit\ndef root(x):\n    return tw.language.sqrt(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import explained_helper

    root = explained_helper.root

    @tw.jit
    def kernel(x):
        tl.store(x, root(tl.load(x)))

    found = explain(kernel, "*fp32:16", backend="nvidia", arch="sm_80")
    place = SourceLine(str(tmp_path / "explained_helper.py"), 6)
    assert found.sections[1].file == place.file
    for name, lines in found.panes.items():
        assert place in {line.place for line in lines if "sqrt" in line.text}, name


def test_what_left_the_fast_path_and_the_price_of_conversions_are_told_of_their_lines():
    found = explain(rows, "*fp32:16, *fp32:16, i32", backend="nvidia", arch="sm_80", BLOCK=512)
    assert [(note.kind, note.place) for note in found.findings[:2]] == [
        ("missed optimization", line_of("the load")),
        ("missed optimization", STORE),
    ]
    assert found.findings[0].text.startswith("load moves 4 bytes at once instead of 16")
    assert (
        "registers" in found.facts
        and "occupancy" in found.facts
        and "missed optimization:\n  line" in str(found)
    )
    assert "no missed optimizations" not in str(found) and '"praise":""' in found.html()
    transposed = explain(turned, "*fp32:16, *fp32:16", backend="nvidia", arch="sm_80", N=32)
    (conversion,) = {note for note in transposed.findings if note.kind == "conversion"}
    source, result = re.match(
        r"tile<32x32xf32> from (L\d+) to (L\d+): .*bytes of shared memory", conversion.text
    ).groups()
    named = {layout["name"]: layout for layout in transposed.layouts}
    stage = "\n".join(line.text for line in transposed.panes["simt"])
    assert re.search(rf"simt\.convert .*tile<32x32xf32, #{result}>", stage)
    assert named[source]["registers"] != named[result]["registers"]


@pytest.mark.parametrize(
    ("backend", "arch", "copies", "atomics"),
    [
        (
            "nvidia",
            "sm_90a",
            [
                "8192 bytes of `a` from global to shared memory by tma",
                "8192 bytes of `b` from global",
            ],
            "8 atomic accesses of 16 bytes a thread",
        ),
        (
            "nvidia",
            "sm_80",
            ["4 asynchronous copies (cp.async) of 16 bytes a thread"],
            "32 atomic accesses of 4 bytes a thread",
        ),
        (
            "amd",
            "gfx942",
            ["2 accesses of 16 bytes a thread, into registers, ahead of their use"],
            "16 atomic accesses of 4 bytes a thread",
        ),
    ],
)
def test_copies_say_their_mechanism_and_atomics_their_width(backend, arch, copies, atomics):
    found = explain(
        multiplied, "*fp16:16, *fp16:16, *fp32:16, i32:16", backend=backend, arch=arch, N=64
    )
    told = [note.text for note in found.findings if note.kind == "decision"]
    for text in (*copies, atomics):
        assert any(text in note for note in told), told


@tw.jit
def described(d, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i[:, None] * N + i[None, :], d.load([tl.program_id(0) * N, 0]))


def test_a_descriptor_of_a_signature_is_one_that_a_launch_can_have():
    told = [
        note.text
        for note in explain(
            described, "tensordesc<fp16[64,64]>, *fp16:16", backend="amd", arch="gfx942", N=64
        ).findings
    ]
    assert "`d.extent1` is not known to be a multiple of 8" in told[0] and not any(
        "any stride" in note or "multiples of 16 bytes" in note for note in told
    )
    whole = explain(
        described, "tensordesc<fp16[64,64]>:16, *fp16:16", backend="amd", arch="gfx942", N=64
    )
    assert "load: 2 accesses of 16 bytes a thread" in [note.text for note in whole.findings]


def test_machine_code_is_counted_for_people_and_programs():
    found = explain(
        multiplied, "*fp16:16, *fp16:16, *fp32:16, i32:16", backend="amd", arch="gfx942", N=64
    )
    loop = found.record()["counts"]["innermost loop"]
    assert (
        loop["mma"] == {"mfma_f32_32x32x8_f16": 8}
        and loop["loads"] == {"16": 4}
        and loop["barriers"] == 1
    )
    assert found.facts["innermost loop"].startswith(
        f"{loop['instructions']} instructions; 1 barrier; "
    )
    assert " per CU, limited by " in found.facts["occupancy"]


def test_layouts_are_those_of_the_stage_by_name_and_their_images_hold_every_element():
    found = explain(turned, "*fp32:16, *fp32:16", backend="nvidia", arch="sm_80", N=32)
    stage = "\n".join(line.text for line in found.panes["simt"])
    names = [layout["name"] for layout in found.layouts]
    assert names == sorted(names, key=lambda name: int(name[1:])) and set(names) == set(
        re.findall(r"^#(L\d+) = layout", stage, re.M)
    )
    for layout in found.layouts:
        size = int(np.prod(layout["shape"]))
        assert set(span([*layout["registers"], *layout["lanes"], *layout["warps"]])) == set(
            range(size)
        )
        assert f"#{layout['name']} = layout<{'x'.join(map(str, layout['shape']))}," in stage


def test_accesses_of_the_llvm_ir_are_listed_with_those_of_an_address_for_each_lane_first():
    found = explain(picked, "*fp32:16, *fp32:16, *i32:16", backend="cpu", N=256)
    place = line_of("the gather")
    told = [(note.kind, note.text) for note in found.findings if note.place == place]
    why, *gathers = [text for kind, text in told if kind == "missed optimization"]
    (others,) = (text for kind, text in told if kind == "access")
    assert told[: 1 + len(gathers)] == [("missed optimization", text) for text in (why, *gathers)]
    assert why == (
        "load: no two addresses are known to be consecutive: they follow what is loaded at "
        f"line {place.line}"
    )
    assert "reads one float" in others or re.fullmatch(
        r"gathers \d+ float, one address each \(\d+ instructions?\)", *gathers
    )
    assert re.search(r"reads \d+ i32 at once", others) and re.search(
        r"writes \d+ float at once", others
    )


@pytest.mark.parametrize(
    ("place", "section"),
    [
        (("nvidia", "sm_80"), "when-a-kernel-is-good"),
        (("amd", "gfx942"), "when-a-kernel-is-good"),
        (("cpu", None), "what-the-remarks-mean"),
        (("reference", None), None),
    ],
)
def test_a_kernel_without_missed_optimizations_is_told_so_with_the_page_on_performance(
    place, section, capsys
):
    backend, arch = place
    found = explain(rows, "*fp32:16, *fp32:16, i32:16", backend=backend, arch=arch, BLOCK=512)
    told = f"no missed optimizations; what else to check: tilewright help performance#{section}"
    assert "missed optimization" not in {note.kind for note in found.findings}
    if section is None:  # the backend looks for none
        assert found.praise == "" and "missed optimizations" not in str(found)
        return
    assert f"\n{told}\n" in str(found) and f'"praise":"{told}"' in found.html()
    assert cli.main(["help", f"performance#{section}"]) == 0
    assert capsys.readouterr().out.startswith("### ")


def test_the_first_line_of_a_loop_has_its_place():
    found = explain(turned, "*fp32:16, *fp32:16", backend="cpu", N=32)
    assert line_of("the loop") in {
        line.place
        for line in found.panes["Tile IR"]
        if " = for " in line.text or line.text.lstrip().startswith("for ")
    }


def test_the_page_holds_all_of_it_and_needs_nothing_else():
    found = explain(rows, "*fp32:16, *fp32:16, i32", backend="nvidia", arch="sm_80", BLOCK=512)
    page = found.html()
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data = json.loads(text)
    assert not re.search(r"https?://|<link|src=", page.replace(text, ""))
    assert (
        [pane["name"] for pane in data["panes"]]
        == list(found.panes)
        == ["Tile IR", "simt", "llir", "ptx"]
    )
    assert any("{{b}}" in line for section in data["sections"] for line, _ in section["lines"])
    for pane in data["panes"]:
        lines = [
            Line(text, SourceLine(__file__, data["lines"][place]) if place >= 0 else None)
            for text, place in pane["lines"]
        ]
        assert tuple(lines) == found.panes[pane["name"]]
    assert [note["text"] for note in data["findings"]] == [note.text for note in found.findings]
    assert repr(found) == (
        f"<Explanation of {found.kernel} for {found.target}: print() shows a summary, "
        "save(path) writes the page>"
    )
    in_a_cell = found._repr_html_()
    (inner,) = re.findall(r'srcdoc="([^"]*)"', in_a_cell)
    assert html.unescape(inner) == page


def test_the_arguments_of_a_launch_say_types_and_what_is_known_of_them():
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    found = explain(rows, out, x, 64, BLOCK=64, backend="cpu")
    assert "%n: i32 {divisibility = 16}" in found.panes["Tile IR"][2].text and not out.any()
    assert tw.explain is explain
    there = explain(rows, out, x, 64, BLOCK=64, backend="nvidia", arch="sm_80")
    assert (
        "%n: i32 {divisibility = 16}" in there.panes["Tile IR"][2].text
        and there.target == "nvidia sm_80"
    )
    with pytest.raises(UsageError, match="has no target 'sm_1'"):
        explain(rows, out, x, 64, BLOCK=64, backend="nvidia", arch="sm_1")


def test_a_target_of_another_backend_is_named_where_no_backend_was_given():
    with tw.backend("cpu"), pytest.raises(UsageError) as error:
        explain(rows, "*fp32, *fp32, i32", BLOCK=64, arch="sm_90")
    assert str(error.value).endswith(
        "\n  help: backend 'nvidia' has the target sm_90a: give --backend nvidia --arch sm_90a "
        '(in Python, backend="nvidia", arch="sm_90a")'
    )
    with pytest.raises(UsageError, match=r"riscv64-v$"):
        explain(rows, "*fp32, *fp32, i32", BLOCK=64, backend="cpu", arch="sm_90")


def test_a_backend_without_stages_has_the_ir_alone():
    found = explain(rows, "*fp32, *fp32, i32", backend="reference", BLOCK=64)
    assert list(found.panes) == ["Tile IR"] and not found.findings and not found.layouts


def test_the_command_writes_the_page(tmp_path, capsys, monkeypatch):
    (tmp_path / "kernels.py").write_text(
        "import tilewright as tw\n\n\n@tw.jit\ndef fill(y, n):\n    tw.language.store(y, n)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert (
        cli.main(
            [
                "explain",
                "kernels.py:fill",
                "--signature",
                "*i32,i32",
                "--backend",
                "nvidia",
                "--arch",
                "sm_80",
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.startswith("fill for nvidia sm_80\n  threads ") and printed.endswith(
        "page: fill.html\n"
    )
    assert "tw.language.store(y, n)" in (tmp_path / "fill.html").read_text()
    assert (
        cli.main(
            [
                "explain",
                "kernels.py:fill",
                "--signature",
                "*i32,i32",
                "--output",
                "no/such/folder.html",
            ]
        )
        == 2
    )
    assert "no/such/folder.html cannot be written" in capsys.readouterr().err


def test_places_in_assembly_end_with_their_section():
    text = (
        '\t.file\t1 "/a" "k.py"\n\t.loc\t1 3 0\n\tnop\n.Ltmp1:\n\t.loc\t1 0 0\n\tret\n'
        '\t.section\t.debug_line,"",@progbits\n\t.byte 1\n'
    )
    assert lines_of(text) == [
        Line("        nop", SourceLine("/a/k.py", 3)),
        Line("        ret", None),
    ]


def test_plugins_that_list_code_are_asked(monkeypatch):
    backend = registry().get("cpu")
    asked = []
    call = type(backend).call
    monkeypatch.setattr(
        type(backend),
        "call",
        lambda self, hook, /, **given: asked.append(hook) or call(self, hook, **given),
    )
    explain(rows, "*fp32, *fp32, i32", backend="cpu", BLOCK=64)
    assert "tilewright_listing" in asked
