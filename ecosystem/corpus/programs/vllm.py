"""vLLM: attention over paged caches, mixtures of experts, quantized matmuls, adapters, state
spaces, sampling.
"""

import functools
import importlib

import torch

from corpus.pretended import FACTS, kernels_give
from corpus.programs import (
    DECODES,
    TOKENS,
    VOCABULARY,
    WIDTHS,
    counted,
    lengths,
    normal,
    numbers,
    routed,
)

DISTRIBUTION = "vllm"
MODULES = ("vllm",)

#: those of operators that are defined here, which last as long as these
LIBRARIES = []

FLOAT, FP8, HALF = torch.float32, torch.float8_e4m3fn, torch.float16


def define(library, schema, answer):
    """An operator that answers, in place of a compiled one."""
    found = torch.library.Library(library, "FRAGMENT")
    found.define(schema)
    found.impl(schema.partition("(")[0], answer, "CompositeExplicitAutograd")
    LIBRARIES.append(found)


@functools.cache
def prepare():
    """What must be in place before parts of the package are imported, and are told of the GPU.

    It finds the GPU by NVIDIA's management library, which no machine without a driver has, and asks
    its compiled operators what they and the GPU can do.
    """
    define(
        "_C",
        "cutlass_scaled_mm_supports_block_fp8(int capability) -> bool",
        lambda capability: True,
    )
    define(
        "_C_cuda_utils",
        "get_max_shared_memory_per_block_device_attribute(int device) -> int",
        lambda device: FACTS["max_shared_mem"],
    )
    platforms = importlib.import_module("vllm.platforms")
    platforms._current_platform = importlib.import_module(
        "vllm.platforms.cuda"
    ).NonNvmlCudaPlatform()


prepare()


def part(module):
    return importlib.import_module(f"vllm.{module}")


def layers(module):
    return part(f"model_executor.layers.{module}")


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def whole(*shape, dtype=torch.int32):
    return torch.zeros(*shape, dtype=dtype, device="cuda")


