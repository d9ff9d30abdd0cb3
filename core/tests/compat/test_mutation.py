"""PyTorch's analysis of what a kernel stores to gives exactly the stored arguments."""

import logging
import queue
from logging.handlers import QueueHandler

import pytest

import tilewright.language as tl
from tilewright.compat import triton

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

from torch._higher_order_ops import triton_kernel_wrap  # noqa: E402
from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors  # noqa: E402

#: (kernel, names of what it stores to, names of what it reads, more arguments)
CASES = []


@pytest.fixture
def warned():
    """What PyTorch's analysis warns of: where it fails, it takes all arguments for stored, and says
    so in its log alone."""
    records = queue.SimpleQueue()
    handler = QueueHandler(records)
    handler.setLevel(logging.WARNING)
    triton_kernel_wrap.log.addHandler(handler)
    yield lambda: [records.get().getMessage() for _ in range(records.qsize())]
    triton_kernel_wrap.log.removeHandler(handler)


def case(stored, read, **more):
    def keep(fn):
        CASES.append(
            pytest.param(
                triton.jit(fn), set(stored.split()), set(read.split()), more, id=fn.__name__
            )
        )
        return fn

    return keep


@case("c", "a b")
def pointwise(a, b, c, n):
    o = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(c + o, tl.load(a + o, mask=o < n) * tl.load(b + o, mask=o < n), mask=o < n)


@case("", "a b c")
def only_reads(a, b, c, n):
    tl.device_assert(tl.load(a) + tl.load(b) > tl.load(c))


@case("a", "a")
def in_place(a, b, c, n):
    tl.store(a, tl.load(a) + 1)


@case("b c", "")
def two_results(a, b, c, n):
    tl.store(b + n, 1.0)
    tl.store(c + n, 2.0)


@case("c", "a b")
def offsets_from_memory(a, b, c, n):
    at = tl.load(b).to(tl.int32)
    tl.store(c + at, tl.load(a + at))


@case("b", "")
def atomic(a, b, c, n):
    tl.atomic_add(b + n, 1.0)


@case("b c", "a")
def result_of_an_atomic_as_the_offset(a, b, c, n):
    at = tl.atomic_add(b, tl.load(a)).to(tl.int32)
    tl.store(c + at, 1.0)


@case("a", "")
def compare_and_swap(a, b, c, n):
    tl.atomic_cas(a.to(tl.pointer_type(tl.int32)), n, 7)


@case("b", "")
def atomic_maximum_of_a_tile(a, b, c, n):
    tl.atomic_max(b + tl.arange(0, 16), 1.0, mask=tl.arange(0, 16) < n)


@case("b", "")
def exchange(a, b, c, n):
    tl.atomic_xchg(b, 3.0)


@case("b", "a")
def descriptors(a, b, c, n):
    x = tl.make_tensor_descriptor(a, [n, 16], [16, 1], [4, 16])
    y = tl.make_tensor_descriptor(b, [n, 16], [16, 1], [4, 16])
    y.store([0, 0], x.load([4, 0]))


@case("c", "a")
def atomic_on_a_descriptor(a, b, c, n):
    x = tl.make_tensor_descriptor(a, [n, 16], [16, 1], [4, 16])
    tl.make_tensor_descriptor(c, [n, 16], [16, 1], [4, 16]).atomic_add([0, 0], x.load([0, 0]))


@case("b", "a c")
def gather_and_scatter(a, b, c, n):
    rows = tl.load(c + tl.arange(0, 8)).to(tl.int32)
    x = tl.make_tensor_descriptor(a, [n, 16], [16, 1], [1, 16])
    y = tl.make_tensor_descriptor(b, [n, 16], [16, 1], [1, 16])
    y.scatter(x.gather(rows, 0), rows, 0)


@case("c", "a")
def block_pointers(a, b, c, n):
    x = tl.make_block_ptr(a, (n,), (1,), (0,), (16,), (0,))
    y = tl.make_block_ptr(c, (n,), (1,), (0,), (16,), (0,))
    for _ in range(0, n, 16):
        tl.store(y, tl.load(x, boundary_check=(0,)), boundary_check=(0,))
        x, y = tl.advance(x, (16,)), tl.advance(y, (16,))


@triton.jit
def put(to, value):
    tl.store(to, value)


@triton.jit(noinline=True)
def put_apart(to, value):
    tl.store(to, value)


@triton.jit(noinline=True)
def sum_apart(x, y, out, WRITE: tl.constexpr):
    total = tl.load(x) + tl.load(y)
    if WRITE:
        tl.store(out, total)
    return total


