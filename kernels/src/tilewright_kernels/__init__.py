"""Kernels for training and serving, on every backend of Tilewright."""

from __future__ import annotations

from tilewright_kernels.attention.attention import attention
from tilewright_kernels.attention.kv_cache import (
    attention_with_kv_cache,
    attention_with_kv_cache_reference,
    mla_decode,
    mla_decode_reference,
)
from tilewright_kernels.attention.merge import (
    merge_attention_parts,
    merge_attention_parts_reference,
)
from tilewright_kernels.attention.reference import attention_reference, attention_varlen_reference
from tilewright_kernels.attention.varlen import attention_varlen
from tilewright_kernels.experts.expert_order import (
    ExpertOrder,
    expert_order,
    expert_order_reference,
)
from tilewright_kernels.experts.expert_swiglu import (
    expert_swiglu,
    expert_swiglu_reference,
    grouped_swiglu,
    grouped_swiglu_reference,
)
from tilewright_kernels.experts.permutation import (
    combine,
    combine_reference,
    permute,
    permute_reference,
)
from tilewright_kernels.experts.routing import route, route_reference
from tilewright_kernels.linear.convolution import conv2d, conv2d_reference
from tilewright_kernels.linear.epilogue import Epilogue
from tilewright_kernels.linear.epilogues.epilogue_functions import (
    rms_norm_epilogue,
    rotary_epilogue,
    row_scale,
)
from tilewright_kernels.linear.epilogues.quantization_epilogue import (
    matmul_quantized,
    matmul_quantized_reference,
)
from tilewright_kernels.linear.epilogues.rms_norm_matmul import (
    rms_norm_matmul,
    rms_norm_matmul_reference,
)
from tilewright_kernels.linear.grouped_matmul import (
    grouped_matmul,
    grouped_matmul_reference,
    k_grouped_matmul,
    k_grouped_matmul_reference,
)
from tilewright_kernels.linear.linear_cross_entropy import (
    linear_cross_entropy,
    linear_cross_entropy_reference,
)
from tilewright_kernels.linear.lora import lora_matmul, lora_matmul_reference
from tilewright_kernels.linear.matmul import matmul, matmul_reference
from tilewright_kernels.linear.micro_scaling import quantize_mx, quantize_mx_reference
from tilewright_kernels.linear.packed.packed_weights import (
    pack_weights,
    unpack_weights,
    weights_from_awq,
    weights_from_gptq,
    weights_from_hqq,
)
from tilewright_kernels.linear.quantize import quantize, quantize_reference
from tilewright_kernels.linear.quantized_matmul import quantized_matmul, quantized_matmul_reference
from tilewright_kernels.linear.scaled_matmul import scaled_matmul, scaled_matmul_reference
from tilewright_kernels.models.hugging_face import apply_to
from tilewright_kernels.operations.defaults import set_defaults, use_defaults, use_references
from tilewright_kernels.operations.plans import Plan, PlanError, plan
from tilewright_kernels.optimizers.adamw import adamw, adamw_reference
from tilewright_kernels.optimizers.adamw_8bit import (
    adamw_8bit,
    adamw_8bit_reference,
    adamw_8bit_state,
)
from tilewright_kernels.reductions.cumulative_sum import cumsum, cumsum_reference
from tilewright_kernels.reductions.extrema import (
    argmax,
    argmax_reference,
    argmin,
    argmin_reference,
    max,
    max_reference,
    min,
    min_reference,
)
from tilewright_kernels.reductions.histograms import histogram, histogram_reference
from tilewright_kernels.reductions.segment_sum import segment_sum, segment_sum_reference
from tilewright_kernels.reductions.sum_and_mean import mean, mean_reference, sum, sum_reference
from tilewright_kernels.reductions.variances import var, var_reference
from tilewright_kernels.rows.cross_entropy import cross_entropy, cross_entropy_reference
from tilewright_kernels.rows.cross_entropy_shard import (
    cross_entropy_shard,
    cross_entropy_shard_reference,
)
from tilewright_kernels.rows.divergences import jsd, jsd_reference, kl_div, kl_div_reference
from tilewright_kernels.rows.dropout import dropout, dropout_reference
from tilewright_kernels.rows.embedding import embedding, embedding_reference
from tilewright_kernels.rows.geglu import geglu, geglu_reference
from tilewright_kernels.rows.group_norm import group_norm, group_norm_reference
from tilewright_kernels.rows.l2_norm import l2_norm, l2_norm_reference
from tilewright_kernels.rows.layer_norm import layer_norm, layer_norm_reference
from tilewright_kernels.rows.quantized_rms_norm import (
    rms_norm_quantized,
    rms_norm_quantized_reference,
)
from tilewright_kernels.rows.rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
    rms_norm,
    rms_norm_reference,
)
from tilewright_kernels.rows.rotary import rotary, rotary_reference
from tilewright_kernels.rows.softmax import (
    log_softmax,
    log_softmax_reference,
    softmax,
    softmax_reference,
)
from tilewright_kernels.rows.swiglu import swiglu, swiglu_reference
from tilewright_kernels.sampling.multinomial import multinomial, multinomial_reference
from tilewright_kernels.sampling.sorting import (
    argsort,
    argsort_reference,
    sort,
    sort_by_key,
    sort_by_key_reference,
    sort_reference,
)
from tilewright_kernels.sampling.top_k import topk, topk_reference
from tilewright_kernels.sampling.top_p import top_p, top_p_reference
from tilewright_kernels.sequence.causal_convolution import causal_conv1d, causal_conv1d_reference
from tilewright_kernels.sequence.decoding_steps import (
    gated_delta_rule_step,
    gated_delta_rule_step_reference,
    ssd_step,
    ssd_step_reference,
)
from tilewright_kernels.sequence.gated_delta_rule import (
    gated_delta_rule,
    gated_delta_rule_reference,
)
from tilewright_kernels.sequence.linear_recurrence import (
    linear_recurrence,
    linear_recurrence_reference,
)
from tilewright_kernels.sequence.state_space_duality import ssd, ssd_reference

