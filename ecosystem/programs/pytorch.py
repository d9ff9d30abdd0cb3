"""torch.compile: functions and a step of training, and models of transformers."""

import torch

from programs import close, random

DISTRIBUTION = "torch"


def compiled(function):
    import torch._inductor.config as config

    config.cpu_backend = "triton"
    torch._dynamo.reset()
    return torch.compile(function)


def case_pointwise_and_reductions(device):
    def function(x, y):
        return (
            torch.softmax(torch.sin(x) * y, -1),
            (x - y).amax(0),
            torch.nn.functional.layer_norm(x, (100,)),
        )

    given = random(device, 8, 100), random(device, 8, 100, seed=1)
    close(compiled(function)(*given), function(*given))


def case_a_step_of_training(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    ).to(device)
    x = random(device, 16, 32)
    found = []
    for run in (compiled(model), model):
        model.zero_grad()
        run(x).square().mean().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    close(found[0], found[1], 1e-3)


def case_llama(device):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 64,
    }
    model = LlamaForCausalLM(LlamaConfig(**settings)).to(device).eval()
    tokens = torch.arange(16, device=device)[None]
    with torch.no_grad():
        close(
            compiled(model)(tokens, use_cache=False).logits,
            model(tokens, use_cache=False).logits,
            1e-3,
        )
