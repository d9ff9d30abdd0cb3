"""Training steps of patched models of transformers against those of the models as they are."""

import copy

import pytest

import tilewright_kernels as tk

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
#: Family -> further settings, and the number of norms.
MODELS = {
    "Llama": ({}, 5),
    "Qwen2": ({}, 5),
    "Qwen3": ({"head_dim": 8}, 9),
    "Mixtral": ({"num_local_experts": 4, "num_experts_per_tok": 2}, 5),
    "Gemma": ({"head_dim": 8}, 5),
    "Gemma2": ({"head_dim": 8, "query_pre_attn_scalar": 8}, 9),
}


def model_of(family):
    torch.manual_seed(0)
    settings, _ = MODELS[family]
    config = getattr(transformers, f"{family}Config")(**SIZES, **settings, pad_token_id=0)
    config._attn_implementation = "eager"
    return getattr(transformers, f"{family}ForCausalLM")(config).train()


def step(model, tokens, labels):
    loss = model(input_ids=tokens, labels=labels, use_cache=False).loss
    loss.backward()
    return loss, {name: each.grad for name, each in model.named_parameters()}


@pytest.mark.parametrize("family", MODELS)
def test_a_training_step_equals_that_of_the_model_as_it_is(family):
    model = model_of(family)
    patched = copy.deepcopy(model)
    counts = tk.apply_to(patched)
    assert counts["rms_norm"] == MODELS[family][1]
    assert counts["rotary"] == 2
    assert counts["cross_entropy"] == 1
    assert counts["experts" if family == "Mixtral" else "swiglu"] == 2
    tokens = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(1))
    labels = tokens.clone()
    labels[0, :4] = -100
    expected, gradients = step(model, tokens, labels)
    loss, found = step(patched, tokens, labels)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    assert found.keys() == gradients.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, gradients[name], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("family", ["Llama", "Mixtral", "Gemma"])
def test_a_loss_without_logits_equals_that_of_the_model_as_it_is(family):
    model = model_of(family)
    patched = copy.deepcopy(model)
    tk.apply_to(patched, linear_cross_entropy=True)
    tokens = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(1))
    extra = {"output_router_logits": True} if family == "Mixtral" else {}
    expected = model(input_ids=tokens, labels=tokens, **extra)
    found = patched(input_ids=tokens, labels=tokens, **extra)
    assert found.logits is None
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-5, atol=1e-5)
    expected.loss.backward()
    found.loss.backward()
    for one, other in zip(patched.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)
    logits = patched.eval()(input_ids=tokens, labels=tokens).logits
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-4)


def test_a_loss_without_logits_is_refused_where_logits_are_capped():
    with pytest.raises(ValueError, match="without final_logit_softcapping"):
        tk.apply_to(model_of("Gemma2"), linear_cross_entropy=True)


def test_each_operation_has_a_switch():
    model = model_of("Llama")
    counts = tk.apply_to(model, rotary=False, swiglu=False, cross_entropy=False)
    assert counts == {"rms_norm": 5, "rotary": 0, "swiglu": 0, "experts": 0, "cross_entropy": 0}
    other = model_of("Llama")
    assert "forward" not in vars(other.model.norm)


def test_models_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="Linear has no module that is known: apply_to takes"):
        tk.apply_to(torch.nn.Linear(3, 4))
