"""flash-linear-attention: norms, activations, recurrences and chunked attention."""

import torch
import torch.nn.functional as F

from programs import close, random, same

DISTRIBUTION = "fla-core"


def case_rms_norm(device):
    from fla.modules.layernorm import rms_norm

    same(
        lambda x, w: rms_norm(x, w, None, eps=1e-6),
        lambda x, w: F.rms_norm(x, (64,), w, 1e-6),
        [random(device, 2, 8, 64), random(device, 64)],
    )


def case_swiglu(device):
    from fla.modules.activations import swiglu

    same(swiglu, lambda a, b: F.silu(a) * b, [random(device, 6, 96), random(device, 6, 96, seed=1)])


def attention(q, k, v, decay):
    """Linear attention, each head's state decaying by a factor a step."""
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    found = []
    for step in range(q.shape[1]):
        state = state * decay[None, :, None, None] + k[:, step, :, :, None] * v[:, step, :, None, :]
        found.append(torch.einsum("bhk,bhkv->bhv", q[:, step] * q.shape[-1] ** -0.5, state))
    return torch.stack(found, 1)


def case_fused_recurrent_retention(device):
    from fla.ops.retention import fused_recurrent_retention

    q, k, v = (random(device, 1, 24, 2, 16, seed=seed) for seed in range(3))
    decay = 1 - torch.exp2(-5.0 - torch.arange(2, device=device, dtype=torch.float32))
    close(fused_recurrent_retention(q, k, v)[0], attention(q, k, v, decay), 1e-3)


def case_fused_recurrent_linear_attention(device):
    from fla.ops.linear_attn import fused_recurrent_linear_attn

    q, k, v = (random(device, 1, 24, 2, 16, seed=seed) for seed in range(3))
    close(
        fused_recurrent_linear_attn(q, k, v, normalize=False)[0],
        attention(q, k, v, torch.ones(2, device=device)),
        1e-3,
    )
