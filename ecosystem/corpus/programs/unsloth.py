"""Unsloth: norms, activations, rotary embeddings, losses, grouped matmuls.

Its packages prepare PyTorch, transformers and a GPU for training when they are imported; only the
modules of kernels are imported here, from packages that hold nothing else.
"""

import functools
import importlib
import importlib.util
import sys
from types import ModuleType

import torch

from corpus.programs import (
    TOKENS,
    VOCABULARY,
    WIDTHS,
    backward,
    counted,
    labels,
    lengths,
    normal,
    numbers,
)

DISTRIBUTION = "unsloth"
MODULES = ("unsloth",)


def bare(name, **values):
    """A package whose modules can be imported, and whose own code is not run."""
    spec = importlib.util.find_spec(name)
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    vars(package).update(values)


@functools.cache
def prepare():
    """What must be in place before kernels of the package are imported."""
    importlib.import_module("torch._inductor.config")  # the packages read its source
    bare("unsloth_zoo", DEVICE_TYPE="cuda", DEVICE_TYPE_TORCH="cuda")
    bare("unsloth_zoo.temporary_patches")
    bare("unsloth", DEVICE_TYPE="cuda")
    bare("unsloth.kernels")
    bare("unsloth.kernels.moe")
    bare("unsloth.kernels.moe.grouped_gemm")


prepare()


def kernels(module):
    return importlib.import_module(f"unsloth.kernels.{module}")


