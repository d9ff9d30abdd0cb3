"""Liger-Kernel: norms, losses, activations, rotary embeddings."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from programs import random, same

DISTRIBUTION = "liger-kernel"


@triton.jit
def rms_norm_formula(x_ptr, w_ptr, y_ptr, n, eps, offset, WRONG: tl.constexpr):
    """PyTorch's formula element by element, with the mistake that ``WRONG`` names."""
    row, squares = tl.program_id(0) * n, 0.0
    for i in range(n):
        x = tl.load(x_ptr + row + i)
        squares += x * x
    if WRONG == "eps":
        root = tl.sqrt(squares / n) + eps
    else:
        root = tl.sqrt(squares / (n + 1 if WRONG == "mean" else n) + eps)
    for i in range(n):
        w = tl.load(w_ptr + i)
        w = w if WRONG == "offset" else offset + w
        tl.store(y_ptr + row + i, tl.load(x_ptr + row + i) / root * w)


def case_rms_norm(device):
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    given = [random(device, 6, 96), random(device, 96)]
    same(
        lambda x, w: LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False),
        lambda x, w: F.rms_norm(x, (96,), w, 1e-6),
        given,
    )


def case_rms_norm_in_exact_mode(device):
    from liger_kernel.ops.rms_norm import rms_norm_forward

    from tilewright.testing import same_algebra

    def liger(x, w, y):
        y.copy_(rms_norm_forward(x, w, 1e-6, 1.0, "llama", False)[0])

    arrays = [random(device, 6, 96), random(device, 96), torch.ones(6, 96, device=device)]
    for wrong in ("", "eps", "mean", "offset"):

        def formula(x, w, y, wrong=wrong):
            rms_norm_formula[(6,)](x, w, y, 96, 1e-6, 1.0, WRONG=wrong)

        verdict = same_algebra(formula, liger, arrays)
        assert verdict.status == ("different" if wrong else "equal"), (wrong, str(verdict))


def case_layer_norm(device):
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    given = [random(device, 6, 96), random(device, 96), random(device, 96, seed=1)]
    same(
        lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, (96,), w, b, 1e-5),
        given,
    )


def case_swiglu(device):
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    same(
        LigerSiLUMulFunction.apply,
        lambda a, b: F.silu(a) * b,
        [random(device, 6, 96), random(device, 6, 96, seed=1)],
    )


def case_geglu(device):
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    given = [random(device, 6, 96), random(device, 6, 96, seed=1)]
    same(LigerGELUMulFunction.apply, lambda a, b: F.gelu(a, approximate="tanh") * b, given)


def case_softmax(device):
    from liger_kernel.transformers.functional import liger_softmax

    same(liger_softmax, lambda x: torch.softmax(x, -1), [random(device, 6, 100)])


def case_cross_entropy(device):
    from liger_kernel.transformers.functional import liger_cross_entropy

    target = torch.arange(8, device=device) * 11
    same(
        lambda x: liger_cross_entropy(x, target),
        lambda x: F.cross_entropy(x, target),
        [random(device, 8, 100)],
    )


def case_fused_linear_cross_entropy(device):
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    target = torch.arange(8, device=device) * 11
    given = [random(device, 8, 32), random(device, 100, 32)]
    same(
        lambda x, w: liger_fused_linear_cross_entropy(x, w, target),
        lambda x, w: F.cross_entropy(x @ w.T, target),
        given,
        2e-3,
    )


def case_kl_divergence(device):
    from liger_kernel.transformers.functional import liger_kl_div

    target = torch.softmax(random(device, 8, 100, seed=1), -1)
    given = [random(device, 8, 100)]
    same(
        lambda x: liger_kl_div(torch.log_softmax(x, -1), target),
        lambda x: F.kl_div(torch.log_softmax(x, -1), target),
        given,
    )


def case_group_norm(device):
    from liger_kernel.transformers.functional import liger_group_norm

    given = [random(device, 2, 8, 16), random(device, 8), random(device, 8, seed=1)]
    same(
        lambda x, w, b: liger_group_norm(x, w, b, 8, 4, 1e-5),
        lambda x, w, b: F.group_norm(x, 4, w, b, 1e-5),
        given,
    )