@case("c", "a")
def call(a, b, c, n):
    put(c, tl.load(a))


@case("b", "a")
def call_that_is_not_inlined(a, b, c, n):
    put_apart(b, tl.load(a))


@case("b c", "a")
def calls_in_calls(a, b, c, n):
    put_apart(b, 1.0)
    put_apart(c, tl.load(a))


@case("c", "a b")
def call_that_writes_only_where_it_is_told_to(a, b, c, n):
    put(c, sum_apart(a, b, a, False))


@case("b", "")
def calls_in_a_loop(a, b, c, n):
    for k in range(n):
        put_apart(b + k, 1.0)


@case("c", "a b")
def accumulation(a, b, c, n):
    total = tl.zeros([16, 16], tl.float32)
    o = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    x, y = a + o, b + o
    for _ in range(n):
        total = tl.dot(tl.load(x), tl.load(y), total)
        x += 256
        y += 256
    tl.store(c + o, total)


@case("a b", "c")
def pointers_that_a_loop_exchanges(a, b, c, n):
    x, y = a, b
    for k in range(n):
        tl.store(x + k, tl.load(c + k))
        x, y = y, x


@case("a c", "")
def pointer_that_a_loop_replaces(a, b, c, n):
    x = a
    for _ in range(n):
        x = c
    tl.store(x, 1.0)


@case("b", "a")
def while_loop(a, b, c, n):
    k, x = 0, b
    while tl.load(a + k) > 0.0:
        tl.store(x, 1.0)
        x += 1
        k += 1


@case("c", "a b")
def nested_loops_and_branches(a, b, c, n):
    for i in range(n):
        if tl.load(a + i) > 0:
            for k in range(i):
                if k < 4:
                    tl.store(c + k, tl.load(b + k))


@case("b c", "a")
def branches(a, b, c, n):
    if n > 4:
        tl.store(b, tl.load(a))
    else:
        tl.store(c, tl.load(a))


@case("b c", "a")
def pointer_that_a_branch_chooses(a, b, c, n):
    if tl.load(a) > 0:
        x = b
    else:
        x = c
    tl.store(x, 1.0)


@case("b c", "a")
def pointer_that_where_chooses(a, b, c, n):
    tl.store(tl.where(tl.load(a) > 0, b, c), 1.0)


@case("b", "")
def branch_known_at_compile_time(a, b, c, n, FLAG: tl.constexpr = False):
    if FLAG:
        tl.store(a, 1.0)
    else:
        tl.store(b, 1.0)


@case("b c", "a")
def tuple_of_pointers(a, b, c, n):
    outputs = (b, c)
    for k in tl.static_range(2):
        tl.store(outputs[k], tl.load(a))


@case("b", "c")
def aliases(a, b, c, n):
    x = (b + 4).to(tl.pointer_type(tl.int32), bitcast=True)
    y = x - 4
    tl.store(y, tl.load(c).to(tl.int32))


@case("b", "")
def address_as_an_integer(a, b, c, n):
    tl.store((b.to(tl.int64) + 16).to(tl.pointer_type(tl.float32)), 1.0)


