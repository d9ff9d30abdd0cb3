"""Proxy fences between what threads do to shared memory and what bulk copies and matrix
instructions do there, and the check that they stand where they must."""

from __future__ import annotations

import pytest

from tilewright.ir import Module
from tilewright.ir.core import Region
from tilewright.simt.analysis.async_hazards import FlightError
from tilewright.simt.compile import run_stages
from tilewright.simt.emulator import EmulatedProxy
from tilewright.simt.passes.check_proxies import ProxyError, check_proxies
from tilewright.simt.target.capabilities.matrix import MatrixInstructions
from tilewright.testing.stage_text import read
from tilewright.testing.toy_targets import BulkTarget

KERNEL = """
#L0 = layout<8x8, registers [(0,1) (0,2)], lanes [(0,4) (1,0) (2,0)], warps [(4,0)]>
#L1 = layout<8x8, registers [(0,1) (0,2)], lanes [(4,0) (1,0) (2,0)], warps [(0,4)]>
#L2 = layout<4, registers [], lanes [(1) (2) (0)], warps [(0)]>
#S0 = shared<8x8>
#S1 = shared<4x8>
#S2 = shared<4>
kernel @k(%d: desc<8x8xf32>, %e: desc<1x8xf32>, %n: i32, %c: i1, %p: ptr<f32>) attributes {{warps = 2}} {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %no = constant false : i1
  %f = constant 2.0 : f32
  %x = splat %f : tile<8x8xf32, #L0>
  %at = splat %p : tile<8x8xptr<f32>, #L0>
  %which = splat %one : tile<4xi32, #L2>
  %full = simt.barriers {{count = 1, simt.offset = 0}} : barriers<1>
  %empty = simt.barriers {{count = 2, simt.offset = 16}} : barriers<1>
  %A = simt.buffer {{simt.offset = 1024}} : buffer<1 x 8x8xf32, #S0>
  %B = simt.buffer {{simt.offset = 2048}} : buffer<1 x 8x8xf32, #S0>
  %R = simt.buffer {{simt.offset = 3072}} : buffer<2 x 8x8xf32, #S0>
  %G = simt.buffer {{simt.offset = 4096}} : buffer<1 x 4x8xf32, #S1>
  %N = simt.buffer {{simt.offset = 4352}} : buffer<1 x 4xi32, #S2>
  %a = simt.slot %A, %zero : slot<8x8xf32, #S0>
  %b = simt.slot %B, %zero : slot<8x8xf32, #S0>
  %q = simt.slot %R, %n : slot<8x8xf32, #S0>
  %g = simt.slot %G, %zero : slot<4x8xf32, #S1>
  %r = simt.slot %N, %zero : slot<4xi32, #S2>
  {body}
  return
}}
"""

_COPY = '%d, offsets=[%zero, %zero], %full, %zero {by = "bulk"'
#: What letters stand for; § is a number of the place.
LINES = {
    "l": "%v§ = simt.load %a : tile<8x8xf32, #L0>",
    "m": "%v§ = simt.load %b : tile<8x8xf32, #L0>",
    "s": "simt.store %a, %x",
    "b": f"simt.block_load_start %a, {_COPY}}}",
    "d": f"simt.block_load_start %b, {_COPY}}}",
    "f": "%v§ = simt.load %q : tile<8x8xf32, #L0>",
    "o": f"simt.block_load_start %q, {_COPY}, ordered = true}}",
    "n": "simt.store %r, %which",
    "g": 'simt.rows_load_start %g, %e, %r, %zero, %full, %zero {by = "bulk"}',
    "h": "%v§ = simt.load %g : tile<4x8xf32>",
    "w": "simt.await %full, %zero, %no",
    "a": "simt.arrive %empty, %zero",
    "t": (
        'simt.block_store_start %a, %d, offsets=[%zero, %zero] {by = "bulk"}\n'
        "%t§ = simt.commit : token<stores>\nsimt.wait tokens=[%t§]"
    ),
    "p": '%y§ = simt.dot %a, %b, %x {plan = "toy.ss"} : tile<8x8xf32, #L0>',
    "u": '%y§ = simt.dot %a, %b, %x {plan = "toy.rs"} : tile<8x8xf32, #L0>',
    "U": '%y§ = simt.dot %a, %b, %x {plan = "multiply and add"} : tile<8x8xf32, #L0>',
    "P": (
        '%y, %t = simt.dot_start %a, %b, %x {plan = "toy.ss"} : tile<8x8xf32, #L0>, token<matmuls>'
    ),
    "W": "%z = simt.wait tokens=[%t], tiles=[%y] : tile<8x8xf32, #L0>",
    "c": "%u§ = simt.convert %x {simt.offset = 8192} : tile<8x8xf32, #L1>",
    # its scratch space is where %a is
    "C": "%u§ = simt.convert %x {simt.offset = 1024} : tile<8x8xf32, #L1>",
    "k": (
        'simt.copy_start %a, %at {by = "queue"}\n%k§ = simt.commit : token<copies>\n'
        "simt.wait tokens=[%k§]"
    ),
    "|": "barrier",
    ".": "simt.publish",
    "{": "for %zero, %n, %one body(%i§: i32) {",
    "(": "if %c then {",
    "/": "yield\n} else {",
    ")": "yield\n}",
    "}": "yield\n}",
    "<": "simt.partition parts {",
    "[": 'simt.part {name = "p§", warps = 1, registers = 0} body {',
    "]": "yield\n}",
    ">": "yield\n}",
}
_LETTERS = {
    "simt.publish": ".",
    "barrier": "|",
    "simt.arrive": "a",
    "simt.store": "s",
    "simt.convert": "c",
    "simt.block_store_start": "t",
    "simt.await": "w",
    "simt.rows_load_start": "g",
}


