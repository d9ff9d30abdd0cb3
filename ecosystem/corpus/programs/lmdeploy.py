"""LMDeploy: attention over paged caches, quantized caches and matmuls, mixtures of experts,
adapters.
"""

import importlib

import torch

from corpus.programs import DECODES, TOKENS, VOCABULARY, WIDTHS, counted, lengths, normal, numbers

DISTRIBUTION = "lmdeploy"
MODULES = ("lmdeploy",)

FLOAT, FP8, HALF = torch.float32, torch.float8_e4m3fn, torch.float16

#: tokens of a page
PAGE = 64
#: (heads of queries, heads of keys, width of a key, width of a value); the last is a latent cache
HEADS = ((32, 8, 128, 128), (64, 8, 128, 128), (16, 1, 576, 512))


def part(module):
    return importlib.import_module(f"lmdeploy.pytorch.kernels.cuda.{module}")


def policy(name):
    return getattr(importlib.import_module("lmdeploy.messages").QuantPolicy, name)


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def whole(*shape, dtype=torch.int32):
    return torch.zeros(*shape, dtype=dtype, device="cuda")


def starts(batch, length):
    """Where sequences of one length begin, and where the last ends."""
    return torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device="cuda")


#: (policy, element of a cache, numbers of a key and of a value in one element)
CACHES = (
    ("NONE", torch.bfloat16, 1, 1),
    ("INT8", torch.uint8, 1, 1),
    ("INT4", torch.uint8, 2, 2),
    ("FP8", FP8, 1, 1),
    ("TURBO_QUANT", torch.uint8, 2, 4),
)