def case_rms_norm():
    for width in WIDTHS:
        for gemma in (False, True):
            x = normal(2, TOKENS // 2, width, grad=True)
            backward(
                kernels("rms_layernorm").Fast_RMS_Layernorm.apply(x, normal(width), 1e-6, gemma)
            )


def case_layer_norm():
    for width in WIDTHS:
        backward(
            kernels("layernorm").Fast_Layernorm.apply(
                normal(2, TOKENS // 2, width, grad=True), normal(width), normal(width), 1e-5
            )
        )


def case_fused_add_rms_norm():
    kernels("fused_add_rms_layernorm").fast_add_rms_layernorm_inference(
        normal(1, 128, 4096), normal(1, 128, 4096), normal(4096), 1e-6
    )


def case_swiglu():
    module = kernels("swiglu")
    for width in (14336, 28672):
        module.swiglu_fg_kernel(normal(2, TOKENS // 2, width), normal(2, TOKENS // 2, width))
        module.swiglu_DWf_DW_dfg_kernel(*(normal(TOKENS, width) for _ in range(3)))


def case_geglu():
    module = kernels("geglu")
    for kind in ("exact", "approx"):
        getattr(module, f"geglu_{kind}_forward_kernel")(
            normal(2, TOKENS // 2, 14336), normal(2, TOKENS // 2, 14336)
        )
        getattr(module, f"geglu_{kind}_backward_kernel")(*(normal(TOKENS, 14336) for _ in range(3)))


def case_rope():
    module = kernels("rope_embedding")
    for heads, dimension in ((32, 128), (64, 128)):
        q, k = (
            normal(2, heads, 2048, dimension, grad=True),
            normal(2, 8, 2048, dimension, grad=True),
        )
        backward(module.fast_rope_embedding(q, k, normal(2048, dimension), normal(2048, dimension)))
    backward(
        module.Fast_RoPE_Embedding.apply(
            normal(2, 2048, 32, 128, grad=True), normal(2048, 128), normal(2048, 128)
        )
    )


def case_cross_entropy():
    module = kernels("cross_entropy_loss")
    for vocabulary in (32000, VOCABULARY):
        for softcap in (0, 30.0):
            backward(
                module.fast_cross_entropy_loss(
                    normal(2, 2048, vocabulary, grad=True), labels(2, 2048), softcap
                )
            )


def case_fp8():
    module = kernels("fp8")
    quantized, scale = (
        torch.empty(4096, 4096, dtype=torch.float8_e4m3fn, device="cuda"),
        torch.empty(32, 32, device="cuda"),
    )
    module.weight_dequant_block(quantized, scale)
    module.act_quant(normal(TOKENS, 4096))
    for rows in (16, TOKENS):
        x = torch.empty(rows, 4096, dtype=torch.float8_e4m3fn, device="cuda")
        module.w8a8_block_fp8_matmul_triton(
            x, quantized, torch.empty(rows, 32, device="cuda"), scale, [128, 128], torch.bfloat16
        )


def case_fp8_vectors():
    module = kernels("fp8")
    quantized = torch.empty(4096, 4096, dtype=torch.float8_e4m3fn, device="cuda")
    module.fp8_block_gemv(normal(1, 1, 4096), quantized, torch.empty(32, 32, device="cuda"))
    module.fp8_rowwise_gemv(normal(1, 1, 4096), quantized, torch.empty(4096, 1, device="cuda"))


def case_qk_norm_rope():
    module = kernels("qk_norm_rope")
    q, k = normal(2, 2048, 32, 128, grad=True), normal(2, 2048, 8, 128, grad=True)
    module._launch_forward(
        q,
        k,
        normal(128),
        normal(128),
        normal(2048, 128),
        normal(2048, 128),
        None,
        1e-6,
        1e-6,
        False,
        lambda kernel: kernel,
    )


def case_nf4():
    packed, absmax = (
        torch.empty(4096 * 4096 // 2, 1, dtype=torch.uint8, device="cuda"),
        torch.empty(4096 * 4096 // 64, dtype=torch.uint8, device="cuda"),
    )
    code, code2, absmax2 = (torch.empty(size, device="cuda") for size in (16, 256, 1024))
    offset = torch.empty((), device="cuda")
    kernels("nf4").dequantize_nf4(
        packed, absmax, code2, absmax2, offset, code, 64, 256, (4096, 4096), torch.bfloat16
    )
    kernels("nf4_gemv").gemv_nf4(
        normal(1, 1, 4096),
        packed,
        absmax,
        code2,
        absmax2,
        offset,
        code,
        64,
        256,
        (4096, 4096),
        torch.bfloat16,
    )


def case_nvfp4():
    module = kernels("nvfp4")
    packed, scale = (
        torch.empty(4096, 2048, dtype=torch.uint8, device="cuda"),
        torch.empty(4096, 256, dtype=torch.float8_e4m3fn, device="cuda"),
    )
    module._nvfp4_dequantize_triton(packed, scale, torch.empty(1, device="cuda"), torch.bfloat16)
    module._nvfp4_matmul_fwd_fused(normal(16, 4096), packed, scale, torch.empty(1, device="cuda"))


def case_large_heads():
    module = kernels("large_head_attention")
    q, k = (normal(1, heads, 2048, 512) for heads in (16, 8))
    low, high = numbers(*[0] * 2048).reshape(1, -1), numbers(*range(1, 2049)).reshape(1, -1)
    o, lse = module._fwd_impl(q, k, k, low, high, 0.04)
    module._bwd_impl(normal(*o.shape), q, k, k, o, lse, low, high, 0.04)


def case_grouped_matmuls():
    module = importlib.import_module("unsloth.kernels.moe.grouped_gemm.interface")
    for experts, chosen, width, inner in ((32, 4, 4096, 1536), (128, 8, 4096, 768)):
        sizes = lengths(experts, TOKENS * chosen // experts)
        order = counted(TOKENS * chosen)
        weights, x = normal(experts, 2 * inner, width), normal(TOKENS, width)
        y = normal(TOKENS * chosen, 2 * inner)
        for tile in (64, 128):
            tiles = {"BLOCK_SIZE_M": tile, "BLOCK_SIZE_N": tile, "BLOCK_SIZE_K": 64}
            module._grouped_gemm_forward_impl(
                x, weights, chosen, sizes, order, permute_x=True, **tiles
            )
            module._grouped_gemm_dX_impl(y, weights, order, sizes, chosen, permute_x=True, **tiles)
            module._grouped_gemm_dW_impl(x, y, sizes, order, chosen, permute_x=True, **tiles)
