"""Counter-based random numbers: Philox-4x32.

J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.

A generator is a function of a seed and an offset, so that every element of a tensor has numbers of
its own, in any order of evaluation.
"""

# These functions are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from tilewright.language import core, math
from tilewright.language.definitions.callable import constexpr_function, device_function

N_ROUNDS_DEFAULT = core.constexpr(10)

# Multipliers and key increments of the paper: (32-bit words, 64-bit words).
_MULTIPLIER_A = (0xD2511F53, 0xD2E7470EE14C6C93)
_MULTIPLIER_B = (0xCD9E8D57, 0xCA5A826395121157)
_KEY_A = (0x9E3779B9, 0x9E3779B97F4A7C15)
_KEY_B = (0xBB67AE85, 0xBB67AE8584CAA73B)


@constexpr_function
def _philox_constants(dtype: Any) -> Any:
    """The constants of the words' width.

    Raises:
        TypeError: words are neither uint32 nor uint64.
    """
    if dtype not in (core.uint32, core.uint64):
        raise TypeError(f"philox works on uint32 or uint64 counters, not {dtype}")
    wide = int(dtype == core.uint64)
    return _MULTIPLIER_A[wide], _MULTIPLIER_B[wide], _KEY_A[wide], _KEY_B[wide]


@device_function
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Run the rounds of the Philox-4x generator on a counter of four 32-bit or 64-bit words.

    Args:
        c0: the first word of the counter; the types of all four words are uint32 or uint64.
        c1: the second word of the counter.
        c2: the third word of the counter.
        c3: the fourth word of the counter.
        k0: the key's first word, of the same type.
        k1: the key's second word.
        n_rounds: the number of rounds, a constexpr.

    Returns:
        A tuple of four random integers, of the type of the counter's words.

    Raises:
        TypeError: the words do not all have the type uint32, or all uint64.

    Example:
        zero = tl.zeros((BLOCK,), tl.uint32)
        words = tl.random.philox_impl(offsets.to(tl.uint32), zero, zero, zero, zero, zero)
    """
    constants: core.constexpr = _philox_constants(c0.dtype)
    a = core.full((), constants[0], c0.dtype)
    b = core.full((), constants[1], c0.dtype)
    for _ in core.static_range(n_rounds):
        low0, low2 = (
            core.mul(a, c0, sanitize_overflow=False),
            core.mul(b, c2, sanitize_overflow=False),
        )
        high0, high2 = math.umulhi(a, c0), math.umulhi(b, c2)
        c0, c2 = high2 ^ c1 ^ k0, high0 ^ c3 ^ k1
        c1, c3 = low2, low0
        k0 = core.add(k0, constants[2], sanitize_overflow=False)
        k1 = core.add(k1, constants[3], sanitize_overflow=False)
    return c0, c1, c2, c3


@device_function
def philox(seed, c0, c1, c2, c3, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Generate four random integers for each counter by Philox-4x (Salmon et al., SC 2011).

    Args:
        seed: an integer scalar, whose 64 bits are the key.
        c0: the first word of the counter; all four words are integers of the same width, 32 or 64
            bits.
        c1: the second word of the counter.
        c2: the third word of the counter.
        c3: the fourth word of the counter.
        n_rounds: the number of rounds, a constexpr.

    Returns:
        A tuple of four tensors. Their type is uint32 if the counters have 32 bits, and uint64 if
        the counters have 64 bits.

    Raises:
        CompileTimeAssertionFailure: the seed is not an integer, or ``c0`` has another width.
        ValueError: the words of the counter have different widths.

    Example:
        zero = offsets * 0
        words = tl.philox(7, offsets, zero, zero, zero)
    """
    seed = core.to_tensor(seed)
    core.static_assert(seed.dtype.is_int(), "the seed of philox is an integer")
    seed = seed.to(core.uint64)
    c0, c1, c2, c3 = core.to_tensor(c0), core.to_tensor(c1), core.to_tensor(c2), core.to_tensor(c3)
    if c0.dtype.primitive_bitwidth == 32:
        words: core.constexpr = core.uint32
        key_low = (seed & 0xFFFFFFFF).to(core.uint32)
        key_high = (seed >> 32).to(core.uint32)
    else:
        core.static_assert(
            c0.dtype.primitive_bitwidth == 64, "philox works on 32 or 64-bit counters"
        )
        words: core.constexpr = core.uint64
        key_low = seed
        key_high = core.full((), 0, core.uint64)
    return philox_impl(
        c0.to(words, bitcast=True),
        c1.to(words, bitcast=True),
        c2.to(words, bitcast=True),
        c3.to(words, bitcast=True),
        key_low,
        key_high,
        n_rounds,
    )


