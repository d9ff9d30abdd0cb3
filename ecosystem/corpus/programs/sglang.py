"""SGLang: what its server launches for prefill, decoding, mixtures of experts, quantized weights,
adapters.
"""

import importlib
from types import SimpleNamespace

import torch

from corpus.pretended import kernels_give
from corpus.programs import DECODES, TOKENS, WIDTHS, counted, lengths, normal, numbers, routed

DISTRIBUTION = "sglang"
MODULES = ("sglang",)

FLOAT, FP8 = torch.float32, torch.float8_e4m3fn


def ops(module):
    return importlib.import_module(f"sglang.kernels.ops.{module}")


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def whole(*shape, dtype=torch.int32):
    return torch.zeros(*shape, dtype=dtype, device="cuda")


def starts(batch, length):
    """Where sequences of one length begin, and where the last ends."""
    return torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device="cuda")


def case_decode():
    decode = ops("attention.decode_attention").decode_attention_fwd
    for batch, length in DECODES:
        for heads, groups, width, value in (
            (32, 8, 128, 128),
            (64, 8, 128, 128),
            (32, 32, 128, 128),
            (16, 1, 576, 512),
            (128, 1, 576, 512),
        ):
            cache = empty(batch * length, groups, width)
            values = cache[..., :value] if groups == 1 else empty(batch * length, groups, value)
            splits = 8
            decode(
                empty(batch, heads, width),
                cache,
                values,
                empty(batch, heads, value),
                starts(batch, length),
                counted(batch * length, dtype=torch.int64),
                empty(batch, heads, splits, value, dtype=FLOAT),
                empty(batch, heads, splits, dtype=FLOAT),
                lengths(batch, splits),
                splits,
                0.088,
                1.0,
                1.0,
            )


def case_decode_with_fp8_cache_and_sinks():
    decode = ops("attention.decode_attention").decode_attention_fwd
    for batch, length in DECODES:
        cache = empty(batch * length, 8, 64, dtype=FP8)
        given = [
            empty(batch, 64, 64),
            cache,
            cache,
            empty(batch, 64, 64),
            starts(batch, length),
            counted(batch * length, dtype=torch.int64),
        ]
        decode(
            *given,
            empty(batch, 64, 8, 64, dtype=FLOAT),
            empty(batch, 64, 8, dtype=FLOAT),
            lengths(batch, 8),
            8,
            0.125,
            1.0,
            1.0,
            sinks=empty(64),
        )


def extended(heads=32, groups=8, width=128, value=128, dtype=torch.bfloat16):
    """A prefill of 4,096 tokens after as many in the cache."""
    cache = empty(2 * TOKENS, groups, width, dtype=dtype)
    values = empty(2 * TOKENS, groups, value, dtype=dtype)
    new = [
        empty(TOKENS, heads, width),
        empty(TOKENS, groups, width),
        empty(TOKENS, groups, value),
        empty(TOKENS, heads, value),
    ]
    starts = torch.tensor([0, 2048, 4096], dtype=torch.int32, device="cuda")
    return [*new, cache, values, starts, starts, counted(TOKENS, dtype=torch.int64)]


def case_extend():
    extend = ops("attention.extend_attention").extend_attention_fwd
    for heads, groups, width, value in (
        (32, 8, 128, 128),
        (64, 8, 64, 64),
        (16, 1, 576, 512),
        (128, 128, 192, 128),
    ):
        extend(*extended(heads, groups, width, value), None, True, None, 2048, 1.0, 1.0)
    extend(*extended(), None, True, None, 2048, 1.0, 1.0, sliding_window_size=1024)
    extend(
        *extended(),
        empty(2048 * 4096, dtype=torch.uint8),
        True,
        numbers(0, 2048 * 2048, 2 * 2048 * 2048, dtype=torch.int64),
        2048,
        1.0,
        1.0,
    )
    extend(*extended(dtype=FP8), None, True, None, 2048, 1.0, 1.0, logit_cap=30.0)


def case_extend_unified():
    extend = ops("attention.extend_attention").extend_attention_fwd_unified
    starts = torch.tensor([0, 2048, 4096], dtype=torch.int32, device="cuda")
    cache = empty(2 * TOKENS, 8, 128)
    extend(
        empty(TOKENS, 32, 128),
        empty(TOKENS, 32, 128),
        cache,
        cache,
        1.0,
        1.0,
        starts,
        starts,
        counted(TOKENS, dtype=torch.int64),
        lengths(2, 2048),
        2048,
    )


