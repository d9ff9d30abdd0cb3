"""Gauge fixing, text in and text out."""

from __future__ import annotations

from tilewright.derivatives.gauge.fix_gauges import fix_gauges
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import verify

LOOP = """\
  %total, %m = for %lo, %n, %one, inits=[%zero, %low] : f32, f32 body(%i: i32, %a: f32, %r: f32) {
    %at = addptr %x, %i : ptr<f32>
    %s = load %at : f32
    %next = max %r, %s : f32
    %d = sub %r, %next : f32
    %c = exp %d : f32
    %scaled = mul %a, %c : f32
    %z = sub %s, %next : f32
    %w = exp %z : f32
    %sum = add %scaled, %w : f32
    yield %sum, %next
  }
"""

AGAIN = """\
  %0 = for %lo, %n, %one, inits=[%zero] : f32 body(%i#1: i32, %a#1: f32) {
    %at#1 = addptr %x, %i#1 : ptr<f32>
    %s#1 = load %at#1 : f32
    %z#1 = sub %s#1, GAUGE : f32
    %w#1 = exp %z#1 : f32
    %sum#1 = add %a#1, %w#1 : f32
    yield %sum#1
  }
"""

HEAD = """\
tilewright.ir 1.0

kernel @logsumexp(%x: ptr<f32>, %y: ptr<f32>, %n: i32) {
  %lo = constant 0 : i32
  %one = constant 1 : i32
  %zero = constant 0.0 : f32
  %low = constant -inf : f32
"""


def fixed(text: str, *saved: str) -> tuple[str, list[str]]:
    """Return the text of a kernel in one gauge, and the remarks."""
    module = parse_module(text)
    found = fix_gauges(module, saved)
    verify(module)
    return print_module(module), [str(remark) for remark in found.remarks]


def test_sums_run_again_in_the_last_reference() -> None:
    tail = "  %l = log TOTAL : f32\n  %out = add %m, %l : f32\n  store %y, %out\n  return\n}\n"
    text, remarks = fixed(HEAD + LOOP + tail.replace("TOTAL", "%total"))
    assert text == HEAD + LOOP + AGAIN.replace("GAUGE", "%m") + tail.replace("TOTAL", "%0")
    assert remarks == [
        "loop at an unknown place: runs again in one gauge, its last reference: 1 plain sums"
    ]


def test_a_stored_logarithm_is_loaded() -> None:
    """The sum in its gauge is 1, which stands before the loop as a constant."""
    tail = "  %l = log TOTAL : f32\n  %out = add %m, %l : f32\n  store %y, %out\n  return\n}\n"
    text, remarks = fixed(HEAD + LOOP + tail.replace("TOTAL", "%total"), "y")
    loaded = "  %0 = load %y : f32\n  %1 = constant 1.0 : f32\n" + AGAIN.replace(
        "GAUGE", "%0"
    ).replace("  %0 = for", "  %2 = for")
    assert text == HEAD + LOOP + loaded + tail.replace("TOTAL", "%2").replace("%m", "%0")
    assert "the stored logarithm of a sum" in remarks[0]


def test_a_kernel_that_stores_the_reference_stays() -> None:
    text = HEAD + LOOP + "  store %y, %m\n  return\n}\n"
    out, remarks = fixed(text, "y")
    assert out == text
    assert remarks == [
        "missed: loop at an unknown place: the store at an unknown place depends on the reference "
        "r itself"
    ]
