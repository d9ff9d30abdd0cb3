"""Mamba: scans of state spaces, of models 1, 2 and 3."""

import torch

from corpus.programs import TOKENS, backward, normal, numbers

DISTRIBUTION = "mamba-ssm"
VERSION = "2.3.2.post1"
MODULES = ("mamba_ssm",)

FLOAT = torch.float32


def scanned(grad=True, heads=64, dimension=64, states=128, groups=1):
    """What a layer of a model of 2.7 billion parameters scans."""
    x = normal(2, TOKENS // 2, heads, dimension, grad=grad)
    dt, a = normal(2, TOKENS // 2, heads, grad=grad), normal(heads, dtype=FLOAT, grad=grad)
    b, c = (normal(2, TOKENS // 2, groups, states, grad=grad) for _ in range(2))
    return x, dt, a, b, c


def case_chunk_scan():
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    for chunk, states in ((256, 128), (128, 64)):
        x, dt, a, b, c = scanned(states=states)
        skip, bias = normal(64, dtype=FLOAT, grad=True), normal(64, dtype=FLOAT, grad=True)
        backward(
            mamba_chunk_scan_combined(x, dt, a, b, c, chunk, D=skip, dt_bias=bias, dt_softplus=True)
        )


def case_chunk_scan_with_gate():
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    x, dt, a, b, c = scanned(groups=8)
    backward(
        mamba_chunk_scan_combined(
            x,
            dt,
            a,
            b,
            c,
            256,
            D=normal(64, 64, dtype=FLOAT, grad=True),
            z=normal(*x.shape, grad=True),
        )
    )


def case_chunk_scan_of_packed_sequences():
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    x, dt, a, b, c = (each[:1] if each.dim() > 1 else each for each in scanned(grad=False))
    number = numbers(*[0] * 512, *[1] * 1536).reshape(1, -1)
    starts = torch.tensor([0, 512, 2048], dtype=torch.int32, device="cuda")
    mamba_chunk_scan_combined(
        x,
        dt,
        a,
        b,
        c,
        256,
        seq_idx=number,
        cu_seqlens=starts,
        return_final_states=True,
        return_varlen_states=True,
    )


def case_state_update():
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update

    for batch in (128, 8):
        state, x, dt = normal(batch, 64, 64, 128), normal(batch, 64, 64), normal(batch, 64, 64)
        a, b = normal(64, 64, 128, dtype=FLOAT), normal(batch, 1, 128)
        selective_state_update(
            state, x, dt, a, b, b, normal(64, 64), normal(batch, 64, 64), normal(64, 64), True
        )
        one = normal(batch, 64).unsqueeze(-1).expand(batch, 64, 64)
        tied = normal(64, dtype=FLOAT).view(64, 1, 1).expand(64, 64, 128)
        selective_state_update(
            state,
            x,
            one,
            tied,
            b,
            b,
            normal(64).unsqueeze(-1).expand(64, 64),
            None,
            normal(64).unsqueeze(-1).expand(64, 64),
            True,
        )


def case_state_update_of_mamba_1():
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update

    x, dt, b = normal(128, 8192), normal(128, 8192), normal(128, 16)
    selective_state_update(
        normal(128, 8192, 16),
        x,
        dt,
        normal(8192, 16, dtype=FLOAT),
        b,
        b,
        normal(8192),
        normal(128, 8192),
        normal(8192),
        True,
    )


def case_norms():
    from mamba_ssm.ops.triton.layer_norm import layer_norm_fn, rms_norm_fn

    x, residual, weight = (
        normal(TOKENS, 4096, grad=True),
        normal(TOKENS, 4096, grad=True),
        normal(4096, grad=True),
    )
    backward(rms_norm_fn(x, weight, None, residual=residual, prenorm=True, residual_in_fp32=True))
    backward(layer_norm_fn(x, weight, normal(4096, grad=True)))


def case_gated_norm():
    from mamba_ssm.ops.triton.layernorm_gated import layernorm_fn, rmsnorm_fn

    for group in (None, 512):
        x, z, weight = (
            normal(TOKENS, 4096, grad=True),
            normal(TOKENS, 4096, grad=True),
            normal(4096, grad=True),
        )
        backward(rmsnorm_fn(x, weight, None, z, group_size=group, norm_before_gate=False))
    backward(layernorm_fn(normal(TOKENS, 4096, grad=True), weight, normal(4096, grad=True)))


def case_swiglu():
    from mamba_ssm.ops.triton import k_activations

    k_activations._swiglu_fwd(normal(TOKENS, 2 * 8192))
    k_activations._swiglu_bwd(normal(TOKENS, 2 * 8192), normal(TOKENS, 8192), recompute_output=True)


def case_older_backward_passes():
    from mamba_ssm.ops.triton import ssd_chunk_scan, ssd_chunk_state

    x, dt, a, b, _ = scanned(grad=False)
    sums, steps = ssd_chunk_state._chunk_cumsum_fwd(dt, a, 256)
    products = normal(2, 8, 1, 256, 256)
    out = normal(*x.shape)
    ssd_chunk_scan._chunk_scan_bwd_dz(x, normal(*x.shape), out, out, 256, D=normal(64, 64))
    ssd_chunk_scan._chunk_scan_bwd_dx(products, x, steps, sums, out)
    ssd_chunk_scan._chunk_scan_bwd_ddAcs_stable(x, steps, sums, out, products)
    ssd_chunk_state._chunk_state_bwd_dx(b, x, steps, sums, normal(2, 8, 64, 64, 128))
