"""Recording launches: the facts of each, autotuned kernels, and tensors that have no memory."""

import enum
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tilewright_cpu")

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton import recording
from tilewright.runtime.arguments.array_protocols import ArgumentError


class Mode(enum.IntEnum):
    PLAIN = 0
    DOUBLED = 1


@triton.jit
def twice(x):
    return x + x


@triton.jit
def scaled(
    x,
    out,
    factor,
    n,
    KIND: tl.constexpr,
    MODE: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n).to(KIND) * factor
    if MODE == 1:
        value = FUNCTION(value)
    tl.store(out + i, value, i < n)


@triton.jit
def copied(source, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i[:, None] * BLOCK + i[None, :], source.load([0, 0]))


@triton.jit
def summed(pair, out):
    tl.store(out, pair[0] + pair[1])


def at_most_64(configs, nargs, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK"] <= 64]


@triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=2) for block in (128, 64, 32)],
    key=["n"],
    prune_configs_by={"early_config_prune": at_most_64},
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 1.0, i < n)


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """``recorded()`` gives the lines so far."""
    monkeypatch.setattr(recording, "case", "a case")
    recording.start(tmp_path / "records")
    yield lambda: recording.read(tmp_path / "records")
    recording.stop()


@pytest.fixture
def fake_mode():
    pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def test_a_launch_leaves_its_facts_and_runs(recorded):
    x = np.arange(100, dtype=np.float32)
    out = np.zeros(100, np.float32)
    scaled[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](
        x, out, 3.0, 100, tl.float32, Mode.DOUBLED, twice, BLOCK=64, num_warps=8
    )
    assert np.array_equal(out, 6 * x)
    (line,) = recorded()
    pointer = {"type": "*fp32", "shape": [100], "strides": [1]}
    aligned = [{"aligned": True} if array.ctypes.data % 16 == 0 else {} for array in (x, out)]
    assert line == {
        "case": "a case",
        "module": __name__,
        "kernel": "scaled",
        "arguments": [
            {"name": "x", **pointer, **aligned[0]},
            {"name": "out", **pointer, **aligned[1]},
            {"name": "factor", "type": "fp32", "value": 3.0},
            {"name": "n", "type": "i32", "value": 100},
            {"name": "KIND", "type": "constexpr", "value": {"dtype": "fp32"}},
            {
                "name": "MODE",
                "type": "constexpr",
                "value": {"enum": f"{__name__}:Mode", "name": "DOUBLED"},
            },
            {"name": "FUNCTION", "type": "constexpr", "value": {"function": f"{__name__}:twice"}},
            {"name": "BLOCK", "type": "constexpr", "value": 64},
        ],
        "options": {"num_warps": 8},
        "grid": [2, 1, 1],
        "configurations": 0,
    }


def test_numbers_are_specialized_as_launches_specialize_them(recorded):
    out = np.zeros(1, np.float32)
    summed[1]((1, 32), out)
    summed[1,]((2.5, float("inf")), out)
    one, other = (
        {argument["name"]: argument for argument in line["arguments"]}["pair"]
        for line in recorded()
    )
    assert one["type"] == "tuple"
    assert one["items"] == [
        {"name": "pair.0", "type": "constexpr", "value": 1},
        {"name": "pair.1", "type": "i32", "value": 32, "aligned": True},
    ]
    assert [item["value"] for item in other["items"]] == [2.5, {"float": "inf"}]


def test_a_tuned_launch_is_recorded_once(recorded):
    x = np.zeros(100, np.float32)
    tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
    assert x.all()
    (line,) = recorded()
    constants = {
        argument["name"]: argument["value"]
        for argument in line["arguments"]
        if argument["type"] == "constexpr"
    }
    assert (
        line["configurations"] == 2
        and constants["BLOCK"] in (32, 64)
        and constants["EVEN"] is False
    )
    assert line["options"]["num_warps"] == 2


def test_launches_of_fake_tensors_are_not_run(recorded, fake_mode):
    import torch

    with fake_mode:
        whole = torch.empty(4096, 100, dtype=torch.bfloat16)
        tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](whole[1:, 3:], 128)
        tuned[1,](whole[:, 8:], 128)
    first, second = recorded()
    assert first["arguments"][0] == {
        "name": "x",
        "type": "*bf16",
        "shape": [4095, 97],
        "strides": [100, 1],
    }
    assert second["arguments"][0] == {
        "name": "x",
        "type": "*bf16",
        "shape": [4096, 92],
        "strides": [100, 1],
        "aligned": True,
    }
    assert (
        first["configurations"] == 2
        and first["arguments"][3]["value"] == 64
        and first["grid"] == [2, 1, 1]
    )
    assert first["arguments"][2] == {"name": "EVEN", "type": "constexpr", "value": True}


def test_descriptors_of_fake_tensors_are_recorded(recorded, fake_mode):
    import torch

    from tilewright.runtime.arguments.descriptor import TensorDescriptor

    with fake_mode:
        base = torch.empty(64, 256, dtype=torch.float16)
        copied[1,](TensorDescriptor.from_tensor(base, [32, 32]), torch.empty(32, 32), BLOCK=32)
    (line,) = recorded()
    assert line["arguments"][0] == {
        "name": "source",
        "type": "tensordesc<fp16[32,32]>",
        "shape": [64, 256],
        "strides": [256, 1],
        "block": [32, 32],
    }


def test_nothing_is_run_where_the_recorder_is_told_so(recorded, monkeypatch):
    monkeypatch.setattr(recording, "runs_launches", False)
    x = np.zeros(100, np.float32)
    tuned[2,](x, 100)
    assert len(recorded()) == 1 and not x.any()


def test_after_recording_launches_leave_nothing(recorded, fake_mode):
    import torch

    recording.stop()
    x = np.zeros(64, np.float32)
    tuned[2,](x, 64)
    assert x.all() and recorded() == []
    with fake_mode, pytest.raises(ArgumentError, match="no memory"):
        tuned[2,](torch.empty(64), 64)


def test_the_variable_starts_recording(tmp_path):
    script = tmp_path / "program.py"
    kernel = "@triton.jit\ndef one(x):\n    tl.store(x, 1.0)\n\n"
    launch = "x = np.zeros(1, np.float32)\none[1,](x)\nassert x[0] == 1\n"
    script.write_text(f"import numpy as np, triton, triton.language as tl\n\n{kernel}{launch}")
    environment = {
        **os.environ,
        "TILEWRIGHT_TRITON": "1",
        "TILEWRIGHT_CORPUS": str(tmp_path / "records"),
    }
    subprocess.run([sys.executable, str(script)], check=True, timeout=300, env=environment)
    (file,) = (tmp_path / "records").iterdir()
    assert json.loads(file.read_text())["kernel"] == "one"


def test_contents_of_whole_numbers_are_noted_where_somebody_asks(recorded, monkeypatch):
    monkeypatch.setattr(
        recording,
        "contents_of",
        lambda tensor: None if tensor.size < 32 else [[int(tensor[0]), 1, tensor.size]],
    )
    scaled[(1,)](
        np.arange(5, 37, dtype=np.int32),
        np.zeros(32, np.float32),
        2.0,
        32,
        tl.float32,
        Mode.PLAIN,
        twice,
        32,
    )
    scaled[(1,)](
        np.arange(16, dtype=np.int32),
        np.zeros(16, np.float32),
        2.0,
        16,
        tl.float32,
        Mode.PLAIN,
        twice,
        16,
    )
    assert [
        [argument.get("contents") for argument in line["arguments"][:2]] for line in recorded()
    ] == [[[[5, 1, 32]], None], [None, None]]