def case_prefill():
    prefill = ops("attention.prefill_attention").context_attention_fwd
    for heads, groups, width in ((32, 8, 128), (16, 16, 80)):
        q, k = empty(TOKENS, heads, width), empty(TOKENS, groups, width)
        prefill(
            q,
            k,
            k,
            empty(TOKENS, heads, width),
            numbers(0, 2048),
            lengths(2, 2048),
            2048,
            is_causal=width == 128,
        )


def case_merge_states():
    ops("attention.merge_state").merge_state_triton(
        empty(TOKENS, 32, 128),
        empty(TOKENS, 32, dtype=FLOAT),
        empty(TOKENS, 32, 128),
        empty(TOKENS, 32, dtype=FLOAT),
    )


def case_rotary_of_images():
    rotary = ops("attention.rotary_triton")
    for interleaved in (False, True):
        given = [
            empty(TOKENS, 32 * 128),
            empty(TOKENS, 8 * 128),
            empty(8192, 128),
            counted(3, TOKENS, below=TOKENS, dtype=torch.int64),
            [16, 24, 24],
            128,
            128,
        ]
        rotary.triton_mrope_fused(*given, interleaved, False, True, counted(64, below=3))
    rotary.triton_ernie45_rope_fused_inplace(
        empty(TOKENS, 32 * 128),
        empty(TOKENS, 8 * 128),
        empty(8192, 128),
        counted(3, TOKENS, below=TOKENS, dtype=torch.int64),
        [22, 22, 20],
        128,
        128,
        True,
    )


def case_cache_indices():
    module = ops("attention.kv_indices")
    for name in ("create_flashinfer_kv_indices_triton", "create_flashmla_kv_indices_triton"):
        if hasattr(module, name):
            arguments = [
                whole(4096, 8192),
                counted(128, dtype=torch.int64),
                lengths(128, 2048),
                starts(128, 2048),
                None,
                whole(128 * 2048),
                8192,
            ]
            if "flashmla" in name:
                arguments[3:4] = []
                arguments = [*arguments[:5], 8192, 128]
            getattr(module, name)[(128,)](*arguments)


def case_gated_delta_rule():
    from_tokens = [
        normal(1, TOKENS, 16, 128),
        normal(1, TOKENS, 16, 128),
        normal(1, TOKENS, 32, 128),
    ]
    starts = torch.tensor([0, 2048, 4096], dtype=torch.int64, device="cuda")
    state = normal(4, 32, 128, 128, dtype=FLOAT)
    ops("attention.fla.chunk").chunk_gated_delta_rule(
        *from_tokens,
        normal(1, TOKENS, 32, dtype=FLOAT),
        normal(1, TOKENS, 32),
        None,
        state,
        counted(2),
        starts,
        use_qk_l2norm_in_kernel=True,
    )


def case_gated_delta_rule_decode():
    module = ops("attention.fla.fused_recurrent")
    q, k, v = normal(1, 128, 16, 128), normal(1, 128, 16, 128), normal(1, 128, 32, 128)
    starts = torch.arange(129, dtype=torch.int32, device="cuda")
    state = normal(256, 32, 128, 128, dtype=FLOAT)
    g, beta = normal(1, 128, 32, dtype=FLOAT), normal(1, 128, 32)
    module.fused_recurrent_gated_delta_rule_update(
        q, k, v, g, beta, None, state, counted(128), starts, use_qk_l2norm_in_kernel=True
    )
    update = ops(
        "attention.linear.fused_sigmoid_gating_recurrent"
    ).fused_sigmoid_gating_delta_rule_update
    update(
        normal(32, dtype=FLOAT),
        normal(128, 32),
        normal(32),
        1.0,
        20.0,
        q,
        k,
        v,
        normal(128, 32),
        state,
        counted(128),
        None,
        True,
        starts,
    )


def case_packed_decode():
    module = ops("attention.fla.fused_recurrent")
    module.fused_recurrent_gated_delta_rule_packed_decode(
        normal(128, 8192),
        normal(128, 32),
        normal(128, 32),
        normal(32, dtype=FLOAT),
        normal(32),
        0.088,
        normal(256, 32, 128, 128, dtype=FLOAT),
        normal(128, 1, 32, 128),
        counted(128),
        True,
    )


