"""Stage ``unobserved``: loads whose masked-off lanes nothing observes are tagged."""

from __future__ import annotations

import pytest

from tilewright.simt.analysis.masked_off_lanes import UNOBSERVED
from tilewright.testing.stage_text import after

HEAD = """
kernel @k(%a: ptr<f32>, %b: ptr<f32>, %n: i32, %m: i32) {
  %lanes = arange {start = 0, end = 8} : tile<8xi32>
  %end = splat %n : tile<8xi32>
  %inside = cmp %lanes, %end {predicate = lt} : tile<8xi1>
  %less = splat %m : tile<8xi32>
  %early = cmp %lanes, %less {predicate = lt} : tile<8xi1>
  %both = and %early, %inside : tile<8xi1>
  %from = splat %a : tile<8xptr<f32>>
  %at = addptr %from, %lanes : tile<8xptr<f32>>
  %into = splat %b : tile<8xptr<f32>>
  %to = addptr %into, %lanes : tile<8xptr<f32>>
  %zero = constant 0.0 : f32
  %zeros = splat %zero : tile<8xf32>
  %first = constant 0 : i32
  %one = constant 1 : i32
  %x = load %at, mask=%inside : tile<8xf32>
"""
TAIL = "\n  return\n}\n"

#: use of the masked-off lanes -> whether the load is tagged
USES = {
    "stored under the mask": ("store %to, %x, mask=%inside", True),
    "stored under a narrower mask": ("store %to, %x, mask=%both", True),
    "stored under another mask": ("store %to, %x, mask=%early", False),
    "stored without a mask": ("store %to, %x", False),
    "computed with, and stored under the mask": (
        "%y = mul %x, %x : tile<8xf32>\n %z = exp %y : tile<8xf32>\n store %to, %z, mask=%inside",
        True,
    ),
    "stored twice, once in all lanes": ("store %to, %x, mask=%inside\n store %to, %x", False),
    "replaced by a select": ("%y = select %inside, %x, %zeros : tile<8xf32>\n store %to, %y", True),
    "what a select puts in": (
        "%y = select %inside, %zeros, %x : tile<8xf32>\n store %to, %y",
        False,
    ),
    "a condition and the mask": (
        (
            "%c = cmp %x, %zeros {predicate = gt} : tile<8xi1>\n"
            " %d = and %c, %inside : tile<8xi1>\n store %to, %zeros, mask=%d"
        ),
        True,
    ),
    "a condition": (
        "%c = cmp %x, %zeros {predicate = gt} : tile<8xi1>\n store %to, %zeros, mask=%c",
        False,
    ),
    "an address under the mask": (
        (
            "%i = cast %x : tile<8xi32>\n %p = addptr %from, %i : tile<8xptr<f32>>\n"
            " %y = load %p, mask=%inside, other=%zeros : tile<8xf32>\n store %to, %y"
        ),
        True,
    ),
    "another load's other": (
        "%y = load %at, mask=%inside, other=%x : tile<8xf32>\n store %to, %y",
        False,
    ),
    "moved, and stored under the mask moved alike": (
        """%r = expand_dims %x {axis = 0} : tile<1x8xf32>
        %s = broadcast %r : tile<2x8xf32>
        %q = expand_dims %to {axis = 0} : tile<1x8xptr<f32>>
        %t = broadcast %q : tile<2x8xptr<f32>>
        %u = expand_dims %both {axis = 0} : tile<1x8xi1>
        %v = broadcast %u : tile<2x8xi1>
        store %t, %s, mask=%v""",
        True,
    ),
    "moved, and stored under the mask moved otherwise": (
        """%r = expand_dims %x {axis = 0} : tile<1x8xf32>
        %s = broadcast %r : tile<8x8xf32>
        %q = expand_dims %to {axis = 0} : tile<1x8xptr<f32>>
        %t = broadcast %q : tile<8x8xptr<f32>>
        %u = expand_dims %inside {axis = 1} : tile<8x1xi1>
        %v = broadcast %u : tile<8x8xi1>
        store %t, %s, mask=%v""",
        False,
    ),
    "summed": (
        (
            "%s = reduce %x {axis = 0} : f32 combine(%p: f32, %q: f32) {\n"
            " %r = add %p, %q : f32\n yield %r\n}\nstore %b, %s"
        ),
        False,
    ),
    "carried round a loop, and stored under the mask": (
        "%l = for %first, %n, %one, inits=[%x] : tile<8xf32> body(%k: i32, %c: tile<8xf32>) {\n"
        " %d = add %c, %x : tile<8xf32>\n yield %d\n}\nstore %to, %l, mask=%inside",
        True,
    ),
    "carried round a loop, and stored in all lanes": (
        (
            "%l = for %first, %n, %one, inits=[%x] : tile<8xf32> body(%k: i32, %c: tile<8xf32>) "
            "{\n %d = add %c, %x : tile<8xf32>\n yield %d\n}\nstore %to, %l"
        ),
        False,
    ),
}


@pytest.mark.parametrize("use", USES)
def test_uses(use: str) -> None:
    text, unobserved = USES[use]
    found = after(HEAD + text + TAIL, "unobserved")
    (load,) = [line for line in found.splitlines() if line.lstrip().startswith("%x = load")]
    assert (UNOBSERVED in load) is unobserved, found


def test_a_mask_of_each_iteration() -> None:
    """Lanes that the loop carries on meet the mask of the next iteration, which is another one."""
    text = """
  %l = for %first, %n, %one, inits=[%zeros] : tile<8xf32> body(%k: i32, %c: tile<8xf32>) {
    %ends = splat %k : tile<8xi32>
    %now = cmp %lanes, %ends {predicate = lt} : tile<8xi1>
    store %to, %c, mask=%now
    %y = load %at, mask=%now : tile<8xf32>
    store %to, %y, mask=%now
    REST
  }
"""
    carried, kept = (
        after(HEAD + text.replace("REST", rest) + TAIL, "unobserved")
        for rest in ("yield %y", "yield %c")
    )
    assert [UNOBSERVED in line for line in carried.splitlines() if "%y = load" in line] == [False]
    assert [UNOBSERVED in line for line in kept.splitlines() if "%y = load" in line] == [True]


def test_an_other_is_there_whoever_sees_it() -> None:
    found = after(
        HEAD
        + "%y = load %at, mask=%inside, other=%zeros : tile<8xf32>\n store %to, %y, mask=%inside"
        + TAIL,
        "unobserved",
    )
    assert [UNOBSERVED in line for line in found.splitlines() if "%y = load" in line] == [False]
