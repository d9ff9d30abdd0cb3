"""Forwards of flash-linear-attention's operators and modules, and unsloth's, that others miss."""

import itertools

import torch

from programs import random
from programs.gradient_packages import heads


def _gates(device, *shape):
    return torch.nn.functional.logsigmoid(random(device, *shape, seed=7))


def case_fla_delta_rule(device):
    from fla.ops.delta_rule import chunk_delta_rule

    q, k, v = heads(device, 3)
    given = q, torch.nn.functional.normalize(k, dim=-1), v, _beta(device)
    chunk_delta_rule(*(each.bfloat16() for each in given))


def case_fla_gated_delta_rule(device):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k, v = heads(device, 3)
    k = torch.nn.functional.normalize(k, dim=-1)
    chunk_gated_delta_rule(q, k, v, _gates(device, 1, 128, 2), _beta(device))


def case_fla_fused_recurrent_delta_rule(device):
    from fla.ops.delta_rule import fused_recurrent_delta_rule

    q, k, v = (each[:, :24] for each in heads(device, 3))
    k = torch.nn.functional.normalize(k, dim=-1)
    fused_recurrent_delta_rule(q, k, v, _beta(device)[:, :24])


def case_fla_fused_recurrent_gated_delta_rule(device):
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    q, k, v = (each[:, :24] for each in heads(device, 3))
    k = torch.nn.functional.normalize(k, dim=-1)
    gate = _gates(device, 1, 24, 2)
    fused_recurrent_gated_delta_rule(q, k, v, g=gate, beta=_beta(device)[:, :24])


def _beta(device):
    return random(device, 1, 128, 2, seed=3).sigmoid()


def case_fla_solve_tril(device):
    from fla.ops.utils.solve_tril import solve_tril

    for extent in (16, 32, 64):
        rows = torch.arange(128, device=device) % extent
        below = rows[:, None] > torch.arange(extent, device=device)[None, :]
        a = 0.1 * random(device, 1, 128, 2, extent) * below[None, :, None, :]
        solve_tril(a)


def case_fla_rwkv6(device):
    from fla.ops.rwkv6 import chunk_rwkv6

    chunk_rwkv6(*heads(device, 3), _gates(device, 1, 128, 2, 16), random(device, 2, 16))


def case_fla_lightning_attention(device):
    from fla.ops.lightning_attn import chunk_lightning_attn

    chunk_lightning_attn(*heads(device, 3), layer_idx=1, num_layers=4)


def case_fla_gated_slot_attention(device):
    from fla.ops.gsa import chunk_gsa

    chunk_gsa(*heads(device, 4), _gates(device, 1, 128, 2, 16))


def case_fla_based(device):
    from fla.ops.based import parallel_based

    parallel_based(*heads(device, 3))


def case_fla_rebased(device):
    from fla.ops.rebased import parallel_rebased

    parallel_rebased(*heads(device, 3))


def case_fla_attention(device):
    from fla.ops.attn import parallel_attn

    parallel_attn(*heads(device, 3))


def case_fla_forgetting_attention(device):
    from fla.ops.forgetting_attn import parallel_forgetting_attn

    parallel_forgetting_attn(*heads(device, 3), _gates(device, 1, 128, 2))


def case_fla_rwkv4(device):
    from fla.ops.rwkv4 import fused_recurrent_rwkv4

    # few steps and similar decays: differences do not converge at maxima that are nearly ties
    w, u = 0.1 * random(device, 32, seed=4), random(device, 32, seed=5)
    k, v = random(device, 1, 4, 32), random(device, 1, 4, 32, seed=1)
    state = torch.zeros(1, 3, 1, 32, device=device)
    fused_recurrent_rwkv4(w, u, k, v, state)


def case_fla_global_cumsum(device):
    from fla.ops.utils.cumsum import chunk_global_cumsum

    chunk_global_cumsum(random(device, 1, 128, 2))
    chunk_global_cumsum(random(device, 1, 128, 2, 16))