def case_kda():
    module = ops("attention.fla.kda")
    q, k, v = (normal(1, TOKENS, 32, 128) for _ in range(3))
    starts = torch.tensor([0, 2048, 4096], dtype=torch.int64, device="cuda")
    state = normal(4, 32, 128, 128, dtype=FLOAT)
    module.chunk_kda(
        q,
        k,
        v,
        normal(1, TOKENS, 32, 128, dtype=FLOAT),
        normal(1, TOKENS, 32, dtype=FLOAT),
        None,
        state,
        counted(2),
        True,
        starts,
    )


def case_gating():
    ops("attention.linear.fused_gdn_gating").fused_gdn_gating(
        normal(32, dtype=FLOAT), normal(TOKENS, 32), normal(TOKENS, 32), normal(32)
    )
    ops("attention.fla.l2norm").l2norm_fwd(normal(TOKENS, 16, 128))
    ops("attention.fla.layernorm_gated").rms_norm_gated(
        x=normal(TOKENS, 128), weight=normal(128), bias=None, z=normal(TOKENS, 128)
    )
    ops("attention.fla.fused_norm_gate").layer_norm_gated_fwd(
        normal(TOKENS, 128), normal(TOKENS, 128), normal(128), None, is_rms_norm=True
    )


def case_lightning_attention():
    module = ops("attention.linear.lightning_attn")
    q, k, v = (normal(2, 32, 2048, 128) for _ in range(3))
    module.lightning_attention(q, k, v, normal(32, dtype=FLOAT), 256)
    one = [normal(128, 32, 1, 128) for _ in range(3)]
    module.linear_decode_forward_triton(
        *one, normal(128, 32, 128, 128, dtype=FLOAT), normal(32, dtype=FLOAT), counted(128)
    )


CONFIGURATION = {
    "BLOCK_SIZE_M": 64,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 64,
    "GROUP_SIZE_M": 8,
    "num_warps": 4,
    "num_stages": 4,
}


