"""xFormers: attention divided along keys, norms, rotary embeddings of padded sequences, gathers."""

import importlib

import torch

from corpus.programs import DECODES, TOKENS, WIDTHS, counted, normal

DISTRIBUTION = "xformers"
MODULES = ("xformers",)


def case_norms():
    module = importlib.import_module("xformers.ops._triton.rmsnorm_kernels")
    for width in WIDTHS:
        module._rms_norm_forward(normal(TOKENS, width), normal(width), 1e-6)
        module._rms_norm_add_forward(
            normal(TOKENS, width), normal(TOKENS, width), normal(width), 1e-6
        )


def case_rows():
    module = importlib.import_module("xformers.ops._triton")
    indices = counted(1024, dtype=torch.int64)
    source = normal(TOKENS, 4096)
    module.index_select_cat_fwd(normal(1024, 4096), source, indices)
    module.index_select_cat_bwd(normal(TOKENS, 4096), indices, normal(1024, 4096))
    x, added = normal(TOKENS, 1, 4096), normal(1024, 1, 4096)
    module.scaled_index_add_fwd(x, indices, added, normal(4096), 1.0)
    module.scaled_index_add_bwd(
        normal(TOKENS, 1, 4096),
        normal(1024, 1, 4096),
        normal(1024, 1, 4096),
        added,
        normal(4096),
        indices,
        1.0,
    )


def case_tiled_matmul():
    module = importlib.import_module("xformers.ops._triton.tiled_matmul_kernels")
    a, b, c = (
        [[normal(2048, 4096)] * 1] * 2,
        [[normal(4096, 2048)] * 2] * 1,
        [[normal(2048, 2048)] * 2] * 2,
    )
    module._launch_triton_matmul(a, b, c, [2048, 2048], [2048, 2048], [4096])


def case_rope_of_padded_sequences():
    from xformers.ops.fmha.attn_bias import BlockDiagonalCausalWithOffsetPaddedKeysMask
    from xformers.ops.rope_padded import rope_padded

    for batch, length in DECODES:
        bias = BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens(
            q_seqlen=[1] * batch,
            kv_padding=length,
            kv_seqlen=[length] * batch,
            causal_diagonal=None,
        )
        cache = normal(1, batch * length, 8, 128)
        rope_padded(
            normal(1, batch, 32, 128),
            normal(1, batch, 8, 128),
            normal(1, batch, 8, 128),
            cache,
            cache,
            bias,
        )


def case_attention_divided_along_keys():
    from xformers.ops.fmha import triton_splitk
    from xformers.ops.fmha.common import Inputs

    for batch, length in DECODES:
        for dimension in (64, 128):
            q = normal(batch, 1, 8, 4, dimension)
            k = normal(batch, length, 8, 1, dimension).expand(batch, length, 8, 4, dimension)
            triton_splitk.FwOp.apply(Inputs(q, k, k), needs_gradient=False)
