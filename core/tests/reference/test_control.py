"""Branches and loops over programs that go different ways."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import KernelError, LaunchError
from tilewright.ir import Builder, Function, Region
from tilewright.ir.types import F32, I1, I8, I32, I64, U8, U64, PointerType, TileType
from tilewright.reference import interpreter

P32 = PointerType(I32)
GRIDS = [(1, 1, 1), (7, 1, 1), (3, 5, 2), (1, 4, 1), (64, 1, 3)]


def linear_id(b):
    """x + gx * (y + gy * z) as i32."""
    x, y, z = (b.program_id(axis=axis) for axis in range(3))
    gx, gy = (b.num_programs(axis=axis) for axis in range(2))
    return b.add(x, b.mul(gx, b.add(y, b.mul(gy, z))))


def const(b, value, type_=I32):
    return b.constant(value=value, result=type_)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_ids(grid, kernels):
    total = np.prod(grid)
    out = np.full((total, 3), -1, np.int32)

    def body(b, target):
        here = b.addptr(target, b.mul(linear_id(b), const(b, 3)))
        for axis in range(3):
            b.store(b.addptr(here, const(b, axis)), b.program_id(axis=axis))

    kernels.run(kernels.make([P32], body), [out], grid)
    index = np.arange(total)
    assert np.array_equal(
        out,
        np.stack([index % grid[0], index // grid[0] % grid[1], index // (grid[0] * grid[1])], -1),
    )


@pytest.mark.parametrize("grid", [(0, 1, 1), (3, 0, 2), (0, 0, 0)], ids=str)
def test_empty_grids_do_nothing(grid, kernels):
    out = np.full(1, 5, np.int32)
    kernels.run(kernels.make([P32], lambda b, p: b.store(p, const(b, 1))), [out], grid)
    assert out[0] == 5


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_divergent_if_merges_scalars_and_tiles(grid, kernels, rng):
    total = int(np.prod(grid))
    data = rng.integers(-50, 50, (total, 4)).astype(np.int32)
    tiles, scalars = np.zeros((total, 4), np.int32), np.zeros(total, np.int32)
    tile = TileType((4,), I32)

    def body(b, source, tile_out, scalar_out):
        pid = linear_id(b)
        offset = b.mul(pid, const(b, 4))
        x = b.load(kernels.addresses(b, b.addptr(source, offset), (4,)))
        odd = b.cmp(b.rem(pid, const(b, 3)), const(b, 0), predicate="ne")
        then, other = Region(), Region()
        with b.at_region(then):
            twice = b.add(x, x)
            b.yield_([twice, pid])
        with b.at_region(other):
            # A store inside, and a value that is the same for all programs.
            b.store(kernels.addresses(b, b.addptr(tile_out, offset), (4,)), x)
            b.yield_([b.constant_like(tile, 9), const(b, -1)])
        merged = b.region_op("if", odd, regions=[then, other], results=[tile, I32])
        b.store(b.addptr(scalar_out, pid), merged.results[1])
        with_pid = b.add(merged.results[0], b.splat(merged.results[1], result=tile))
        only_odd = b.splat(odd, result=TileType((4,), I1))
        b.store(kernels.addresses(b, b.addptr(tile_out, offset), (4,)), with_pid, only_odd)

    kernels.run(kernels.make([P32] * 3, body), [data, tiles, scalars], grid)
    for pid in range(total):
        odd = pid % 3 != 0
        assert scalars[pid] == (pid if odd else -1)
        assert np.array_equal(tiles[pid], 2 * data[pid] + pid if odd else data[pid])


@pytest.mark.parametrize("type_", [I8, I32, I64, U8, U64], ids=str)
@pytest.mark.parametrize("step", [1, 3])
def test_loops_of_different_lengths(type_, step, kernels):
    """Program p runs from p to a bound that varies, and carries a sum and a tile."""
    programs = 23
    lows, highs = np.arange(programs), np.array([(7 * p) % 31 for p in range(programs)])
    sums, tiles = np.zeros(programs, np.int64), np.zeros((programs, 3), np.int32)
    dtype = interpreter.numpy_dtype(type_)

    def body(b, low, high, out, tile_out):
        pid = b.program_id(axis=0)
        start, stop = b.load(b.addptr(low, pid)), b.load(b.addptr(high, pid))
        tile = b.constant_like(TileType((3,), I32), 0)
        region = Region([type_, I64, tile.type])
        with b.at_region(region):
            i, total, counts = region.arguments
            b.yield_([b.add(total, b.cast(i, result=I64)), b.add(counts, b.arange(start=0, end=3))])
        loop = b.region_op(
            "for", start, stop, const(b, step, type_), [const(b, 0, I64), tile], regions=[region]
        )
        b.store(b.addptr(out, pid), loop.results[0])
        b.store(
            kernels.addresses(b, b.addptr(tile_out, b.mul(pid, const(b, 3))), (3,)), loop.results[1]
        )

    module = kernels.make([PointerType(type_)] * 2 + [PointerType(I64), P32], body)
    kernels.run(module, [lows.astype(dtype), highs.astype(dtype), sums, tiles], (programs, 1, 1))
    for p in range(programs):
        trips = range(int(lows[p]), int(highs[p]), step)
        assert sums[p] == sum(trips)
        assert tiles[p].tolist() == [0, len(trips), 2 * len(trips)]


def test_bounds_near_the_end_of_the_type(kernels):
    """Neither the count of iterations nor the induction variable may wrap around."""
    for type_, low, high, step in (
        (I8, 100, 127, 20),
        (U8, 200, 255, 50),
        (I64, 2**63 - 5, 2**63 - 1, 3),
        (U64, 2**64 - 5, 2**64 - 1, 3),
        (I8, -128, 127, 127),
    ):
        for varying in (False, True):
            out = np.zeros(2, np.int64)

            def body(b, target, low=low, high=high, step=step, type_=type_, varying=varying):
                pid = b.program_id(axis=0)
                start = const(b, low, type_)
                if varying:
                    start = b.add(start, b.cast(pid, result=type_))
                region = Region([type_, I64])
                with b.at_region(region):
                    b.yield_([b.add(region.arguments[1], const(b, 1, I64))])
                loop = b.region_op(
                    "for",
                    start,
                    const(b, high, type_),
                    const(b, step, type_),
                    [const(b, 0, I64)],
                    regions=[region],
                )
                b.store(b.addptr(target, pid), loop.result)

            kernels.run(kernels.make([PointerType(I64)], body), [out], (2, 1, 1))
            assert out.tolist() == [
                len(range(low, high, step)),
                len(range(low + varying, high, step)),
            ]


def test_a_step_that_is_not_positive_is_refused(kernels):
    def body(b, target):
        region = Region([I32])
        with b.at_region(region):
            b.yield_([])
        b.line(7)
        b.region_op("for", const(b, 0), const(b, 5), const(b, 0), [], regions=[region])

    with pytest.raises(
        KernelError, match=r"kernel.py:7:4 in kernel: the step of a loop must be positive, not 0"
    ):
        kernels.run(kernels.make([P32], body), [np.zeros(1, np.int32)], (1, 1, 1))


def collatz(start, limit):
    steps = 0
    while start != 1:
        start = 3 * start + 1 if start % 2 else start // 2
        steps += 1
        if steps == limit:
            break
    return start, steps


@pytest.mark.parametrize("programs", [1, 2, 57])
def test_divergent_while_with_a_break_flag_and_an_if_inside(programs, kernels):
    """Collatz with a limit: rows leave the loop at different times, by the condition or by the
    flag."""
    limit = 40
    values, steps = np.zeros(programs, np.int32), np.zeros(programs, np.int32)

    def body(b, value_out, steps_out):
        pid = b.program_id(axis=0)
        one = const(b, 1)
        before, after = Region([I32, I32, I1]), Region([I32, I32])
        with b.at_region(before):
            value, count, stop = before.arguments
            running = b.and_(b.cmp(value, one, predicate="ne"), b.xor(stop, const(b, True, I1)))
            b.condition(running, [value, count])
        with b.at_region(after):
            value, count = after.arguments
            odd = b.cmp(b.and_(value, one), one, predicate="eq")
            up, down = Region(), Region()
            with b.at_region(up):
                b.yield_([b.add(b.mul(value, const(b, 3)), one)])
            with b.at_region(down):
                b.yield_([b.div(value, const(b, 2))])
            following = b.region_op("if", odd, regions=[up, down], results=[I32])
            more = b.add(count, one)
            b.yield_([following.result, more, b.cmp(more, const(b, limit), predicate="eq")])
        loop = b.region_op(
            "while",
            [b.add(pid, one), const(b, 0), const(b, False, I1)],
            regions=[before, after],
            results=[I32, I32],
        )
        b.store(b.addptr(value_out, pid), loop.results[0])
        b.store(b.addptr(steps_out, pid), loop.results[1])

    kernels.run(kernels.make([P32, P32], body), [values, steps], (programs, 1, 1))
    assert list(zip(values.tolist(), steps.tolist(), strict=True)) == [
        collatz(p + 1, limit) for p in range(programs)
    ]


def test_nested_divergent_loops_read_outer_values(kernels):
    """For each i < pid, while j < i: a loop nest whose every bound differs among programs, reading
    values from three levels."""
    programs = 12
    out = np.zeros(programs, np.int32)

    def body(b, target):
        pid = b.program_id(axis=0)
        outer = Region([I32, I32])
        with b.at_region(outer):
            i, total = outer.arguments
            weight = b.add(i, pid)
            before, after = Region([I32, I32]), Region([I32, I32])
            with b.at_region(before):
                j, inner_total = before.arguments
                b.condition(b.cmp(j, i, predicate="lt"), [j, inner_total])
            with b.at_region(after):
                j, inner_total = after.arguments
                b.yield_([b.add(j, const(b, 1)), b.add(inner_total, b.mul(weight, b.add(j, pid)))])
            nest = b.region_op(
                "while", [const(b, 0), total], regions=[before, after], results=[I32, I32]
            )
            b.yield_([nest.results[1]])
        loop = b.region_op("for", const(b, 0), pid, const(b, 1), [const(b, 0)], regions=[outer])
        b.store(b.addptr(target, pid), loop.result)

    kernels.run(kernels.make([P32], body), [out], (programs, 1, 1))
    assert out.tolist() == [
        sum((i + p) * (j + p) for i in range(p) for j in range(i)) for p in range(programs)
    ]


def test_calls_run_the_callee_for_the_rows_at_hand(kernels):
    """A recursive factorial, called under a divergent branch."""
    programs = 9
    out = np.zeros(programs, np.int64)

    def body(b, target):
        pid = b.program_id(axis=0)
        even = b.cmp(b.rem(pid, const(b, 2)), const(b, 0), predicate="eq")
        then, other = Region(), Region()
        with b.at_region(then):
            b.yield_([b.call([b.cast(pid, result=I64)], callee="factorial", result=I64)])
        with b.at_region(other):
            b.yield_([const(b, -1, I64)])
        b.store(
            b.addptr(target, pid),
            b.region_op("if", even, regions=[then, other], results=[I64]).result,
        )

    module = interpreter.Module()
    kernel = module.add(Function("kernel", [PointerType(I64)], argument_names=["out"]))
    b = Builder.at_end(kernel.body)
    body(b, *kernel.arguments)
    b.return_()
    callee = module.add(Function("factorial", [I64], [I64], kernel=False))
    b = Builder.at_end(callee.body)
    (n,) = callee.arguments
    then, other = Region(), Region()
    with b.at_region(then):
        b.yield_([b.mul(n, b.call([b.sub(n, const(b, 1, I64))], callee="factorial", result=I64))])
    with b.at_region(other):
        b.yield_([const(b, 1, I64)])
    recursion = b.region_op(
        "if", b.cmp(n, const(b, 1, I64), predicate="gt"), regions=[then, other], results=[I64]
    )
    b.return_([recursion.result])
    kernels.run(module, [out], (programs, 1, 1))
    assert out.tolist() == [
        np.prod(np.arange(1, p + 1), dtype=np.int64) if p % 2 == 0 else -1 for p in range(programs)
    ]


def test_batches_give_what_one_batch_gives(kernels, rng, monkeypatch):
    programs, n = 50, 64
    x = rng.normal(size=(programs, n)).astype(np.float32)

    def body(b, source, target):
        offset = b.mul(b.program_id(axis=0), const(b, n))
        v = b.load(kernels.addresses(b, b.addptr(source, offset), (n,)))
        b.store(kernels.addresses(b, b.addptr(target, offset), (n,)), b.exp(v))

    module = kernels.make([PointerType(F32)] * 2, body)
    results = []
    for limit in (1, 4000, 1 << 25):
        monkeypatch.setattr(interpreter, "BATCH_BYTES", limit)
        results.append(np.zeros_like(x))
        kernels.run(module, [x, results[-1]], (programs, 1, 1))
    assert np.array_equal(results[0], results[2]) and np.array_equal(results[1], results[2])
    assert np.allclose(results[0], np.exp(x), rtol=1e-6)


def test_a_spinning_lock_is_taken_by_one_program_after_the_other(kernels):
    """acquire by cas; read, add and write without atomics; release by xchg: right only if programs
    run to their ends."""
    lock, counter = np.zeros(1, np.int32), np.zeros(1, np.int32)

    def body(b, lock_ptr, counter_ptr):
        before, after = Region([]), Region([])
        with b.at_region(before):
            old = b.atomic_cas(lock_ptr, const(b, 0), const(b, 1))
            b.condition(b.cmp(old, const(b, 0), predicate="ne"), [])
        with b.at_region(after):
            b.yield_([])
        b.region_op("while", [], regions=[before, after], results=[])
        b.store(counter_ptr, b.add(b.load(counter_ptr), const(b, 1)))
        b.atomic_rmw(lock_ptr, const(b, 0), kind="xchg")

    kernels.run(kernels.make([P32, P32], body), [lock, counter], (40, 1, 1))
    assert counter[0] == 40 and lock[0] == 0


def test_a_chain_through_plain_loads_runs_in_order(kernels):
    """Program p waits until program p - 1 has written, by loads of the argument that all of them
    write."""
    flags = np.zeros(21, np.int32)
    flags[0] = 1

    def body(b, flags_ptr):
        pid = b.program_id(axis=0)
        before, after = Region([]), Region([I32])
        with b.at_region(before):
            seen = b.load(b.addptr(flags_ptr, pid))
            b.condition(b.cmp(seen, const(b, 0), predicate="eq"), [seen])
        with b.at_region(after):
            b.yield_([])
        wait = b.region_op("while", [], regions=[before, after], results=[I32])
        b.store(b.addptr(b.addptr(flags_ptr, pid), const(b, 1)), b.add(wait.result, const(b, 1)))

    kernels.run(kernels.make([P32], body), [flags], (20, 1, 1))
    assert flags.tolist() == list(range(1, 22))


@pytest.mark.parametrize("spin", ["cas", "load"])
def test_waiting_for_a_later_program_is_an_error_not_a_hang(spin, kernels):
    def body(b, flag):
        before, after = Region([]), Region([])
        with b.at_region(before):
            b.line(11)
            old = (
                b.atomic_cas(flag, const(b, 2), const(b, 2))
                if spin == "cas"
                else b.load(flag, volatile=True)
            )
            b.condition(b.cmp(old, const(b, 1), predicate="ne"), [])
        with b.at_region(after):
            b.yield_([])
        b.region_op("while", [], regions=[before, after], results=[])
        b.store(flag, const(b, 1))

    with pytest.raises(KernelError, match=r"kernel.py:11:4 in kernel: this loop never ends"):
        kernels.run(kernels.make([P32], body), [np.zeros(1, np.int32)], (2, 1, 1))


def test_arguments_are_checked_against_the_kernel(kernels):
    module = kernels.make([P32, I32, F32], lambda b, p, i, f: None, names=["x", "n", "scale"])
    x = np.zeros(1, np.int32)
    with pytest.raises(LaunchError, match="takes 3 arguments, not 2"):
        kernels.run(module, [x, 1], (1, 1, 1))
    with pytest.raises(
        LaunchError, match="argument x of type ptr<i32>: a pointer argument must be an array"
    ):
        kernels.run(module, ["x", 1, 2.0], (1, 1, 1))
    with pytest.raises(LaunchError, match="argument n of type i32"):
        kernels.run(module, [x, "one", 2.0], (1, 1, 1))
    with pytest.raises(LaunchError, match="three extents"):
        kernels.run(module, [x, 1, 2.0], (1, -1, 1))


def test_scalar_arguments_arrive(kernels):
    out = np.zeros(1, np.int64), np.zeros(1, np.uint16), np.zeros(1, np.bool_)
    from tilewright.ir.types import BF16

    types = [PointerType(I64), PointerType(BF16), PointerType(I1), I64, BF16, I1]

    def body(b, p, q, r, i, f, flag):
        b.store(p, i)
        b.store(q, f)
        b.store(r, flag)

    kernels.run(kernels.make(types, body), [*out, 2**64 - 3, 1.5, True], (3, 1, 1))
    assert out[0][0] == -3 and out[1][0] == 0x3FC0 and out[2][0]
