"""The public names and parameters that programs written for version 3.8 of the language rely on."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import ConstexprFunction, JitCallable

NAMES = [
    "PropagateNan",
    "TRITON_MAX_TENSOR_NUMEL",
    "abs",
    "add",
    "advance",
    "arange",
    "argmax",
    "argmin",
    "associative_scan",
    "assume",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "bfloat16",
    "bitonic_merge",
    "block_type",
    "broadcast",
    "broadcast_to",
    "cast",
    "cat",
    "cdiv",
    "ceil",
    "clamp",
    "condition",
    "const",
    "constexpr",
    "constexpr_type",
    "cos",
    "cumprod",
    "cumsum",
    "debug_barrier",
    "device_assert",
    "device_print",
    "div_rn",
    "dot",
    "dot_scaled",
    "dtype",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "expect_zero",
    "extra",
    "fdiv",
    "flip",
    "float16",
    "float32",
    "float64",
    "float8e4b15",
    "float8e4b8",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "floor",
    "fma",
    "full",
    "gather",
    "histogram",
    "inline_asm_elementwise",
    "int1",
    "int16",
    "int32",
    "int64",
    "int8",
    "interleave",
    "join",
    "load",
    "load_tensor_descriptor",
    "log",
    "log2",
    "make_block_ptr",
    "make_tensor_descriptor",
    "map_elementwise",
    "math",
    "max",
    "max_constancy",
    "max_contiguous",
    "maximum",
    "min",
    "minimum",
    "mul",
    "multiple_of",
    "num_programs",
    "pair_uniform_to_normal",
    "permute",
    "philox",
    "philox_impl",
    "pi32_t",
    "pointer_type",
    "program_id",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
    "randn4x",
    "range",
    "ravel",
    "reduce",
    "reduce_or",
    "reshape",
    "rsqrt",
    "sigmoid",
    "sin",
    "slice",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "sqrt_rn",
    "squeeze",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "store_tensor_descriptor",
    "sub",
    "sum",
    "swizzle2d",
    "target_info",
    "tensor",
    "tensor_descriptor",
    "to_tensor",
    "topk",
    "trans",
    "tuple",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "uint_to_uniform_float",
    "umulhi",
    "unsqueeze",
    "view",
    "void",
    "where",
    "xor_sum",
    "zeros",
    "zeros_like",
]

# name: parameters in order, "=" where there is a default
SIGNATURES = dict(
    line.split(":", 1)
    for line in """
