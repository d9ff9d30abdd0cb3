"""What published programs do to the objects of Triton's runtime, by the very calls that each makes; each test is named after the program."""

import copy
import inspect
import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402


@triton.jit
def scaled(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def three(given):
    return 3.0


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])
@triton.heuristics({"factor": three})
@triton.jit
def tuned(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def arguments():
    x = torch.arange(100.0)
    return x, torch.empty_like(x)


def grid(given):
    return (triton.cdiv(100, given["BLOCK"]),)


# ---- the autotuner


def test_flaggems_and_pytorch_name_an_autotuner_by_its_plain_function():
    assert inspect.isfunction(tuned.base_fn) and tuned.base_fn is tuned.fn.fn.fn and tuned.base_fn.__name__ == "tuned"
    assert not hasattr(tuned.fn, "base_fn"), "heuristics have none in Triton, and are looked through by .fn"


def test_unsloth_copies_an_autotuner_for_each_device():
    assert tuned.base_fn.__name__ == "tuned"
    other = copy.copy(tuned)
    other.cache = {}
    other.configs = tuned.configs[:1]
    x, out = arguments()
    other[grid](x, out, n=100)
    assert torch.equal(out, 3 * x) and tuned.cache == {} and str(other.best_config).startswith("BLOCK: 32, num_warps: 4")
    assert pickle.loads(pickle.dumps(other)).base_fn is tuned.base_fn
