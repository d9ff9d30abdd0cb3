"""cut-cross-entropy: the loss of a classifier whose logits are never stored."""

import torch
import torch.nn.functional as F

from programs import close, random

DISTRIBUTION = "cut-cross-entropy"


def case_linear_cross_entropy(device):
    from cut_cross_entropy import linear_cross_entropy

    targets = (torch.arange(70, device=device) * 7) % 300
    targets[3] = -100
    embeddings, classifier = (
        (random(device, *shape) / 4).bfloat16() for shape in ((70, 48), (300, 48))
    )
    results = []
    for loss in (
        lambda e, c: linear_cross_entropy(e, c, targets, impl="cce", filter_eps=None),
        lambda e, c: F.cross_entropy(e.float() @ c.float().T, targets),
    ):
        given = [each.clone().requires_grad_() for each in (embeddings, classifier)]
        found = loss(*given)
        results.append((found.detach(), *(64 * each for each in torch.autograd.grad(found, given))))
    for found, expected in zip(*results, strict=True):
        close(found, expected, 2e-2)
