"""FlagGems, which launches kernels by a dispatcher of its own.

Without a GPU it is told that there is one; its pointwise operators refuse then all the same,
for they look at where tensors lie."""

import contextlib
import functools
import os
import tempfile

import torch
import torch.nn.functional as F

from programs import close, random

DISTRIBUTION = "flag-gems"


@functools.cache
def library():
    """It asks the machine's tools whose GPU there is unless it is told, and keeps what it tunes in
    the user's home.
    """
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    os.environ.setdefault("FLAGGEMS_CACHE_DIR", tempfile.mkdtemp())
    import flag_gems

    return flag_gems


def on(device):
    if device != "cpu":
        return contextlib.nullcontext()
    from tilewright.compat.host_tensors import HostTensors

    return HostTensors()


def agrees(device, name, reference, *given, tolerance=1e-4):
    """A function of the library's gives what PyTorch's gives, for each of its results."""
    with on(device):
        found = getattr(library(), name)(*given)
    expected = reference(*given)
    for one, other in zip(
        *((each,) if isinstance(each, torch.Tensor) else each for each in (found, expected)),
        strict=False,
    ):
        close(one, other, tolerance)


def case_sums(device):
    x = random(device, 7, 300)
    agrees(device, "sum", torch.sum, x)
    agrees(device, "sum_dim", torch.sum, x, [1])
    agrees(device, "argmax", torch.argmax, x, 1)
    agrees(device, "cumsum", torch.cumsum, x, 1)


def case_softmax(device):
    agrees(device, "softmax", torch.softmax, random(device, 7, 300), 1)
    agrees(device, "log_softmax", torch.log_softmax, random(device, 7, 300), 1)


def case_products(device):
    agrees(device, "mm", torch.mm, random(device, 40, 50), random(device, 50, 70), tolerance=1e-3)
    agrees(
        device,
        "bmm",
        torch.bmm,
        random(device, 3, 20, 30),
        random(device, 3, 30, 40),
        tolerance=1e-3,
    )


def case_norms(device):
    x = random(device, 6, 96)
    weight, bias = random(device, 96), random(device, 96, seed=1)
    agrees(
        device,
        "layer_norm",
        lambda *given: torch.native_layer_norm(*given)[0],
        x,
        [96],
        weight,
        bias,
        1e-5,
    )
    agrees(device, "rms_norm", F.rms_norm, x, [96], weight, 1e-5)


def case_rows_by_number(device):
    table, numbers = random(device, 50, 40), torch.arange(30, device=device) * 7 % 50
    agrees(device, "embedding", lambda table, numbers: F.embedding(numbers, table), table, numbers)
    agrees(device, "index_select", torch.index_select, table, 0, numbers)
    agrees(device, "gather", torch.gather, table, 1, (numbers % 40).reshape(6, 5))


def case_order(device):
    x = random(device, 3, 100)
    agrees(device, "sort", torch.sort, x)
    agrees(device, "topk", torch.topk, x, 5)


def case_batch_norm_and_its_gradients(device):
    """The gradients take lanes that a mask left out for zero."""
    x, weight, bias = random(device, 4, 5, 9), random(device, 5), random(device, 5, seed=1)
    d, mean, variance = (
        random(device, 4, 5, 9, seed=2),
        torch.zeros(5, device=device),
        torch.ones(5, device=device),
    )
    _, kept, inverse = torch.native_batch_norm(x, weight, bias, mean, variance, True, 0.1, 1e-5)
    given = (d, x, weight, mean, variance, kept, inverse, True, 1e-5, [True, True, True])
    agrees(
        device,
        "batch_norm_backward",
        torch.ops.aten.native_batch_norm_backward,
        *given,
        tolerance=1e-3,
    )