def module_of(letters: str) -> Module:
    lines = (LINES[letter].replace("§", str(number)) for number, letter in enumerate(letters))
    return read(KERNEL.format(body="\n".join(lines)), BulkTarget(8))


def letters_of(region: Region) -> str:
    """Operations as letters: thread loads l, matmuls p, TMA loads b."""
    text = ""
    for operation in region:
        name = operation.name
        if name == "simt.part":
            text += f"[{letters_of(operation.regions[0])}]"
        elif name == "if":
            text += f"({'/'.join(letters_of(inner) for inner in operation.regions)})"
        elif operation.regions:
            text += f"{{{letters_of(operation.regions[0])}}}"
        elif name in ("simt.load", "simt.block_load_start"):
            text += "l" if name == "simt.load" else "b"
        elif name.startswith("simt.dot"):
            text += "p"
        else:
            text += _LETTERS.get(name, "")
    return text


def with_fences(letters: str, *, published: bool = True) -> str:
    """The letters of a kernel after barriers and fences were put in, checked."""
    target = BulkTarget(8)
    target.async_proxy = EmulatedProxy(target.record) if published else None
    module = module_of(letters)
    run_stages(module, target, {"num_warps": 2}, ["barriers"])
    check_proxies(module.kernel, target)
    return letters_of(module.kernel.body)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("s{p}", "s.|{p}"),  # written before the loop: no iteration pays for it
        ("s{{p}}", "s.|{{p}}"),
        ("{s{p}}", "{|s.|{p}}"),
        ("s{l}p", "s{.|l}.|p"),  # the loop reads by the generic proxy
        ("s{d}", "s{b}"),  # other bytes
    ],
)
def test_writes_are_fenced_before_a_loop_that_reads_them(letters: str, expected: str) -> None:
    assert with_fences(letters) == expected


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("lb", "l.|b"),
        ("ld", "lb"),  # other bytes
        ("bwlbw", "bwl.|bw"),  # one load after another
        ("l|b", "l.|b"),  # the fence is before the barrier that was there
        ("l||b", "l.||b"),
        ("lm|b|d", "ll.|b|b"),
        ("l|bm|d", "l.|bl.|b"),
        ("ls|b", "l|s.|b"),  # the fence that the store needs serves the load too
        ("pb", "p|b"),  # matrix instructions read by the proxy that copies write by
        ("ub", "p.|b"),  # threads load an operand for their registers
        ("ud", "p|b"),
        ("tb", "t|b"),  # so do bulk stores
        ("lcb", "l.cb"),  # all threads meet in a conversion
        ("Cb", "c.|b"),  # and read its scratch space last
        ("(l/)b", "(l/).|b"),
        ("l(b/)", "l(.|b/)"),
        ("l|(b/)", "l.|(b/)"),
        ("{bwl}", "{.|bwl}"),  # what the iteration before read
        ("{lb}", "{l.|b}"),
        ("{l|b}", "{l.|b}"),
        ("{bwl|}", "{bwl.|}"),
        ("{l|}b", "{l.|}b"),
        ("{l}b", "{l}.|b"),
        ("ngwh", "s|gwl"),  # one thread reads the numbers, by the generic proxy
        ("ngwhng", "s|gwl.|s|g"),
    ],
)
def test_reads_are_fenced_before_a_copy_writes_there(letters: str, expected: str) -> None:
    assert with_fences(letters) == expected
    assert "." not in with_fences(letters, published=False)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("{wfao}", "{wl.ab}"),  # what is read is released by an arrival
        ("{wofa}", "{wbl.a}"),
        ("{wfo}", "{wlb}"),  # of another slot, as whoever orders a copy promises
        ("{wf|o}", "{wl.|b}"),
        ("<[{wfa}][{wo}]>", "{[{wl.a}][{wb}]}"),
        ("<[{wfa}f|][{wo}]>", "{[{wl.a}l|][{wb}]}"),  # nothing is released after the loop
        ("<[f][w]>b", "{[l][w]}b"),
        ("<[l][w]>b", "{[l.][w]}b"),  # all meet where parts end
        ("l<[{b}][w]>", "l.|{[{b}][w]}"),
        ("<[ta][b]>", "{[ta][b]}"),  # a bulk store reads by the proxy that copies write by
    ],
)
def test_reads_are_fenced_where_a_slot_is_given_back(letters: str, expected: str) -> None:
    assert with_fences(letters) == expected


