"""torchao: quantization for training and for attention, blockwise matmuls of 8 bits."""

import importlib

import torch

from corpus.programs import TOKENS, WIDTHS, normal

DISTRIBUTION = "torchao"
MODULES = ("torchao",)

FP8 = torch.float8_e4m3fn


def part(module):
    return importlib.import_module(f"torchao.{module}")


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def scales(*shape):
    return torch.empty(*shape, device="cuda")


def case_blockwise():
    module = part("kernel.blockwise_quantization")
    for width in WIDTHS:
        module.fp8_blockwise_act_quant(normal(TOKENS, width))
        weight, s = module.fp8_blockwise_weight_quant(normal(width, width))
        module.fp8_blockwise_weight_dequant(weight, s)
        for rows in (16, TOKENS):
            module.blockwise_fp8_gemm(
                empty(rows, width, dtype=FP8), scales(rows, width // 128), weight, s
            )


def case_blockwise_training():
    module = part("prototype.blockwise_fp8_training.kernels")
    for name in (
        "act_quant_lhs",
        "act_quant_rhs",
        "act_quant_transposed_lhs",
        "weight_quant_rhs",
        "weight_quant_transposed_rhs",
    ):
        getattr(module, f"triton_fp8_blockwise_{name}")(normal(TOKENS, 4096))
    a, b = empty(TOKENS, 4096, dtype=FP8), empty(4096, 4096, dtype=FP8).t()
    module.triton_fp8_gemm_1x128_128x128(a, b, scales(32, TOKENS).t(), scales(32, 32).t())
    module.triton_fp8_gemm_1x128_128x1(a, b, scales(32, TOKENS).t(), scales(32, 4096))


def case_int8_training():
    module = part("prototype.quantized_training.int8_mm")
    for rows in (16, TOKENS):
        a, b = empty(rows, 4096, dtype=torch.int8), empty(4096, 4096, dtype=torch.int8).t()
        module.scaled_int8_mm_cuda(a, b, scales(rows), scales(4096))


def case_attention_quantization():
    q, k, v = normal(1, 32, TOKENS, 128), normal(1, 8, TOKENS, 128), normal(1, 8, TOKENS, 128)
    part("prototype.attention.quantization.triton_qkv_quantization").triton_fp8_sdpa_quantize(
        q, k, v
    )
    part(
        "prototype.attention.quantization.triton_hadamard_qkv_quantization"
    ).triton_fp8_hadamard_sdpa_quantize(q, k, v)
    part("prototype.attention.quantization.triton_hadamard_utils").inverse_hadamard_transform(q)


def case_attention_quantization_with_rope():
    q, k, v = normal(1, TOKENS, 32, 128), normal(1, TOKENS, 8, 128), normal(1, TOKENS, 8, 128)
    for interleaved in (False, True):
        given = [q, k, v, normal(TOKENS, 128), normal(TOKENS, 128)]
        part(
            "prototype.attention.quantization.triton_rope_qkv_quantization"
        ).triton_fp8_rope_sdpa_quantize(*given, rope_interleaved=interleaved)
        part(
            "prototype.attention.quantization.triton_hadamard_rope_qkv_quantization"
        ).triton_fp8_hadamard_rope_sdpa_quantize(*given, rope_interleaved=interleaved)


def case_attention_of_diffusion():
    q = normal(1, 24, TOKENS, 128)
    part("prototype.fp8_sdpa_inference.fp8_sdpa_quantization").fp8_sdpa_quantize_func(
        q, normal(1, 24, TOKENS, 128), normal(1, 24, TOKENS, 128)
    )


def case_tensorwise():
    module = part("prototype.float8nocompile.kernels.fp8_dynamic_tensorwise")
    configuration = part("float8.float8_training_tensor").LinearMMConfig()
    for algorithm in module.KernelAlgorithm:
        for name in (
            "row_major",
            "row_major_t",
            "col_major",
            "col_major_t",
            "row_and_col_major",
            "row_major_t_and_non_t",
            "col_major_t_and_non_t",
        ):
            getattr(module, f"hp_to_fp8_{name}")(
                normal(TOKENS, 4096), FP8, configuration, algo=algorithm
            )


def case_groups_of_experts():
    module = part("prototype.moe_training.kernels")
    offsets = torch.arange(128, 4096 + 1, 128, dtype=torch.int32, device="cuda")
    part("prototype.moe_training.kernels.jagged_float8_scales").triton_fp8_per_group_rowwise_scales(
        normal(TOKENS, 4096), offsets, FP8
    )
    part("prototype.moe_training.kernels.jagged_float8_scales").triton_fp8_per_group_colwise_scales(
        normal(TOKENS, 4096), offsets, FP8
    )
    assert module


def case_experts_rowwise():
    part("prototype.moe_training.kernels.float8_rowwise").triton_fp8_rowwise_3d_transpose_rhs(
        normal(32, 4096, 2048), FP8
    )