core.add: x y sanitize_overflow=
core.advance: base offsets
core.aggregate_replace: instance **changes
core.arange: start end
core.associative_scan: input axis combine_fn reverse=
core.assume: cond
core.atomic_add: pointer val mask= sem= scope=
core.atomic_and: pointer val mask= sem= scope=
core.atomic_cas: pointer cmp val sem= scope=
core.atomic_max: pointer val mask= sem= scope=
core.atomic_min: pointer val mask= sem= scope=
core.atomic_or: pointer val mask= sem= scope=
core.atomic_xchg: pointer val mask= sem= scope=
core.atomic_xor: pointer val mask= sem= scope=
core.base_type.mangle: self
core.binary_op_type_legalization: lhs rhs semantic
core.block_type.__init__: self element_ty shape
core.block_type.get_block_shapes: self
core.block_type.is_block: self
core.block_type.mangle: self
core.block_type.nbytes: self
core.block_type.scalar: self
core.block_type.to_ir: self builder
core.block_type.with_element_ty: self scalar_ty
core.broadcast: input other
core.broadcast_to: input *shape
core.builtin: fn
core.builtin_max: *args propagate_nan=
core.builtin_min: *args propagate_nan=
core.cast: input dtype fp_downcast_rounding= bitcast=
core.cat: input other can_reorder= dim=
core.check_bit_width: value shift_value
core.clamp: x min max propagate_nan=
core.condition.__init__: self arg1 disable_licm=
core.constexpr.__init__: self value
core.constexpr.logical_and: self other
core.constexpr.logical_or: self other
core.constexpr_type.__init__: self value
core.constexpr_type.mangle: self
core.debug_barrier: _semantic=
core.device_assert: cond msg= mask=
core.device_print: prefix *args hex=
core.dispatch: func lib_name lib_path args arg_type_symbol_dict ret_type is_pure _semantic
core.dot: input other acc= input_precision= allow_tf32= max_num_imprecise_acc= out_dtype=
core.dot_scaled: lhs lhs_scale lhs_format rhs rhs_scale rhs_format acc= fast_math= lhs_k_pack= rhs_k_pack= out_dtype=
core.dtype.__init__: self name
core.dtype.cache_key_part: self
core.dtype.codegen_name: self
core.dtype.get_int_max_value: self
core.dtype.get_int_min_value: self
core.dtype.is_bf16: self
core.dtype.is_block:
core.dtype.is_bool: self
core.dtype.is_const:
core.dtype.is_dtype: type_str
core.dtype.is_floating: self
core.dtype.is_fp16: self
core.dtype.is_fp32: self
core.dtype.is_fp64: self
core.dtype.is_fp8: self
core.dtype.is_fp8e4b15: self
core.dtype.is_fp8e4b8: self
core.dtype.is_fp8e4nv: self
core.dtype.is_fp8e5: self
core.dtype.is_fp8e5b16: self
core.dtype.is_int: self
core.dtype.is_int1: self
core.dtype.is_int16: self
core.dtype.is_int32: self
core.dtype.is_int64: self
core.dtype.is_int8: self
core.dtype.is_int_signed: self
core.dtype.is_int_unsigned: self
core.dtype.is_ptr:
core.dtype.is_standard_floating: self
core.dtype.is_uint16: self
core.dtype.is_uint32: self
core.dtype.is_uint64: self
core.dtype.is_uint8: self
core.dtype.is_void:
core.dtype.kind: self
core.dtype.mangle: self
core.dtype.scalar: self
core.dtype.to_ir: self builder
core.dtype.with_element_ty: self element_ty
core.expand_dims: input axis
core.expect_zero: x mask
core.extern: fn
core.extern_elementwise: lib_name lib_path args arg_type_symbol_dict is_pure
core.full: shape value dtype
core.gather: src index axis
core.get_int_dtype: bitwidth signed
core.histogram: input num_bins mask=
core.inline_asm_elementwise: asm constraints args dtype is_pure pack
core.is_builtin: fn
core.is_negative_zero: x
core.item: input
core.join: a b
core.load: pointer mask= other= boundary_check= padding_option= cache_modifier= eviction_policy= volatile=
core.load_tensor_descriptor: desc offsets
core.make_block_ptr: base shape strides offsets block_shape order
core.make_tensor_descriptor: base shape strides block_shape padding_option=
core.map_elementwise: scalar_fn *args pack=
core.max_constancy: input values
core.max_contiguous: input values
core.maximum: x y propagate_nan=
core.minimum: x y propagate_nan=
core.mul: x y sanitize_overflow=
core.multiple_of: input values
core.must_use_result: x s=
core.num_programs: axis
core.permute: input *dims
core.pointer_type.__init__: self element_ty address_space= const=
core.pointer_type.is_const: self
core.pointer_type.is_ptr: self
core.pointer_type.mangle: self
core.pointer_type.scalar: self
core.pointer_type.to_ir: self builder
core.program_id: axis
core.range.__init__: self arg1 arg2= step= num_stages= loop_unroll_factor= disallow_acc_multi_buffer= flatten= warp_specialize= disable_licm=
core.reduce: input axis combine_fn keep_dims=
core.reshape: input *shape can_reorder=
core.slice.__init__: self start stop step
core.slice_type.__init__: self
core.split: a
core.static_assert: cond msg=
core.static_print: *values sep= end= file= flush=
core.static_range.__init__: self arg1 arg2= step=
core.store: pointer value mask= boundary_check= cache_modifier= eviction_policy=
core.store_tensor_descriptor: desc offsets value
core.sub: x y sanitize_overflow=
core.tensor.T: self
core.tensor.__init__: self handle type
core.tensor.abs: self
core.tensor.advance: self offsets
core.tensor.argmax: self axis tie_break_left= keep_dims=
core.tensor.argmin: self axis tie_break_left= keep_dims=
core.tensor.associative_scan: self axis combine_fn reverse=
core.tensor.atomic_add: self val mask= sem= scope=
core.tensor.atomic_and: self val mask= sem= scope=
core.tensor.atomic_cas: self cmp val sem= scope=
core.tensor.atomic_max: self val mask= sem= scope=
core.tensor.atomic_min: self val mask= sem= scope=
core.tensor.atomic_or: self val mask= sem= scope=
core.tensor.atomic_xchg: self val mask= sem= scope=
core.tensor.atomic_xor: self val mask= sem= scope=
core.tensor.broadcast_to: self *shape
core.tensor.cast: self dtype fp_downcast_rounding= bitcast=
core.tensor.cdiv: self div
core.tensor.cos: self
core.tensor.cumprod: self axis= reverse=
core.tensor.cumsum: self axis= reverse=
core.tensor.exp: self
core.tensor.expand_dims: self axis
core.tensor.flip: self dim=
core.tensor.gather: self indices axis
core.tensor.histogram: self num_bins
core.tensor.log: self
core.tensor.logical_and: self other
core.tensor.logical_or: self other
core.tensor.max: self axis= return_indices= return_indices_tie_break_left= keep_dims=
core.tensor.min: self axis= return_indices= return_indices_tie_break_left= keep_dims=
core.tensor.permute: self *dims
core.tensor.ravel: self
core.tensor.reduce: self axis combine_fn keep_dims=
core.tensor.reduce_or: self axis= keep_dims=
core.tensor.reshape: self *shape
core.tensor.rsqrt: self
core.tensor.sigmoid: self
core.tensor.sin: self
core.tensor.softmax: self dim= keep_dims= ieee_rounding=
core.tensor.sort: self dim= descending=
core.tensor.split: self
core.tensor.sqrt: self
core.tensor.store: self value mask= boundary_check= cache_modifier= eviction_policy=
core.tensor.sum: self axis= keep_dims= dtype=
core.tensor.to: self dtype fp_downcast_rounding= bitcast=
core.tensor.trans: self *dims
core.tensor.view: self *shape
core.tensor.xor_sum: self axis= keep_dims=
core.tensor_descriptor.__init__: self handle shape strides block_type
core.tensor_descriptor_base.__init__: self handle block_type
core.tensor_descriptor_base.atomic_add: self offsets value
core.tensor_descriptor_base.atomic_and: self offsets value
core.tensor_descriptor_base.atomic_max: self offsets value
core.tensor_descriptor_base.atomic_min: self offsets value
core.tensor_descriptor_base.atomic_or: self offsets value
core.tensor_descriptor_base.atomic_xor: self offsets value
core.tensor_descriptor_base.block_shape: self
core.tensor_descriptor_base.block_type: self
core.tensor_descriptor_base.dtype: self
core.tensor_descriptor_base.gather: self *args
core.tensor_descriptor_base.load: self offsets
core.tensor_descriptor_base.scatter: self value *args
core.tensor_descriptor_base.store: self offsets value
core.tensor_descriptor_base_type.__init__: self block_type
core.tensor_descriptor_base_type.mangle: self
core.tensor_descriptor_type.__init__: self block_type shape_type strides_type
core.to_tensor: x
core.trans: input *dims
core.tuple.__init__: self args type=
core.tuple_type.__init__: self types fields=
core.tuple_type.mangle: self
core.tuple_type.name: self
core.view: input *shape
core.where: condition x y
math.abs: x
math.ceil: x
math.cos: x
math.div_rn: x y
math.erf: x
math.exp: x
math.exp2: x
math.fdiv: x y ieee_rounding=
math.floor: x
math.fma: x y z
math.log: x
math.log2: x
math.rsqrt: x
math.sin: x
math.sqrt: x
math.sqrt_rn: x
math.umulhi: x y
random.pair_uniform_to_normal: u1 u2
random.philox: seed c0 c1 c2 c3 n_rounds=
random.philox_impl: c0 c1 c2 c3 k0 k1 n_rounds=
random.rand: seed offset n_rounds=
random.rand4x: seed offsets n_rounds=
random.randint: seed offset n_rounds=
random.randint4x: seed offset n_rounds=
random.randn: seed offset n_rounds=
random.randn4x: seed offset n_rounds=
random.uint_to_uniform_float: x
standard.argmax: input axis tie_break_left= keep_dims=
standard.argmin: input axis tie_break_left= keep_dims=
standard.bitonic_merge: x dim= descending=
standard.cdiv: x div
standard.cumprod: input axis= reverse=
standard.cumsum: input axis= reverse= dtype=
standard.flip: x dim=
standard.interleave: a b
standard.max: input axis= return_indices= return_indices_tie_break_left= keep_dims=
standard.min: input axis= return_indices= return_indices_tie_break_left= keep_dims=
standard.ravel: x can_reorder=
standard.reduce_or: input axis keep_dims=
standard.sigmoid: x
standard.softmax: x dim= keep_dims= ieee_rounding=
standard.sort: x dim= descending=
standard.sort_impl: x k= dim= descending=
standard.squeeze: x dim
standard.sum: input axis= keep_dims= dtype=
standard.swizzle2d: i j size_i size_j size_g
standard.topk: x k dim= descending=
standard.unsqueeze: x dim
standard.xor_sum: input axis= keep_dims=
standard.zeros: shape dtype
standard.zeros_like: input
target_info.cuda_capability_geq: major minor=
target_info.current_target:
target_info.is_cuda:
target_info.is_hip:
target_info.is_hip_cdna3:
target_info.is_hip_cdna4:
target_info.is_hip_gfx1250:
""".strip().splitlines()
)

# Types are made by __new__; some members are plain attributes here; two members have the parameters
# of the function.
_OTHERWISE = {
    "core.block_type.__init__",
    "core.block_type.scalar",
    "core.dtype.__init__",
    "core.dtype.is_void",
    "core.dtype.scalar",
    "core.pointer_type.__init__",
    "core.pointer_type.scalar",
    "core.tensor.gather",
    "core.tensor.reduce_or",
    "core.tensor_descriptor_base.block_type",
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert name in tl.__all__
    getattr(tl, name)


def _parameters(found: Any) -> list[str]:
    if isinstance(found, JitCallable) and not isinstance(found, ConstexprFunction):
        return [
            ("*" if p.variadic else "") + p.name + ("=" if p.has_default else "")
            for p in found.params
        ]
    result = []
    for parameter in inspect.signature(found).parameters.values():
        if parameter.name == "_semantic" and parameter.default is None:
            continue
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(
            parameter.kind, ""
        )
        result.append(
            stars
            + parameter.name
            + ("=" if parameter.default is not inspect.Parameter.empty else "")
        )
    return result


def _find(path: str) -> Any:
    found: Any = tl
    for name in path.split("."):
        found = (
            inspect.getattr_static(found, name) if isinstance(found, type) else getattr(found, name)
        )
    return found


@pytest.mark.parametrize("path", [path for path in SIGNATURES if path not in _OTHERWISE])
def test_parameters(path: str) -> None:
    found, wanted = _find(path), SIGNATURES[path].split()
    if isinstance(found, property):
        assert wanted == ["self"]
        return
    member = path.count(".") == 2
    if isinstance(found, staticmethod):
        found = found.__func__
    if isinstance(found, tl.core.Member):
        found = found.fn
    if wanted and wanted[-1] == "_semantic=":
        wanted.pop()
    mine = _parameters(found)
    if member and wanted and mine:
        # As members the functions take their first argument as self.
        assert len(mine) >= len(wanted)
        wanted, mine = wanted[1:], mine[1:]
    assert mine[: len(wanted)] == wanted
    assert all(name.endswith("=") or name.startswith("*") for name in mine[len(wanted) :])


def test_what_is_public_is_documented() -> None:
    undocumented = [
        name for name in tl.__all__ if callable(getattr(tl, name)) and not getattr(tl, name).__doc__
    ]
    assert undocumented == []
