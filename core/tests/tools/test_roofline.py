"""The roofline of ``tilewright explain``: ceilings, bounds and minimum time of a launch."""

import json

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.passes.analysis.traffic import ArgumentTraffic, LoopTraffic, Traffic
from tilewright.plugins.ceilings import Ceilings
from tilewright.tools import cli
from tilewright.tools.explain.explanation import explain
from tilewright.tools.explain.roofline import MEMORY, Roofline

CEILINGS = Ceilings("a device", 1e12, {"f16": 100e12}, {"f32": 10e12}, 50, "SM")


def launch(matmuls, moved, programs=100, arithmetic=0):
    found = Traffic(programs, steps=[LoopTraffic(0, 0, runs=programs)])
    found.matmuls["f16"], found.arithmetic["f32"] = matmuls, arithmetic
    found.steps[0].matmuls["f16"] = matmuls // programs
    found.reads["a"] = ArgumentTraffic(4 * moved, True, moved)
    return found


@pytest.mark.parametrize(
    ("matmuls", "moved", "programs", "bound", "time"),
    [
        (10**12, 10**9, 100, "f16 matmul", 10e-3),
        (10**10, 10**9, 100, MEMORY, 1e-3),
        (10**12, 10**9, 25, "f16 matmul", 20e-3),  # half of the SMs have work
    ],
)
def test_the_slowest_ceiling_bounds_a_launch(matmuls, moved, programs, bound, time):
    found = Roofline(launch(matmuls, moved, programs), CEILINGS, "CTA")
    assert (
        found.bound == bound
        and found.times()[bound] == pytest.approx(time)
        and found.intensity == matmuls / moved
    )
    assert f"The kernel is bound by {bound}: " in "\n".join(found.lines())
    assert found.record()["floor_seconds"] == pytest.approx(time)


def test_sentences_of_a_launch_bound_by_memory():
    found = Roofline(
        launch(10**10, 33_600_000, 200),
        Ceilings("a GPU", 3.35e12, {"f16": 989e12}, {"f32": 67e12}, 132, "SM"),
        "CTA",
    )
    assert found.lines() == [
        "Ceilings of a GPU: 989 TFLOP/s of f16 matmul, 3.35 TB/s of memory.",
        "The launch has 200 CTAs.",
        "It computes 10.0 GFLOP of f16 matmul.",
        "At least 33.6 MB must move, each distinct element once.",
        "Loads and stores access 134 MB, 4 times as much; caches serve what is read again.",
        "  `a`: reads 33.6 MB, accessed 4 times",
        (
            "Arithmetic intensity: 298 OP/B, above the 295 OP/B at which f16 matmul takes as "
            "long as memory."
        ),
        (
            "The kernel is bound by f16 matmul: 10.0 GFLOP take 10.1 us at 989 TFLOP/s; it needs "
            "10.0 us for memory bandwidth."
        ),
        "Predicted floor: 10.1 us.",
        "A CTA computes 50.0 MFLOP of f16 matmul.",
    ]