@case("c", "a")
def pure_assembly(a, b, c, n):
    o = tl.arange(0, 16)
    x = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [tl.load(a + o)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(c + o, x)


@case("c", "a")
def assembly_with_effects_on_values(a, b, c, n):
    o = tl.arange(0, 16)
    x = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [tl.load(a + o)], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(c + o, x)


@case("b c", "a b")
def assembly_that_is_given_an_address(a, b, c, n):
    o = tl.arange(0, 16)
    x = tl.inline_asm_elementwise(
        "st.global.b32 [$1], $2;",
        "=r,l,r",
        [(b + o).to(tl.int64), tl.load(a + o)],
        dtype=tl.float32,
        is_pure=False,
        pack=1,
    )
    tl.store(c + o, x)


@case("c", "a b")
def pure_assembly_that_is_given_an_address(a, b, c, n):
    x = tl.inline_asm_elementwise(
        "ld.global.nc.b32 $0, [$1];",
        "=r,l",
        [b.to(tl.int64)],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    tl.store(c, x + tl.load(a))


@case("b", "")
def address_that_is_put_in_memory(a, b, c, n):
    tl.store(b.to(tl.pointer_type(tl.int64), bitcast=True), a.to(tl.int64))


@case("a b", "b")
def address_that_is_put_in_memory_and_followed(a, b, c, n):
    table = b.to(tl.pointer_type(tl.int64), bitcast=True)
    tl.store(table, a.to(tl.int64))
    tl.store(tl.load(table).to(tl.pointer_type(tl.float32)), 1.0)


@triton.jit(noinline=True)
def further(pointer, steps):
    return pointer + steps


@case("b", "a")
def pointer_that_a_call_returns(a, b, c, n):
    tl.store(further(b, n), tl.load(a))


@case("c", "a")
def addresses_that_are_only_compared(a, b, c, n):
    later = a.to(tl.int64) > b.to(tl.int64)
    tl.store(c + tl.where(later, 1, 0), tl.load(a))


@case("c", "a b")
def extent_of_a_descriptor_as_an_offset(a, b, c, n):
    x = tl.make_tensor_descriptor(a, [n, 16], [16, 1], [4, 16])
    tl.store(c + x.shape[0] * x.strides[0], tl.sum(x.load([0, 0])) + tl.load(b))


@triton.jit
def larger(p, q):
    return tl.maximum(p, q)


@case("c", "a")
def reductions_and_scans(a, b, c, n):
    x = tl.load(a + tl.arange(0, 16))
    tl.store(
        c + tl.arange(0, 16),
        tl.associative_scan(x, 0, larger) + tl.reduce(x, 0, larger) + tl.sum(x),
    )


@case("c", "b")
def argument_that_is_none(a, b, c, n, d=None):
    if d is not None:
        tl.store(a, 1.0)
    tl.store(c, tl.load(b))


@pytest.mark.parametrize(("kernel", "stored", "read", "more"), CASES)
def test_stored_arguments(kernel, stored, read, more, warned):
    given = {"a": torch.zeros(64), "b": torch.zeros(64), "c": torch.zeros(64), "n": 4, **more}
    given.update({parameter.name: parameter.default for parameter in kernel.params[4:]})
    found = identify_accessed_tensors(kernel, given, {}).read_writes
    assert not warned()
    assert {dependence.name for dependence in found.writes} == stored
    assert {dependence.name for dependence in found.reads} == read


def test_there_are_enough_kernels():
    assert len(CASES) >= 30


def descriptors_of_the_host(before, x, between, y, out):
    tl.store(out + x.shape[0] * x.strides[0], 1.0)
    y.store([0, 0], x.load([0, 0]))


def test_descriptors_of_the_host_are_followed_by_strides_and_extents(warned, monkeypatch):
    from torch._higher_order_ops.triton_kernel_wrap import create_tma_stable_metadata

    monkeypatch.setattr(
        "torch.utils._triton.has_triton_tensor_descriptor_host_tma", lambda: True
    )  # as where there is a GPU that has them
    tensors = {name: torch.zeros(8, 16) for name in ("x", "y", "out")}
    described = {name: create_tma_stable_metadata([4, 16]) for name in ("x", "y")}
    found = identify_accessed_tensors(
        triton.jit(descriptors_of_the_host), {**tensors, "before": 3, "between": 1}, described
    ).read_writes
    assert not warned()
    assert {dependence.name for dependence in found.writes} == {"y", "out"}
    assert {dependence.name for dependence in found.reads} == {"x"}


def test_results_that_are_written_once_can_be_fused_with_what_follows():
    def fusible(name):
        kernel = next(case.values[0] for case in CASES if case.id == name)
        return identify_accessed_tensors(
            kernel, {"a": torch.zeros(64), "b": torch.zeros(64), "c": torch.zeros(64), "n": 4}, {}
        ).can_fuse_epilogue

    assert fusible("pointwise")
    assert (
        not fusible("in_place")
        and not fusible("two_results")
        and not fusible("pointer_that_where_chooses")
    )


def test_what_is_walked():
    from triton._C.libtriton import ir

    source = triton.compiler.ASTSource(
        triton.jit(pointwise), {"a": "*fp32", "b": "*fp32", "c": "*fp32", "n": "i32"}
    )
    target = triton.runtime.driver.active.get_current_target()
    backend = triton.compiler.make_backend(target)
    module = source.make_ir(
        target,
        backend.parse_options({}),
        backend.get_codegen_implementation({}),
        backend.get_module_map(),
        ir.context(),
    )
    lines = [
        "builtin.module",
        "  tt.func @pointwise(%0, %1, %2, %3)",
        "    tt.load %0",
        "    tt.load %1",
        "    tt.store %2",
        "    tt.return",
    ]
    assert str(module).splitlines() == lines and module.verify()
    seen = []
    module.walk(lambda operation: seen.append(operation.get_name()))
    assert seen == ["tt.load", "tt.load", "tt.store", "tt.return", "tt.func", "builtin.module"]
    assert "store" in str(module.tile_ir)
    with pytest.raises(AttributeError, match="a part of MLIR"):
        ir.builder
