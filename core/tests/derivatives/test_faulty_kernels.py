"""What has no derivative is refused at its place wherever it stands, and never silently wrong."""

from __future__ import annotations

import faulty_kernels as faulty
import numpy as np
import pytest
from faulty_kernels import CONSTRUCTS, PLACE, Construct, FaultyKernel
from gradient_checks import STEP, execute
from random_kernels import ELEMENTS, OUTPUTS

from tilewright.derivatives.forward_mode import TangentRequest, jvp
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.ir.core import Module

SEEDS = range(6)


def adjoint_of(module: Module) -> Module:
    return vjp(module, AdjointRequest(("out",), ("x", "y")))


def tangent_of(module: Module) -> Module:
    return jvp(module, TangentRequest(("x", "y"), ("out",)))


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_a_construct_of_what_varies_is_refused_at_its_place(construct: Construct) -> None:
    for seed in SEEDS:
        module = FaultyKernel(seed, construct, active=True).module
        for derive in (adjoint_of, tangent_of):
            if derive is tangent_of and construct is faulty.in_place:
                continue  # tangents lie beside what the kernel overwrites
            with pytest.raises(DerivativeError) as caught:
                derive(module)
            error = caught.value
            assert CONSTRUCTS[construct] in error.reason, seed
            assert str(PLACE) in str(error), seed
            assert error.remedy


#: Constructs of constants, of which the adjoint needs nothing, or finds it again.
HARMLESS = (
    faulty.bits,
    faulty.bits_as_numbers,
    faulty.while_loop,
)
#: Those that leave something in memory, which the adjoint would not find as the kernel did.
REMEMBERED = (faulty.read_back, faulty.volatile_of_others, faulty.old_value, faulty.exchange)


@pytest.mark.parametrize("construct", HARMLESS)
def test_gradients_are_right_beside_a_construct_of_constants(construct: Construct) -> None:
    for seed in SEEDS:
        module = FaultyKernel(seed, construct, active=False).module
        check(module, adjoint_of(module), seed)


@pytest.mark.parametrize("construct", [*REMEMBERED, faulty.lock])
def test_memory_of_constants_is_right_or_refused(construct: Construct) -> None:
    """What a kernel reads of its own or other programs' writes is no input of its adjoint."""
    refused = 0
    for seed in SEEDS:
        module = FaultyKernel(seed, construct, active=False).module
        try:
            adjoint = adjoint_of(module)
        except DerivativeError as error:
            refused += 1
            assert str(PLACE) in str(error), seed
        else:
            check(module, adjoint, seed)
    assert refused


def check(module: Module, adjoint: Module, seed: int) -> None:
    """Compare the gradients of a kernel with central differences."""
    rng = np.random.default_rng(seed + 1000)
    x, y, tx, ty, c = (rng.uniform(-1, 1, ELEMENTS) for _ in range(5))
    cotangent, results = rng.uniform(-1, 1, OUTPUTS), []
    for sign in (1, -1):
        out = np.zeros(OUTPUTS)
        moved = {"x": x + sign * STEP * tx, "y": y + sign * STEP * ty}
        execute(module, **moved, out=out, c=c, s=np.zeros(ELEMENTS), lock=np.zeros(1, np.int32))
        results.append(cotangent @ out)
    dx, dy = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
    own = {"d_out": cotangent.copy(), "d_x": dx, "d_y": dy}
    scratch = {"s": np.zeros(ELEMENTS), "lock": np.zeros(1, np.int32)}
    execute(adjoint, x=x, y=y, out=np.zeros(OUTPUTS), c=c, **scratch, **own)
    expected = (results[0] - results[1]) / (2 * STEP)
    scale = np.abs(dx) @ np.abs(tx) + np.abs(dy) @ np.abs(ty) + 1
    assert abs(dx @ tx + dy @ ty - expected) < 1e-5 * scale, seed
