"""Kernels with long chains of operations: right, and compiled in time linear in their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir.parser import parse_module
from tilewright_cpu.lower import lower
from tilewright_cpu.target import host

_HEAD = """kernel @chain(%x: ptr<f32>, %out: ptr<f32>) {
  %i = arange {start = 0, end = 64} : tile<64xi32>
  %xs = splat %x : tile<64xptr<f32>>
  %outs = splat %out : tile<64xptr<f32>>
  %from = addptr %xs, %i : tile<64xptr<f32>>
  %to = addptr %outs, %i : tile<64xptr<f32>>
  %half0 = constant {value = 0.5} : f32
  %half = splat %half0 : tile<64xf32>
  %quarter0 = constant {value = 0.25} : f32
  %quarter = splat %quarter0 : tile<64xf32>
  %v0 = load %from : tile<64xf32>
"""
_TAIL = "  store %to, %v{count}\n  return\n}}\n"

#: One link of a chain: %v{i} from %v{j}, the number before it.
LINKS = {
    "elementwise": (
        "  %a{i} = mul %v{j}, %half : tile<64xf32>\n  %v{i} = add %a{i}, %quarter : tile<64xf32>\n"
    ),
    "chosen": (
        '  %c{i} = cmp %v{j}, %half {{predicate = "gt"}} : tile<64xi1>\n'
        "  %a{i} = mul %v{j}, %half : tile<64xf32>\n"
        "  %b{i} = add %v{j}, %quarter : tile<64xf32>\n"
        "  %v{i} = select %c{i}, %a{i}, %b{i} : tile<64xf32>\n"
    ),
    "expensive": (
        "  %e{i} = exp %v{j} : tile<64xf32>\n  %v{i} = mul %e{i}, %quarter : tile<64xf32>\n"
    ),
    "summed": (
        "  %s{i} = reduce %v{j} {{axis = 0}} : f32 combine(%l{i}: f32, %r{i}: f32) {{\n"
        "    %t{i} = max %l{i}, %r{i} : f32\n    yield %t{i}\n  }}\n"
        "  %w{i} = splat %s{i} : tile<64xf32>\n  %d{i} = mul %w{i}, %quarter : tile<64xf32>\n"
        "  %h{i} = mul %v{j}, %half : tile<64xf32>\n"
        "  %v{i} = add %h{i}, %d{i} : tile<64xf32>\n"
    ),
}


def chain(link: str, count: int) -> str:
    return (
        _HEAD
        + "".join(LINKS[link].format(i=number, j=number - 1) for number in range(1, count + 1))
        + _TAIL.format(count=count)
    )


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("count", [11, 24, 47, 150])
def test_a_chain_gives_what_the_reference_gives(
    link: str, count: int, same_as_reference: Callable[..., list[Any]]
) -> None:
    x = np.random.default_rng(count).random(64, dtype=np.float32)
    same_as_reference(chain(link, count), [x, np.zeros_like(x)], relative=1e-5)


@pytest.mark.parametrize(
    ("link", "count"), [("elementwise", 1500), ("chosen", 600), ("summed", 400)]
)
def test_the_code_of_a_chain_grows_with_its_length(link: str, count: int) -> None:
    lines = [lower_text(chain(link, length)).count("\n") for length in (count // 2, count)]
    assert lines[1] < 2.2 * lines[0]


def lower_text(text: str) -> str:
    from tilewright_cpu.codegen.kernel import write_module

    return write_module(parse_module(f"tilewright.ir 1.0\n{text}"), host(), {}).text


def test_a_long_chain_becomes_an_object() -> None:
    assert lower(parse_module(f"tilewright.ir 1.0\n{chain('elementwise', 400)}"), host(), {}).binary
