"""Liger-Kernel: training kernels of language models, forward and backward."""

import importlib

import torch

from corpus.pretended import kernels_give
from corpus.programs import TOKENS, VOCABULARY, WIDTHS, backward, counted, labels, normal

DISTRIBUTION = "liger-kernel"
MODULES = ("liger_kernel",)

#: rows of logits that are computed at a time
ROWS = 1024


def apply(module, function, *given):
    """A function of the package's and its gradients."""
    backward(getattr(importlib.import_module(f"liger_kernel.ops.{module}"), function).apply(*given))


def case_rms_norm():
    for width in WIDTHS:
        for mode in ("llama", "gemma"):
            apply(
                "rms_norm",
                "LigerRMSNormFunction",
                normal(TOKENS, width, grad=True),
                normal(width, grad=True),
                1e-6,
                0.0,
                mode,
                False,
            )


def case_rms_norm_of_heads():
    apply(
        "rms_norm",
        "LigerRMSNormFunction",
        normal(TOKENS, 32, 128, grad=True),
        normal(128, grad=True),
        1e-6,
        0.0,
        "llama",
        False,
    )


def case_fused_add_rms_norm():
    for width in WIDTHS:
        given = [
            normal(TOKENS, width, grad=True),
            normal(TOKENS, width, grad=True),
            normal(width, grad=True),
        ]
        apply(
            "fused_add_rms_norm", "LigerFusedAddRMSNormFunction", *given, 1e-6, 0.0, "llama", False
        )


def case_modulated_rms_norm():
    given = [
        normal(2, TOKENS, 4096, grad=True),
        normal(4096, grad=True),
        normal(2, 4096, grad=True),
        normal(2, 4096, grad=True),
    ]
    apply("modulated_rms_norm", "LigerModulatedRMSNormFunction", *given, 1e-6, 0.0, "llama", False)


def case_layer_norm():
    for width in WIDTHS:
        apply(
            "layer_norm",
            "LigerLayerNormFunction",
            normal(TOKENS, width, grad=True),
            normal(width, grad=True),
            normal(width, grad=True),
            1e-5,
        )


def case_group_norm():
    apply(
        "group_norm",
        "LigerGroupNormFunction",
        normal(16, 512, 4096, grad=True),
        normal(512, grad=True),
        normal(512, grad=True),
        512,
        32,
        1e-5,
    )


def case_poly_norm():
    apply(
        "poly_norm",
        "LigerPolyNormFunction",
        normal(TOKENS, 4096, grad=True),
        normal(3, grad=True),
        normal(1, grad=True).detach().squeeze().requires_grad_(),
        1e-6,
        False,
    )


def case_dyt():
    apply(
        "dyt",
        "LigerDyTFunction",
        normal(TOKENS, 4096, grad=True),
        normal(1, grad=True),
        normal(4096, grad=True),
        normal(4096, grad=True),
    )


def case_swiglu():
    for width in (14336, 28672):
        apply(
            "swiglu",
            "LigerSiLUMulFunction",
            normal(TOKENS, width, grad=True),
            normal(TOKENS, width, grad=True),
        )


def case_swiglu_of_one_tensor():
    apply("swiglu", "LigerFusedGateUpSiLUMulFunction", normal(TOKENS, 2 * 14336, grad=True), False)


def case_geglu():
    for width in (14336, 28672):
        apply(
            "geglu",
            "LigerGELUMulFunction",
            normal(TOKENS, width, grad=True),
            normal(TOKENS, width, grad=True),
        )


def case_relu_squared():
    apply("relu_squared", "LigerReLUSquaredFunction", normal(TOKENS, 14336, grad=True))


def case_softmax():
    for width in (4096, 8192, 32768):
        apply("softmax", "LigerSoftmaxFunction", normal(TOKENS, width, grad=True))


def case_sparsemax():
    apply("sparsemax", "LigerSparsemaxFunction", normal(TOKENS, 4096, grad=True), -1)


def case_rope():
    for heads, dimension in ((32, 128), (64, 128), (16, 64)):
        q, k = (
            normal(2, heads, 2048, dimension, grad=True),
            normal(2, 8, 2048, dimension, grad=True),
        )
        apply(
            "rope",
            "LigerRopeFunction",
            q,
            k,
            normal(1, 2048, dimension),
            normal(1, 2048, dimension),
        )


def case_rope_of_llama_4():
    q, k = normal(1, TOKENS, 40, 128, grad=True), normal(1, TOKENS, 8, 128, grad=True)
    apply("llama4_rope", "LigerLlama4RopeFunction", q, k, normal(TOKENS, 64, dtype=torch.complex64))


def case_rope_of_images():
    q, k = normal(1, 32, TOKENS, 128, grad=True), normal(1, 8, TOKENS, 128, grad=True)
    apply(
        "qwen2vl_mrope",
        "LigerQwen2VLMRopeFunction",
        q,
        k,
        normal(3, 1, TOKENS, 128),
        normal(3, 1, TOKENS, 128),
        [16, 24, 24],
    )


def case_cross_entropy():
    for dtype in (torch.bfloat16, torch.float32):
        logits = normal(ROWS, VOCABULARY, dtype=dtype, grad=True)
        with kernels_give(ROWS):
            apply(
                "cross_entropy",
                "LigerCrossEntropyFunction",
                logits,
                labels(ROWS),
                None,
                -100,
                0.0,
                0.0,
                "mean",
                None,
                False,
            )