def caches(kind, groups, key, value, pages):
    """(keys, values, their scales and shifts) of a policy."""
    _, dtype, each_key, each_value = kind
    keys = empty(pages, PAGE, groups, key // each_key, dtype=dtype)
    values = (
        keys[..., :value]
        if key != value
        else empty(pages, PAGE, groups, value // each_value, dtype=dtype)
    )
    if kind[0] == "NONE":
        return keys, values, None, None
    if kind[0] == "FP8":
        return keys, values, normal(1, dtype=FLOAT), normal(1, dtype=FLOAT)
    numbers = 1 if kind[0] == "TURBO_QUANT" else 2
    return (
        keys,
        values,
        empty(pages, PAGE, groups, 2, dtype=HALF),
        empty(pages, PAGE, groups, numbers, dtype=HALF),
    )


def decode(kind, heads, groups, key, value, batch, length):
    keys, values, scales, shifts = caches(kind, groups, key, value, batch * length // PAGE)
    given = [
        normal(batch, heads, key),
        keys,
        values,
        lengths(batch, length),
        counted(batch, length // PAGE),
    ]
    part("pagedattention").flash_attn_with_kvcache(
        *given, k_scales_zeros=scales, v_scales_zeros=shifts, quant_policy=policy(kind[0])
    )


def case_decode():
    for batch, length in DECODES:
        for heads in HEADS:
            decode(CACHES[0], *heads, batch, length)


def case_decode_with_8_bits():
    decode(CACHES[1], *HEADS[0], 128, 2048)


def case_decode_with_4_bits():
    decode(CACHES[2], *HEADS[0], 128, 2048)


def case_decode_with_fp8():
    decode(CACHES[3], *HEADS[0], 128, 2048)


def case_decode_with_turbo_quant():
    decode(CACHES[4], *HEADS[0], 128, 2048)


def case_decode_with_a_window():
    keys = empty(4096, PAGE, 8, 64)
    sinks = normal(64, dtype=torch.bfloat16)
    given = [
        normal(128, 64, 64),
        keys,
        empty(4096, PAGE, 8, 64),
        lengths(128, 2048),
        counted(128, 2048 // PAGE),
    ]
    part("pagedattention").flash_attn_with_kvcache(
        *given, window_size=128, sinks=sinks, softcap=50.0
    )


def case_prefill():
    attention = part("flashattention").flash_attn_varlen_func
    for heads, groups, key, value in (*HEADS[:2], (16, 16, 192, 128), (16, 16, 80, 80)):
        where = starts(2, 2048)
        q, k, v = (
            normal(TOKENS, heads, key),
            normal(groups, TOKENS, key),
            normal(groups, TOKENS, value),
        )
        attention(q, k, v, where, where, 2048, 2048, causal=True)


def case_prefill_with_a_window():
    where = starts(2, 2048)
    q, k, v = normal(TOKENS, 64, 64), normal(8, TOKENS, 64), normal(8, TOKENS, 64)
    attention = part("flashattention").flash_attn_varlen_func
    attention(
        q, k, v, where, where, 2048, 2048, causal=True, window_size=(128, 128), sinks=normal(64)
    )
    attention(q, k, v, where, where, 2048, 2048, causal=False)


def fill(kind, tokens):
    keys, values, scales, shifts = caches(kind, 8, 128, 128, 4096)
    given = [
        normal(2 * tokens, 8, 128),
        normal(2 * tokens, 8, 128),
        keys,
        values,
        starts(2, tokens)[:2],
        lengths(2, tokens),
        lengths(2, 2048),
    ]
    part("fill_kv_cache").fill_kv_cache(
        *given, tokens, counted(2, 2048 // PAGE), scales, shifts, policy(kind[0])
    )


def case_caches_filled():
    for kind in CACHES[:4]:
        for tokens in (1, 2048):
            fill(kind, tokens)


def case_caches_filled_with_turbo_quant():
    fill(CACHES[4], 2048)


def case_caches_filled_by_blocks():
    cache, scales = empty(4096, PAGE, 8, 128, dtype=FP8), empty(4096, PAGE, 8, 1, dtype=FLOAT)
    given = [
        normal(TOKENS, 8, 128),
        normal(TOKENS, 8, 128),
        cache,
        empty(*cache.shape, dtype=FP8),
        scales,
        empty(*scales.shape, dtype=FLOAT),
    ]
    for form in (None, "ue8m0"):
        part("fill_kv_cache").fill_kv_cache_blocked_fp8(
            *given,
            starts(2, 2048),
            lengths(2, 2048),
            2048,
            counted(2, 2048 // PAGE),
            scale_fmt=form,
        )


def case_caches_flattened():
    for kind in CACHES:
        keys, values, scales, shifts = caches(kind, 8, 128, 128, 4096)
        given = [
            lengths(2, 2048),
            counted(2, 2048 // PAGE),
            None,
            TOKENS,
            torch.bfloat16,
            scales,
            shifts,
            policy(kind[0]),
        ]
        part("flatten_kv_cache").flatten_kv_cache(keys, values, *given)


def case_latent_cache_flattened():
    cache = empty(4096, PAGE, 1, 656, dtype=FP8)
    part("flatten_kv_cache").flatten_kv_cache_mla_fp8(
        cache, lengths(2, 2048), counted(2, 2048 // PAGE), None, TOKENS
    )


def case_pages_copied():
    part("copy_cache").copy_cache_blocks(
        empty(32, 4096, PAGE, 8, 128),
        1,
        counted(16, dtype=torch.int64),
        numbers(*range(16, 32), dtype=torch.int64),
        1,
    )


def case_rotary():
    rotary = part("apply_rotary_pos_emb").apply_rotary_pos_emb
    for heads in (32, 64):
        for interleaved in (False, True):
            rotary(
                normal(TOKENS, heads, 128),
                normal(TOKENS, 8, 128),
                normal(TOKENS, 128),
                normal(TOKENS, 128),
                complex_mode=interleaved,
            )


def case_norm():
    for width in WIDTHS:
        for residual in (None, normal(TOKENS, width)):
            part("rms_norm").rms_norm(normal(TOKENS, width), normal(width), 1e-6, residual)


def case_activation():
    module = part("activation")
    module.silu_and_mul(normal(TOKENS, 2 * 14336))
    module.silu_and_mul_moe_ep(normal(32, 256, 2 * 2048), lengths(32, 256))
    module.silu_and_mul_masked_post_quant_fwd(
        normal(32, 256, 2 * 2048),
        empty(32, 256, 2048, dtype=FP8),
        empty(32, 256, 16, dtype=FLOAT),
        128,
        lengths(32, 256),
    )


def case_8_bits():
    module = part("w8a8_triton_kernels")
    for dtype in (torch.int8, FP8):
        for rows in (8, TOKENS):
            x, scale = module.per_token_quant_int8(normal(rows, 4096), 1e-7, dtype)
            weights, scales = empty(4096, 4096, dtype=dtype), empty(4096, 1, dtype=FLOAT)
            for residual in (None, normal(rows, 4096)):
                module.matmul_kernel_dynamic_quant(
                    x, weights, scale, scales, residual, output_dtype=torch.bfloat16
                )
                module.rms_norm_dynamic_quant(
                    normal(rows, 4096), normal(4096), 1e-6, residual, dtype
                )


def case_4_bits():
    for width in WIDTHS:
        for rows in (1, 16, TOKENS):
            given = [
                normal(rows, width, dtype=HALF),
                whole(width, width // 8),
                normal(width // 128, width, dtype=HALF),
                whole(width // 128, width // 8),
            ]
            part("awq_kernels").awq_linear(*given)


def case_fp8_by_blocks():
    module = part("blocked_gemm_fp8")
    for rows in (8, TOKENS):
        for form in (None, "ue8m0"):
            x, scales = module.quant_fp8(normal(rows, 4096), 128, scale_fmt=form)
        for weights in (empty(7168, 4096, dtype=FP8).t(), empty(4096, 7168, dtype=FP8)):
            module.blocked_gemm_fp8(x, scales, weights, empty(32, 56, dtype=FLOAT), torch.bfloat16)


def routes(rows, chosen, experts):
    return normal(rows, chosen, dtype=FLOAT), counted(
        rows, chosen, below=experts, dtype=torch.int64
    )


def case_mixture_of_experts():
    for experts, chosen, inner in ((32, 4, 3072), (128, 8, 768)):
        for rows in (8, 128, TOKENS):
            given = [
                normal(rows, 4096),
                empty(experts, 2 * inner, 4096),
                empty(experts, 4096, inner),
                *routes(rows, chosen, experts),
                chosen,
            ]
            part("moe.fused_moe").fused_moe(*given, renormalize=True)


def case_mixture_of_experts_of_8_bits():
    for dtype in (torch.int8, FP8):
        for rows in (8, TOKENS):
            weights = [
                empty(32, 6144, 4096, dtype=dtype),
                empty(32, 6144, 1, dtype=FLOAT),
                empty(32, 4096, 3072, dtype=dtype),
                empty(32, 4096, 1, dtype=FLOAT),
            ]
            given = [
                empty(rows, 4096, dtype=dtype),
                empty(rows, 1, dtype=FLOAT),
                *weights,
                *routes(rows, 4, 32),
                4,
            ]
            part("moe.w8a8").fused_moe_w8a8(*given, out_dtype=torch.bfloat16, quant_dtype=dtype)


def case_mixture_of_experts_by_blocks():
    for rows in (8, TOKENS):
        weights = [
            empty(128, 1536, 4096, dtype=FP8),
            empty(128, 12, 32, dtype=FLOAT),
            empty(128, 4096, 768, dtype=FP8),
            empty(128, 32, 6, dtype=FLOAT),
        ]
        given = [
            empty(rows, 4096, dtype=FP8),
            empty(rows, 32, dtype=FLOAT),
            *weights,
            *routes(rows, 8, 128),
            8,
        ]
        part("moe.blocked_fp8").fused_moe_blocked_fp8(*given, out_dtype=torch.bfloat16)


def case_mixture_of_experts_of_4_bits():
    for rows in (8, TOKENS):
        weights = [
            whole(128, 1536, 512),
            empty(128, 1536, 128),
            whole(128, 4096, 96),
            empty(128, 4096, 24),
        ]
        part("compressed_tensors_w4a16").fused_moe_w4a16(
            normal(rows, 4096), *weights, *routes(rows, 8, 128), 8
        )


def case_routing():
    part("moe.route_noaux_tc").fused_noaux_tc_routing(
        normal(TOKENS, 256, dtype=FLOAT), normal(256, dtype=FLOAT)
    )


def case_adapters():
    for rows, length in ((128, 1), (TOKENS, 1024)):
        batch = rows // length
        given = [
            normal(rows, 4096),
            normal(64, 4096),
            normal(64, 4096),
            normal(4, dtype=FLOAT),
            numbers(0, 16, 32, 48),
            lengths(4, 16),
        ]
        part("fused_lora").fused_lora(
            *given,
            starts(batch, length)[:batch],
            lengths(batch, length),
            counted(batch, below=4),
            16,
            length,
        )


def case_index_of_sparse_attention():
    given = [
        empty(TOKENS, 64, 128, dtype=FP8),
        empty(TOKENS, 64, dtype=FLOAT),
        empty(4096, PAGE, 128, dtype=FP8),
        empty(4096, PAGE, dtype=FLOAT),
    ]
    part("ds_index").fp8_index(
        *given, starts(2, 2048), lengths(2, 2048), counted(2, 2048 // PAGE), 2048, 2048, True
    )
    part("bitonic_topk").bitonic_topk(
        normal(128, 8192, dtype=FLOAT), lengths(128, 1), lengths(128, 8192), 2048
    )


def case_sampling():
    seeds = [counted(128, dtype=torch.int64) for _ in range(2)]
    part("multinomial_sampling").multinomial_sampling(normal(128, VOCABULARY, dtype=FLOAT), *seeds)


def case_gated_delta():
    q, b, bias = normal(1, TOKENS, 16, 128), normal(1, TOKENS, 32), normal(32, dtype=FLOAT)
    part("gated_delta_preprocess").gated_delta_preprocess(
        q, normal(*q.shape), b, normal(*b.shape), bias, bias, 2
    )