@tw.jit
def transpose_rows(x, out, M, N, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for column in range(N):
        tl.store(out + column * M + rows, tl.load(x + rows * N + column))  # the waste


def test_the_floor_says_which_lines_move_more_than_it_counts():
    arrays = tw.MockTensor(tl.float32, (512, 256)), tw.MockTensor(tl.float32, (256, 512))
    found = tw.explain(
        transpose_rows,
        *arrays,
        512,
        256,
        BLOCK=128,
        grid=(4,),
        backend="nvidia",
        arch="sm_90a",
    )
    (section,) = found.sections
    line = section.first + next(
        index for index, text in enumerate(section.lines) if "the waste" in text
    )
    (floor,) = [text for text in found.roofline.lines() if "floor" in text]
    # the loads alone move whole sectors of 32 bytes for 4: (8 + 1) x 512 x 256 x 4 bytes
    assert floor.endswith(
        f" It counts only the bytes that are used. The accesses at line {line} move up to 8 times "
        "as many (see the missed optimizations): where caches do not keep the rest until it is "
        "used, 4.72 MB move, which take 1.41 us."
    )


def test_a_rate_that_is_not_known_is_left_out():
    found = Roofline(launch(10**10, 10**9), Ceilings("a device", None, {}, {}))
    assert found.times() == {} and not found.bound and found.record()["floor_seconds"] is None
    assert (
        "The rate of f16 matmul is not known: it is omitted." in found.lines()
        and "floor" not in "\n".join(found.lines())
    )
    unknown = Roofline(launch(10**10, 10**9), None)
    assert (
        unknown.lines()[0]
        == "The backend names no ceilings of this target: times and bounds are omitted."
    )
    assert "At least 1.00 GB must move, each distinct element once." in unknown.lines()


def test_what_cannot_be_told_is_not_counted_as_what_must_move():
    traffic = launch(0, 10**6)
    traffic.reads["table"] = ArgumentTraffic(
        10**9, False, None, "its addresses depend on what is loaded at line 7"
    )
    found = Roofline(traffic, CEILINGS)
    text = "\n".join(found.lines())
    assert (
        found.times()[MEMORY] == 1e-6
        and "At least 1.00 MB must move, each distinct element once; `table` not counted." in text
    )
    assert (
        "`table`: reads at most 1.00 GB; its distinct elements are not known: its addresses "
        "depend on what is loaded at line 7"
    ) in text


@tw.jit
def scaled(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def test_a_launch_has_totals_for_a_target_that_is_not_there():
    x = np.zeros(1000, np.float32)
    found = explain(scaled, x, x, 1000, BLOCK=128, grid=(8,), backend="nvidia", arch="sm_90a")
    traffic = found.roofline.traffic
    assert (
        traffic.reads == {"x": ArgumentTraffic(4000, True, 4000)}
        and traffic.writes == {"out": ArgumentTraffic(4000, True, 4000)}
        and traffic.arithmetic == {"f32": 1024}
    )
    assert (
        found.roofline.bound == MEMORY
        and "H100 SXM, by its data sheet" in str(found)
        and "8 CTAs for 132 SMs, of which 124 have no work" in str(found)
    )
    by_function = explain(
        scaled,
        x,
        x,
        1000,
        BLOCK=128,
        grid=lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),),
        backend="cpu",
    )
    assert by_function.roofline.traffic.asked == 8000 and "The launch has 8 programs." in str(
        by_function
    )


def test_types_alone_give_a_program_and_what_is_missing():
    found = explain(scaled, "*fp32:16, *fp32:16, i32", BLOCK=128, backend="amd", arch="gfx942")
    lines = found.roofline.lines()
    assert "The totals of a launch need the arguments `n` and the grid: give the launch." in lines
    assert any(
        line.startswith(
            "A CTA computes 128 FLOP of f32 arithmetic and loads 512 B and stores 512 B: "
            "0.125 OP/B, below "
        )
        for line in lines
    )
    assert (
        found.record()["roofline"]["lacking"] == ["n", "grid"]
        and found.record()["roofline"]["minimum_bytes"] is None
    )
    assert '"roofline":["Ceilings of MI300X' in found.html()


def test_the_command_tells_a_launch_in_text_and_json(tmp_path, capsys, monkeypatch):
    source = (
        "import tilewright as tw\nimport tilewright.language as tl\n\n\n@tw.jit\n"
        "def double(x, n, BLOCK: tl.constexpr):\n"
    )
    source += (
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)\n"
    )
    (tmp_path / "kernels.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    command = [
        "explain",
        "kernels.py:double",
        "--arguments",
        "x=fp32[n], n=1000",
        "--constants",
        "BLOCK=64",
        "--grid",
        "cdiv(n, BLOCK)",
    ]
    target = ["--backend", "nvidia", "--arch", "sm_80"]
    assert cli.main([*command, *target]) == 0
    assert "  At least 8.00 kB must move, each distinct element once.\n" in capsys.readouterr().out
    assert cli.main([*command, *target, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (
        record["roofline"]["minimum_bytes"] == 8000
        and record["roofline"]["bound"] == MEMORY
        and record["page"] == "double.html"
    )
    assert record["facts"]["threads"] == "128" and record["findings"][0]["line"] == 8
    assert (
        cli.main(
            [
                "inspect",
                "kernels.py:double",
                "--signature",
                "*fp32, i32",
                "--constants",
                "BLOCK=64",
                *target,
            ]
        )
        == 0
    )
    assert (
        "\n## roofline\n\nCeilings of A100 SXM 80 GB, by its data sheet: "
        in capsys.readouterr().out
    )