__all__ = [
    "Epilogue",
    "ExpertOrder",
    "Plan",
    "PlanError",
    "adamw",
    "adamw_8bit",
    "adamw_8bit_reference",
    "adamw_8bit_state",
    "adamw_reference",
    "add_rms_norm",
    "add_rms_norm_reference",
    "apply_to",
    "argmax",
    "argmax_reference",
    "argmin",
    "argmin_reference",
    "argsort",
    "argsort_reference",
    "attention",
    "attention_reference",
    "attention_varlen",
    "attention_varlen_reference",
    "attention_with_kv_cache",
    "attention_with_kv_cache_reference",
    "causal_conv1d",
    "causal_conv1d_reference",
    "combine",
    "combine_reference",
    "conv2d",
    "conv2d_reference",
    "cross_entropy",
    "cross_entropy_reference",
    "cross_entropy_shard",
    "cross_entropy_shard_reference",
    "cumsum",
    "cumsum_reference",
    "dropout",
    "dropout_reference",
    "embedding",
    "embedding_reference",
    "expert_order",
    "expert_order_reference",
    "expert_swiglu",
    "expert_swiglu_reference",
    "gated_delta_rule",
    "gated_delta_rule_reference",
    "gated_delta_rule_step",
    "gated_delta_rule_step_reference",
    "geglu",
    "geglu_reference",
    "group_norm",
    "group_norm_reference",
    "grouped_matmul",
    "grouped_matmul_reference",
    "grouped_swiglu",
    "grouped_swiglu_reference",
    "histogram",
    "histogram_reference",
    "jsd",
    "jsd_reference",
    "k_grouped_matmul",
    "k_grouped_matmul_reference",
    "kl_div",
    "kl_div_reference",
    "l2_norm",
    "l2_norm_reference",
    "layer_norm",
    "layer_norm_reference",
    "linear_cross_entropy",
    "linear_cross_entropy_reference",
    "linear_recurrence",
    "linear_recurrence_reference",
    "log_softmax",
    "log_softmax_reference",
    "lora_matmul",
    "lora_matmul_reference",
    "matmul",
    "matmul_quantized",
    "matmul_quantized_reference",
    "matmul_reference",
    "max",
    "max_reference",
    "mean",
    "mean_reference",
    "merge_attention_parts",
    "merge_attention_parts_reference",
    "min",
    "min_reference",
    "mla_decode",
    "mla_decode_reference",
    "multinomial",
    "multinomial_reference",
    "pack_weights",
    "permute",
    "permute_reference",
    "plan",
    "quantize",
    "quantize_mx",
    "quantize_mx_reference",
    "quantize_reference",
    "quantized_matmul",
    "quantized_matmul_reference",
    "rms_norm",
    "rms_norm_epilogue",
    "rms_norm_matmul",
    "rms_norm_matmul_reference",
    "rms_norm_quantized",
    "rms_norm_quantized_reference",
    "rms_norm_reference",
    "rotary",
    "rotary_epilogue",
    "rotary_reference",
    "route",
    "route_reference",
    "row_scale",
    "scaled_matmul",
    "scaled_matmul_reference",
    "segment_sum",
    "segment_sum_reference",
    "set_defaults",
    "softmax",
    "softmax_reference",
    "sort",
    "sort_by_key",
    "sort_by_key_reference",
    "sort_reference",
    "ssd",
    "ssd_reference",
    "ssd_step",
    "ssd_step_reference",
    "sum",
    "sum_reference",
    "swiglu",
    "swiglu_reference",
    "top_p",
    "top_p_reference",
    "topk",
    "topk_reference",
    "unpack_weights",
    "use_defaults",
    "use_references",
    "var",
    "var_reference",
    "weights_from_awq",
    "weights_from_gptq",
    "weights_from_hqq",
]
