"""A sample of the corpus, compiled by Tilewright: its code against the accepted figures."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest
from corpus.baseline import Baseline, changes
from corpus.compilation import compile_all, versions
from corpus.launches import Launch, read_all
from corpus.packages import present
from corpus.sample import SAMPLE
from corpus.targets import TARGETS

from tilewright_nvidia.toolchain.linking import find_ptxas
from tilewright_nvidia.toolchain.sass import find_nvdisasm

LAUNCHES = {launch.id: launch for launch in read_all()}


def test_the_sample_is_of_the_corpus_and_has_accepted_figures() -> None:
    baseline = Baseline.read()
    assert len(SAMPLE) == 40
    for name, target in SAMPLE.items():
        assert name in LAUNCHES
        assert "error" not in baseline.kernels[name][target]["tilewright"], name


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_no_code_of_the_sample_is_worse_than_accepted(tmp_path: Path) -> None:
    baseline, here = Baseline.read(), versions("tilewright")
    if here["llvmlite"] != baseline.versions["llvmlite"]:
        pytest.skip(f"the figures are of llvmlite {baseline.versions['llvmlite']}")
    launches, absent = present(LAUNCHES[name] for name in SAMPLE)
    if not launches:
        pytest.skip(
            f"{absent[0]}: pip install --no-deps -r ecosystem/corpus/requirements-sample.txt"
        )
    wanted = [
        (launch, [SAMPLE[launch.id]]) for launch in launches if _can_be_read(launch, baseline)
    ]
    outcomes = compile_all(wanted, "tilewright", tmp_path)
    found = changes(baseline, outcomes)
    assert found.compared == len(wanted)
    assert not found.worse, str(found)


def _can_be_read(launch: Launch, baseline: Baseline) -> bool:
    """Whether this machine has the tools that read the code for the launch's target."""
    if TARGETS[SAMPLE[launch.id]].code != "ptx":
        return True
    try:
        ptxas = importlib.metadata.version("nvidia-cuda-nvcc")
    except importlib.metadata.PackageNotFoundError:
        return False
    same = ptxas == baseline.versions["nvidia-cuda-nvcc"]
    return same and find_ptxas() is not None and find_nvdisasm() is not None
