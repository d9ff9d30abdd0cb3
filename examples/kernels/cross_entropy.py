"""Cross entropy of logits and target classes, a row a program, in one pass over the logits.

The maximum and the sum of exponentials are kept up to date from block to block, as in the online
softmax of Milakov and Gimelshein, 2018. ``lse`` is stored for the backward pass.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def cross_entropy_kernel(
    logits_ptr, target_ptr, loss_ptr, lse_ptr, stride, classes, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * stride
    highest = -float("inf")
    total = 0.0
    for start in range(0, classes, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + columns, mask=columns < classes, other=-float("inf"))
        logits = logits.to(tl.float32)
        new_highest = tl.maximum(highest, tl.max(logits, axis=0))
        total = total * tl.exp(highest - new_highest) + tl.sum(tl.exp(logits - new_highest), axis=0)
        highest = new_highest
    lse = highest + tl.log(total)
    target = tl.load(target_ptr + row)
    tl.store(lse_ptr + row, lse)
    tl.store(loss_ptr + row, lse - tl.load(logits_ptr + target).to(tl.float32))


def cross_entropy(logits: Any, target: Any, loss: Any, lse: Any, block: int = 1024) -> Any:
    """Compute the loss of each row of C-contiguous ``logits`` [rows, classes].

    ``target`` [rows] has the class of each row; ``loss`` and ``lse`` receive one f32 per row.
    """
    rows, classes = logits.shape
    block = min(block, tw.next_power_of_2(classes))
    cross_entropy_kernel[(rows,)](logits, target, loss, lse, classes, classes, BLOCK=block)
    return loss
