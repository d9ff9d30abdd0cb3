"""Kernels of the library in models of Hugging Face's ``transformers``."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from tilewright_kernels.experts.expert_swiglu import expert_swiglu
from tilewright_kernels.linear.linear_cross_entropy import (
    linear_cross_entropy as linear_cross_entropy_of,
)
from tilewright_kernels.rows.cross_entropy import cross_entropy as cross_entropy_of
from tilewright_kernels.rows.geglu import geglu
from tilewright_kernels.rows.rms_norm import rms_norm as rms_norm_of
from tilewright_kernels.rows.rotary import rotary as rotary_of
from tilewright_kernels.rows.swiglu import swiglu as swiglu_of

#: Families of models; their classes begin with these names.
_FAMILIES = ("Llama", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe", "Mistral", "Mixtral")
#: Those whose norms multiply by one more than the weight, in float32.
_GEMMA = ("Gemma", "Gemma2", "Gemma3")
#: Class of an activation -> the gated one.
_GATED: dict[str, Callable[[Any, Any], Any]] = {
    "SiLU": swiglu_of,
    "SiLUActivation": swiglu_of,
    "GELUTanh": lambda gate, up: geglu(gate, up, approximate="tanh"),
    "GELUActivation": lambda gate, up: geglu(gate, up, approximate="none"),
}
#: The function that attention of these families calls, in the module that defines it.
_ROTATION = "apply_rotary_pos_emb"


def apply_to(
    model: Any,
    *,
    rms_norm: bool = True,
    rotary: bool = True,
    swiglu: bool = True,
    experts: bool = True,
    cross_entropy: bool = True,
    linear_cross_entropy: bool = False,
) -> dict[str, int]:
    """Make a ``transformers`` model use kernels of the library, for training and serving.

    The supported models are Llama, Qwen 2 and 3, Mistral, Mixtral and Gemma 1 to 3. The function
    changes only the model that you pass, and no other model of the same class. The parameters of
    the model keep their names.

    Args:
        model: a ``torch.nn.Module``, such as a ``LlamaForCausalLM``.
        rms_norm: whether to change the RMS norms.
        rotary: whether to change the rotary embeddings of queries and keys.
        swiglu: whether to change the gated layers with SiLU or GELU.
        experts: whether to change the gated layers of mixtures of experts.
        cross_entropy: whether to change the loss of a causal language model, which is computed if
            ``labels=`` is passed. The library reads the logits in their own element type, and
            computes sums in float32.
        linear_cross_entropy: whether to compute the training loss in chunks of rows, which takes
            less memory. If you then pass ``labels=`` in training, the output contains no logits.

    Returns:
        A dictionary that maps ``rms_norm``, ``rotary``, ``swiglu``, ``experts`` and
        ``cross_entropy`` to the numbers of modules that these arguments changed.
        ``linear_cross_entropy`` counts as ``cross_entropy``.

    Raises:
        ValueError: the model contains no module that ``apply_to`` can change. Also raised if
            ``linear_cross_entropy`` is True and the model adds a bias to its logits, or applies a
            soft cap to its logits.
    """
    counts = dict.fromkeys(("rms_norm", "rotary", "swiglu", "experts", "cross_entropy"), 0)
    if linear_cross_entropy:
        _check_logits(model)
    for module in model.modules():
        name = type(module).__name__
        if rms_norm and _is(name, "RMSNorm"):
            module.forward = types.MethodType(_norm_of(name), module)
            counts["rms_norm"] += 1
        elif swiglu and _is(name, "MLP") and type(module.act_fn).__name__ in _GATED:
            module.forward = types.MethodType(_gated, module)
            counts["swiglu"] += 1
        elif experts and _is(name, "Experts") and _GATED.get(_activation(module)) is swiglu_of:
            module.forward = types.MethodType(_experts, module)
            counts["experts"] += 1
        elif rotary and _is(name, "Attention") and _rotates(module):
            module.forward = types.MethodType(_with_rotation(type(module).forward), module)
            counts["rotary"] += 1
    name = type(model).__name__
    if _is(name, "ForCausalLM") and (cross_entropy or linear_cross_entropy):
        model.loss_function = _loss
        counts["cross_entropy"] = 1
        if linear_cross_entropy:
            model.forward = types.MethodType(_without_logits(type(model).forward), model)
    wanted = {"rms_norm": rms_norm, "rotary": rotary, "swiglu": swiglu, "experts": experts}
    if (any(wanted.values()) or cross_entropy or linear_cross_entropy) and not any(counts.values()):
        raise ValueError(
            f"{name} has no module that is known: apply_to takes models of "
            f"{', '.join((*_FAMILIES, *_GEMMA))}"
        )
    return counts


def _is(name: str, kind: str) -> bool:
    """Return whether a class is of a kind, in a known family."""
    return name.endswith(kind) and name.removesuffix(kind) in (*_FAMILIES, *_GEMMA)


def _activation(module: Any) -> str:
    return type(module.act_fn).__name__


def _norm_of(name: str) -> Callable[[Any, Any], Any]:
    return _gemma_norm if name.removesuffix("RMSNorm") in _GEMMA else _norm


def _norm(module: Any, hidden_states: Any) -> Any:
    return rms_norm_of(
        hidden_states, module.weight, eps=module.variance_epsilon, round_normalized=True
    )


def _gemma_norm(module: Any, x: Any) -> Any:
    return rms_norm_of(x, module.weight, eps=module.eps, offset=1.0)


def _gated(module: Any, x: Any) -> Any:
    activation = _GATED[_activation(module)]
    return module.down_proj(activation(module.gate_proj(x), module.up_proj(x)))


def _experts(module: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    import torch

    return expert_swiglu(
        hidden_states,
        top_k_weights.to(hidden_states.dtype),
        top_k_index.to(torch.int32),
        module.gate_up_proj.transpose(1, 2),
        module.down_proj.transpose(1, 2),
    )


def _rotates(module: Any) -> bool:
    """Return whether an attention calls the function that rotates queries and keys."""
    return _ROTATION in inspect.unwrap(type(module).forward).__globals__


def _with_rotation(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward method of an attention, which calls our function to rotate."""
    own: Any = inspect.unwrap(forward)
    found = types.FunctionType(
        own.__code__,
        {**own.__globals__, _ROTATION: _rotate},
        own.__name__,
        own.__defaults__,
        own.__closure__,
    )
    found.__kwdefaults__ = own.__kwdefaults__
    return found