def case_unified_attention():
    attention = part("v1.attention.ops.triton_unified_attention").unified_attention
    for heads, groups, width, window in ((32, 8, 128, -1), (64, 8, 128, -1), (64, 8, 64, 127)):
        for dtype in (torch.bfloat16, FP8):
            cache = empty(8192, 16, groups, width, dtype=dtype)
            scale = empty(4, groups, dtype=FLOAT) if dtype == FP8 else None
            starts = torch.tensor([0, 1024, 2048, 3072, 4096], dtype=torch.int32, device="cuda")
            given = [
                empty(TOKENS, heads, width),
                cache,
                cache,
                empty(TOKENS, heads, width),
                starts,
                1024,
                lengths(4, TOKENS),
                TOKENS,
                0.088,
                True,
            ]
            attention(
                *given,
                (window, 0) if window > 0 else (-1, -1),
                counted(4, TOKENS // 16),
                0.0,
                None,
                scale,
                scale,
            )


def case_unified_attention_decode():
    attention = part("v1.attention.ops.triton_unified_attention").unified_attention
    for batch, length in DECODES:
        for heads, groups in ((32, 8), (64, 8)):
            cache = empty(batch * length // 16, 16, groups, 128)
            starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
            segments = {
                "seq_threshold_3D": 16,
                "num_par_softmax_segments": 16,
                "softmax_segm_output": empty(batch, heads, 16, 128, dtype=FLOAT),
                "softmax_segm_max": empty(batch, heads, 16, dtype=FLOAT),
                "softmax_segm_expsum": empty(batch, heads, 16, dtype=FLOAT),
            }
            given = [
                empty(batch, heads, 128),
                cache,
                cache,
                empty(batch, heads, 128),
                starts,
                1,
                lengths(batch, length),
                length,
                0.088,
                True,
                (-1, -1),
            ]
            attention(*given, counted(batch, length // 16), 0.0, None, None, None, **segments)


def case_decode():
    decode = part("v1.attention.ops.triton_decode_attention").decode_attention_fwd
    for batch, length in DECODES:
        for heads, groups, width, value in (
            (32, 32, 128, 128),
            (32, 8, 128, 128),
            (16, 1, 576, 512),
            (128, 1, 576, 512),
        ):
            cache = empty(batch * length // 64, 64, groups, width)
            values = cache[..., :value]
            given = [
                empty(batch, heads, width),
                cache,
                values,
                empty(batch, heads, value),
                empty(batch, heads, dtype=FLOAT),
                counted(batch, length // 64),
            ]
            one = torch.ones(1, device="cuda")
            decode(
                *given,
                lengths(batch, length),
                empty(batch, heads, 8, value + 1, dtype=FLOAT),
                8,
                0.088,
                64,
                0.0,
                one,
                one,
                value == 512,
            )


def case_prefill_after_a_prefix():
    attention = part("v1.attention.ops.prefix_prefill").context_attention_fwd
    one = torch.ones(1, device="cuda")
    for heads, groups in ((32, 8), (64, 8)):
        keys, values = empty(4096, groups, 128 // 8, 16, 8), empty(4096, groups, 128, 16)
        q, k = empty(TOKENS, heads, 128), empty(TOKENS, groups, 128)
        starts = torch.tensor([0, 2048, 4096], dtype=torch.int32, device="cuda")
        attention(
            q,
            k,
            k,
            empty(TOKENS, heads, 128),
            "auto",
            keys,
            values,
            counted(2, 512),
            starts,
            lengths(2, TOKENS),
            TOKENS,
            2048,
            one,
            one,
        )


def case_prefill():
    attention = part("v1.attention.ops.triton_prefill_attention").context_attention_fwd
    for heads, groups, width in ((32, 8, 128), (16, 16, 80)):
        q, k = empty(TOKENS, heads, width), empty(TOKENS, groups, width)
        attention(
            q,
            k,
            k,
            empty(TOKENS, heads, width),
            numbers(0, 2048),
            lengths(2, 2048),
            2048,
            width == 128,
        )


def case_cache():
    module = part("v1.attention.ops.triton_reshape_and_cache_flash")
    one = torch.ones(1, device="cuda")
    for kind, dtype in (("auto", torch.bfloat16), ("fp8", FP8)):
        cache = empty(4096, 16, 8, 128, dtype=dtype)
        module.triton_reshape_and_cache_flash(
            empty(TOKENS, 8, 128),
            empty(TOKENS, 8, 128),
            cache,
            cache,
            counted(TOKENS, dtype=torch.int64),
            kind,
            one,
            one,
        )


def case_merge_states():
    merge = part("v1.attention.ops.triton_merge_attn_states").merge_attn_states
    merge(
        empty(TOKENS, 32, 128),
        empty(TOKENS, 32, 128),
        empty(32, TOKENS, dtype=FLOAT),
        empty(TOKENS, 32, 128),
        empty(32, TOKENS, dtype=FLOAT),
    )


CONFIGURATION = {
    "BLOCK_SIZE_M": 64,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 64,
    "GROUP_SIZE_M": 8,
    "SPLIT_K": 1,
    "num_warps": 4,
    "num_stages": 4,
}


def case_mixture_of_experts():
    import triton.language as tl

    invoke = layers("fused_moe.fused_moe").invoke_fused_moe_triton_kernel
    for experts, chosen, width, inner in ((32, 4, 4096, 3072), (128, 8, 4096, 1536)):
        for rows in (TOKENS, 128, 8):
            for kind in ("bf16", "fp8", "fp8 blocks", "int8", "int8 weights"):
                eight = {
                    "fp8": FP8,
                    "fp8 blocks": FP8,
                    "int8": torch.int8,
                    "int8 weights": torch.int8,
                }.get(kind, torch.bfloat16)
                a = empty(rows, width, dtype=torch.bfloat16 if kind == "int8 weights" else eight)
                scales = {
                    "bf16": (None, None),
                    "fp8": (empty(1, dtype=FLOAT), empty(experts, dtype=FLOAT)),
                    "fp8 blocks": (
                        empty(rows, width // 128, dtype=FLOAT),
                        empty(experts, 2 * inner // 128, width // 128, dtype=FLOAT),
                    ),
                    "int8": (
                        empty(rows, 1, dtype=FLOAT),
                        empty(experts, 2 * inner, 1, dtype=FLOAT),
                    ),
                    "int8 weights": (None, empty(experts, 2 * inner, dtype=FLOAT)),
                }[kind]
                given = [
                    a,
                    empty(experts, 2 * inner, width, dtype=eight),
                    empty(rows, chosen, 2 * inner),
                    *scales,
                    empty(rows, chosen, dtype=FLOAT),
                ]
                tiles = dict(CONFIGURATION, BLOCK_SIZE_K=128 if "blocks" in kind else 64)
                flags = [
                    kind.startswith("fp8"),
                    kind == "int8",
                    kind == "int8 weights",
                    False,
                    kind == "int8",
                ]
                invoke(
                    *given,
                    *routed(experts, chosen, rows),
                    False,
                    chosen,
                    tiles,
                    tl.bfloat16,
                    *flags,
                    [128, 128] if kind == "fp8 blocks" else None,
                )


def case_mixture_of_experts_of_4_bits():
    import triton.language as tl

    invoke = layers("fused_moe.fused_moe").invoke_fused_moe_wna16_triton_kernel
    for experts, chosen in ((32, 4), (128, 8)):
        for rows in (TOKENS, 8):
            for four in (True, False):
                weights = empty(experts, 3072, 4096 // (2 if four else 1), dtype=torch.uint8)
                given = [
                    empty(rows, 4096),
                    weights,
                    empty(rows, chosen, 3072),
                    empty(experts, 3072, 32),
                    None,
                    empty(rows, chosen, dtype=FLOAT),
                ]
                invoke(
                    *given,
                    *routed(experts, chosen, rows),
                    False,
                    chosen,
                    CONFIGURATION,
                    tl.bfloat16,
                    not four,
                    four,
                    [0, 128],
                )


def case_around_experts():
    module = layers("fused_moe.utils")
    module.count_expert_num_tokens(counted(TOKENS, 8, below=128), 128, None)
    layers("fused_moe.moe_fused_mul_sum").moe_fused_mul_sum(
        normal(TOKENS, 8, 4096), normal(TOKENS, 8, dtype=FLOAT)
    )


def case_experts_permuted():
    module = layers("fused_moe.deep_gemm_utils")
    module.ep_gather(
        normal(TOKENS * 8, 4096),
        counted(TOKENS, 8, below=128),
        normal(TOKENS, 8, dtype=FLOAT),
        counted(TOKENS, 8),
        None,
        empty(TOKENS, 4096),
    )


def case_batch_invariance():
    module = part("model_executor.determinism.batch_invariant")
    for rows in (8, TOKENS):
        for dtype in (torch.bfloat16, HALF):
            module.matmul_persistent(
                normal(rows, 4096, dtype=dtype), normal(4096, 4096, dtype=dtype)
            )
        module.matmul_descriptor_persistent(normal(rows, 4096), normal(4096, 4096))
        module.log_softmax(normal(rows, VOCABULARY, dtype=FLOAT))
        module.softmax(normal(rows, 4096))
        module.mean_dim(normal(rows, 4096), 1)
        module.rms_norm_batch_invariant(normal(rows, 4096), normal(4096))
    module.bmm_batch_invariant(normal(32, 1024, 128), normal(32, 128, 1024))


def case_awq():
    module = layers("quantization.awq_triton")
    for width in WIDTHS:
        packed = [
            whole(width, width // 8),
            normal(width // 128, width, dtype=HALF),
            whole(width // 128, width // 8),
        ]
        module.awq_dequantize_triton(*packed)
        for rows in (1, 64):
            module.awq_gemm_triton(normal(rows, width, dtype=HALF), *packed, 8)


def case_scaled_matmul():
    module = layers("quantization.compressed_tensors.triton_scaled_mm")
    for rows in (16, 128, TOKENS):
        for dtype in (torch.int8, FP8):
            b = empty(4096, 4096, dtype=dtype).t()
            module.triton_scaled_mm(
                empty(rows, 4096, dtype=dtype),
                b,
                empty(rows, 1, dtype=FLOAT),
                empty(4096, 1, dtype=FLOAT),
                torch.bfloat16,
            )


def case_fp8():
    module = layers("quantization.utils.fp8_utils")
    for width in WIDTHS:
        for rows in (8, 128, TOKENS):
            given = [
                empty(rows, width, dtype=FP8),
                empty(width, width, dtype=FP8),
                empty(rows, width // 128, dtype=FLOAT),
            ]
            module.w8a8_triton_block_scaled_mm(
                *given, empty(width // 128, width // 128, dtype=FLOAT), [128, 128], torch.bfloat16
            )
        module.silu_mul_per_token_group_quant_fp8_colmajor(
            normal(TOKENS, 2 * width), use_ue8m0=False
        )


def case_int8():
    module = layers("quantization.utils.int8_utils")
    for width in WIDTHS:
        module.per_token_quant_int8(normal(TOKENS, width))


def case_state_update():
    update = layers("mamba.ops.mamba_ssm").selective_state_update
    for batch in (128, 8):
        state, x, dt = (
            normal(256, 64, 64, 128),
            normal(batch, 64, 64),
            normal(batch, 64).unsqueeze(-1).expand(batch, 64, 64),
        )
        a, b = normal(64, dtype=FLOAT).view(64, 1, 1).expand(64, 64, 128), normal(batch, 8, 128)
        skip = normal(64).unsqueeze(-1).expand(64, 64)
        update(
            state,
            x,
            dt,
            a,
            b,
            b,
            skip,
            skip,
            dt_softplus=True,
            state_batch_indices=counted(batch),
            out=empty(batch, 64, 64),
        )


def case_state_scan():
    scan = layers("mamba.ops.ssd_combined").mamba_chunk_scan_combined_varlen
    x, dt, b = normal(TOKENS, 64, 64), normal(TOKENS, 64), normal(TOKENS, 8, 128)
    starts = torch.tensor([0, 2048, 4096], dtype=torch.int32, device="cuda")
    chunks = torch.arange(0, TOKENS + 1, 256, dtype=torch.int32, device="cuda")
    last = torch.tensor([7, 15], dtype=torch.int32, device="cuda")
    given = [
        x,
        dt,
        normal(64, dtype=FLOAT),
        b,
        b,
        256,
        starts,
        chunks,
        last,
        numbers(*[0] * 8, *[1] * 8),
        empty(TOKENS, 64, 64),
    ]
    scan(*given, D=normal(64), dt_bias=normal(64), dt_softplus=True)


def case_convolution():
    module = layers("mamba.ops.causal_conv1d")
    module.causal_conv1d_update(
        normal(128, 8192), normal(256, 8192, 3), normal(8192, 4), normal(8192), "silu", counted(128)
    )


def case_gated_norm():
    layers("mamba.ops.layernorm_gated").rms_norm_gated(
        normal(TOKENS, 4096),
        normal(4096),
        None,
        normal(TOKENS, 4096),
        group_size=512,
        norm_before_gate=False,
    )


def case_rotary_of_images():
    rotary = layers("rotary_embedding.mrope").triton_mrope
    for interleaved in (False, True):
        rotary(
            normal(TOKENS, 32 * 128),
            normal(TOKENS, 8 * 128),
            normal(3, TOKENS, 64),
            normal(3, TOKENS, 64),
            [16, 24, 24],
            128,
            128,
            interleaved,
            True,
        )


def case_lightning_attention():
    module = layers("lightning_attn")
    q, k, v = (normal(2, 32, 2048, 128) for _ in range(3))
    module.lightning_attention(q, k, v, normal(32, dtype=FLOAT), 256)
    one = [normal(128, 32, 1, 128) for _ in range(3)]
    module.linear_decode_forward_triton(
        *one, normal(128, 32, 128, 128, dtype=FLOAT), normal(32, dtype=FLOAT), counted(128)
    )


def adapted(rows):
    """How tokens are divided among four adapters, a quarter each; none are without."""
    quarter = rows // 4
    starts = [i * quarter for i in range(5)]
    return [
        numbers(*[i // quarter for i in range(rows)]),
        counted(rows),
        numbers(*[quarter] * 4, 0),
        numbers(*starts, rows),
        numbers(0, 1, 2, 3, -1),
    ]


def case_adapters():
    shrink, expand = (
        part("lora.ops.triton_ops.lora_shrink_op"),
        part("lora.ops.triton_ops.lora_expand_op"),
    )
    one, flag = torch.tensor([4], dtype=torch.int32), torch.tensor([False])
    with kernels_give(0):
        for rows in (128, TOKENS):
            for rank in (16, 64):
                shrink._lora_shrink(
                    normal(rows, 4096),
                    [normal(4, rank, 4096)] * 3,
                    empty(3, rows, rank, dtype=FLOAT),
                    *adapted(rows),
                    flag,
                    one,
                    1.0,
                )
                expand._lora_expand(
                    empty(3, rows, rank, dtype=FLOAT),
                    [normal(4, 4096, rank)] * 3,
                    empty(rows, 3 * 4096),
                    *adapted(rows),
                    flag,
                    one,
                    0,
                    True,
                )


def case_sampling():
    module = part("v1.sample.ops.topk_topp_triton")
    for name in ("apply_top_k_top_p_triton",):
        getattr(module, name)(
            normal(128, VOCABULARY, dtype=FLOAT), lengths(128, 50), normal(128, dtype=FLOAT)
        )


def case_sampling_by_noise():
    module = part("v1.worker.gpu.sample.gumbel")
    module.gumbel_sample(
        normal(128, VOCABULARY, dtype=FLOAT),
        counted(128),
        normal(128, dtype=FLOAT),
        counted(128, dtype=torch.int64),
        counted(128, dtype=torch.int64),
        True,
        is_drafting=False,
    )


def case_log_probabilities():
    module = part("v1.worker.gpu.sample.logprob")
    module.compute_token_logprobs(
        normal(128, VOCABULARY, dtype=FLOAT), counted(128, 1, dtype=torch.int64)
    )


def case_least_probabilities():
    part("v1.worker.gpu.sample.min_p").apply_min_p(
        normal(128, VOCABULARY, dtype=FLOAT), counted(128), normal(128, dtype=FLOAT)
    )