class _Plain(BulkTarget):
    """A machine whose threads multiply and add by themselves."""

    def __init__(self, warp_size: int) -> None:
        super().__init__(warp_size)
        self.matrix = MatrixInstructions()


@pytest.mark.parametrize(
    ("letters", "expected"), [("Ub", "p.|b"), ("sU", "s|p"), ("sUd", "s|p.|b")]
)
def test_threads_that_multiply_and_add_read_by_the_generic_proxy(
    letters: str, expected: str
) -> None:
    target, module = _Plain(8), module_of(letters)
    run_stages(module, target, {"num_warps": 2}, ["barriers"])
    check_proxies(module.kernel, target)
    assert letters_of(module.kernel.body) == expected


def test_scratch_space_is_fenced_before_a_copy_to_the_same_bytes() -> None:
    text = """
    #L0 = layout<8x8, registers [(0,1) (0,2)], lanes [(0,4) (1,0) (2,0)], warps [(4,0)]>
    #L1 = layout<8x8, registers [(0,1) (0,2)], lanes [(4,0) (1,0) (2,0)], warps [(0,4)]>
    #S0 = shared<8x8>
    kernel @k(%d: desc<8x8xf32>) attributes {warps = 2} {
      %zero = constant 0 : i32
      %f = constant 2.0 : f32
      %x = splat %f : tile<8x8xf32, #L0>
      %y = simt.convert %x : tile<8x8xf32, #L1>
      %full = simt.barriers 1 : barriers<1>
      %A = simt.buffer : buffer<1 x 8x8xf32, #S0>
      %a = simt.slot %A, %zero : slot<8x8xf32, #S0>
      simt.block_load_start %a, %d, offsets=[%zero, %zero], %full, %zero {by = "bulk"}
      %v = simt.load %a : tile<8x8xf32, #L0>
      return
    }
    """
    target = BulkTarget(8)
    module = read(text, target)
    run_stages(module, target, {"num_warps": 2}, ["allocate", "barriers"])
    # mbarriers are made where all threads meet
    names = [operation.name for operation in module.kernel.body]
    assert (
        names.count("barrier") == 0
        and names.index("simt.barriers") == names.index("simt.publish") + 1
    )
    check_proxies(module.kernel, target)


@pytest.mark.parametrize("letters", ["PbW", "PsW"])
def test_what_a_product_in_flight_reads_is_not_written(letters: str) -> None:
    with pytest.raises(FlightError, match="writes what a matmul in flight reads"):
        with_fences(letters)


@pytest.mark.parametrize(
    ("letters", "missing"),
    [
        ("lb", "neither a proxy fence nor a barrier"),
        ("l|b", "a barrier or an arrival, but no proxy fence before that"),
        ("l|.b", "a proxy fence, but no barrier behind that"),
        ("l.b", "a proxy fence, but no barrier behind that"),
        ("lcb", "a barrier or an arrival, but no proxy fence before that"),
        ("{bwl|}", "a barrier or an arrival, but no proxy fence before that"),
        ("(l/)|b", "a barrier or an arrival, but no proxy fence before that"),
        ("{wfao}", "a barrier or an arrival, but no proxy fence before that"),
        ("<[{wfa}][{wo}]>", "a barrier or an arrival, but no proxy fence before that"),
        ("<[l][w]>b", "a barrier or an arrival, but no proxy fence before that"),
        ("s|p", "a barrier or an arrival, but no proxy fence before that"),  # a read of a write
        ("s|t", "a barrier or an arrival, but no proxy fence before that"),
        ("s.t", "a proxy fence, but no barrier behind that"),
        ("C|b", "a barrier or an arrival, but no proxy fence before that"),
        (
            "k|t",
            "a barrier or an arrival, but no proxy fence before that",
        ),  # threads copy by cp.async
    ],
)
def test_a_missing_fence_or_barrier_is_named(letters: str, missing: str) -> None:
    target = BulkTarget(8)
    module = module_of(letters)
    with pytest.raises(ProxyError, match=missing):
        check_proxies(module.kernel, target)


def test_the_error_names_both_operations_bytes_and_remedy() -> None:
    target = BulkTarget(8)
    module = module_of("l|b")
    message = (
        r"^simt.block_load_start at .*: accesses bytes \d+ to \d+ of shared memory through the"
        r" async proxy, which simt.load at .* read through the generic proxy; .*"
        r"\(a simt.publish in front of the barrier or arrival orders them\)$"
    )
    with pytest.raises(ProxyError, match=message):
        check_proxies(module.kernel, target)


@pytest.mark.parametrize(
    "letters", ["l.|b", "l|.|b", "{l.|b}", "pb", "s.|p", "{wfo}", "tb", "C.|b", "k.|t"]
)
def test_what_is_in_order_passes_the_check(letters: str) -> None:
    check_proxies(module_of(letters).kernel, BulkTarget(8))
