"""Forwards of Liger and flash-linear-attention that the other programs do not call."""

import torch

from programs import random


def case_liger_rope(device):
    from liger_kernel.ops.rope import LigerRopeFunction

    q, k = random(device, 1, 2, 8, 16), random(device, 1, 2, 8, 16, seed=1)
    angles = random(device, 1, 8, 16)
    LigerRopeFunction.apply(q, k, angles.cos(), angles.sin())


def case_liger_dyt(device):
    from liger_kernel.ops.dyt import LigerDyTFunction

    x, gamma, beta = random(device, 4, 96), random(device, 96), random(device, 96, seed=1)
    LigerDyTFunction.apply(x, torch.tensor([0.7], device=device), gamma, beta)


def case_liger_poly_norm(device):
    from liger_kernel.ops.poly_norm import LigerPolyNormFunction

    LigerPolyNormFunction.apply(random(device, 4, 96), random(device, 3), random(device, 1))


def case_liger_relu_squared(device):
    from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction

    LigerReLUSquaredFunction.apply(random(device, 4, 96))


def case_liger_fused_add_rms_norm(device):
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    x, residual, w = random(device, 4, 96), random(device, 4, 96, seed=1), random(device, 96)
    LigerFusedAddRMSNormFunction.apply(x, residual, w, 1e-6)


def case_liger_tvd(device):
    from liger_kernel.ops.tvd import LigerTVDLossFunction

    p, q = (random(device, 4, 96, seed=seed).softmax(1) for seed in range(2))
    LigerTVDLossFunction.apply(p, q)


def case_liger_jsd(device):
    from liger_kernel.ops.jsd import LigerJSDFunction

    p, q = (random(device, 4, 96, seed=seed).log_softmax(1) for seed in range(2))
    LigerJSDFunction.apply(p, q)


def case_liger_sparsemax(device):
    from liger_kernel.ops.sparsemax import LigerSparsemaxFunction

    LigerSparsemaxFunction.apply(random(device, 4, 96), -1)


def heads(device, count):
    return [random(device, 1, 128, 2, 16, seed=seed) for seed in range(count)]


def case_fla_chunk_linear_attention(device):
    from fla.ops.linear_attn import chunk_linear_attn

    chunk_linear_attn(*heads(device, 3), normalize=False)


def case_fla_chunk_retention(device):
    from fla.ops.retention import chunk_retention

    chunk_retention(*heads(device, 3))


def case_fla_chunk_simple_gla(device):
    from fla.ops.simple_gla import chunk_simple_gla

    gate = torch.nn.functional.logsigmoid(random(device, 1, 128, 2))
    chunk_simple_gla(*heads(device, 3), g=gate)


def case_fla_chunk_gla(device):
    from fla.ops.gla import chunk_gla

    gate = torch.nn.functional.logsigmoid(random(device, 1, 128, 2, 16))
    chunk_gla(*heads(device, 3), g=gate)


def case_fla_hgrn(device):
    from fla.ops.hgrn import fused_recurrent_hgrn

    x = random(device, 1, 24, 32)
    fused_recurrent_hgrn(x, torch.nn.functional.logsigmoid(random(device, 1, 24, 32, seed=1)))


def case_fla_chunk_hgrn(device):
    from fla.ops.hgrn import chunk_hgrn

    x = random(device, 1, 64, 32)
    chunk_hgrn(x, torch.nn.functional.logsigmoid(random(device, 1, 64, 32, seed=1)))