def case_fla_mean_pooling(device):
    from fla.ops.utils.pooling import mean_pooling

    mean_pooling(random(device, 1, 64, 2, 16), 16)


def case_fla_softmax_and_logsumexp(device):
    from fla.ops.utils.logsumexp import logsumexp_fwd
    from fla.ops.utils.softmax import softmax_fwd

    softmax_fwd(random(device, 6, 100))
    logsumexp_fwd(random(device, 6, 100))


def case_fla_l2_norm(device):
    from fla.modules.norm.l2norm import l2norm

    l2norm(random(device, 8, 64))
    l2norm(random(device, 4, 1024))


def case_fla_gated_norms(device):
    from fla.modules.norm.fused_norm_gate import rms_norm_gated
    from fla.modules.norm.layernorm_gated import layernorm_fn

    x, gate, weight = random(device, 8, 64), random(device, 8, 64, seed=1), random(device, 64)
    rms_norm_gated(x, gate, weight, None)
    layernorm_fn(x, weight, random(device, 64, seed=1), gate)


def case_fla_layer_norm(device):
    from fla.modules.norm.layernorm import layer_norm

    layer_norm(random(device, 8, 64), random(device, 64), random(device, 64, seed=1))


def case_fla_activations(device):
    from fla.modules.activations import ops

    x, y = random(device, 6, 96), random(device, 6, 96, seed=1)
    for each in (ops.sigmoid_fwd, ops.elu_p1_fwd, ops.logsigmoid_fwd, ops.swish_fwd):
        each(x)
    ops.sigmoidglu_fwd(x, y)
    ops.powglu_fwd(x, y)


def case_fla_rotary(device):
    from fla.modules.rotary import rotary_embedding

    angles = random(device, 24, 8)
    rotary_embedding(random(device, 1, 24, 2, 16), angles.cos(), angles.sin())


def case_fla_cross_entropy(device):
    from fla.modules.fused_cross_entropy import cross_entropy_loss

    logits = random(device, 6, 100).requires_grad_()
    cross_entropy_loss(logits, torch.arange(6, device=device) * 7)


def case_fla_kl_divergence(device):
    from fla.modules.fused_kl_div import fused_kl_div_loss

    x, target = random(device, 6, 32), random(device, 6, 32, seed=1)
    weight, other = random(device, 96, 32), random(device, 96, 32, seed=1)
    fused_kl_div_loss(x, target, weight, other)


def case_fla_short_convolution(device):
    from fla.modules.causal_conv1d import causal_conv1d

    causal_conv1d(random(device, 1, 32, 32), random(device, 32, 4), activation="silu")


def case_fla_token_shift(device):
    from fla.modules.token_shift import token_shift

    token_shift(random(device, 2, 24, 32))


def case_unsloth_rms_norms(device):
    from programs.unsloth import on

    with on(device):
        from unsloth.kernels import rms_layernorm

        x, weight = random(device, 12, 96), random(device, 96)
        settings = rms_layernorm._settings(96)
        rows = settings[0], 8, settings[0] // 32, 4
        for several, gemma in itertools.product((rows, False), (False, True)):
            rms_layernorm._rms_forward(x, weight, 1e-6, gemma, rms_layernorm._eager_kernel, several)


def case_unsloth_norm_and_rope(device):
    from programs.unsloth import on

    with on(device):
        from unsloth.kernels import qk_norm_rope

        q, k = random(device, 1, 10, 4, 32), random(device, 1, 10, 2, 32)
        w_q, w_k = random(device, 32), random(device, 32, seed=1)
        angles = torch.cat([random(device, 10, 16)] * 2, 1)
        qk_norm_rope._launch_forward(
            q, k, w_q, w_k, angles.cos(), angles.sin(),
            torch.zeros(1, dtype=torch.int32), 1e-6, 1e-6, False, qk_norm_rope._eager_kernel,
        )  # fmt: skip
