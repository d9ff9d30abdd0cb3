"""FlashAttention: its Triton kernels."""

import torch

from corpus.programs import TOKENS, VOCABULARY, backward, labels, normal

DISTRIBUTION = "flash-attn"
VERSION = "2.8.3.post2"
MODULES = ("flash_attn",)


def case_attention():
    from flash_attn.flash_attn_triton import flash_attn_func

    for dimension in (64, 128):
        for causal in (True, False):
            given = [normal(2, TOKENS, 16, dimension, grad=True) for _ in range(3)]
            backward(flash_attn_func(*given, None, causal))
    given = [normal(2, 2048, 16, 64, dtype=torch.float16, grad=True) for _ in range(3)]
    backward(flash_attn_func(*given, normal(1, 16, 1, 2048, dtype=torch.float16), False))


def case_attention_of_the_tutorial():
    from flash_attn.flash_attn_triton_og import attention

    given = [normal(2, 16, 2048, 64, dtype=torch.float16, grad=True) for _ in range(3)]
    backward(attention(*given, 0.125))


def case_cross_entropy():
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss

    backward(cross_entropy_loss(normal(TOKENS, VOCABULARY, grad=True), labels(TOKENS))[0])
    backward(
        cross_entropy_loss(normal(TOKENS, VOCABULARY, grad=True), labels(TOKENS), 0.1, 1.0, 1e-4)[0]
    )


def case_norms():
    from flash_attn.ops.triton.layer_norm import layer_norm_fn, rms_norm_fn

    for width in (4096, 8192):
        x, residual, weight = (
            normal(TOKENS, width, grad=True),
            normal(TOKENS, width, grad=True),
            normal(width, grad=True),
        )
        backward(rms_norm_fn(x, weight, None, residual=residual, prenorm=True))
        backward(layer_norm_fn(x, weight, normal(width, grad=True)))
    backward(
        rms_norm_fn(
            x, weight, None, residual=residual, dropout_p=0.1, weight1=normal(width, grad=True)
        )
    )


def case_rotary():
    from flash_attn.ops.triton.rotary import apply_rotary

    for interleaved in (False, True):
        for conjugate in (False, True):
            apply_rotary(
                normal(2, TOKENS, 32, 128),
                normal(TOKENS, 64),
                normal(TOKENS, 64),
                interleaved=interleaved,
                conjugate=conjugate,
            )
    starts = torch.tensor([0, 1024, 4096], dtype=torch.int32, device="cuda")
    apply_rotary(
        normal(TOKENS, 32, 128),
        normal(TOKENS, 64),
        normal(TOKENS, 64),
        cu_seqlens=starts,
        max_seqlen=3072,
    )
