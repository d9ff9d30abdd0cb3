"""conch: norms and activations for serving."""

import torch.nn.functional as F

from programs import close, random

DISTRIBUTION = "conch-triton-kernels"


def case_rms_norm(device):
    from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm

    x, residual, weight = random(device, 6, 96), random(device, 6, 96, seed=1), random(device, 96)
    close(rms_norm(x, weight, 1e-6), F.rms_norm(x, (96,), weight, 1e-6))
    total = x + residual
    out, kept = fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)
    close(kept, total)
    close(out, F.rms_norm(total, (96,), weight, 1e-6))


def case_gated_activations(device):
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
    from conch.ops.activation.silu_and_mul import silu_and_mul

    x = random(device, 6, 200)
    close(gelu_tanh_and_mul(x), F.gelu(x[:, :100], approximate="tanh") * x[:, 100:])
    close(silu_and_mul(x), F.silu(x[:, :100]) * x[:, 100:])
