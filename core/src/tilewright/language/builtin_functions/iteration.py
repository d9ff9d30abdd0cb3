"""Ranges of a kernel's loops, which the compiler recognizes; nothing here runs."""

from __future__ import annotations

from typing import Any

from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr


class range:  # noqa: N801
    """Iterate like Python's ``range``, and pass hints about the loop to the compiler.

    The hints never change the loop's results.

    Args:
        arg1: the start, or the end if it is the only argument: a scalar of any integer type.
        arg2: the end.
        step: the step, by default 1. A negative step must be a constexpr. A step that is only known
            at run time must be positive: otherwise, CPUs and debug mode stop the kernel, and GPUs
            skip the loop. The induction variable has the promoted type of all three.
        num_stages: the depth of the software pipeline. It also applies to loops without matmuls, on
            GPUs that copy to shared memory asynchronously.
        loop_unroll_factor: the number of iterations to unroll; 1 forbids unrolling.
        disallow_acc_multi_buffer: whether to keep only one buffer for the accumulator of a ``dot``.
        flatten: whether to merge this loop with the loops inside it into a single loop.
        warp_specialize: whether to use separate warps for copies and for matmuls.
        disable_licm: whether the compiler must not hoist loop-invariant code out of the loop.

    Raises:
        RuntimeError: it is used outside of a kernel.

    Example:
        total = 0
        for i in tl.range(0, n, BLOCK, num_stages=3):
            total += i
    """

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = False,
        disable_licm: Any = False,
    ) -> None:
        self.start, self.end, self.step = bounds(arg1, arg2, step)
        self.num_stages: int | None = unwrap_if_constexpr(num_stages)
        self.loop_unroll_factor: int | None = unwrap_if_constexpr(loop_unroll_factor)
        self.disallow_acc_multi_buffer = bool(unwrap_if_constexpr(disallow_acc_multi_buffer))
        self.flatten = bool(unwrap_if_constexpr(flatten))
        self.warp_specialize = bool(unwrap_if_constexpr(warp_specialize))
        self.disable_licm = bool(unwrap_if_constexpr(disable_licm))

    def __iter__(self) -> Any:
        raise RuntimeError(
            "tl.range can be iterated only inside a kernel. Did you forget to add @jit?"
        )

    def __next__(self) -> Any:
        raise RuntimeError(
            "tl.range can be iterated only inside a kernel. Did you forget to add @jit?"
        )


class static_range:  # noqa: N801
    """Unroll a loop at compile time; the loop variable is a constexpr in every copy of the body.

    Args:
        arg1: the start, or the end if it is the only argument: a constexpr integer.
        arg2: the end.
        step: the step, by default 1.

    Raises:
        CompilationError: a bound is not a constexpr integer.
        RuntimeError: it is used outside of a kernel.

    Example:
        power = x
        for i in tl.static_range(3):
            power = power * x
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        for bound in (arg1, arg2, step):
            if bound is not None and not isinstance(unwrap_if_constexpr(bound), int):
                raise TypeError(f"static_range takes constexpr integers, not {bound!r}")
        self.start, self.end, self.step = (constexpr(bound) for bound in bounds(arg1, arg2, step))

    def __iter__(self) -> Any:
        raise RuntimeError(
            "static_range can be iterated only inside a kernel. Did you forget to add @jit?"
        )

    def __next__(self) -> Any:
        raise RuntimeError(
            "static_range can be iterated only inside a kernel. Did you forget to add @jit?"
        )


class condition:  # noqa: N801
    """Return the condition of a ``while`` loop, and pass hints about the loop to the compiler.

    Args:
        arg1: the condition, a scalar.
        disable_licm: whether the compiler must not hoist loop-invariant code out of the loop.

    Example:
        steps = n
        while tl.condition(steps > 1, disable_licm=True):
            steps = steps // 2
    """

    def __init__(self, arg1: Any, disable_licm: Any = False) -> None:
        self.condition = arg1
        self.disable_licm = bool(unwrap_if_constexpr(disable_licm))


def bounds(arg1: Any, arg2: Any, step: Any) -> tuple[Any, Any, Any]:
    """(start, end, step) of the arguments of a range, absent ones filled in."""
    if step is None or unwrap_if_constexpr(step) is None:
        step = constexpr(1)
    if arg2 is None or unwrap_if_constexpr(arg2) is None:
        return constexpr(0), arg1, step
    return arg1, arg2, step