def case_mixture_of_experts():
    import triton.language as tl

    invoke = ops("moe.fused_moe_triton_kernels").invoke_fused_moe_kernel
    for experts, chosen, width, inner in ((32, 4, 4096, 3072), (128, 8, 4096, 1536)):
        for rows in (TOKENS, 128, 8):
            for kind in ("bf16", "fp8", "fp8 blocks", "int8", "int8 weights", "int4 weights"):
                eight = {"fp8": FP8, "fp8 blocks": FP8, "int8": torch.int8}.get(kind)
                a = empty(rows, width, dtype=torch.bfloat16)
                b = empty(
                    experts,
                    2 * inner,
                    width // 2 if kind == "int4 weights" else width,
                    dtype=eight or (torch.uint8 if "weights" in kind else torch.bfloat16),
                )
                scales = {
                    "bf16": None,
                    "fp8": empty(experts, dtype=FLOAT),
                    "fp8 blocks": empty(experts, 2 * inner // 128, width // 128, dtype=FLOAT),
                    "int8": empty(experts, 2 * inner, 1, dtype=FLOAT),
                    "int8 weights": empty(experts, 2 * inner, dtype=FLOAT),
                    "int4 weights": empty(experts, 2 * inner, width // 128),
                }[kind]
                invoke(
                    a,
                    b,
                    None,
                    empty(rows, chosen, 2 * inner),
                    empty(1, dtype=FLOAT) if kind == "fp8" else None,
                    scales,
                    None,
                    empty(rows, chosen, dtype=FLOAT),
                    counted(rows, chosen, below=experts),
                    *routed(experts, chosen, rows),
                    False,
                    chosen,
                    dict(CONFIGURATION, BLOCK_SIZE_K=128 if "blocks" in kind else 64),
                    tl.bfloat16,
                    kind.startswith("fp8"),
                    kind == "int8",
                    kind == "int8 weights",
                    kind == "int4 weights",
                    kind == "int8",
                    [128, 128]
                    if kind == "fp8 blocks"
                    else [0, 128]
                    if kind == "int4 weights"
                    else None,
                )


def case_around_experts():
    module = ops("moe.fused_moe_triton_kernels")
    module.act_and_mul_triton(
        normal(TOKENS * 8, 2 * 1536),
        empty(TOKENS * 8, 1536),
        CONFIGURATION,
        counted(TOKENS, 8, below=128),
        counted(TOKENS * 8 // 64, below=128),
    )
    module.moe_sum_reduce_triton(normal(TOKENS, 8, 4096), empty(TOKENS, 4096), 1.0)
    module.fused_append_shared_experts(
        counted(TOKENS, 8, below=128), normal(TOKENS, 8, dtype=FLOAT), 1, 1.0, 128
    )


def case_experts_of_many_gpus():
    module = ops("moe.ep_moe_kernels")
    ids = counted(TOKENS, 8, below=128, dtype=torch.int64)
    with kernels_give(0):
        module.deepep_run_moe_deep_preprocess(ids, 128)
    module.post_reorder_deepgemm(
        normal(TOKENS * 8, 4096),
        empty(TOKENS, 4096),
        counted(TOKENS, 8),
        ids,
        normal(TOKENS, 8, dtype=FLOAT),
        8,
        TOKENS,
        4096,
        1.0,
    )
    module.ep_gather(
        normal(TOKENS * 8, 4096),
        ids,
        normal(TOKENS, 8, dtype=FLOAT),
        counted(TOKENS, 8),
        empty(TOKENS, 4096),
    )
    module.silu_and_mul_masked_post_quant_fwd(
        normal(32, 1024, 4096),
        empty(32, 1024, 2048, dtype=FP8),
        empty(32, 1024, 16, dtype=FLOAT),
        128,
        lengths(32, 1024),
    )
    module.silu_and_mul_masked_fwd(normal(32, 1024, 4096), empty(32, 1024, 2048), lengths(32, 1024))


def case_experts_permuted():
    module = ops("moe.ep_moe_kernels")
    ids = counted(TOKENS, 8, below=128)
    module.moe_permute(normal(TOKENS, 4096), ids, 128)
    module.moe_unpermute(
        normal(TOKENS * 8, 4096), counted(TOKENS * 8), ids, normal(TOKENS, 8, dtype=FLOAT)
    )


def case_router():
    module = ops("moe.router")
    for rows in (8, TOKENS):
        module.fused_moe_router_cudacore(normal(rows, 4096), normal(32, 4096), 2, 30.0)
        module.fused_moe_router_tensorcore(
            normal(rows, 4096), normal(32, 4096), 2, 30.0, 32, 32, 128
        )
    ops("moe.gemma4_routing").gemma4_fused_routing(normal(TOKENS, 128), normal(128, dtype=FLOAT), 8)


def case_activations():
    ops("activation.gelu_and_mul_triton").gelu_and_mul_triton(normal(TOKENS, 2 * 14336))
    ops("activation.softcap").softcap_inplace_logits(normal(128, 128256, dtype=FLOAT), 30.0)
    ops("activation.minimax_m3_swiglu").swiglu_oai_split(normal(TOKENS, 2 * 3072), 1.702, 1.0, 7.0)


def case_quantization():
    module = ops("quantization.fp8_kernel")
    for width in WIDTHS:
        module._per_token_group_quant_8bit_raw(normal(TOKENS, width), 128)
        module._per_token_group_quant_8bit_raw(normal(TOKENS, width), 128, column_major_scales=True)
        module.static_quant_fp8(normal(TOKENS, width), normal(1, dtype=FLOAT))
        integers = ops("quantization.int8_kernel")
        integers.per_token_quant_int8(normal(TOKENS, width))
        integers.per_token_group_quant_int8(normal(TOKENS, width), 128)
    module.per_tensor_quant_mla_fp8(normal(TOKENS, 16, 512), normal(1, dtype=FLOAT))
    module.per_token_group_quant_mla_deep_gemm_masked_fp8(normal(16, TOKENS, 512))
    ops("quantization.act_quant_triton").act_quant(normal(TOKENS, 4096))


def case_awq():
    module = ops("quantization.awq_triton")
    for width in WIDTHS:
        module.awq_dequantize_triton(
            whole(width, width // 8),
            normal(width // 128, width, dtype=torch.float16),
            whole(width // 128, width // 8),
        )


def case_matmuls_of_8_bits():
    module, integers = ops("gemm.fp8_kernel"), ops("gemm.int8_kernel")
    for rows in (8, 128, TOKENS):
        for width in WIDTHS:
            a, b = empty(rows, width, dtype=FP8), empty(width, width, dtype=FP8)
            scales = [
                empty(rows, width // 128, dtype=FLOAT),
                empty(width // 128, width // 128, dtype=FLOAT),
            ]
            module.w8a8_block_fp8_matmul_triton(a, b, *scales, [128, 128], torch.bfloat16)
            module.triton_scaled_mm(
                a, b.t(), empty(rows, 1, dtype=FLOAT), empty(width, 1, dtype=FLOAT), torch.bfloat16
            )
            a, b = empty(rows, width, dtype=torch.int8), empty(width, width, dtype=torch.int8)
            integers.w8a8_block_int8_matmul(a, b, *scales, [128, 128], torch.bfloat16)


def case_adapters():
    for rows, segments in ((TOKENS, 2), (128, 128)):
        batch = SimpleNamespace(
            bs=segments,
            num_segments=segments,
            max_len=rows // segments,
            seg_lens=lengths(segments, rows // segments),
            seg_indptr=torch.arange(
                0, rows + 1, rows // segments, dtype=torch.int32, device="cuda"
            ),
            weight_indices=counted(segments, below=4),
            lora_ranks=lengths(4, 16),
            scalings=normal(4, dtype=FLOAT),
            permutation=None,
            use_cuda_graph=False,
            max_rank=16,
        )
        for name, given in {
            "sgemm_lora_a": (
                "sgemm_lora_a_fwd",
                [normal(rows, 4096), normal(4, 48, 4096), batch, 3],
            ),
            "sgemm_lora_b": (
                "sgemm_lora_b_fwd",
                [normal(rows, 16), normal(4, 4096, 16), batch, normal(rows, 4096)],
            ),
            "qkv_lora_b": (
                "qkv_lora_b_fwd",
                [
                    normal(rows, 48),
                    normal(4, 6144, 16),
                    batch,
                    torch.tensor([0, 4096, 5120, 6144], dtype=torch.int32, device="cuda"),
                    4096,
                    normal(rows, 6144),
                ],
            ),
            "gate_up_lora_b": (
                "gate_up_lora_b_fwd",
                [normal(rows, 32), normal(4, 2 * 14336, 16), batch, 14336, normal(rows, 2 * 14336)],
            ),
        }.items():
            function, arguments = given
            getattr(ops(f"lora.dense.{name}"), function)(*arguments)


def case_batch_invariance():
    module = importlib.import_module("sglang.srt.batch_invariant_ops.batch_invariant_ops")
    for rows in (8, TOKENS):
        module.matmul_persistent(normal(rows, 4096), normal(4096, 4096))
        module.log_softmax(normal(rows, 128256, dtype=FLOAT))
        module.rms_norm(normal(rows, 4096), normal(4096))
        module.mean_dim(normal(rows, 4096), 1)
    module.bmm_batch_invariant(normal(32, 1024, 128), normal(32, 128, 1024))


def case_logits():
    ops("attention.fla.cumsum").chunk_local_cumsum(normal(1, TOKENS, 32, dtype=FLOAT), 64)
    with kernels_give(1):
        module = importlib.import_module("sglang.srt.layers.logsumexp")
        for name in ("logsumexp",):
            if hasattr(module, name):
                getattr(module, name)(normal(128, 128256, dtype=FLOAT))


def case_norms():
    module = ops("layernorm.fused_rmsnorm")
    for width in WIDTHS:
        module.fused_dual_residual_rmsnorm(
            normal(TOKENS, width), normal(TOKENS, width), normal(width), normal(width), 1e-6
        )
        module.fused_rmsnorm(normal(TOKENS, width), normal(width), 1e-6)


def case_norms_of_diffusion():
    norm = importlib.import_module("sglang.kernels.ops.diffusion.norm.norm_triton")
    norm.rms_norm_fn(normal(TOKENS, 3072), normal(3072), None, residual=None, eps=1e-6)
    norm.norm_infer(normal(TOKENS, 3072), normal(3072), normal(3072), 1e-6, is_rms_norm=False)
    one = importlib.import_module("sglang.kernels.ops.diffusion.norm.rmsnorm_onepass_triton")
    one.triton_one_pass_rms_norm(normal(TOKENS * 24, 128), normal(128), 1e-6)


def case_modulation_of_diffusion():
    module = importlib.import_module("sglang.kernels.ops.diffusion.modulate.scale_shift_triton")
    module.fuse_scale_shift_kernel(normal(1, TOKENS, 3072), normal(1, 1, 3072), normal(1, 1, 3072))


def case_rotary_of_diffusion():
    module = importlib.import_module("sglang.kernels.ops.diffusion.rope.rotary_triton")
    module.apply_rotary_embedding(
        normal(1, TOKENS, 24, 128), normal(TOKENS, 64), normal(TOKENS, 64)
    )
