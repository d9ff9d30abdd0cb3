"""Flash linear attention: chunked, parallel and recurrent forms of linear attentions, with
gradients.
"""

import functools
import importlib

import torch

from corpus.pretended import kernels_give
from corpus.programs import TOKENS, VOCABULARY, backward, labels, normal

DISTRIBUTION = "fla-core"
MODULES = ("fla",)

FLOAT = torch.float32


def heads(number=16, dimension=128, batch=2, tokens=TOKENS // 2, dtype=torch.bfloat16):
    """A tensor of one vector for each head and token."""
    return normal(batch, tokens, number, dimension, dtype=dtype, grad=True)


def gates(number=16, dtype=FLOAT, tokens=TOKENS // 2):
    """A number for each head and token."""
    return normal(2, tokens, number, dtype=dtype, grad=True)


def three(number=16, dimension=128):
    return [heads(number, dimension) for _ in range(3)]


def attend(name, *given, **options):
    """A function of ``fla.ops`` and, where it has them, its gradients."""
    with kernels_give(1), torch.set_grad_enabled(name not in FORWARD_ALONE):
        backward(getattr(importlib.import_module("fla.ops"), name)(*given, **options))


#: Functions that have no gradients.
FORWARD_ALONE = (
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_comba",
    "fused_recurrent_dplr_delta_rule",
    "chunk_iplr_delta_rule",
)

#: name -> what makes the arguments, and the keywords
OPERATIONS = {
    "parallel_attn": lambda: (three(32), {}),
    "parallel_based": lambda: ([heads(16, 16), heads(16, 16), heads(16)], {}),
    "fused_chunk_based": lambda: ([heads(16, 16), heads(16, 16), heads(16)], {}),
    "chunk_abc": lambda: ([*three(), heads(16, 64)], {}),
    "chunk_gsa": lambda: ([*three(), heads(16, 64), heads(16, 64)], {}),
    "chunk_linear_attn": lambda: (three(), {"normalize": False}),
    "fused_chunk_linear_attn": lambda: (three(), {"normalize": False}),
    "fused_recurrent_linear_attn": lambda: (three(), {"normalize": False}),
    "chunk_retention": lambda: (three(), {}),
    "fused_chunk_retention": lambda: (three(), {}),
    "parallel_retention": lambda: (three(), {}),
    "fused_recurrent_retention": lambda: (three(), {}),
    "chunk_gla": lambda: ([*three(), heads(dtype=FLOAT)], {"output_final_state": True}),
    "fused_recurrent_gla": lambda: ([*three(), heads(dtype=FLOAT)], {}),
    "chunk_simple_gla": lambda: ([*three(), gates()], {"output_final_state": True}),
    "fused_chunk_simple_gla": lambda: ([*three(), gates()], {}),
    "parallel_simple_gla": lambda: ([*three(), gates()], {}),
    "fused_recurrent_simple_gla": lambda: ([*three(), gates()], {}),
    "chunk_lightning_attn": lambda: (three(), {"layer_idx": 1, "num_layers": 32}),
    "chunk_delta_rule": lambda: (
        [*three(), gates(dtype=torch.bfloat16)],
        {"use_qk_l2norm_in_kernel": True},
    ),
    "fused_recurrent_delta_rule": lambda: ([*three(), gates(dtype=torch.bfloat16)], {}),
    "chunk_gated_delta_rule": lambda: (
        [*three(), gates(), gates(dtype=torch.bfloat16)],
        {"use_qk_l2norm_in_kernel": True, "output_final_state": True},
    ),
    "fused_recurrent_gated_delta_rule": lambda: (
        three(),
        {"g": gates(), "beta": gates(dtype=torch.bfloat16)},
    ),
    "chunk_kda": lambda: (
        [*three(), heads(dtype=FLOAT), gates(dtype=torch.bfloat16)],
        {"use_qk_l2norm_in_kernel": True},
    ),
    "fused_recurrent_kda": lambda: (
        [*three(), heads(dtype=FLOAT), gates(dtype=torch.bfloat16)],
        {},
    ),
    "chunk_comba": lambda: ([*three(), heads(), gates(), gates(dtype=torch.bfloat16)], {}),
    "fused_recurrent_comba": lambda: (
        [*three(), heads(), gates(), gates(dtype=torch.bfloat16)],
        {},
    ),
    "chunk_dplr_delta_rule": lambda: (
        [*three(32, 64), heads(32, 64), heads(32, 64), heads(32, 64, dtype=FLOAT)],
        {},
    ),
    "fused_recurrent_dplr_delta_rule": lambda: (
        [*three(32, 64), heads(32, 64), heads(32, 64), heads(32, 64, dtype=FLOAT)],
        {},
    ),
    "chunk_iplr_delta_rule": lambda: ([*three(32, 64), heads(32, 64), heads(32, 64)], {}),
    "chunk_rwkv6": lambda: (
        [*three(32, 64), heads(32, 64, dtype=FLOAT), normal(32, 64, grad=True)],
        {},
    ),
    "fused_recurrent_rwkv6": lambda: (
        [*three(32, 64), heads(32, 64, dtype=FLOAT), normal(32, 64, grad=True)],
        {},
    ),
    "chunk_rwkv7": lambda: ([heads(32, 64) for _ in range(6)], {}),
    "fused_recurrent_hgrn": lambda: (
        [normal(2, TOKENS // 2, 2048, grad=True), normal(2, TOKENS // 2, 2048, grad=True)],
        {},
    ),
    "parallel_forgetting_attn": lambda: ([*three(32, 64), gates(32)], {}),
    "parallel_path_attn": lambda: ([*three(16, 64), heads(16, 64, dtype=FLOAT), gates(16)], {}),
    "parallel_stickbreaking_attn": lambda: (three(16, 64), {}),
    "chunk_mesa_net": lambda: (
        [*three(), gates(), gates(dtype=torch.bfloat16), normal(16, 128, dtype=FLOAT, grad=True)],
        {},
    ),
    "chunk_log_linear_attn": lambda: (
        [
            heads(1, 128),
            heads(1, 128),
            heads(16, 64),
            gates(16),
            normal(2, TOKENS // 2, 16, 12, grad=True),
        ],
        {},
    ),
    "parallel_nsa": lambda: (
        [heads(64), heads(4), heads(4)],
        {
            "g_cmp": gates(64),
            "g_slc": gates(64),
            "g_swa": gates(64),
            "block_counts": 16,
            "block_size": 64,
        },
    ),
    "chunk_momentum_delta_rule": lambda: ([*three(), gates(), gates(dtype=torch.bfloat16)], {}),
}


def run(name):
    given, options = OPERATIONS[name]()
    attend(name, *given, **options)


CASES = {name: functools.partial(run, name) for name in OPERATIONS}


def case_decoding():
    """One token for each of 128 sequences."""
    with torch.no_grad():
        q, k, v = (normal(128, 1, 16, 128) for _ in range(3))
        state = normal(128, 16, 128, 128, dtype=FLOAT)
        g, beta = normal(128, 1, 16, dtype=FLOAT), normal(128, 1, 16)
        options = {"initial_state": state, "output_final_state": True}
        attend(
            "fused_recurrent_gated_delta_rule",
            q,
            k,
            v,
            g=g,
            beta=beta,
            use_qk_l2norm_in_kernel=True,
            **options,
        )
        attend(
            "fused_recurrent_kda", q, k, v, normal(128, 1, 16, 128, dtype=FLOAT), beta, **options
        )
        attend("fused_recurrent_gla", q, k, v, normal(128, 1, 16, 128), **options)
        attend("fused_recurrent_simple_gla", q, k, v, g, **options)


def case_packed_sequences():
    starts = torch.tensor([0, 1000, 1024, 4096], dtype=torch.int64, device="cuda")
    q, k, v = (normal(1, TOKENS, 16, 128, grad=True) for _ in range(3))
    g, beta = normal(1, TOKENS, 16, dtype=FLOAT, grad=True), normal(1, TOKENS, 16, grad=True)
    attend(
        "chunk_gated_delta_rule", q, k, v, g, beta, use_qk_l2norm_in_kernel=True, cu_seqlens=starts
    )
    attend(
        "chunk_gla", q, k, v, normal(1, TOKENS, 16, 128, dtype=FLOAT, grad=True), cu_seqlens=starts
    )


def case_convolution():
    from fla.modules.convolution import causal_conv1d

    for activation in ("silu", None):
        backward(
            causal_conv1d(
                normal(2, TOKENS // 2, 4096, grad=True),
                normal(4096, 4, grad=True),
                normal(4096, grad=True),
                activation=activation,
            )
        )


def case_cross_entropy():
    from fla.modules import FusedCrossEntropyLoss, FusedLinearCrossEntropyLoss

    with kernels_give(TOKENS):
        backward(FusedCrossEntropyLoss()(normal(TOKENS, VOCABULARY, grad=True), labels(TOKENS)))
        backward(
            FusedLinearCrossEntropyLoss()(
                normal(TOKENS, 4096, grad=True), labels(TOKENS), normal(VOCABULARY, 4096, grad=True)
            )
        )


def case_kl_divergence():
    from fla.modules.fused_kl_div import fused_kl_div_loss

    backward(
        fused_kl_div_loss(
            normal(TOKENS, 4096, grad=True),
            normal(TOKENS, 4096),
            normal(VOCABULARY, 4096, grad=True),
            normal(VOCABULARY, 4096),
        )
    )


def case_norms():
    from fla.modules.layernorm import group_norm, layer_norm, rms_norm

    for width in (4096, 8192):
        backward(
            layer_norm(
                normal(TOKENS, width, grad=True), normal(width, grad=True), normal(width, grad=True)
            )
        )
        backward(
            rms_norm(
                normal(TOKENS, width, grad=True),
                normal(width, grad=True),
                None,
                residual=normal(TOKENS, width, grad=True),
                prenorm=True,
            )
        )
    backward(
        group_norm(
            normal(TOKENS, 4096, grad=True),
            normal(4096, grad=True),
            normal(4096, grad=True),
            num_groups=32,
        )
    )


def case_gated_norms():
    from fla.modules.fused_norm_gate import rms_norm_gated

    for activation in ("swish", "sigmoid"):
        x = normal(2, TOKENS // 2, 16, 128, grad=True)
        backward(
            rms_norm_gated(x, normal(*x.shape, grad=True), normal(128, grad=True), None, activation)
        )


def case_l2_norm():
    from fla.modules.l2norm import l2_norm

    for dimension in (64, 128, 256):
        backward(l2_norm(normal(2, TOKENS // 2, 16, dimension, grad=True)))


def case_activations():
    from fla.modules import activations

    backward(activations.swiglu(normal(TOKENS, 14336, grad=True), normal(TOKENS, 14336, grad=True)))
    backward(
        activations.swiglu_linear(
            normal(TOKENS, 14336, grad=True),
            normal(TOKENS, 14336, grad=True),
            normal(4096, 14336, grad=True),
            None,
        )
    )
    backward(activations.logsigmoid(normal(TOKENS, 4096, grad=True)))
    backward(activations.swish(normal(TOKENS, 4096, grad=True)))


def case_rotary():
    from fla.modules.rotary import rotary_embedding

    for interleaved in (False, True):
        backward(
            rotary_embedding(
                normal(2, TOKENS // 2, 32, 128, grad=True),
                normal(TOKENS, 64),
                normal(TOKENS, 64),
                interleaved,
            )
        )


def case_token_shift():
    from fla.modules.token_shift import token_shift

    backward(token_shift(normal(2, TOKENS // 2, 4096, grad=True)))


def case_sums_along_time():
    from fla.ops.utils import (
        chunk_global_cumsum,
        chunk_local_cumsum,
        mean_pooling,
        softmax_bwd,
        softmax_fwd,
    )

    for x in (normal(2, 2048, 16, dtype=FLOAT), normal(2, 2048, 16, 128, dtype=FLOAT)):
        for reverse in (False, True):
            chunk_local_cumsum(x, 64, reverse=reverse)
            chunk_global_cumsum(x, reverse=reverse)
    mean_pooling(normal(2, 2048, 16, 128), 64)
    softmax_bwd(softmax_fwd(normal(2, 2048, 16, 64)), normal(2, 2048, 16, 64))


def case_triangular_inverses():
    from fla.ops.utils import solve_tril

    for size in (16, 32, 64):
        solve_tril(normal(2, 2048, 16, size, dtype=FLOAT))