@device_function
def randint4x(seed, offset, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Generate four random integers for each offset, faster than four calls of :func:`randint`.

    Args:
        seed: an integer scalar, whose 64 bits are the key.
        offset: integers; equal offsets yield equal numbers. All bits of 64-bit offsets count.
        n_rounds: the number of rounds of Philox, a constexpr.

    Returns:
        A tuple of four ``uint32`` tensors of the shape of ``offset``.

    Example:
        a, b, c, d = tl.randint4x(7, offsets)
    """
    offset = core.to_tensor(offset)
    low = offset.to(core.uint32)
    if offset.dtype.primitive_bitwidth > 32:
        high = (offset.to(core.uint64) >> 32).to(core.uint32)
    else:
        high = core.full(offset.shape, 0, core.uint32)
    zero = core.full(offset.shape, 0, core.uint32)
    return philox(seed, low, high, zero, zero, n_rounds)


@device_function
def randint(seed, offset, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Generate random integers, one for each offset.

    Args:
        seed: an integer scalar, whose 64 bits are the key.
        offset: integers; equal offsets yield equal numbers.
        n_rounds: the number of rounds of Philox, a constexpr.

    Returns:
        A ``uint32`` tensor of the shape of ``offset``.

    Example:
        numbers = tl.randint(7, offsets)
    """
    first, _second, _third, _fourth = randint4x(seed, offset, n_rounds)
    return first


@device_function
def uint_to_uniform_float(x):
    """Convert random bits to numbers that are uniformly distributed in ``[0, 1)``.

    Args:
        x: uint32, int32, uint64 or int64.

    Returns:
        An fp32 tensor of the shape of ``x``.

    Raises:
        CompileTimeAssertionFailure: an argument has another type.

    Example:
        uniform = tl.uint_to_uniform_float(tl.randint(7, offsets))
    """
    if x.dtype.primitive_bitwidth == 32:
        bits = x.to(core.int32, bitcast=True)
        scale: core.constexpr = 4.6566127342e-10
    else:
        core.static_assert(
            x.dtype.primitive_bitwidth == 64, "uint_to_uniform_float takes 32 or 64-bit integers"
        )
        bits = x.to(core.int64, bitcast=True)
        scale: core.constexpr = 1.0842020432385337e-19
    # One's complement folds the negative half onto the other without overflow. The scale is just
    # below 2**-31 (2**-63), so that the largest value rounds to less than 1.
    magnitude = core.where(bits < 0, ~bits, bits)
    return magnitude * scale


@device_function
def rand(seed, offset, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Generate random numbers that are uniformly distributed in ``[0, 1)``.

    Args:
        seed: an integer scalar, whose 64 bits are the key.
        offset: integers; equal offsets yield equal numbers.
        n_rounds: the number of rounds of Philox, a constexpr.

    Returns:
        An fp32 tensor of the shape of ``offset``.

    Example:
        keep = tl.rand(7, offsets) > 0.1
    """
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@device_function
def rand4x(seed, offsets, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Generate, for each offset, four random numbers uniformly distributed in ``[0, 1)``.

    Args:
        seed: an integer scalar, whose 64 bits are the key.
        offsets: integers; equal offsets yield equal numbers.
        n_rounds: the number of rounds of Philox, a constexpr.

    Returns:
        A tuple of four fp32 tensors of the shape of ``offsets``.

    Example:
        a, b, c, d = tl.rand4x(7, offsets)
    """
    i1, i2, i3, i4 = randint4x(seed, offsets, n_rounds)
    return (
        uint_to_uniform_float(i1),
        uint_to_uniform_float(i2),
        uint_to_uniform_float(i3),
        uint_to_uniform_float(i4),
    )


@device_function
def pair_uniform_to_normal(u1, u2):
    """Convert two uniformly distributed numbers to two independent normally distributed numbers.

    Args:
        u1: an fp32 tensor, uniform in ``[0, 1)``.
        u2: another fp32 tensor, uniform in ``[0, 1)``.

    Returns:
        A tuple of two fp32 tensors.

    Example:
        first, second = tl.pair_uniform_to_normal(tl.rand(7, offsets), tl.rand(8, offsets))
    """
    u1 = core.maximum(1.0e-7, u1)
    angle = 6.283185307179586 * u2
    radius = math.sqrt(-2.0 * math.log(u1))
    return radius * math.cos(angle), radius * math.sin(angle)


@device_function
def randn(seed, offset, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Generate random numbers of the standard normal distribution.

    Args:
        seed: an integer scalar, whose 64 bits are the key.
        offset: integers; equal offsets yield equal numbers.
        n_rounds: the number of rounds of Philox, a constexpr.

    Returns:
        An fp32 tensor of the shape of ``offset``.

    Example:
        noise = tl.randn(7, offsets)
    """
    i1, i2, _i3, _i4 = randint4x(seed, offset, n_rounds)
    first, _second = pair_uniform_to_normal(uint_to_uniform_float(i1), uint_to_uniform_float(i2))
    return first


@device_function
def randn4x(seed, offset, n_rounds: core.constexpr = N_ROUNDS_DEFAULT):
    """Generate, for each offset, four random numbers of the standard normal distribution.

    Args:
        seed: an integer scalar, whose 64 bits are the key.
        offset: integers; equal offsets yield equal numbers.
        n_rounds: the number of rounds of Philox, a constexpr.

    Returns:
        A tuple of four fp32 tensors of the shape of ``offset``.

    Example:
        a, b, c, d = tl.randn4x(7, offsets)
    """
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    n1, n2 = pair_uniform_to_normal(u1, u2)
    n3, n4 = pair_uniform_to_normal(u3, u4)
    return n1, n2, n3, n4
