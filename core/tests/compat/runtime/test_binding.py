"""Selection of the kernel of a launch without launching it.

The binder, and keys of compiled kernels.
"""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402
from tilewright.compat.triton.backends.compiler import GPUTarget  # noqa: E402
from tilewright.compat.triton.runtime.jit import (  # noqa: E402
    compute_cache_key,
    serialize_specialization_data,
)


@triton.jit
def helper(x):
    return x + 1


@triton.jit
def kernel(x, out, n, scale, pair, FUNCTION: tl.constexpr, BLOCK: tl.constexpr = 16):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, FUNCTION(tl.load(x + at, mask=at < n)) * scale + pair[0], mask=at < n)


ARGUMENTS = (32, 2.0, (3, 1))


def bound(*more, **keywords):
    x, out = torch.zeros(32), torch.zeros(32)
    *_, binder = kernel.create_binder()
    return (x, out), binder(x, out, *ARGUMENTS, *more, **keywords)


def test_a_binder_binds_as_triton_does():
    (x, out), (arguments, specialization, options) = bound(FUNCTION=helper, num_warps=2)
    assert list(arguments) == [
        "x",
        "out",
        "n",
        "scale",
        "pair",
        "FUNCTION",
        "BLOCK",
    ] and options == {"num_warps": 2}
    assert (
        arguments["x"] is x
        and arguments["out"] is out
        and arguments["BLOCK"] == 16
        and arguments["FUNCTION"] is helper
    )
    assert specialization == [
        ("*fp32", "D"),
        ("*fp32", "D"),
        ("i32", "D"),
        ("fp32", None),
        (("i32", "constexpr"), ("", 1)),
        ("constexpr", helper),
        ("constexpr", 16),
    ]
    with pytest.raises(TypeError, match="missing"):
        bound()


@pytest.mark.parametrize("keywords", [{}, {"num_warps": 2}, {"BLOCK": 32}])
def test_keys_are_those_of_the_kernels_that_launches_run(keywords):
    (x, out), (_, specialization, options) = bound(FUNCTION=helper, **keywords)
    compiled = kernel[(1,)](x, out, *ARGUMENTS, FUNCTION=helper, **keywords)
    kernels, keys, _, _, binder = kernel.device_caches[0]
    assert kernels[compute_cache_key(keys, specialization, options)] is compiled
    again, others = binder(x, out, *ARGUMENTS, FUNCTION=helper, **keywords)[1:]
    assert compute_cache_key({}, again, others) == compute_cache_key({}, specialization, options)
    other = compute_cache_key(
        keys, binder(x, out, 33, *ARGUMENTS[1:], FUNCTION=helper, **keywords)[1], options
    )
    assert other != compute_cache_key(keys, specialization, options)


def test_keys_of_lists_that_no_binder_made():
    keys = {}
    first = compute_cache_key(keys, [("*fp32", "D"), ("constexpr", (helper, 1))], {"num_warps": 4})
    assert helper.cache_key in first and "num_warps" in first and list(keys.values()) == [first]
    assert (
        compute_cache_key(keys, [("*fp32", "D"), ("constexpr", (helper, 1))], {"num_warps": 4})
        == first
    )
    assert (
        compute_cache_key(keys, [("*fp32", None), ("constexpr", (helper, 1))], {"num_warps": 4})
        != first
    )


def test_a_specialisation_as_text():
    class Options:
        def __init__(self):
            self.num_warps, self.extern_libs = 4, (("a", "b"),)

    constants = {(5,): helper, (6,): 16, (2,): tl.float32, (3,): tl.constexpr(4)}
    text = serialize_specialization_data(
        "kernel",
        {"x": "*fp32"},
        constants,
        {(0,): [["tt.divisibility", 16]]},
        Options(),
        "key",
        GPUTarget("cpu", "x", 1),
    )
    found = json.loads(text)
    assert found["constant_keys"] == [[5], [6], [2], [3]] and found["constant_vals"][1:] == [
        16,
        "fp32",
        {"constexpr": 4},
    ]
    assert found["constant_vals"][0]["jit_function"].endswith(":helper") and found["options"] == {
        "num_warps": 4,
        "extern_libs": [["a", "b"]],
    }
    assert found["target"] == {"backend": "cpu", "arch": "x", "warp_size": 1}
