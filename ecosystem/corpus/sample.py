"""The records that the gate compiles: cheap ones, each for one target."""

from __future__ import annotations

#: id -> target
SAMPLE: dict[str, str] = {
    "liger-kernel/_block_rms_norm_backward_kernel/rms_norm_of_heads/131072x128/bf16": "gfx942",
    "liger-kernel/_block_rms_norm_forward_kernel/rms_norm_of_heads/131072x128/bf16": "gfx942",
    "liger-kernel/_dyt_bwd_kernel/dyt/4096x4096/bf16": "sm_90a",
    "liger-kernel/_fused_add_rms_norm_backward_kernel/fused_add_rms_norm/4096x4096/bf16": "sm_90a",
    "liger-kernel/_fused_ce_tvd_backward_kernel/fused_ce_tvd/1024x128256/bf16": "sm_90a",
    "liger-kernel/_fused_ce_tvd_forward_kernel/fused_ce_tvd/1024x128256/bf16": "gfx942",
    "liger-kernel/_fused_down_proj_kernel/mixture_of_experts/128x4096x768/bf16": "gfx942",
    (
        "liger-kernel/_fused_neighborhood_attention_av_kernel/"
        "neighborhood_attention/1x16x1024x1024/bf16"
    ): "gfx942",
    (
        "liger-kernel/_fused_neighborhood_attention_grad_attn_kernel/"
        "neighborhood_attention/1x16x1024x1024/bf16"
    ): "gfx942",
    (
        "liger-kernel/_fused_neighborhood_attention_grad_k_kernel/"
        "neighborhood_attention/1x16x1024x1024/bf16"
    ): "gfx942",
    (
        "liger-kernel/_fused_neighborhood_attention_grad_qk_kernel/"
        "neighborhood_attention/1x16x1024x1024/bf16"
    ): "sm_90a",
    (
        "liger-kernel/_fused_neighborhood_attention_grad_v_kernel/"
        "neighborhood_attention/1x16x1024x1024/bf16"
    ): "sm_90a",
    (
        "liger-kernel/_fused_neighborhood_attention_qk_kernel/"
        "neighborhood_attention/1x16x1024x1024/bf16"
    ): "sm_90a",
    "liger-kernel/_fused_up_proj_swiglu_kernel/mixture_of_experts/128x1536x4096/bf16": "gfx942",
    "liger-kernel/_group_norm_backward_kernel/group_norm/16x512x4096/bf16": "sm_90a",
    "liger-kernel/_grpo_loss_bwd_kernel/grpo_loss/8x513x128256/bf16": "sm_90a",
    "liger-kernel/_grpo_loss_fwd_kernel/grpo_loss/8x513x128256/bf16": "sm_90a",
    "liger-kernel/_jsd_kernel/fused_linear_jsd/128x128256/fp32": "gfx942",
    "liger-kernel/_kldiv_kernel_backward/kl_div/1024x128256/fp32": "sm_90a",
    "liger-kernel/_kldiv_kernel_forward/kl_div/1024x128256/fp32": "sm_90a",
    "liger-kernel/_layer_norm_backward_kernel/layer_norm/4096x4096/bf16": "sm_90a",
    "liger-kernel/_mhc_mm_norm_bwd_fused_kernel/hyper_connections/4096x8192/bf16": "sm_90a",
    "liger-kernel/_modulated_rms_norm_backward_kernel/modulated_rms_norm/8192x4096/bf16": "gfx942",
    "liger-kernel/_moe_bwd_dW1_kernel/mixture_of_experts/128x1536x4096/bf16": "sm_90a",
    "liger-kernel/_moe_bwd_dW2_kernel/mixture_of_experts/128x4096x768/bf16": "sm_90a",
    "liger-kernel/_moe_bwd_dX_expanded_kernel/mixture_of_experts/128x1536x4096/bf16": "gfx942",
    "liger-kernel/_moe_bwd_down_proj_kernel/mixture_of_experts/128x4096x768/bf16": "gfx942",
    "liger-kernel/_moe_router_histogram_kernel/mixture_of_experts/4096x4/i32": "gfx942",
    "liger-kernel/_moe_router_prefix_sum_kernel/mixture_of_experts/128x32/i32": "gfx942",
    "liger-kernel/_moe_router_scatter_kernel/mixture_of_experts/16384/i32": "gfx942",
    "liger-kernel/_neighborhood_mask_kernel/neighborhood_attention/1024x1024/fp32": "sm_90a",
    "liger-kernel/_relu_squared_backward_kernel/relu_squared/4096x14336/bf16": "sm_90a",
    "liger-kernel/_relu_squared_forward_kernel/relu_squared/4096x14336/bf16": "gfx942",
    "liger-kernel/_rms_norm_backward_kernel/rms_norm/4096x4096/bf16": "gfx942",
    (
        "liger-kernel/_softmax_single_block_backward_kernel/neighborhood_attention/16384x1024/bf16"
    ): "sm_90a",
    (
        "liger-kernel/_softmax_single_block_forward_kernel/multi_token_attention/8192x512/bf16"
    ): "gfx942",
    "liger-kernel/_sparsemax_backward_kernel/sparsemax/4096x4096/bf16": "gfx942",
    "liger-kernel/_tv_distance_kernel/tvd/1024x128256/fp32": "gfx942",
    "liger-kernel/element_mul_kernel/fused_linear_kl_div/4096x4096/bf16": "gfx942",
    "liger-kernel/liger_cross_entropy_kernel/cross_entropy/1024x128256/bf16": "sm_90a",
}