def _rotate(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> tuple[Any, Any]:
    """Rotate queries and keys of shape (batch, heads, rows, width)."""
    half = cos.shape[-1] // 2
    cos, sin = cos[..., :half], sin[..., :half]  # the other half repeats them
    if cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    if unsqueeze_dim == 2:
        return rotary_of(q, cos, sin), rotary_of(k, cos, sin)
    q, k = (rotary_of(each.transpose(1, 2), cos, sin) for each in (q, k))
    return q.transpose(1, 2), k.transpose(1, 2)


def _check_logits(model: Any) -> None:
    """Refuse models whose logits are not the last layer's inputs times its weight.

    Raises:
        ValueError: the model is one.
    """
    head = model.get_output_embeddings()
    if head is None or head.bias is not None:
        raise ValueError("linear_cross_entropy takes models whose logits have no bias")
    if getattr(model.config, "final_logit_softcapping", None) is not None:
        raise ValueError(
            "linear_cross_entropy takes models without final_logit_softcapping: leave it out"
        )


def _without_logits(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a model's forward method that passes the last layer's inputs to the loss."""
    signature = inspect.signature(forward)

    @functools.wraps(forward)
    def called(module: Any, *arguments: Any, **keywords: Any) -> Any:
        labels = signature.bind(module, *arguments, **keywords).arguments.get("labels")
        if labels is None or not module.training:
            return forward(module, *arguments, **keywords)
        head, loss_function = module.get_output_embeddings(), module.loss_function
        head.forward = _identity
        module.loss_function = functools.partial(_loss, weight=head.weight)
        try:
            found = forward(module, *arguments, **keywords)
        finally:
            del head.forward
            module.loss_function = loss_function
        if isinstance(found, tuple):
            return (found[0], None, *found[2:])
        found.logits = None
        return found

    return called


def _identity(hidden: Any) -> Any:
    return hidden


def _loss(
    logits: Any,
    labels: Any,
    vocab_size: int,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: Any = None,
    weight: Any = None,
    **keywords: Any,
) -> Any:
    """Return the loss of a causal language model, as ``ForCausalLMLoss`` of transformers.

    Args:
        logits: those, or with ``weight`` the inputs of the layer that computes them.
        labels: the tokens, of which each is the class of the row before it.
        vocab_size: number of classes.
        num_items_in_batch: what the sum is divided by; the number of rows that count if None.
        ignore_index: the label of rows that do not count.
        shift_labels: the class of each row, instead of ``labels``.
        weight: of the last layer, or None.
        keywords: what other losses take.
    """
    import torch

    if shift_labels is None:
        labels = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)
        shift_labels = labels[..., 1:]
    target = shift_labels.reshape(-1).to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    rows = logits.reshape(-1, logits.shape[-1])
    if weight is None:
        loss = cross_entropy_of(rows, target, ignore_index=ignore_index, reduction=reduction)
    else:
        loss = linear_cross_entropy_of(
            rows.to(weight.dtype), weight, target, ignore_index=ignore_index, reduction=reduction
        )
    if num_items_in_batch is None:
        return loss
    if torch.is_tensor(num_items_in_batch):
        num_items_in_batch = num_items_in_batch.to(loss.device)
    return loss / num_items_in_batch