def case_cross_entropy_with_everything():
    logits = normal(ROWS, VOCABULARY, grad=True)
    with kernels_give(ROWS):
        apply(
            "cross_entropy",
            "LigerCrossEntropyFunction",
            logits,
            labels(ROWS),
            None,
            -100,
            1e-4,
            0.1,
            "mean",
            30.0,
            True,
        )


def case_fused_linear_cross_entropy():
    for width in WIDTHS:
        given = [
            normal(TOKENS, width, grad=True),
            normal(VOCABULARY, width, grad=True),
            labels(TOKENS),
        ]
        with kernels_give(TOKENS):
            apply("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction", *given)


def case_fused_linear_jsd():
    given = [
        normal(TOKENS, 4096, grad=True),
        normal(VOCABULARY, 4096, grad=True),
        normal(TOKENS, 4096),
        normal(VOCABULARY, 4096),
        labels(TOKENS),
    ]
    with kernels_give(TOKENS):
        apply("fused_linear_jsd", "LigerFusedLinearJSDFunction", *given)


def case_fused_linear_kl_div():
    given = [
        normal(TOKENS, 4096, grad=True),
        normal(VOCABULARY, 4096, grad=True),
        normal(TOKENS, VOCABULARY),
        labels(TOKENS),
    ]
    with kernels_give(TOKENS):
        apply("fused_linear_kl_div", "LigerFusedLinearKLDivFunction", *given)


def case_jsd():
    given = [
        normal(ROWS, VOCABULARY, dtype=torch.float32, grad=True),
        normal(ROWS, VOCABULARY, dtype=torch.float32),
        labels(ROWS),
    ]
    with kernels_give(ROWS):
        apply("jsd", "LigerJSDFunction", *given)


def case_kl_div():
    for reduction in ("batchmean", "none"):
        with kernels_give(0):
            apply(
                "kl_div",
                "LigerKLDivLossFunction",
                normal(ROWS, VOCABULARY, dtype=torch.float32, grad=True),
                normal(ROWS, VOCABULARY, dtype=torch.float32),
                reduction,
            )


def case_tvd():
    with kernels_give(0):
        apply(
            "tvd",
            "LigerTVDLossFunction",
            normal(ROWS, VOCABULARY, dtype=torch.float32, grad=True),
            normal(ROWS, VOCABULARY, dtype=torch.float32),
        )


def case_fused_ce_tvd():
    apply(
        "fused_ce_tvd",
        "LigerFusedCETVDFunction",
        normal(ROWS, VOCABULARY, grad=True),
        normal(ROWS, VOCABULARY),
        labels(ROWS),
    )


def case_grpo_loss():
    logits, ids = normal(8, 513, VOCABULARY, grad=True), labels(8, 512)
    logp, mask = (
        normal(8, 512, dtype=torch.float32),
        torch.ones(8, 512, dtype=torch.int32, device="cuda"),
    )
    with kernels_give(8):
        apply(
            "grpo_loss",
            "GrpoLossFunction",
            logits,
            logp,
            logp,
            ids,
            normal(8, dtype=torch.float32),
            mask,
            0.9,
            0.04,
            0.2,
            0.2,
            False,
        )


def case_attn_res():
    apply(
        "attn_res",
        "LigerAttnResFunction",
        normal(8, 2, 2048, 4096, grad=True),
        normal(4096, grad=True),
        normal(4096, grad=True),
        1e-6,
    )


def case_multi_token_attention():
    apply(
        "multi_token_attention",
        "LigerMultiTokenAttentionFunction",
        normal(2, 8, 512, 512, grad=True),
        normal(8, 8, 3, 3, grad=True),
        None,
        1,
        1,
    )


def case_neighborhood_attention():
    given = [normal(1, 16, 1024, 64, grad=True) for _ in range(3)]
    apply("fused_neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction", *given)


def case_hyper_connections():
    from liger_kernel.ops import mhc

    x, phi, bias = (
        normal(TOKENS, 4, 2048, grad=True),
        normal(4 * 2048, 24, grad=True),
        normal(24, dtype=torch.float32, grad=True),
    )
    one = [normal(1, dtype=torch.float32, grad=True).squeeze() for _ in range(3)]
    pre, post, res = mhc.LigerMHCCoeffsFunction.apply(
        x, phi, bias, *one, False, 20, 1e-6, 1e-6, 1e-6, 2.0
    )
    mixed = mhc.LigerMHCPreFunction.apply(x, pre)
    backward(mhc.LigerMHCPostResFunction.apply(x, mixed, post, res))


def case_mixture_of_experts():
    for experts, width, inner, chosen in ((32, 4096, 1536, 4), (128, 4096, 768, 8)):
        index = counted(TOKENS, chosen, below=experts)
        given = [
            normal(TOKENS, width, grad=True),
            normal(experts, 2 * inner, width, grad=True),
            normal(experts, width, inner, grad=True),
        ]
        with kernels_give(
            experts * -(-TOKENS * chosen // (experts * 64))
        ):  # tiles of 64 rows of an expert
            apply(
                "fused_moe",
                "LigerFusedMoEFunction",
                *given,
                index,
                normal(TOKENS, chosen, dtype=torch.float32, grad=True),
            )
