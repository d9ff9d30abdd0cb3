"""Conch: kernels of vLLM and bitsandbytes, written anew in Triton."""

import torch

from corpus.pretended import kernels_give
from corpus.programs import DECODES, TOKENS, WIDTHS, counted, lengths, normal

DISTRIBUTION = "conch-triton-kernels"
MODULES = ("conch",)

FP8 = torch.float8_e4m3fn


def case_activations():
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
    from conch.ops.activation.silu_and_mul import silu_and_mul

    for width in (14336, 28672):
        silu_and_mul(normal(TOKENS, 2 * width))
        gelu_tanh_and_mul(normal(TOKENS, 2 * width))


def case_norms():
    from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
    from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm

    for width in WIDTHS:
        x, residual, weight = normal(TOKENS, width), normal(TOKENS, width), normal(width)
        rms_norm(x, weight, 1e-6)
        fused_add_rms_norm(x, residual, weight, 1e-6)
        gemma_rms_norm(x, weight, 1e-6)
        gemma_rms_norm(x, weight, 1e-6, residual)


def case_paged_attention():
    from conch.ops.attention.paged_attention import paged_attention

    for batch, length in DECODES:
        for dtype, block in (("auto", 16), ("fp8", 32)):
            cache = torch.empty(
                4096,
                8,
                block,
                128,
                dtype=torch.bfloat16 if dtype == "auto" else torch.uint8,
                device="cuda",
            )
            scale = torch.ones(1, device="cuda")
            table = counted(batch, length // block, below=4096)
            with kernels_give(length):
                paged_attention(
                    normal(batch, 32, 128),
                    cache,
                    cache,
                    table,
                    lengths(batch, length),
                    None,
                    0.088,
                    0.0,
                    dtype,
                    scale,
                    scale,
                )


def case_varlen_attention():
    from conch.ops.attention.varlen_attention import varlen_attention

    cache = normal(4096, 8, 16, 128)
    table = counted(4, TOKENS // 16)
    starts = torch.tensor([0, 1024, 2048, 3072, 4096], dtype=torch.int32, device="cuda")
    with kernels_give(1024):
        varlen_attention(
            normal(TOKENS, 32, 128),
            cache,
            cache,
            starts,
            1024,
            lengths(4, TOKENS),
            TOKENS,
            table,
            None,
            True,
            0.088,
        )


def case_quantization():
    from conch.ops.quantization.fp8 import scaled_fp8_quant
    from conch.ops.quantization.int8 import scaled_int8_quant

    for quantize in (scaled_fp8_quant, scaled_int8_quant):
        quantize(normal(TOKENS, 4096), torch.ones(1, device="cuda"))
        try_dynamic(quantize)


def try_dynamic(quantize):
    """Without a scale, where the function computes one."""
    try:
        quantize(normal(TOKENS, 4096))
    except NotImplementedError:
        return


def case_scaled_gemm():
    from conch.ops.quantization.gemm import scaled_gemm

    for rows in (16, TOKENS):
        for dtype in (torch.int8, FP8):
            a, b = (
                torch.empty(rows, 4096, dtype=dtype, device="cuda"),
                torch.empty(4096, 4096, dtype=dtype, device="cuda").t(),
            )
            scaled_gemm(
                a, b, torch.ones(1, device="cuda"), torch.ones(1, device="cuda"), torch.bfloat16
            )
            scaled_gemm(
                a,
                b,
                torch.ones(rows, 1, device="cuda"),
                torch.ones(4096, 1, device="cuda"),
                torch.bfloat16,
            )


def case_mixed_precision_gemm():
    from conch.ops.quantization.gemm import mixed_precision_gemm

    for rows in (1, 16, TOKENS):
        for bits, bias in ((4, 8), (8, 128)):
            packed = torch.empty(4096 * bits // 32, 4096, dtype=torch.int32, device="cuda")
            mixed_precision_gemm(
                normal(rows, 4096, dtype=torch.float16),
                packed,
                normal(32, 4096, dtype=torch.float16),
                None,
                bits,
                bias,
                128,
            )


def case_bitsandbytes():
    from conch.ops.quantization.bitsandbytes import functional

    for kind in ("nf4", "fp4"):
        quantized, state = functional.quantize_4bit(
            normal(4096, 4096), blocksize=64, quant_type=kind
        )
        functional.dequantize_4bit(quantized, state, out=normal(4096 * 4096), quant_type=kind)


def case_rotary_embedding():
    from conch.ops.embedding.rotary_embedding import rotary_embedding

    positions = counted(TOKENS, dtype=torch.int64)
    rotary_embedding(
        positions, normal(TOKENS, 32 * 128), normal(TOKENS, 8 * 128), 128, normal(8192, 128)
    )


def case_cache():
    from conch.ops.vllm.copy_blocks import copy_blocks
    from conch.ops.vllm.reshape_and_cache import reshape_and_cache

    key, value = normal(TOKENS, 8, 128), normal(TOKENS, 8, 128)
    cache = normal(2048, 16, 8, 128)
    slots = counted(TOKENS, dtype=torch.int64)
    reshape_and_cache(key, value, cache, cache, slots)
    narrow, scale = (
        torch.empty(2048, 16, 8, 128, dtype=torch.uint8, device="cuda"),
        torch.ones(1, device="cuda"),
    )
    reshape_and_cache(key, value, narrow, narrow, slots, "fp8", scale, scale)
    copy_blocks(
        [normal(2048, 16 * 8 * 128)],
        [normal(2048, 16 * 8 * 128)],
        counted(64, 2, dtype=torch.int64),
    )


def case_bev_pool():
    from conch.ops.vision.bev_pool import bev_pool, bev_pool_backward

    features, places = (
        normal(100000, 80, dtype=torch.float32),
        torch.zeros(100000, 4, dtype=torch.int32, device="cuda"),
    )
    starts = torch.zeros(20000, dtype=torch.int32, device="cuda")
    bev_pool(features, places, starts, starts, 1, 1, 360, 360)
    bev_pool_backward(normal(1, 1, 360, 360, 80, dtype=torch.float32), places, starts, starts)


def case_voxels():
    from conch.ops.vision.voxelization import VoxelizationParameter, generate_voxels

    parameter = VoxelizationParameter((0.0, -40.0, -3.0), (70.4, 40.0, 1.0), (0.16, 0.16, 4.0), 32)
    with kernels_give(12000):
        generate_voxels(normal(100000, 4, dtype=torch.float32), parameter)
